"""What the measurements of a fleet's owners share: services of their own, what processes cost, gaps between grants."""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from infra.services.processes import rss_mb
from tests.benchmarks.measured import load
from tests.support.fleet_world import Worker
from tests.support.scripted_fetcher import Arrived
from tests.support.services import Fleet, port_offset

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def say(text: str) -> None:
    """One line, at once, with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


@contextlib.contextmanager
def services(parser: argparse.ArgumentParser) -> Iterator[tuple[argparse.Namespace, Fleet, Path]]:
    """(arguments, services that are started when asked for, a folder that is gone afterwards)."""
    parser.add_argument("--folder", default=None, help="where data lie meanwhile")
    arguments = parser.parse_args()
    os.environ["HEADRACE_PORTS"] = port_offset()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        fleet = Fleet(Path(name) / "services")
        try:
            say(
                f"{load()}; {' '.join(f'{key}={value}' for key, value in vars(arguments).items() if value is not None)}"
            )
            yield arguments, fleet, Path(name)
            say(load())
        finally:
            fleet.down()


def cpu_s(pid: int) -> float:
    """User and system time of a process so far, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


class Costs:
    """CPU of workers and services from now on."""

    def __init__(self, workers: Sequence[Worker], fleet: Fleet, names: Sequence[str]) -> None:
        status = fleet.status() if names else {}
        self._pids = {f"worker {worker.name}": worker.process.pid for worker in workers}
        self._pids |= {name: status[name].pid for name in names}
        self._began_s = time.monotonic()
        self._before = {name: cpu_s(pid) for name, pid in self._pids.items()}

    def said(self) -> str:
        """Cores that each used since then, and its memory now."""
        took_s = time.monotonic() - self._began_s
        return ", ".join(
            f"{name} {(cpu_s(pid) - self._before[name]) / took_s:.2f} cores {rss_mb(pid)} MB"
            for name, pid in self._pids.items()
        )


def longest_gap_s(arrived: Sequence[Arrived], from_ms: int, partitions: int) -> str:
    """Of each partition the longest time without a lease since then, in words."""
    gaps = []
    for partition in range(partitions):
        times = [one.at_ms for one in arrived if one.partition == partition and one.at_ms >= from_ms]
        gaps.append(max((later - before for before, later in zip([from_ms, *times], times, strict=False)), default=-1))
    return " ".join("none" if gap < 0 else f"{gap / 1_000:.1f}" for gap in gaps)


def percentiles(values: Sequence[float]) -> str:
    """p50, p90, p99, the largest, and how many."""
    cuts = statistics.quantiles(values, n=100)
    return (
        f"p50 {cuts[49]:.2f} s, p90 {cuts[89]:.2f} s, p99 {cuts[98]:.2f} s, max {max(values):.2f} s of {len(values):,}"
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000
