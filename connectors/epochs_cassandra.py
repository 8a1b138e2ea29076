"""The numbers of ownership in Cassandra, table `owner_epoch`: one Paxos write for each assignment of a partition.

    INSERT ... IF NOT EXISTS, then UPDATE ... SET epoch = n + 1 ... IF epoch = n

at SERIAL, which is agreed on by all regions. Whoever is told that its write was applied has the number alone. Whoever
lost the answer asks again and takes a later one; the number in between is nobody's.

How the record may change is said in `streams.core.homes`: the region of the last epoch is where the partition is at
home, and a move is such a write, too, with another region in it. So who takes it and who moves it cannot pass each
other unseen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cassandra import ConsistencyLevel

from connectors.cassandra_link import CassandraLink
from connectors.ports import Elsewhere
from schemas.cassandra import OWNER_EPOCH, STAMP_EPOCH_MAX
from streams.core import homes
from streams.core.failures import EXIT_FAILED, CrawlError
from streams.core.homes import Home

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
            before = self.home(partition)
            after = homes.taken(before, self._region)
            if after is None:
                raise Elsewhere(f"partition {partition} is at home in another region than {self._region!r}: {before}")
            if self._changed(partition, before, after):
                return after.epoch

    def home(self, partition: int) -> Home | None:
        select = self._link.prepared(_LAST, ConsistencyLevel.SERIAL)
        (answer,) = self._link.run([(select, (partition,))])
        rows = answer.current_rows
        return Home(int(rows[0][0]), rows[0][1] or "") if rows else None

    def move(self, partition: int, region: str) -> int:
        """As the port says. Raises CrawlError when the numbers are at their end."""
        while True:
            before = self.home(partition)
            after = homes.moved(before, region)
            if self._changed(partition, before, after):
                return after.epoch

    def _changed(self, partition: int, before: Home | None, after: Home) -> bool:
        """Whether the record is so by us; if not, somebody was faster, or we were and did not hear of it."""
        if after.epoch > STAMP_EPOCH_MAX:
            raise CrawlError(
                f"owner_epoch: needed an epoch of partition {partition} up to {STAMP_EPOCH_MAX}, came {after.epoch};"
                " somebody wrote it by hand",
                EXIT_FAILED,
            )
        noted = (self._owner, after.region, self._clock())
        if before is None:
            return self._ask(_FIRST, (partition, after.epoch, *noted))
        return self._ask(_NEXT, (after.epoch, *noted, partition, before.epoch))

    def _ask(self, statement: str, values: tuple[Any, ...]) -> bool:
        (answer,) = self._link.run([(self._link.prepared(statement), values)])
        return bool(answer.current_rows[0][0])
