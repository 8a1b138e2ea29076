"""Ports that tests take for their servers."""

from __future__ import annotations

import socket
import subprocess
import sys

from tests.support.ports import POOL, free_port, reserved

OTHER = "from tests.support.ports import free_port; print(free_port(), flush=True); input()"


def test_two_processes_have_different_ports() -> None:
    """Two runs on one machine would end each other's servers, or read the other's pages for their own."""
    with subprocess.Popen(
        [sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = int(other.stdout.readline())
        mine = [free_port() for _ in range(20)]
        other.communicate("\n")
    assert theirs in POOL
    assert theirs not in mine
    assert len(set(mine)) == len(mine)


def test_a_port_that_somebody_listens_on_is_left_alone() -> None:
    """A person's own server may lie in the way; nobody holds a lock for it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert reserved(f"try-{port}", (1, 2), lambda choice: (port,) if choice == 1 else ()) == 2
