"""What the system knows of processes and ports (Linux: /proc and pidfds), and how one is started and ended.

A pid alone names nobody: it is used again. A process is known by its pid **and** the clock tick of its start (field 22
of `/proc/PID/stat`), within one boot. It is signalled through a pidfd that was opened before its identity was read, so
no signal can reach a successor.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["Identity", "Listener", "end", "identity", "is_alive", "is_free", "listener", "listeners", "rss_mb", "spawn"]

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
    """Who runs under this pid now; None when nobody does, or only what is left of one who ended (a zombie)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold blanks and brackets
    return None if fields[0] in "ZX" else Identity(pid, f"{boot} {fields[19]}")


def is_alive(who: Identity) -> bool:
    _reap(who.pid)
    return identity(who.pid) == who


def end(who: Identity, *, patience_s: float) -> bool:
    """SIGTERM, and SIGKILL when it has not ended after `patience_s`. True when SIGTERM was enough or it was gone."""
    try:
        handle = os.pidfd_open(who.pid)
    except ProcessLookupError:
        return True
    try:
        if not is_alive(who):
            return True
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        gently = _wait(handle, patience_s)
        if not gently:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            _wait(handle, None)
        return gently
    except ProcessLookupError:
        return True
    finally:
        os.close(handle)
        _reap(who.pid)


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
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        words = ""
    return Listener(pid, words[:60])


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


def _wait(handle: int, patience_s: float | None) -> bool:
    """True once the process behind the pidfd has ended."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    deadline = None if patience_s is None else time.monotonic() + patience_s
    while True:
        left_ms = None if deadline is None else max(0, round((deadline - time.monotonic()) * 1_000))
        if poll.poll(left_ms):
            return True
        if left_ms == 0:
            return False


def _reap(pid: int) -> None:
    child = _CHILDREN.get(pid)
    if child is not None and child.poll() is not None:
        del _CHILDREN[pid]
