"""A broker in memory, as far as the owner's transactions and changelogs need one: the twin of `owner_log_kafka`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from connectors.ports import Fenced, Record
from streams.core.failures import CrawlError


class MemoryBroker:
    """Topics that several owners of one process write to."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.topics: dict[tuple[str, int], list[Record]] = {}
        self.producers: dict[int, int] = {}  # of a partition: who began last

    def committed(self, topic: str, partition: int) -> list[Record]:
        """All that readers of committed data see."""
        with self.lock:
            return list(self.topics.get((topic, partition), ()))


class MemoryOwnerLog:
    """See `connectors.ports.OwnerLog`."""

    def __init__(self, broker: MemoryBroker, partition: int) -> None:
        self._broker, self._partition = broker, partition
        self._number = 0

    def fence(self) -> None:
        with self._broker.lock:
            self._number = self._broker.producers.get(self._partition, 0) + 1
            self._broker.producers[self._partition] = self._number

    def transact(self, records: Sequence[Record], *, before_commit: Callable[[], None] = lambda: None) -> int:
        before_commit()
        with self._broker.lock:
            if self._broker.producers.get(self._partition) != self._number:
                raise Fenced(f"partition {self._partition}")
            for record in records:
                self._broker.topics.setdefault((record.topic, record.partition), []).append(record)
            last = records[-1]
            return len(self._broker.topics[last.topic, last.partition]) - 1

    def close(self) -> None:
        return


class MemoryChangelog:
    """See `connectors.ports.Changelog`."""

    def __init__(self, broker: MemoryBroker, topic: str) -> None:
        self._broker, self._topic = broker, topic

    def read(self, partition: int, after: int | None, batch: Callable[[Sequence[Record], int], None]) -> None:
        records = self._broker.committed(self._topic, partition)
        start = 0 if after is None else after + 1
        if start > len(records):
            raise CrawlError(f"changelog {self._topic} {partition}: needed offset {after}, it ends at {len(records)}")
        if records[start:]:
            batch(records[start:], len(records) - 1)
