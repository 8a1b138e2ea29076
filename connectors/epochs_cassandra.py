"""The numbers of ownership in Cassandra, table `owner_epoch`: one Paxos write for each assignment of a partition.

    INSERT ... IF NOT EXISTS, then UPDATE ... SET epoch = n + 1 ... IF epoch = n

at SERIAL, which is agreed on by all regions. Whoever is told that its write was applied has the number alone. Whoever
lost the answer asks again and takes a later one; the number in between is nobody's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cassandra import ConsistencyLevel

from connectors.cassandra_link import CassandraLink
from schemas.cassandra import OWNER_EPOCH, STAMP_EPOCH_MAX
from streams.core.failures import EXIT_FAILED, CrawlError

_LAST = f"SELECT epoch FROM {{keyspace}}.{OWNER_EPOCH} WHERE partition_id = ?"
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
            last = self._last(partition)
            epoch = last + 1
            if epoch > STAMP_EPOCH_MAX:
                raise CrawlError(
                    f"owner_epoch: needed an epoch of partition {partition} up to {STAMP_EPOCH_MAX}, came {epoch};"
                    " somebody wrote it by hand",
                    EXIT_FAILED,
                )
            noted = (self._owner, self._region, self._clock())
            if last == 0:
                applied = self._ask(_FIRST, (partition, epoch, *noted))
            else:
                applied = self._ask(_NEXT, (epoch, *noted, partition, last))
            if applied:
                return epoch
            # Somebody was faster, or we were and did not hear of it.

    def _last(self, partition: int) -> int:
        select = self._link.prepared(_LAST, ConsistencyLevel.SERIAL)
        (answer,) = self._link.run([(select, (partition,))])
        rows = answer.current_rows
        return int(rows[0][0]) if rows else 0

    def _ask(self, statement: str, values: tuple[Any, ...]) -> bool:
        (answer,) = self._link.run([(self._link.prepared(statement), values)])
        return bool(answer.current_rows[0][0])
