"""The URL store in Cassandra, table `url_state`: one stamped cell for all that changes of a URL.

Every write is `USING TIMESTAMP (owner_epoch << 32 | state_version)`, so replicas agree by themselves on who wrote last:
no read comes before a write, and a repeat changes nothing. `schemas/crawl.cql` has the laws of the table.

A first write is an INSERT of the whole row; any later one is an UPDATE of `state` alone. A deletion is a state.
Batches are unlogged, within one partition each: Cassandra makes one mutation of it. Writes and reads ask a quorum of
all replicas, in all regions: whoever takes a partition over, wherever, reads all that its last owner wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cassandra import ConsistencyLevel
from cassandra.query import BatchStatement, BatchType

from connectors.cassandra_link import CassandraLink, Statement
from connectors.cassandra_rows import HostReader
from connectors.ports import UrlWrite
from connectors.url_batches import BATCH_BYTES_MAX, BATCH_ROWS_MAX, Batch, batches
from schemas.cassandra import URL_STATE, stamp

_INSERT = (
    f"INSERT INTO {{keyspace}}.{URL_STATE} (host_key, bucket, url_id, url, state) VALUES (?, ?, ?, ?, ?)"
    " USING TIMESTAMP ?"
)
_UPDATE = (
    f"UPDATE {{keyspace}}.{URL_STATE} USING TIMESTAMP ? SET state = ? WHERE host_key = ? AND bucket = ? AND url_id = ?"
)


class CassandraUrlState:
    """`connectors.ports.UrlState`. Any thread may call."""

    def __init__(
        self,
        link: CassandraLink,
        *,
        batch_bytes_max: int = BATCH_BYTES_MAX,
        batch_rows_max: int = BATCH_ROWS_MAX,
        consistency: int = ConsistencyLevel.QUORUM,
    ) -> None:
        """`consistency`: of reads and writes. Weaker than QUORUM, a move to another region may miss the last rows."""
        self._link = link
        self._bytes_max, self._rows_max = batch_bytes_max, batch_rows_max
        self._consistency = consistency
        self._reader = HostReader(link, URL_STATE, consistency)

    @property
    def refused(self) -> int:
        return self._reader.refused

    def write(self, rows: Sequence[UrlWrite], *, epoch: int, version: int) -> None:
        at = stamp(epoch, version)
        some = batches(rows, bytes_max=self._bytes_max, rows_max=self._rows_max)
        self._link.run([self.statement(batch, at) for batch in some])

    def read(self, host_key: str, url_ids: Sequence[bytes]) -> list[bytes | None]:
        return self._reader.read(host_key, url_ids)

    def scan(self, host_key: str, after: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        return self._reader.scan(host_key, after, rows_max)

    def statement(self, batch: Batch, at: int) -> Statement:
        """One batch as it is sent; a row alone needs none."""
        insert = self._link.prepared(_INSERT, self._consistency)
        update = self._link.prepared(_UPDATE, self._consistency)
        host_key, bucket = batch.host_key, batch.bucket
        statements: list[tuple[Any, tuple[Any, ...]]] = [
            (insert, (host_key, bucket, cell.url_id, cell.url, cell.state, at))
            if cell.url is not None
            else (update, (at, cell.state, host_key, bucket, cell.url_id))
            for cell in batch.cells
        ]
        if len(statements) == 1:
            return statements[0]
        together = BatchStatement(BatchType.UNLOGGED, consistency_level=self._consistency)
        for prepared, values in statements:
            together.add(prepared, values)
        return together, None
