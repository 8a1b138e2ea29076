"""The owner of one shard over its real store, driven as the embedded engine drives it: decide, one synced commit."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from connectors.crawldb_rocksdb import CrawlDb
from schemas.records import DiscoveredUrl, FetchLease
from streams.bench.answers import answers
from streams.bench.meter import Meter
from streams.bench.population import Population
from streams.core import policy as bounds
from streams.core.owner import Event, Owner
from streams.core.policy import CrawlPolicy, Politeness, TrapLimits
from streams.core.rules.scope import Scope, ScopeMode
from streams.core.turn import Turn

START_MS = 1_800_000_000_000
PAIRS_GROUP = bounds.GROUP_EVENTS_MAX // 2  # a completion is two events: the result, and that its body is stored
ADMIT_GROUP_URLS = 2_048  # what comes in GROUP_MS_MAX at the pace that is asked for, 42,000 a second
_URLS = 1 << 40


def bench_policy(delay_ms: int, *, respect_robots: bool = True) -> CrawlPolicy:
    """The default policy but for the delay, and with no limit of a template's URLs: the hot host is no trap."""
    return CrawlPolicy(
        politeness=Politeness(delay_ms=delay_ms, respect_robots=respect_robots),
        traps=TrapLimits(template_urls_max=_URLS, endless_template_urls_max=_URLS),
    )


class Shard:
    """One owner and its folder. Time is what the caller says (`now_ms`)."""

    def __init__(self, folder: Path, policy: CrawlPolicy, *, partition: int = 0, now_ms: int = START_MS) -> None:
        self.folder = folder
        self.policy = policy
        self.partition = partition
        self.now_ms = now_ms
        self.meter = Meter()
        self.groups = 0
        self.open()

    def open(self) -> None:
        """Open the folder and take over what is durable; leases of before are closed, as after a crash."""
        self.db = CrawlDb(self.folder)
        epoch = int.from_bytes(self.db.meta("epoch") or b"\0", "big") + 1
        self.db.commit(meta={"epoch": epoch.to_bytes(8, "big")})
        scope = Scope(seeds=(), mode=ScopeMode.ANY)
        jitter = random.Random(1).random
        self.owner = Owner(self.db, self.policy, scope, epoch=epoch, jitter=jitter, partition=self.partition)
        self._commit(self.owner.adopt(self.now_ms, close_leases=True))

    def close(self) -> None:
        """The database is closed; nothing of the owner is kept."""
        self.db.close()
        del self.owner, self.db
        with self.meter:
            gc.collect()  # a new process would have nothing of it

    def turn(self, events: Iterable[Event], leases_max: int) -> Turn:
        """One group: decided, then durable. Its leases may be shown when this returns."""
        turn = self.owner.decide(events, self.now_ms, leases_max)
        self._commit(turn)
        return turn

    def admit(self, population: Population, plan: Iterator[tuple[int, int, int]], urls_max: int | None = None) -> int:
        """Admit the URLs of a plan, or the next `urls_max` of it; returns how many were new."""
        admitted = given = 0
        meter = self.meter
        while urls_max is None or given < urls_max:
            with meter:
                batches = self._next_batches(population, plan)
                given += sum(map(len, batches))
            if not batches:
                break
            admitted += self.turn(batches, 0).counts.admitted
            with meter:
                del batches
        return admitted

    def _next_batches(self, population: Population, plan: Iterator[tuple[int, int, int]]) -> list[list[DiscoveredUrl]]:
        batches: list[list[DiscoveredUrl]] = []
        urls = 0
        for host, start, count in plan:
            batches.append(population.batch(host, start, count, self.now_ms))
            urls += count
            if urls >= ADMIT_GROUP_URLS or len(batches) >= bounds.GROUP_EVENTS_MAX:
                break
        return batches

    def answered(self, leases: Iterable[FetchLease]) -> list[Event]:
        with self.meter:
            return answers(leases, self.now_ms)

    def ask_all_robots(self) -> int:
        """While the clock stands still each host is asked for robots.txt, and allows all. Returns how many were."""
        asked = 0
        leases: list[FetchLease] = []
        while True:
            turn = self.turn(self.answered(leases), bounds.GROUP_EVENTS_MAX)
            leases = turn.leases
            asked += len(leases)
            if not leases:
                return asked

    def _commit(self, turn: Turn) -> None:
        if turn.writes:
            self.db.commit(turn.writes)
        self.owner.committed(turn)
        self.groups += 1
