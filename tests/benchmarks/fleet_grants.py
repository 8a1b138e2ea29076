"""Grants and their completions through Kafka: one owner's worker, and a fetcher that answers at once.

    python -m tests.benchmarks.fleet_grants --hosts 1M --hot-host 1M --seconds 60 [--rows none|cassandra]

The hosts, their URLs and robots.txt are known from the start (`prepared_hosts`); `--stores DIR` keeps what was made for
the next run. Politeness is the default's, a second a host, unless `--delay` says otherwise: with a million hosts it is
no limit. With few hosts it is, and then the eligibility lag shows what the owner adds to it; in a run at the limit the
lag is the queue's. A pair is a page's lease, its result and its stored result, each durable. Bodies are not parsed: no
word of the parse stage comes back, and its backlog has no limit here.

Figures are the difference between the worker's own pages and processes' clocks over the seconds measured, which begin
after `--warm` seconds.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

from infra.services.processes import rss_mb
from tests.benchmarks.fleet_runs import cpu_s, say, services
from tests.benchmarks.measured import load
from tests.benchmarks.prepared_hosts import Prepared, prepare, publish
from tests.support.fleet_world import ROOT, FleetWorld, Worker, until
from tests.support.services import Fleet

LAG = "headrace_eligibility_lag_seconds"
PRIORITIES = ("high", "normal", "low")


def number(text: str) -> int:
    """1M, 20k, 300."""
    unit = {"k": 1_000, "M": 1_000_000}.get(text[-1:], 1)
    return int(float(text.rstrip("kM")) * unit)


def main() -> None:
    """Print a line for each thing that is known."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=number, default=1_000_000)
    parser.add_argument("--hot-host", type=number, default=1_000_000, help="URLs of it; 0: none is hot")
    parser.add_argument("--urls", type=int, default=2, help="of each other host, in the mean")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--warm", type=float, default=10.0)
    parser.add_argument("--rows", choices=("none", "cassandra"), default="none")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--delay", type=int, default=1_000, help="of a host, ms")
    parser.add_argument("--leases", type=number, default=10_000, help="in flight of one partition at most")
    parser.add_argument("--group-ms", type=int, default=50)
    parser.add_argument("--stores", type=Path, default=None, help="folder in which prepared partitions are kept")
    with services(parser) as (arguments, fleet, folder):
        wanted = Prepared(arguments.hosts, arguments.urls, arguments.hot_host, arguments.partitions, arguments.delay)
        stores = _stores(arguments.stores or folder, wanted)
        kafka = fleet.up("kafka")["kafka"]
        world = FleetWorld(
            kafka,
            folder / "world",
            partitions=arguments.partitions,
            rows=fleet.keyspace("grants") if arguments.rows == "cassandra" else None,
            keeps_rows=False,
            delay_ms=arguments.delay,
            leases_max=arguments.leases,
            tasks_max=1_000_000,
            session_s=10,
            standbys=0,
            group_ms=arguments.group_ms,
        )
        try:
            _run(arguments, fleet, world, stores)
        finally:
            world.close()


def _stores(folder: Path, wanted: Prepared) -> Path:
    name = "-".join(str(number) for number in (wanted.hosts, wanted.urls_of_host, wanted.hot_urls, wanted.partitions))
    stores = folder / f"prepared-{name}"
    if not stores.exists():
        shutil.rmtree(folder / "making", ignore_errors=True)
        prepare(folder / "making", wanted, say)
        (folder / "making").rename(stores)
    return stores


def _run(arguments: argparse.Namespace, fleet: Fleet, world: FleetWorld, stores: Path) -> None:
    data = world.folder / "a"
    shutil.copytree(stores, data)
    say(f"{publish(world.kafka, data, world.partitions):,} states in the changelog")
    worker = world.worker("a")
    command = [sys.executable, "-m", "tests.benchmarks.quick_fetcher", world.kafka, str(world.partitions)]
    until(lambda: worker.gauge("headrace_partitions_owned") == world.partitions, worker.said(), 300)
    fetcher = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        status = fleet.status()
        pids = {"worker": worker.process.pid, "fetcher": fetcher.pid, "broker": status["kafka"].pid}
        if arguments.rows == "cassandra":
            pids["cassandra"] = status["cassandra"].pid
        _pause(arguments.warm)
        before = _Look(worker, pids)
        halves = [before]
        while time.monotonic() < before.at_s + arguments.seconds:
            _pause(min(10.0, max(0.0, before.at_s + arguments.seconds - time.monotonic())))
            halves.append(_Look(worker, pids))
            say(f"{halves[-1].pairs_since(halves[-2]):,.0f} pairs/s, {load()}")
        _tell(before, halves[-1], pids)
    finally:
        fetcher.terminate()
        fetcher.wait()


class _Look:
    """The worker's counters and the processes' CPU at one moment."""

    def __init__(self, worker: Worker, pids: dict[str, int]) -> None:
        self.at_s = time.monotonic()
        self.cpu_s = {name: cpu_s(pid) for name, pid in pids.items()}
        self.leases = worker.gauge("headrace_leases_total")
        self.done = self.leases - worker.gauge("headrace_leases_in_flight")
        self.lost = worker.gauge("headrace_leases_lost_total")
        self.lags = {
            priority: {
                bound: worker.gauge(f"{LAG}_bucket", f'priority="{priority}",le="{bound}"')
                for bound in ("0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0", "60.0", "+Inf")
            }
            for priority in PRIORITIES
        }

    def pairs_since(self, before: _Look) -> float:
        return (self.done - before.done) / (self.at_s - before.at_s)


def _tell(before: _Look, after: _Look, pids: dict[str, int]) -> None:
    took_s = after.at_s - before.at_s
    pairs = after.done - before.done
    say(f"{pairs / took_s:,.0f} pairs/s held {took_s:.0f} s: {pairs:,.0f} pairs, {after.lost:.0f} leases lost")
    for name, pid in pids.items():
        used = after.cpu_s[name] - before.cpu_s[name]
        say(f"    {name}: {used / took_s:.2f} cores, {used / pairs * 1e6:.0f} us a pair, {rss_mb(pid)} MB")
    for priority in PRIORITIES:
        counts = [(bound, after.lags[priority][bound] - before.lags[priority][bound]) for bound in after.lags[priority]]
        total = counts[-1][1]
        if total:
            p50, p99 = (next(bound for bound, below in counts if below >= share * total) for share in (0.5, 0.99))
            say(f"    eligibility lag, {priority}: p50 up to {p50} s, p99 up to {p99} s of {total:,.0f}")


def _pause(seconds: float) -> None:
    end_s = time.monotonic() + seconds
    until(lambda: time.monotonic() >= end_s, "the time to pass", seconds + 60)


if __name__ == "__main__":
    main()
