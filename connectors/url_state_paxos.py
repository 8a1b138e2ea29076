"""The URL store in Cassandra by conditional writes, table `url_state_paxos`: the same laws, at many times the cost.

    INSERT ... IF NOT EXISTS, then UPDATE ... SET state, stamp ... IF stamp < ?

Here the stamp is a column, and replicas agree by Paxos, a row at a time. The loser could be told; the port does not
ask, for the owner decides from its own state. Reads are at SERIAL: a write that is half agreed on is finished first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from cassandra import ConsistencyLevel

from connectors.cassandra_link import CassandraLink, Statement
from connectors.cassandra_rows import HostReader
from connectors.ports import UrlWrite
from connectors.url_batches import Cell, batches
from schemas.cassandra import URL_STATE_PAXOS, stamp

_INSERT = (
    f"INSERT INTO {{keyspace}}.{URL_STATE_PAXOS} (host_key, bucket, url_id, url, state, stamp)"
    " VALUES (?, ?, ?, ?, ?, ?) IF NOT EXISTS"
)
_UPDATE = (
    f"UPDATE {{keyspace}}.{URL_STATE_PAXOS} SET state = ?, stamp = ?"
    " WHERE host_key = ? AND bucket = ? AND url_id = ? IF stamp < ?"
)
_READMIT = _UPDATE.replace("SET state", "SET url = ?, state")  # the row may be of a deletion, which knows no URL


class _Write(msgspec.Struct):
    """A row on its way. `insert`: what is tried next."""

    host_key: str
    bucket: int
    cell: Cell
    insert: bool


class PaxosUrlState:
    """`connectors.ports.UrlState`. Any thread may call."""

    def __init__(self, link: CassandraLink) -> None:
        self._link = link
        self._reader = HostReader(link, URL_STATE_PAXOS, ConsistencyLevel.SERIAL)

    @property
    def refused(self) -> int:
        return self._reader.refused

    def write(self, rows: Sequence[UrlWrite], *, epoch: int, version: int) -> None:
        at = stamp(epoch, version)
        pending = [
            _Write(batch.host_key, batch.bucket, cell, insert=cell.url is not None)
            for batch in batches(rows)
            for cell in batch.cells
        ]
        while pending:
            # Paxos agrees on a partition at a time: two of its rows at once would only hold each other up.
            now = {(write.host_key, write.bucket): write for write in reversed(pending)}.values()
            answers = self._link.run([self._statement(write, at) for write in now])
            done = {id(write) for write, answer in zip(now, answers, strict=True) if not _goes_on(write, answer)}
            pending = [write for write in pending if id(write) not in done]

    def read(self, host_key: str, url_ids: Sequence[bytes]) -> list[bytes | None]:
        return self._reader.read(host_key, url_ids)

    def scan(self, host_key: str, after: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        return self._reader.scan(host_key, after, rows_max)

    def _statement(self, write: _Write, at: int) -> Statement:
        cell = write.cell
        if write.insert:
            values: tuple[Any, ...] = (write.host_key, write.bucket, cell.url_id, cell.url or "", cell.state, at)
            return self._link.prepared(_INSERT), values
        values = (cell.state, at, write.host_key, write.bucket, cell.url_id, at)
        if cell.url is None:
            return self._link.prepared(_UPDATE), values
        return self._link.prepared(_READMIT), (cell.url, *values)


def _goes_on(write: _Write, answer: Any) -> bool:
    """Whether the row is still to be written, the other way."""
    applied, *current = answer.current_rows[0]
    if applied:
        return False
    if write.insert:
        write.insert = False  # it is there; perhaps our own, of a try whose answer was lost
        return True
    if current and current[0] is not None:
        return False  # a later write stands, or this very one
    write.insert = True
    return True
