"""What the system knows of processes and ports (Linux: /proc and pidfds), and how one is started and ended.

A pid alone names nobody: it is used again. A process is known by its pid **and** the clock tick of its start (field 22
of `/proc/PID/stat`), within one boot. It is signalled through a pidfd that was opened before its identity was read, so
no signal can reach a successor.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from infra.services.errors import ServiceError

__all__ = ["Identity", "Listener", "end", "identity", "is_alive", "is_free", "listener", "listeners", "rss_mb", "spawn"]

LOOK_S = 0.05  # between two looks at a process that is to end
KILL_S = 60.0  # a process that waits for its disk ends when that answers

# We stay the parent of what we start until we exit; who is not waited for stays as a zombie. Popen objects are kept so
# that none is collected, with a warning, while its process runs.
_CHILDREN: dict[int, subprocess.Popen[bytes]] = {}


class Identity(NamedTuple):
    """One process for all time."""

    pid: int
    started: str  # boot id and start tick


class Listener(NamedTuple):
    """Who listens on a port. pid 0: it belongs to another user, or to another container."""

    pid: int
    command: str


def spawn(argv: Sequence[str], *, log: Path, cwd: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own: a Ctrl-C or a closed terminal does not reach it. Raises `OSError`."""
    with open(log, "ab") as output:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=dict(environ),
            start_new_session=True,
        )
    _CHILDREN[process.pid] = process
    return process


def identity(pid: int) -> Identity | None:
    """Who runs under this pid now; None when nobody does, or only what is left of one who ended (a zombie).

    A zombie with threads has not ended: until the last is gone, which takes a killed JVM a second, its ports are taken.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold blanks and brackets
    ended = fields[0] == "X" or (fields[0] == "Z" and int(fields[17]) <= 1)
    return None if ended else Identity(pid, f"{boot} {fields[19]}")


def is_alive(who: Identity) -> bool:
    _reap(who.pid)
    return identity(who.pid) == who


def end(who: Identity, *, patience_s: float) -> bool:
    """SIGTERM, and SIGKILL when it has not ended after `patience_s`. True when SIGTERM was enough or it was gone.

    Returns when it has ended, to its last thread. Raises `ServiceError` when even SIGKILL does not end it.
    """
    _signal(who, signal.SIGTERM)
    if _has_ended(who, patience_s):
        return True
    _signal(who, signal.SIGKILL)
    if not _has_ended(who, KILL_S):
        raise ServiceError(f"pid {who.pid} does not end {KILL_S:.0f} s after SIGKILL; its disk may hang: see dmesg")
    return False


def rss_mb(pid: int) -> int:
    """Resident memory in MB of 1,000,000 bytes; 0 when it is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1_024 // 1_000_000
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def is_free(host: str, port: int) -> bool:
    """True when a server could listen there now. Connections that are only fading away (TIME_WAIT) do not count."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def listener(port: int) -> Listener | None:
    """Who holds the port, None when nobody listens. Another user's process cannot be named: pid 0."""
    holders = [pid for _, held, pid in listeners() if held == port]
    if not holders:
        return None
    pid = max(holders)
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        words = ""
    return Listener(pid, " ".join(words.split())[:60])


def listeners() -> list[tuple[str, int, int]]:
    """Every TCP socket that listens: its address, its port, and the pid that holds it, 0 where that cannot be seen."""
    holders = _holders()
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError):  # no IPv6
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                address, _, port = fields[1].rpartition(":")
                if fields[3] == "0A":
                    found.append((_address(address), int(port, 16), holders.get(f"socket:[{fields[9]}]", 0)))
    return found


def _holders() -> dict[str, int]:
    """The pid that has each socket open, by `socket:[INODE]`, as far as we may look."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):  # it ended, or is not ours to look into
                for link in (folder / "fd").iterdir():
                    with contextlib.suppress(OSError):  # closed meanwhile
                        found[os.readlink(link)] = int(folder.name)
    return found


def _address(words: str) -> str:
    """An address as /proc/net/tcp has it: 32-bit words in the machine's order, in hexadecimal."""
    raw = b"".join(int(words[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(words), 8))
    address = ipaddress.ip_address(raw)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _signal(who: Identity, number: signal.Signals) -> None:
    try:
        handle = os.pidfd_open(who.pid)
    except ProcessLookupError:
        return
    try:
        if is_alive(who):  # and stays the one behind the handle, whoever gets its pid
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def _has_ended(who: Identity, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while is_alive(who):
        if time.monotonic() >= deadline:
            return False
        time.sleep(LOOK_S)
    return True


def _reap(pid: int) -> None:
    child = _CHILDREN.get(pid)
    if child is not None and child.poll() is not None:
        del _CHILDREN[pid]
