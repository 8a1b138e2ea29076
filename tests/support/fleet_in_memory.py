"""A fleet's owners without servers: real owners and local stores over the twins in memory, and a clock that is moved.

The input topics are the broker's own, so what owners send one another arrives as it would. A crash is an exception at
a step of the commit, after which the owner's object is gone and another one takes over.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from connectors.inbox_kafka import Message
from connectors.owner_log_memory import MemoryBroker, MemoryChangelog, MemoryOwnerLog
from connectors.ports import Record
from connectors.url_state_memory import MemoryEpochs, MemoryUrlState
from schemas.codec import decode, encode_batch
from schemas.records import DiscoveredUrl, FetchLease, Kind, ParseTask, Source
from schemas.topics import partition_for
from streams.core.hosts import NEVER_MS
from streams.core.policy import CrawlPolicy
from streams.core.rows import UrlRow, decode_row
from streams.core.rules.scope import Scope, ScopeMode
from streams.core.rules.urls import host_key
from streams.fleet.intake import TOPICS, Partitioning
from streams.fleet.local import LocalStore
from streams.fleet.metrics import Metrics
from streams.fleet.owner import PartitionOwner, Ports, Setting
from tests.support.scripted_fetcher import Answer, Started, is_stored, parsed_of, result_of, stored_of

NOW_MS = 1_700_000_000_000
CHANGELOG = "changelog"
GROUP_MAX = 7  # messages: small groups have more seams


class Crash(BaseException):
    """The process is gone."""


class FleetInMemory:
    """All partitions, each with one owner at a time; `crash_at` ends the next owner that passes it."""

    def __init__(
        self,
        folder: Path,
        web: Callable[[str, Kind], Answer],
        *,
        policy: CrawlPolicy | None = None,
        partitions: int = 2,
        leases_max: int = 1_000,
        tasks_max: int = 1_000,
    ) -> None:
        self._folder, self._web, self.partitions = folder, web, partitions
        self.broker, self.urls, self.epochs = MemoryBroker(), MemoryUrlState(), MemoryEpochs()
        self.now_ms = NOW_MS
        self.crash_at: str | None = None
        self.crash_after = 0
        self.crashes = 0
        self.metrics = Metrics("owner")
        self.setting = Setting(
            policy=policy or CrawlPolicy(),
            scope=Scope(seeds=(), mode=ScopeMode.ANY),
            partitions=partitions,
            leases_max=leases_max,
            tasks_max=tasks_max,
            changelog_topic=CHANGELOG,
            now=lambda: self.now_ms,
            jitter=lambda: 0.5,
            at=self._at,
        )
        self.ports = Ports(
            urls=self.urls,
            epochs=self.epochs,
            changelog=MemoryChangelog(self.broker, CHANGELOG),
            open_log=lambda partition: MemoryOwnerLog(self.broker, partition),
        )
        self.owners: dict[int, PartitionOwner] = {}
        self.stores: dict[int, LocalStore] = {}
        self.disk: Callable[[int], str] = lambda partition: f"disk-{partition}"  # of the next owner
        self.log: list[Started] = []
        self._answered = Counter[int]()  # leases by partition
        self.in_time = False  # an answer takes its time; else it is there at once
        self.spans: list[tuple[int, int, FetchLease]] = []  # (start, end) of what was asked, when answers take time
        self._due: list[tuple[int, int, int, FetchLease]] = []  # (end, number, partition, lease)
        self.parsing = True  # else no body is parsed
        self._parsed = Counter[int]()  # records of tasks by partition
        self._disks = itertools.count()

    def new_disk(self, partition: int) -> str:
        """For `disk`: one that nobody has written yet."""
        return f"disk-{partition}-{next(self._disks)}"

    # --- owners ---------------------------------------------------------------------------------------------------

    def take_over(self, partition: int) -> None:
        """Until one stands."""
        while partition not in self.owners:
            store = self.stores.pop(partition, None)
            if store is not None:
                store.close()
            store = self.stores[partition] = LocalStore(self._folder / self.disk(partition), now_ms=self.now_ms)
            owner = PartitionOwner(
                partition, store, self.setting, self.ports, self.metrics, Partitioning(self.partitions)
            )
            try:
                owner.take_over()
            except Crash:
                self.crashes += 1
            else:
                self.owners[partition] = owner

    def turn(self, partition: int) -> bool:
        """One group of one owner. Whether anything came of it."""
        self.take_over(partition)
        owner = self.owners[partition]
        messages = self.waiting(partition)[:GROUP_MAX]
        before = len(self.broker.committed(CHANGELOG, partition))
        try:
            owner.run(messages)
        except Crash:
            self.crashes += 1
            del self.owners[partition]
            return True
        return len(self.broker.committed(CHANGELOG, partition)) > before

    def waiting(self, partition: int) -> list[Message]:
        positions = self.owners[partition].positions
        found = []
        for topic in TOPICS:
            records = self.broker.committed(topic, partition)
            start = positions.get(topic, -1) + 1
            found += [Message(topic, start + at, one.value, self.now_ms) for at, one in enumerate(records[start:])]
        return found

    def _at(self, step: str) -> None:
        if step != self.crash_at:
            return
        if self.crash_after:
            self.crash_after -= 1
            return
        self.crash_at = None
        raise Crash(step)

    # --- the world ------------------------------------------------------------------------------------------------

    def run(self, *, groups_max: int = 20_000) -> None:
        """Until nothing is left to do at this moment or soon; time goes on when all wait."""
        idle = 0
        for _ in range(groups_max):
            busy = [self.turn(partition) for partition in range(self.partitions)]
            if self._fetch() or self._parse() or any(busy) or any(self.waiting(one) for one in self.owners):
                idle = 0
                continue
            idle += not self._due
            if idle > 50:
                return
            self.now_ms = min(self.now_ms + 500, self._due[0][0] if self._due else NEVER_MS)
        raise AssertionError("it never came to rest")

    def _fetch(self) -> bool:
        """Answer what was leased."""
        found = False
        for partition in range(self.partitions):
            leases = [
                lease
                for record in self.broker.committed("fetch-leases", partition)
                for lease in decode(record.value or b"", FetchLease)
            ]
            for lease in leases[self._answered[partition] :]:
                found = True
                self._answer(partition, lease)
            self._answered[partition] = len(leases)
        while self._due and self._due[0][0] <= self.now_ms:
            found = True
            end_ms, _, partition, lease = heapq.heappop(self._due)
            self._told(partition, lease, end_ms)
        return found

    def _parse(self) -> bool:
        """Tell the owners of what is to be parsed."""
        found = False
        for partition in range(self.partitions) if self.parsing else ():
            tasks = self.broker.committed("parse-tasks", partition)
            for record in tasks[self._parsed[partition] :]:
                found = True
                told = [parsed_of(task) for task in decode(record.value or b"", ParseTask)]
                self.send("owner-messages", partition, encode_batch(told))
            self._parsed[partition] = len(tasks)
        return found

    def _answer(self, partition: int, lease: FetchLease) -> None:
        answer = self._web(lease.url, lease.kind)
        self.log.append(
            Started(
                max(self.now_ms, lease.not_before_ms),
                lease.host_key,
                lease.url,
                lease.url_version,
                lease.kind,
                lease.lease_id,
                lease.permitted_address,
            )
        )
        if self.in_time:
            start_ms = self.log[-1].at_ms
            end_ms = start_ms + answer.takes_ms
            if lease.permitted_address in (None, answer.address):
                self.spans.append((start_ms, end_ms, lease))
            heapq.heappush(self._due, (end_ms, len(self.log), partition, lease))
            return
        self.now_ms += 1
        self._told(partition, lease, self.now_ms)

    def _told(self, partition: int, lease: FetchLease, end_ms: int) -> None:
        answer = self._web(lease.url, lease.kind)
        result = result_of(lease, answer, end_ms, end_ms)
        self.send("fetch-results", partition, encode_batch([result]))
        if is_stored(lease, answer):
            self.send("stored-results", partition, encode_batch([stored_of(lease, answer)]))

    def send(self, topic: str, partition: int, value: bytes | None) -> None:
        with self.broker.lock:
            self.broker.topics.setdefault((topic, partition), []).append(Record(topic, partition, None, value))

    def seed(self, *urls: str) -> None:
        for url in urls:
            found = DiscoveredUrl(url=url, host_key=host_key(url), source=Source.SEED, discovered_ms=self.now_ms)
            self.send("discovered-urls", partition_for(found.host_key, self.partitions), encode_batch([found]))

    def rows(self, *hosts: str) -> dict[str, UrlRow]:
        """The URL table's rows of these hosts, by URL."""
        found = [decode_row(raw) for host in hosts for _, raw in self.urls.scan(host, b"", 100_000)]
        return {row.url: row for row in found}

    def close(self) -> None:
        for owner in self.owners.values():
            owner.close()
            owner.release()
        for store in self.stores.values():
            store.close()
