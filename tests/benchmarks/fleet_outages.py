"""Broker and Cassandra away under load, each once stopped and once killed and started again: what the fleet does.

    python -m tests.benchmarks.fleet_outages [--away 30] [--hosts 48] [--pages 300]

Two real workers crawl a scripted web. After all of it the crawl runs to its end, and is compared with one that nothing
disturbs: rows, repeats, the judge of the fetcher's log, dead letters. The command fails when they differ.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time

from tests.benchmarks.fleet_runs import now_ms, say, services
from tests.support.fleet_crawl import Crawl
from tests.support.fleet_world import until
from tests.support.scripted_fetcher import repeats
from tests.support.services import Fleet

SERVICES = ("kafka", "cassandra")


def main() -> None:
    """Print what each outage cost; raise when the crawl is not as it should be."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--away", type=float, default=30.0)
    parser.add_argument("--hosts", type=int, default=48)
    parser.add_argument("--pages", type=int, default=300)
    with services(parser) as (arguments, fleet, folder):
        crawl = Crawl(
            fleet.up("kafka")["kafka"],
            folder / "world",
            rows=fleet.keyspace("outages"),
            hosts=arguments.hosts,
            pages=arguments.pages,
            delay_ms=500,
            session_s=10,
        )
        try:
            _run(crawl, fleet, arguments.away)
        finally:
            crawl.close()


def _run(crawl: Crawl, fleet: Fleet, away_s: float) -> None:
    workers = [crawl.world.worker(name) for name in ("a", "b")]
    until(lambda: all(worker.owns() for worker in workers), crawl.said(), 120)
    crawl.start()
    for name in SERVICES:
        for how in (_stopped, _killed):
            crawl.goes_on(1_000, within_s=300)
            began, before = time.monotonic(), len(crawl.fetcher.log)
            how(fleet, name, away_s)
            back, during = time.monotonic(), len(crawl.fetcher.log) - before
            _all_partitions_go_on(crawl)
            say(
                f"{name} {how.__name__[1:]}, away {back - began:.0f} s: {during} requests meanwhile; all partitions"
                f" grant again {time.monotonic() - back:.1f} s after its return; workers run:"
                f" {[worker.process.poll() is None for worker in workers]}"
            )
    crawl.check(within_s=600)
    leases, pages = repeats(crawl.fetcher.log)
    say(
        f"{len(crawl.reference()):,} URLs, each completed once, as in the reference; {leases} leases started twice,"
        f" {pages} asked again in their version, 0 breaches, 0 dead letters; {crawl.fetcher.dropped} leases came too"
        " late to be started"
    )


def _stopped(fleet: Fleet, name: str, away_s: float) -> None:
    """It stands still, and its connections stay."""
    with fleet.stopped(name):
        threading.Event().wait(away_s)


def _killed(fleet: Fleet, name: str, away_s: float) -> None:
    """kill -9, and started again after so long."""
    os.kill(fleet.status()[name].pid, signal.SIGKILL)
    threading.Event().wait(away_s)
    fleet.up(name)


def _all_partitions_go_on(crawl: Crawl) -> None:
    since_ms = now_ms()
    partitions = set(range(crawl.world.partitions))
    until(
        lambda: {one.partition for one in list(crawl.fetcher.arrived) if one.at_ms > since_ms} >= partitions,
        f"leases of all partitions\n{crawl.said()}",
        300,
    )


if __name__ == "__main__":
    main()
