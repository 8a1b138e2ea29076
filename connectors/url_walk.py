"""All URL rows of a fleet, or those of some hosts, read once from the first to the last: for replays.

The ring of tokens is taken in slices, and of each the partitions first and then their rows: a slice that has more
partitions than an answer holds is halved. Rows that change meanwhile are read as they were or as they are; a row that
is admitted meanwhile may be missed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from cassandra import ConsistencyLevel

from connectors.cassandra_link import CassandraLink
from connectors.cassandra_rows import PAGE_ROWS_MAX, HostReader
from connectors.url_rows import RowReader
from schemas.cassandra import URL_STATE

__all__ = ["UrlWalk"]

SLICES = 256
PARTITIONS_AT_ONCE = 32
_FIRST, _LAST = -(1 << 63), (1 << 63) - 1  # Murmur3's tokens; the first belongs to no partition

_PARTITIONS = (
    f"SELECT DISTINCT host_key, bucket FROM {{keyspace}}.{URL_STATE}"
    " WHERE token(host_key, bucket) > ? AND token(host_key, bucket) <= ?"
)
_ROWS = (
    f"SELECT url_id, url, state FROM {{keyspace}}.{URL_STATE} WHERE host_key = ? AND bucket = ? AND url_id > ? LIMIT ?"
)


class UrlWalk:
    """`rows` may be called again; it begins anew."""

    def __init__(self, link: CassandraLink, *, consistency: int = ConsistencyLevel.QUORUM) -> None:
        self._link, self._consistency = link, consistency
        self._reader = HostReader(link, URL_STATE, consistency)
        self._rows = RowReader()

    def rows(self, hosts: Sequence[str] = ()) -> Iterator[tuple[str, bytes, bytes]]:
        """(host_key, url_id, row as `streams.core.rows` encodes it), host by host where hosts are named.

        Waits while Cassandra is away. Raises CrawlError, also for a newer build's row, and StoreClosed.
        """
        if hosts:
            for host_key in hosts:
                yield from self._of_host(host_key)
            return
        for partitions in self._partitions():
            yield from self._of_partitions(partitions)

    def _of_host(self, host_key: str) -> Iterator[tuple[str, bytes, bytes]]:
        after = b""
        while True:
            found = self._reader.scan(host_key, after, PAGE_ROWS_MAX)
            for url_id, row in found:
                yield host_key, url_id, row
            if len(found) < PAGE_ROWS_MAX:
                return
            after = found[-1][0]

    def _partitions(self) -> Iterator[list[tuple[str, int]]]:
        """(host_key, bucket) of all partitions, some at a time."""
        asked = self._link.prepared(_PARTITIONS, self._consistency)
        step = (_LAST - _FIRST) // SLICES
        bounds = [*(_FIRST + step * at for at in range(SLICES)), _LAST]
        slices = list(itertools.pairwise(bounds))[::-1]
        while slices:
            low, high = slices.pop()
            (answer,) = self._link.run([(asked, (low, high))])
            if answer.has_more_pages:
                middle = (low + high) // 2
                slices += [(middle, high), (low, middle)]
                continue
            found = [(host_key, bucket) for host_key, bucket in answer.current_rows]
            for at in range(0, len(found), PARTITIONS_AT_ONCE):
                yield found[at : at + PARTITIONS_AT_ONCE]

    def _of_partitions(self, partitions: Sequence[tuple[str, int]]) -> Iterator[tuple[str, bytes, bytes]]:
        asked = self._link.prepared(_ROWS, self._consistency)
        left: list[tuple[str, int, bytes]] = [(host_key, bucket, b"") for host_key, bucket in partitions]
        while left:
            answers = self._link.run([(asked, (*one, PAGE_ROWS_MAX)) for one in left])
            more: list[tuple[str, int, bytes]] = []
            for (host_key, bucket, _), answer in zip(left, answers, strict=True):
                rows: list[Any] = answer.current_rows
                for url_id, url, state in rows:
                    row = self._rows.row(host_key, url_id, url, state)
                    if row is not None:
                        yield host_key, url_id, row
                if rows and (answer.has_more_pages or len(rows) == PAGE_ROWS_MAX):
                    more.append((host_key, bucket, rows[-1][0]))
            left = more
