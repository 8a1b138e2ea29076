"""How the cost of an admit and of a pair (a grant and its completion) grows with the number of known URLs.

    python -m tests.benchmarks.frontier_growth [SIZE...] [--urls-per-host 10] [--dir DIR] [--json]

One folder is filled to each size in turn (default: 1, 10 and 50 million; 10 million take some minutes and 2 GB). At
each size new URLs of hosts all over are admitted and pairs made, in rounds of which the median counts. `process` has
the store's own threads in it, which work off what the filling left to them; `thread` is what deciding and writing
costs. Robots are left out, so that every grant is of a page. Wanted: from the first size to the last less than 1.3
times.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from schemas.records import FetchLease
from streams.bench.meter import folder_bytes, rss_peak_mb
from streams.bench.population import Population
from streams.bench.runner import PAIRS_GROUP, Shard, bench_policy
from streams.cli.arguments import positive

DELAY_MS = 1_000
ROUNDS = 5
ADMITS = 40_000
PAIRS = 20_000
BATCH_URLS = 5
FIRST_NEW = 1 << 20  # numbers that no filling reaches


class Cost(msgspec.Struct):
    """At one size; microseconds of CPU each."""

    urls: int
    hosts: int
    admit_process_us: float
    admit_thread_us: float
    pair_process_us: float
    pair_thread_us: float
    bytes_per_url: float
    rss_mb: int


class Growth:
    """One folder that grows."""

    def __init__(self, folder: Path, urls_per_host: int) -> None:
        self._folder = folder
        self._shard = Shard(folder, bench_policy(DELAY_MS, respect_robots=False))
        self._urls_per_host = urls_per_host
        self._names = Population(2, 20)
        self._dice = random.Random(5)
        self._hosts = self._urls = 0
        self._next_number = FIRST_NEW

    def fill(self, urls: int) -> None:
        """Admit URLs of further hosts until so many are known."""
        missing = urls - self._urls
        hosts = missing // self._urls_per_host
        population = Population(hosts, missing, first=self._hosts)
        self._urls += self._shard.admit(population, population.plan())
        self._hosts += hosts

    def cost(self) -> Cost:
        urls = self._urls
        admits = [self._admit() for _ in range(ROUNDS)]
        pairs = [self._pairs() for _ in range(ROUNDS)]
        return Cost(
            urls=urls,
            hosts=self._hosts,
            admit_process_us=statistics.median(process for process, _ in admits),
            admit_thread_us=statistics.median(thread for _, thread in admits),
            pair_process_us=statistics.median(process for process, _ in pairs),
            pair_thread_us=statistics.median(thread for _, thread in pairs),
            bytes_per_url=folder_bytes(self._folder) / self._urls,
            rss_mb=rss_peak_mb(),
        )

    def close(self) -> None:
        self._shard.close()

    def _new_urls(self) -> Iterator[tuple[int, int, int]]:
        for _ in range(ADMITS // BATCH_URLS):
            yield self._dice.randrange(self._hosts), self._next_number, BATCH_URLS
            self._next_number += BATCH_URLS

    def _admit(self) -> tuple[float, float]:
        self._shard.meter.start()
        admitted = self._shard.admit(self._names, self._new_urls())
        self._urls += admitted
        return self._each(admitted)

    def _pairs(self) -> tuple[float, float]:
        shard = self._shard
        leases: list[FetchLease] = []
        done = 0
        shard.meter.start()
        while done < PAIRS:
            events = shard.answered(leases)
            done += len(leases)
            leases = shard.turn(events, PAIRS_GROUP).leases
            shard.now_ms += DELAY_MS
        cost = self._each(done)
        shard.turn(shard.answered(leases), 0)
        shard.now_ms += DELAY_MS
        return cost

    def _each(self, count: int) -> tuple[float, float]:
        meter = self._shard.meter
        return meter.cpu_s() / count * 1e6, meter.thread_s() / count * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.frontier_growth")
    parser.add_argument("sizes", nargs="*", type=positive, default=[1_000_000, 10_000_000, 50_000_000], metavar="SIZE")
    parser.add_argument("--urls-per-host", type=positive, default=10)
    parser.add_argument("--dir", type=Path, help="a new folder (default: a temporary one)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    costs: list[Cost] = []
    with tempfile.TemporaryDirectory() as temporary:
        growth = Growth(arguments.dir or Path(temporary) / "state", arguments.urls_per_host)
        for size in sorted(arguments.sizes):
            began_s = time.perf_counter()
            growth.fill(size)
            costs.append(growth.cost())
            took_s = time.perf_counter() - began_s
            print(f"{size}: filled and measured in {took_s:.0f} s", file=sys.stderr, flush=True)
        growth.close()
    first, last = costs[0], costs[-1]
    ratios = {
        name: getattr(last, name) / getattr(first, name)
        for name in ("admit_process_us", "admit_thread_us", "pair_process_us", "pair_thread_us")
    }
    if arguments.json:
        print(msgspec.json.encode({"costs": costs, "ratios": ratios}).decode())
        return 0
    for cost in costs:
        print(
            f"{cost.urls:>12,} URLs: admit {cost.admit_process_us:.1f} us (thread {cost.admit_thread_us:.1f}), "
            f"pair {cost.pair_process_us:.1f} us (thread {cost.pair_thread_us:.1f}), "
            f"{cost.bytes_per_url:.0f} bytes a URL, {cost.rss_mb} MB"
        )
    print("last to first: " + ", ".join(f"{name[:-3]} {ratio:.2f}" for name, ratio in ratios.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
