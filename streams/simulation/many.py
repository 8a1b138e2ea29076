"""Many seeds, over all processors, and what they come to together."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from streams.simulation.run import Report, simulate

LAG_BOUND_MS = 10 * 60 * 1_000  # the design: 99 % of due high-priority URLs are leased within ten minutes
_SHARES = (0.5, 0.9, 0.99, 0.999)


class Sum(msgspec.Struct):
    """Over all seeds."""

    seeds: int = 0
    hosts: int = 0
    fetches: int = 0
    completions: int = 0
    virtual_h: float = 0.0
    cpu_s: float = 0.0
    kinds: dict[str, int] = msgspec.field(default_factory=dict)
    hosts_min: int = 0  # of the smallest seed that came to its end
    fetches_min: int = 0
    virtual_h_min: float = 0.0
    injected: dict[str, int] = msgspec.field(default_factory=dict)
    lags: int = 0
    slowed: int = 0
    lag_ms: dict[str, int] = msgspec.field(default_factory=dict)  # by share: "0.99"
    lag_ms_max: int = 0
    lag_in_bound: float = 1.0  # the share within LAG_BOUND_MS
    failures: list[Report] = msgspec.field(default_factory=list)


def timed(seed: int) -> tuple[Report, float]:
    """One seed and its CPU seconds."""
    started_s = time.process_time()
    return simulate(seed), time.process_time() - started_s


def run_many(seeds: Sequence[int], processes: int | None = None) -> Iterator[tuple[Report, float]]:
    """As they come, in no order."""
    processes = min(len(seeds), processes or os.cpu_count() or 1)
    if processes <= 1:
        yield from map(timed, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(timed, seeds)


def summed(results: Sequence[tuple[Report, float]]) -> Sum:
    """What the seeds come to; independent of their order."""
    total = Sum(seeds=len(results))
    injected: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    lags: list[int] = []
    for report, cpu_s in results:
        total.hosts += report.hosts
        total.fetches += report.fetches
        total.completions += report.completions
        total.virtual_h += report.virtual_h
        total.cpu_s += cpu_s
        kinds[report.kind] += 1
        injected.update(report.injected)
        lags += report.lags_ms
        total.slowed += report.slowed
    whole = [report for report, _ in results if not report.rule]
    if whole:
        total.hosts_min = min(report.hosts for report in whole)
        total.fetches_min = min(report.fetches for report in whole)
        total.virtual_h_min = min(report.virtual_h for report in whole)
    total.kinds, total.injected = dict(sorted(kinds.items())), dict(sorted(injected.items()))
    total.failures = sorted((report for report, _ in results if report.rule), key=lambda report: report.seed)
    lags.sort()
    total.lags = len(lags)
    if lags:
        total.lag_ms = {str(share): lags[min(len(lags) - 1, int(share * len(lags)))] for share in _SHARES}
        total.lag_ms_max = lags[-1]
        total.lag_in_bound = sum(lag <= LAG_BOUND_MS for lag in lags) / len(lags)
    return total
