"""What it costs to be without an index: how soon an owner grants again, and how fast it makes its index anew."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from pathlib import Path

import msgspec

from connectors.crawldb_rocksdb import CrawlDb
from streams.bench.meter import Meter, quantile, rss_peak_mb
from streams.bench.population import Population
from streams.bench.runner import Shard, bench_policy
from streams.collector import quiet_collector

_PAUSE_MS = 60_000  # longer than any delay and the skew between two owners' clocks
_GROUP_LEASES = 64


class IndexFigures(msgspec.Struct):
    """`first_grant_s`: from opening the folder to the first durable lease. `turn`: one that loads and grants."""

    hosts: int = 0
    urls: int = 0
    hot_urls: int = 0
    first_grant_whole_s: float = 0.0
    first_grant_s: float = 0.0
    rows_per_s: float = 0.0
    rows_per_cpu_s: float = 0.0
    load_s: float = 0.0
    turns: int = 0
    turn_p50_ms: float = 0.0
    turn_p99_ms: float = 0.0
    grants_while_loading: int = 0
    rss_mb: int = 0


def run_index(folder: Path, population: Population, say: Callable[[str], None] = lambda line: None) -> IndexFigures:
    """Fill `folder`, which must be empty; open it with its index, and then without."""
    quiet_collector()  # as a crawl has it
    figures = IndexFigures(hosts=population.hosts, urls=population.urls, hot_urls=population.hot_urls)
    shard = Shard(folder, bench_policy(1_000, respect_robots=False))
    shard.admit(population, population.plan())
    say(f"{population.urls} URLs are known")
    figures.first_grant_whole_s = _open_anew(shard)
    figures.first_grant_s = _open_anew(shard, clear=True)
    assert shard.owner.index.loading
    say(f"first grant after {figures.first_grant_s:.1f} s, {figures.first_grant_whole_s:.1f} s with an index")
    _load(shard, figures)
    figures.rss_mb = rss_peak_mb()
    shard.close()
    return figures


def _open_anew(shard: Shard, *, clear: bool = False) -> float:
    """Close, open, until the next lease is durable; in seconds. `clear`: the index is gone in between."""
    shard.close()
    if clear:
        db = CrawlDb(shard.folder)
        db.clear_index()
        db.close()
    shard.now_ms += _PAUSE_MS
    began_s = time.perf_counter()
    shard.open()
    assert shard.turn((), 1).leases
    return time.perf_counter() - began_s


def _load(shard: Shard, figures: IndexFigures) -> None:
    """Turn by turn to the end, with some grants in each, as a crawl that goes on."""
    meter, turns_ms = Meter(), array("d")
    meter.start()
    while shard.owner.index.loading:
        began_ns = time.perf_counter_ns()
        figures.grants_while_loading += len(shard.turn((), _GROUP_LEASES).leases)
        turns_ms.append((time.perf_counter_ns() - began_ns) / 1e6)
        shard.now_ms += 20
    figures.load_s = meter.wall_s()
    figures.rows_per_s = figures.urls / figures.load_s
    figures.rows_per_cpu_s = figures.urls / meter.cpu_s()
    figures.turns = len(turns_ms)
    figures.turn_p50_ms, figures.turn_p99_ms = quantile(turns_ms, 0.5), quantile(turns_ms, 0.99)
