"""The numbers of ownership in Cassandra, table `owner_epoch`: one Paxos write for each assignment of a partition.

    INSERT ... IF NOT EXISTS, then UPDATE ... SET epoch = n + 1 ... IF epoch = n

at SERIAL, which is agreed on by all regions. Whoever is told that its write was applied has the number alone. Whoever
lost the answer asks again and takes a later one; the number in between is nobody's.

The region of the last epoch is where the partition is at home: a move is such a write, too, with another region in it.
So who takes an epoch and who moves the partition cannot pass each other unseen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cassandra import ConsistencyLevel

from connectors.cassandra_link import CassandraLink
from connectors.ports import Elsewhere
from schemas.cassandra import OWNER_EPOCH, STAMP_EPOCH_MAX
from streams.core.failures import EXIT_FAILED, CrawlError

_LAST = f"SELECT epoch, region FROM {{keyspace}}.{OWNER_EPOCH} WHERE partition_id = ?"
_FIRST = (
    f"INSERT INTO {{keyspace}}.{OWNER_EPOCH} (partition_id, epoch, owner, region, taken_ms) VALUES (?, ?, ?, ?, ?)"
    " IF NOT EXISTS"
)
_NEXT = (
    f"UPDATE {{keyspace}}.{OWNER_EPOCH} SET epoch = ?, owner = ?, region = ?, taken_ms = ? WHERE partition_id = ?"
    " IF epoch = ?"
)


class CassandraEpochs:
    """`connectors.ports.Epochs`. Any thread may call."""

    def __init__(self, link: CassandraLink, *, owner: str, region: str, clock: Callable[[], int]) -> None:
        """Who takes, where, and when (ms since the epoch, UTC): noted beside the number, for people."""
        self._link = link
        self._owner, self._region, self._clock = owner, region, clock

    def take(self, partition: int) -> int:
        """As the port says. Raises CrawlError when the numbers are at their end."""
        while True:
            last, home = self._last(partition)
            if last and home != self._region:
                raise Elsewhere(f"partition {partition} is at home in region {home!r}")
            if self._count_on(partition, last, self._region):
                return last + 1

    def home(self, partition: int) -> str | None:
        last, home = self._last(partition)
        return home if last else None

    def move(self, partition: int, region: str) -> int:
        """As the port says. Raises CrawlError when the numbers are at their end."""
        while True:
            last, _ = self._last(partition)
            if self._count_on(partition, last, region):
                return last + 1

    def _count_on(self, partition: int, last: int, region: str) -> bool:
        """Whether the epoch after `last` is ours; if not, somebody was faster, or we were and did not hear of it."""
        epoch = last + 1
        if epoch > STAMP_EPOCH_MAX:
            raise CrawlError(
                f"owner_epoch: needed an epoch of partition {partition} up to {STAMP_EPOCH_MAX}, came {epoch};"
                " somebody wrote it by hand",
                EXIT_FAILED,
            )
        noted = (self._owner, region, self._clock())
        if last == 0:
            return self._ask(_FIRST, (partition, epoch, *noted))
        return self._ask(_NEXT, (epoch, *noted, partition, last))

    def _last(self, partition: int) -> tuple[int, str]:
        """(epoch, region); epoch 0 when nobody took it yet."""
        select = self._link.prepared(_LAST, ConsistencyLevel.SERIAL)
        (answer,) = self._link.run([(select, (partition,))])
        rows = answer.current_rows
        return (int(rows[0][0]), rows[0][1] or "") if rows else (0, "")

    def _ask(self, statement: str, values: tuple[Any, ...]) -> bool:
        (answer,) = self._link.run([(self._link.prepared(statement), values)])
        return bool(answer.current_rows[0][0])
