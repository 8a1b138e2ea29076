"""URL rows as they go to a store: encoded, and gathered into batches of one partition (host_key, bucket) each.

A batch within one partition is one mutation for Cassandra, atomic for each replica and nearly as cheap as one row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from connectors.ports import UrlWrite
from connectors.url_records import encode_state
from schemas.cassandra import BUCKETS, bucket_of
from streams.core.rows import decode_row, is_first

BATCH_BYTES_MAX = 48 << 10
"""Below `batch_size_fail_threshold`, 50 KiB by default, at which some versions refuse a batch whatever it holds."""

BATCH_ROWS_MAX = 100
"""Rows of new URLs are 150 bytes. From 20 to 50 rows a batch gave a third more, beyond there is little left to gain."""

_ROW_BYTES = 40  # of keys, stamps and lengths beside the URL and its state


class Cell(msgspec.Struct, frozen=True, gc=False):
    """A row ready to be written. `url` None: the column stands, or the URL is deleted."""

    url_id: bytes
    url: str | None
    state: bytes

    @property
    def size_bytes(self) -> int:
        """About what it takes of a batch."""
        return _ROW_BYTES + len(self.url or "") + len(self.state)


class Batch(msgspec.Struct, frozen=True):
    """Rows of one partition, each URL once."""

    host_key: str
    bucket: int
    cells: tuple[Cell, ...]


def batches(
    rows: Sequence[UrlWrite], *, bytes_max: int = BATCH_BYTES_MAX, rows_max: int = BATCH_ROWS_MAX
) -> Iterator[Batch]:
    """Every URL's last row, by partitions in the order of their first rows; a row beyond `bytes_max` goes alone."""
    last = {(row.host_key, row.url_id): row for row in rows}
    partitions: dict[tuple[str, int], list[Cell]] = {}
    for row in last.values():
        partitions.setdefault((row.host_key, bucket_of(row.url_id)), []).append(_cell(row))
    for (host_key, bucket), cells in partitions.items():
        for part in _parts(cells, bytes_max, rows_max):
            yield Batch(host_key, bucket, part)


def by_bucket(url_ids: Sequence[bytes], ids_max: int) -> Iterator[tuple[int, list[bytes]]]:
    """(bucket, url_ids) in the order of url_id, each once, `ids_max` at most at a time."""
    at: list[list[bytes]] = [[] for _ in range(BUCKETS)]
    for url_id in sorted(set(url_ids)):
        at[bucket_of(url_id)].append(url_id)
    for bucket, some in enumerate(at):
        for start in range(0, len(some), ids_max):
            yield bucket, some[start : start + ids_max]


def _cell(write: UrlWrite) -> Cell:
    row = None if write.row is None else decode_row(write.row)
    url = row.url if row is not None and is_first(row) else None
    return Cell(write.url_id, url, encode_state(row))


def _parts(cells: list[Cell], bytes_max: int, rows_max: int) -> Iterator[tuple[Cell, ...]]:
    part: list[Cell] = []
    room = bytes_max
    for cell in cells:
        size = cell.size_bytes
        if part and (size > room or len(part) == rows_max):
            yield tuple(part)
            part, room = [], bytes_max
        part.append(cell)
        room -= size
    yield tuple(part)
