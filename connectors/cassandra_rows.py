"""Reading URL rows from Cassandra: some of a host, or the host whole, in the order of url_id.

A host lies in 16 partitions. Most hosts have a handful of URLs, so a host's first page asks all 16 at once and is the
only one; whatever does not fit into it is read bucket by bucket, which is in the order of url_id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cassandra import ConsistencyLevel

from connectors.cassandra_link import CassandraLink
from connectors.url_batches import by_bucket
from connectors.url_rows import RowReader
from schemas.cassandra import BUCKETS, bucket_of

IDS_MAX = 50  # asked for in one statement
PAGE_ROWS_MAX = 2_000  # rows of one answer: about 1 MB, which a node builds in its heap

_SOME = "SELECT url_id, url, state FROM {keyspace}.%s WHERE host_key = ? AND bucket = ? AND url_id IN ?"
_FOLLOWING = "SELECT url_id, url, state FROM {keyspace}.%s WHERE host_key = ? AND bucket = ? AND url_id > ? LIMIT ?"
_WHOLE = "SELECT url_id, url, state FROM {keyspace}.%s WHERE host_key = ? AND bucket IN ? LIMIT ?"
_BUCKETS = list(range(BUCKETS))


class HostReader:
    """Of one table. Any thread may call."""

    def __init__(self, link: CassandraLink, table: str, consistency: int) -> None:
        self._link = link
        self._some, self._following, self._whole = (query % table for query in (_SOME, _FOLLOWING, _WHOLE))
        self._consistency = consistency
        # At SERIAL a node reads one partition at a time.
        self._serial = consistency == ConsistencyLevel.SERIAL
        self._rows = RowReader()

    @property
    def refused(self) -> int:
        """`UrlState.refused`."""
        return self._rows.refused

    def read(self, host_key: str, url_ids: Sequence[bytes]) -> list[bytes | None]:
        """`UrlState.read`."""
        some = self._link.prepared(self._some, self._consistency)
        statements = [(some, (host_key, bucket, ids)) for bucket, ids in by_bucket(url_ids, IDS_MAX)]
        answers = self._link.run(statements)
        found = {row[0]: self._rows.row(host_key, *row) for answer in answers for row in answer.current_rows}
        return [found.get(url_id) for url_id in url_ids]

    def scan(self, host_key: str, after: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        """`UrlState.scan`."""
        found: list[tuple[bytes, bytes]] = []
        if not after and not self._serial:
            rows = self._small(host_key, min(rows_max, PAGE_ROWS_MAX))
            if rows is not None:
                return self._standing(host_key, rows)
        bucket = bucket_of(after) if after else 0
        while len(found) < rows_max and bucket < BUCKETS:
            limit = min(rows_max - len(found), PAGE_ROWS_MAX)
            rows = self._page(host_key, bucket, after, limit)
            found += self._standing(host_key, [row for row in rows if bucket_of(row[0]) == bucket])
            if len(rows) < limit:
                bucket += 1
            else:
                after = rows[-1][0]
        return found

    def _small(self, host_key: str, rows_max: int) -> list[Any] | None:
        """The whole host, if it is one of fewer than `rows_max` rows."""
        whole = self._link.prepared(self._whole, self._consistency)
        (answer,) = self._link.run([(whole, (host_key, _BUCKETS, rows_max))])
        rows = answer.current_rows
        return None if answer.has_more_pages or len(rows) >= rows_max else sorted(rows)

    def _page(self, host_key: str, bucket: int, after: bytes, limit: int) -> list[Any]:
        """The next rows of a bucket; fewer than `limit`, and it has no more."""
        following = self._link.prepared(self._following, self._consistency)
        rows: list[Any] = []
        while True:
            (answer,) = self._link.run([(following, (host_key, bucket, after, limit - len(rows)))])
            rows += answer.current_rows
            if len(rows) >= limit or not answer.has_more_pages:
                return rows
            after = rows[-1][0]

    def _standing(self, host_key: str, rows: list[Any]) -> list[tuple[bytes, bytes]]:
        found = ((url_id, self._rows.row(host_key, url_id, url, state)) for url_id, url, state in rows)
        return [(url_id, row) for url_id, row in found if row is not None]
