"""Ports for servers of tests: taken under a lock, so that no two test runs of this machine ever have the same.

A port that was looked at and found free may be another's a moment later. So each is held by a lock on a file of its own
until the process ends, however it ends; and it lies below those that the system gives to outgoing connections
(net.ipv4.ip_local_port_range, from 32,768 on as a rule), so that only a server on that very port could be in the way:
that is looked at.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from infra.services.catalog import HOST
from infra.services.processes import is_free

POOL = range(23_000, 27_900)
"""Beside those of the services at any offset (infra/services/catalog.py: below 22,500 and above 28,000)."""

_held: list[int] = []  # descriptors: open, and so locked, until the process ends
T = TypeVar("T")


def free_port() -> int:
    """A port on which nobody listens, this process's to the end."""
    return reserved("port", POOL, lambda port: (port,))


def reserved(kind: str, choices: Iterable[T], ports_of: Callable[[T], Iterable[int]]) -> T:
    """The first of the choices whose ports are all free and that no other process holds; it is held from now on."""
    folder = Path(tempfile.gettempdir()) / f"headrace-tests-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for choice in choices:
        held = os.open(folder / f"{kind}-{choice}", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            continue
        if all(is_free(HOST, port) for port in ports_of(choice)):
            _held.append(held)
            return choice
        os.close(held)
    raise AssertionError(f"no {kind} is left among {choices}: other test runs have them, or servers listen there")
