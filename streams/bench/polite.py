"""The frontier with real politeness: so many ready hosts, one delay, answers that come at once, the real clock.

Held means in every second. The grants and the completions are logged as they happen, and judged from the logs alone.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec

from schemas.records import FetchLease
from streams.bench.meter import quantile, rss_peak_mb
from streams.bench.politeness_log import Log, Verdict, judge
from streams.bench.population import Population
from streams.bench.runner import PAIRS_GROUP, Shard, bench_policy

SPARE = 1.3  # URLs of a host, of those that the run takes from it in the mean
_LEASES_MIN = 64  # fewer are not worth a commit while a high pace is held


class PoliteFigures(msgspec.Struct):
    """`rate`: asked for. `seconds_below_rate`: whole seconds that had less than 99 % of it."""

    ready_hosts: int
    rate: int
    seconds: int
    politeness_ms: int
    admits_per_cpu_s: float = 0.0
    grants_per_s: float = 0.0
    grants_per_s_min: int = 0
    seconds_below_rate: int = 0
    pairs_per_cpu_s: float = 0.0
    cpu_share: float = 0.0  # of one CPU, while granting
    group_p50_ms: float = 0.0
    group_p99_ms: float = 0.0
    gap_ms_min: int | None = None
    breaches: dict[str, int] = {}
    rss_mb: int = 0


def run_polite(
    folder: Path,
    *,
    ready_hosts: int,
    rate: int,
    seconds: int,
    delay_ms: int,
    first_host: int = 0,
    partition: int = 0,
    wait: Callable[[str], None] = lambda phase: None,
    say: Callable[[str], None] = lambda line: None,
) -> PoliteFigures:
    """`rate` grants a second for `seconds`, from `ready_hosts` hosts. The folder must be empty."""
    figures = PoliteFigures(ready_hosts, rate, seconds, delay_ms)
    share = max(2, -(-int(rate * seconds * SPARE) // ready_hosts) + 1)
    population = Population(ready_hosts, ready_hosts * share, first=first_host)
    shard = Shard(folder / "state", bench_policy(delay_ms), partition=partition, now_ms=_now_ms())
    wait("polite admit")
    shard.meter.start()
    half = share // 2
    parts = ((0, half), (half, share - half))
    plan = ((first_host + host, start, count) for start, count in parts for host in range(ready_hosts))
    admitted = shard.admit(population, plan)
    figures.admits_per_cpu_s = admitted / shard.meter.cpu_s()
    shard.ask_all_robots()
    say(f"polite admit: {shard.meter.cpu_s():.1f} s of CPU, {shard.meter.wall_s():.1f} s, {admitted} URLs")
    shard.now_ms += delay_ms
    while _now_ms() < shard.now_ms:
        time.sleep(0.01)
    wait("polite grants")
    with Log(folder / "grants.log") as grants, Log(folder / "completions.log") as completions:
        _hold(shard, population, figures, grants, completions)
    shard.close()
    verdict: Verdict = judge(folder / "grants.log", folder / "completions.log", delay_ms)
    figures.gap_ms_min, figures.breaches = verdict.gap_ms_min, verdict.breaches
    figures.rss_mb = rss_peak_mb()
    return figures


def _hold(shard: Shard, population: Population, figures: PoliteFigures, grants: Log, completions: Log) -> None:
    """Grant at the pace asked for; each lease is answered with the next group."""
    meter = shard.meter
    leases_min = max(1, min(_LEASES_MIN, figures.rate // 100))
    meter.start()
    began_s = time.perf_counter()
    second_ends = [0]
    groups_ms = array("d")
    granted = done = 0
    leases: list[FetchLease] = []
    while True:
        elapsed_s = time.perf_counter() - began_s
        while len(second_ends) <= min(int(elapsed_s), figures.seconds):
            second_ends.append(granted)
        if elapsed_s >= figures.seconds:
            break
        owed = int(elapsed_s * figures.rate) - granted
        if owed < leases_min and not leases:
            time.sleep(0.001)
            continue
        shard.now_ms = max(shard.now_ms, _now_ms())
        events = shard.answered(leases)
        with meter:
            completions.append((one.lease_id, population.host_of(one.host_key), shard.now_ms) for one in leases)
        done += len(leases)
        group_s = time.perf_counter()
        leases = shard.turn(events, max(0, min(2 * PAIRS_GROUP, owed))).leases
        groups_ms.append((time.perf_counter() - group_s) * 1e3)
        with meter:
            grants.append((one.lease_id, population.host_of(one.host_key), one.not_before_ms) for one in leases)
            del events
        granted += len(leases)
    by_second = [after - before for before, after in pairwise(second_ends)]
    figures.grants_per_s = granted / elapsed_s
    figures.grants_per_s_min = min(by_second, default=0)
    figures.seconds_below_rate = sum(one < 0.99 * figures.rate - leases_min for one in by_second)
    figures.pairs_per_cpu_s = done / meter.cpu_s()
    figures.cpu_share = meter.cpu_s() / elapsed_s
    figures.group_p50_ms, figures.group_p99_ms = quantile(groups_ms, 0.5), quantile(groups_ms, 0.99)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
