"""Shards side by side: a process each, with a folder and hosts of its own, that begin each phase together."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Barrier
from typing import Any

import msgspec

from streams.bench.frontier import FrontierBench, FrontierFigures
from streams.bench.polite import PoliteFigures, run_polite
from streams.bench.population import Population
from streams.collector import quiet_collector
from streams.core.failures import CrawlError

WAIT_S_MAX = 3_600.0


class Plan(msgspec.Struct, frozen=True):
    """What to measure, over all shards; `seconds` 0 leaves real politeness out."""

    hosts: int
    urls: int
    hot_urls: int
    pairs: int
    politeness_ms: int = 1_000
    seconds: int = 0
    ready_hosts: int = 100_000
    rate: int = 25_000
    seed: int = 1


class Figures(msgspec.Struct):
    """Of one shard."""

    frontier: FrontierFigures
    polite: PoliteFigures | None = None


def run_shard(
    plan: Plan, shard: int, shards: int, folder: Path, wait: Callable[[str], None], say: Callable[[str], None]
) -> Figures:
    """Measure one shard's part of the plan. The hot host is the first shard's."""
    quiet_collector()
    hosts, urls, pairs = (_part(whole, shard, shards) for whole in (plan.hosts, plan.urls, plan.pairs))
    first = shard * (1 << 24)
    hot = plan.hot_urls if shard == 0 else 0
    if plan.hot_urls and shards > 1:
        # The hot host's URLs are the first shard's alone; the others take their part of the rest, and of the first's.
        rest = plan.urls - plan.hot_urls
        urls = _part(rest, shard, shards) + hot
    population = Population(hosts, urls, hot, seed=plan.seed, first=first)
    folder.mkdir(parents=True)
    bench = FrontierBench(
        folder / "frontier",
        population,
        pairs=pairs,
        delay_ms=plan.politeness_ms,
        partition=shard,
        wait=wait,
        say=say,
    )
    figures = Figures(bench.run())
    del bench
    if plan.seconds:
        (folder / "polite").mkdir()
        figures.polite = run_polite(
            folder / "polite",
            ready_hosts=_part(plan.ready_hosts, shard, shards),
            rate=_part(plan.rate, shard, shards),
            seconds=plan.seconds,
            delay_ms=plan.politeness_ms,
            first_host=first,
            partition=shard,
            wait=wait,
            say=say,
        )
    return figures


def run_shards(plan: Plan, shards: int, folder: Path) -> list[Figures]:
    """One process a shard. Raises CrawlError when one of them dies."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(shards)
    workers = []
    for shard in range(shards):
        ours, theirs = context.Pipe(duplex=False)
        place = folder / f"shard-{shard}"
        process = context.Process(target=_work, args=(plan, shard, shards, place, barrier, theirs))
        process.start()
        theirs.close()
        workers.append((process, ours))
    results: list[Figures] = []
    try:
        for shard, (process, ours) in enumerate(workers):
            try:
                results.append(msgspec.msgpack.decode(ours.recv_bytes(), type=Figures))
            except EOFError:
                barrier.abort()
                raise CrawlError(f"bench: shard {shard} ended without a result; its own words stand above") from None
            process.join()
    finally:
        for process, _ in workers:
            process.kill()
            process.join()
    return results


def _work(plan: Plan, shard: int, shards: int, folder: Path, barrier: Barrier, out: Connection) -> None:
    figures = run_shard(plan, shard, shards, folder, lambda phase: _meet(barrier), lambda line: None)
    out.send_bytes(msgspec.msgpack.encode(figures))
    out.close()


def _meet(barrier: Barrier) -> None:
    barrier.wait(WAIT_S_MAX)


def _part(whole: int, shard: int, shards: int) -> int:
    return whole // shards + (1 if shard < whole % shards else 0)


def summed(results: list[Figures]) -> dict[str, Any]:
    """The shards as one: work adds up over the time that any of them worked; of costs and waits the worst counts."""
    parts = [result.frontier for result in results]
    wall_s = max(one.pairs_ended_s for one in parts) - min(one.pairs_started_s for one in parts)
    figures: dict[str, Any] = {
        "hosts": sum(one.hosts for one in parts),
        "urls": sum(one.urls for one in parts),
        "url_bytes_mean": sum(one.url_bytes_mean for one in parts) / len(parts),
        "admits_per_cpu_s": _harmonic([(one.urls, one.admits_per_cpu_s) for one in parts]),
        "robots_pairs_per_cpu_s": _harmonic([(one.hosts, one.robots_pairs_per_cpu_s) for one in parts]),
        "pairs": sum(one.pairs for one in parts),
        "pairs_per_cpu_s": _harmonic([(one.pairs, one.pairs_per_cpu_s) for one in parts]),
        "pairs_per_s": sum(one.pairs for one in parts) / wall_s,
    }
    for name in (
        *("grant_p50_us", "grant_p99_us", "grant_durable_p50_us", "grant_durable_p99_us", "group_p50_ms"),
        *("group_p99_ms", "hot_urls", "hot_grants", "hot_allotment", "hot_share", "rss_mb", "restart_s"),
        *("restart_cpu_s", "bytes_per_url"),
    ):
        figures[name] = max(getattr(one, name) for one in parts)
    figures["lag_ms"] = {
        priority: {key: max(one.lag_ms[priority][key] for one in parts) for key in parts[0].lag_ms[priority]}
        for priority in parts[0].lag_ms
    }
    polite = [result.polite for result in results if result.polite is not None]
    if polite:
        figures["polite"] = {
            "ready_hosts": sum(one.ready_hosts for one in polite),
            "rate": sum(one.rate for one in polite),
            "seconds": polite[0].seconds,
            "politeness_ms": polite[0].politeness_ms,
            "grants_per_s": sum(one.grants_per_s for one in polite),
            "grants_per_s_min": sum(one.grants_per_s_min for one in polite),
            "seconds_below_rate": max(one.seconds_below_rate for one in polite),
            "pairs_per_cpu_s": sum(one.pairs_per_cpu_s for one in polite) / len(polite),
            "cpu_share": sum(one.cpu_share for one in polite),
            "group_p99_ms": max(one.group_p99_ms for one in polite),
            "gap_ms_min": min((one.gap_ms_min for one in polite if one.gap_ms_min is not None), default=None),
            "breaches": {kind: sum(one.breaches[kind] for one in polite) for kind in polite[0].breaches},
            "rss_mb": max(one.rss_mb for one in polite),
        }
    return figures


def _harmonic(parts: list[tuple[int, float]]) -> float:
    """All the work by all the CPU time, from (work, work a CPU-second)."""
    return sum(work for work, _ in parts) / sum(work / pace for work, pace in parts if pace)
