"""One fetcher at full pace: leases from Kafka, pages over HTTP, results to Kafka, bodies to S3.

    ./infra/headrace services up kafka s3
    python -m tests.benchmarks.fetch_pace --leases 20000

The topics are made anew. Leases go out as fast as they can be taken, of 40 hosts that are one server here, one request
a host at a time and no delay. `fetcher` is the process's CPU, its share of Kafka's client and S3 included, from the
first request to the last announcement; memory is its largest.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from infra.settings import load as settings
from tests.benchmarks.measured import load
from tests.support.fetch_world import FetcherProcess, FetchWorld
from tests.support.fleet_world import until

_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print leases a second, and a second of the fetcher's CPU."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--leases", type=int, default=20_000)
    parser.add_argument("--page-bytes", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=2_000, help="leases sent at once")
    arguments = parser.parse_args()
    fleet = settings().fleet
    folder = Path(tempfile.mkdtemp(prefix="fetch-pace-"))
    world = FetchWorld(fleet.kafka[0], fleet.s3_endpoint, folder, page_bytes=arguments.page_bytes)
    try:
        one = world.fetcher("A", seal_s=5)
        until(lambda: one.owned() >= 4, "the fetcher to have its partitions\n" + one.said())
        until(lambda: bool(world.lend(1) and world.site_lines()), "its first request")
        before, began_s = _cpu_s(one), time.monotonic()
        for _ in range(0, arguments.leases, arguments.batch):
            world.lend(arguments.batch, start_within_ms=600_000)
        stored = _Ends(world, "stored-results")
        until(lambda: len(world.site_lines()) >= arguments.leases, "all requests", 600)
        fetched_s = time.monotonic() - began_s
        until(stored.stand_still, "all announcements", 120)
        cpu_s = _cpu_s(one) - before
        leases = arguments.leases
        print(
            f"{leases:,} leases, pages of {arguments.page_bytes:,} bytes: {leases / fetched_s:,.0f}/s,"
            f" {leases / cpu_s:,.0f} a second of the fetcher's CPU ({cpu_s / leases * 1e3:.2f} ms each),"
            f" {_peak_mb(one)} MB at most; {len(world.stored()):,} bodies announced; {load()}"
        )
        one.terminate()
        began_s = time.monotonic()
        print(f"SIGTERM to its end: {one.ended()} after {time.monotonic() - began_s:.1f} s")
    finally:
        world.close()
        shutil.rmtree(folder, ignore_errors=True)


class _Ends:
    """Whether a topic has stopped to grow."""

    def __init__(self, world: FetchWorld, topic: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": world.fleet.kafka, "group.id": "fetch-pace"})
        self._places = [TopicPartition(topic, partition) for partition in range(world.fleet.partitions)]
        self._last: tuple[float, list[int]] = (time.monotonic(), [])

    def stand_still(self) -> bool:
        ends = [self._consumer.get_watermark_offsets(one)[1] for one in self._places]
        if ends != self._last[1]:
            self._last = time.monotonic(), ends
        return time.monotonic() - self._last[0] > 8


def _cpu_s(one: FetcherProcess) -> float:
    fields = Path(f"/proc/{one.process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _peak_mb(one: FetcherProcess) -> int:
    status = Path(f"/proc/{one.process.pid}/status").read_text("utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) // 1_000


if __name__ == "__main__":
    main()
