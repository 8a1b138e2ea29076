"""What a command and all the processes that it starts cost: CPU, peak memory, wall time."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.site import PROJECT

_PR_SET_CHILD_SUBREAPER = 36
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
LOOK_S = 0.1  # between two looks at the memory
RUN_S_MAX = 3_600


class Cost(NamedTuple):
    """Of one command, its children and theirs."""

    cpu_s: float  # user and system
    wall_s: float
    peak_bytes: int  # resident, of all processes together, by looks LOOK_S apart; 0 when nobody looked
    out: str


def measure(command: Sequence[str], *, memory: bool = False) -> Cost:
    """Run it to its end. RuntimeError with what it wrote when it fails.

    Orphans become ours (a subreaper's), so the CPU of every process that it started is in RUSAGE_CHILDREN at the end.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    before, began_s = _cpu_s(), time.monotonic()
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(  # with compiled modules kept from run to run, as both sides have it in real life
        command,
        cwd=PROJECT,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    peak, out = 0, ""
    while True:
        try:
            out, _ = process.communicate(timeout=LOOK_S if memory else RUN_S_MAX)
            break
        except subprocess.TimeoutExpired:
            peak = max(peak, resident_bytes(process.pid))
    wall_s = time.monotonic() - began_s
    _reap_orphans()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{out[-4_000:]}")
    return Cost(_cpu_s() - before, wall_s, peak, out)


def resident_bytes(session: int) -> int:
    """Resident memory of all processes of a session; pages that they share count once for each."""
    total = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                total += int(fields[21]) * _PAGE_BYTES
        except OSError:  # it ended while we looked
            continue
    return total


def load() -> str:
    """What else the machine does, so that a reader can judge the figures."""
    return "load " + " ".join(f"{average:.2f}" for average in os.getloadavg()) + f", {os.cpu_count()} CPUs"


def headrace(*words: str) -> list[str]:
    """The command line of the real program."""
    return [sys.executable, "-m", "streams.cli", *words]


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _reap_orphans() -> None:
    """Wait for what the command left behind, the site's server apart: only that one is older than the command."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
