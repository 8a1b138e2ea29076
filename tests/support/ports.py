"""A port of this machine that nobody listens on."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Of 127.0.0.1. The system does not give it out again at once."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])
