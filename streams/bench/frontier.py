"""The frontier without politeness as the limit: what admitting, granting and completing cost.

Phases, in this order, on one folder: every URL is admitted; every host is asked for robots.txt; pairs of a grant and
its completion (a stored page each) with a clock that runs as fast as hosts are needed; single grants, one by one; the
folder is closed with leases out and opened again until the first grant is durable.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from schemas.records import FetchLease, Kind
from streams.bench.meter import folder_bytes, quantile, rss_peak_mb
from streams.bench.population import PRIORITY_NAMES, Population, priority_class
from streams.bench.runner import PAIRS_GROUP, START_MS, Shard, bench_policy

SINGLE_GRANTS = 2_000
PACE = 25_000  # pairs a second by the virtual clock, or faster where there are too few hosts for that
_RESTART_PAUSE_MS = 10_000

Wait = Callable[[str], None]
"""Called before each phase with its name; shards that run side by side wait for one another there."""


class FrontierFigures(msgspec.Struct):
    """The result of one shard. `_per_cpu_s` counts all threads of the process; the measurement's own work is out."""

    hosts: int = 0
    urls: int = 0
    hot_urls: int = 0
    url_bytes_mean: float = 0.0
    admits_per_cpu_s: float = 0.0
    admits_per_s: float = 0.0
    robots_pairs_per_cpu_s: float = 0.0
    pairs: int = 0
    pairs_per_cpu_s: float = 0.0
    pairs_per_s: float = 0.0
    pairs_started_s: float = 0.0  # wall clock, to add shards up
    pairs_ended_s: float = 0.0
    pairs_wall_s: float = 0.0
    grant_p50_us: float = 0.0  # one grant decided, nothing else in the turn
    grant_p99_us: float = 0.0
    grant_durable_p50_us: float = 0.0  # ... and its synced commit
    grant_durable_p99_us: float = 0.0
    group_p50_ms: float = 0.0  # under load: completions and grants of a whole group, decided and durable
    group_p99_ms: float = 0.0
    hot_grants: int = 0
    hot_allotment: int = 0  # grants that its delay allows it in the same time
    hot_share: float = 0.0  # hot_grants / hot_allotment
    lag_ms: dict[str, dict[str, float]] = {}  # from the instant its host could be asked to the grant, by priority
    bytes_per_url: float = 0.0
    rss_mb: int = 0
    restart_s: float = 0.0
    restart_cpu_s: float = 0.0


class FrontierBench:
    """One run over one folder, which must be empty."""

    def __init__(
        self,
        folder: Path,
        population: Population,
        *,
        pairs: int,
        delay_ms: int,
        partition: int = 0,
        wait: Wait = lambda phase: None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._population = population
        self._pairs = pairs
        self._delay_ms = delay_ms
        self._wait, self._say = wait, say
        self._shard = Shard(folder, bench_policy(delay_ms), partition=partition)
        self._ready_ms = np.full(population.hosts, START_MS, np.int64)  # by host: when its delay is over
        self._lags = [array("q") for _ in PRIORITY_NAMES]
        self._groups_ns = array("q")
        self._hot_grants: list[int] = []  # instants
        self.figures = FrontierFigures(hosts=population.hosts, urls=population.urls, hot_urls=population.hot_urls)

    def run(self) -> FrontierFigures:
        for phase in (self._admit, self._robots, self._grant, self._grant_one_by_one, self._restart):
            name = phase.__name__.strip("_").replace("_", " ")
            self._wait(name)
            self._shard.meter.start()
            phase()
            took = f"{self._shard.meter.cpu_s():.1f} s of CPU, {self._shard.meter.wall_s():.1f} s"
            self._say(f"{name}: {took}, {rss_peak_mb()} MB at most")
        self.figures.rss_mb = rss_peak_mb()
        self._shard.close()
        return self.figures

    def _admit(self) -> None:
        population, meter = self._population, self._shard.meter
        admitted = self._shard.admit(population, population.plan())
        assert admitted == population.urls, (admitted, population.urls)
        self.figures.admits_per_cpu_s = admitted / meter.cpu_s()
        self.figures.admits_per_s = admitted / meter.wall_s()
        sample = [population.batch(host, 0, 1, 0)[0].url for host in range(population.first, population.first + 100)]
        self.figures.url_bytes_mean = sum(map(len, sample)) / len(sample)

    def _robots(self) -> None:
        asked = self._shard.ask_all_robots()
        assert asked == self._population.hosts, (asked, self._population.hosts)
        self.figures.robots_pairs_per_cpu_s = asked / self._shard.meter.cpu_s()
        self._shard.now_ms += self._delay_ms
        self._ready_ms[:] = self._shard.now_ms

    def _grant(self) -> None:
        """Pairs under load. The clock moves so that hosts come round as fast as groups need them."""
        shard, figures = self._shard, self.figures
        meter = shard.meter
        step_ms = max(PAIRS_GROUP * 1_000 // PACE, self._delay_ms * PAIRS_GROUP * 2 // self._population.hosts)
        started_ms = shard.now_ms
        leases: list[FetchLease] = []
        done, dry = 0, 0
        figures.pairs_started_s = time.time()
        while done < self._pairs and dry < 3:
            events = shard.answered(leases)
            completed = len(leases)
            began_ns = time.perf_counter_ns()
            leases = shard.turn(events, PAIRS_GROUP).leases
            with meter:
                self._groups_ns.append(time.perf_counter_ns() - began_ns)
                done += completed
                self._book(leases)
                dry = 0 if leases else dry + 1
                shard.now_ms += step_ms if 2 * len(leases) >= PAIRS_GROUP else max(step_ms, self._delay_ms)
                del events
        figures.pairs = done
        figures.pairs_per_cpu_s = done / meter.cpu_s()
        figures.pairs_wall_s = meter.wall_s()
        figures.pairs_per_s = done / figures.pairs_wall_s
        figures.pairs_ended_s = figures.pairs_started_s + figures.pairs_wall_s
        shard.turn(shard.answered(leases), 0)
        self._tell(started_ms)

    def _book(self, leases: list[FetchLease]) -> None:
        """Our own account of each lease: its answer is handed in with the next group."""
        now_ms, population, ready_ms = self._shard.now_ms, self._population, self._ready_ms
        hot = population.first if population.hot_urls else -1
        for lease in leases:
            host = population.host_of(lease.host_key)
            if lease.kind is not Kind.ROBOTS:
                self._lags[priority_class(lease.url)].append(now_ms - int(ready_ms[host]))
            ready_ms[host] = now_ms + self._delay_ms
            if host + population.first == hot:
                self._hot_grants.append(now_ms)

    def _tell(self, started_ms: int) -> None:
        figures = self.figures
        groups_ms = [ns / 1e6 for ns in self._groups_ns]
        figures.group_p50_ms, figures.group_p99_ms = _two(groups_ms)
        figures.lag_ms = {
            name: {
                "grants": float(len(lags)),
                "p50": quantile(lags, 0.5),
                "p99": quantile(lags, 0.99),
                "max": float(max(lags, default=0)),
            }
            for name, lags in zip(PRIORITY_NAMES, self._lags, strict=True)
        }
        figures.hot_grants = len(self._hot_grants)
        if self._hot_grants:
            figures.hot_allotment = (self._shard.now_ms - started_ms) // self._delay_ms + 1
            figures.hot_share = figures.hot_grants / figures.hot_allotment

    def _grant_one_by_one(self) -> None:
        shard = self._shard
        decided_us, durable_us = array("d"), array("d")
        for _ in range(min(SINGLE_GRANTS, self._population.urls // 20)):
            shard.now_ms += self._delay_ms
            began = time.perf_counter_ns()
            turn = shard.owner.decide((), shard.now_ms, 1)
            decided = time.perf_counter_ns()
            if not turn.leases:
                break
            shard.db.commit(turn.writes)
            shard.owner.committed(turn)
            decided_us.append((decided - began) / 1e3)
            durable_us.append((time.perf_counter_ns() - began) / 1e3)
            shard.turn(shard.answered(turn.leases), 0)
        self.figures.grant_p50_us, self.figures.grant_p99_us = _two(decided_us)
        self.figures.grant_durable_p50_us, self.figures.grant_durable_p99_us = _two(durable_us)

    def _restart(self) -> None:
        """Close with a group of leases out, as after a crash; open, until the next lease is durable."""
        shard = self._shard
        shard.now_ms += self._delay_ms
        shard.turn((), min(PAIRS_GROUP, self._population.hosts // 4))
        shard.close()
        shard.now_ms += _RESTART_PAUSE_MS
        began_s = time.perf_counter()
        began_cpu_s = time.process_time()
        shard.open()
        assert shard.turn((), 1).leases, "nothing to grant after the restart: more URLs than pairs are needed"
        self.figures.restart_s = time.perf_counter() - began_s
        self.figures.restart_cpu_s = time.process_time() - began_cpu_s
        self.figures.bytes_per_url = folder_bytes(shard.folder) / self._population.urls


def _two(values: Sequence[float] | array[float]) -> tuple[float, float]:
    return quantile(values, 0.5), quantile(values, 0.99)
