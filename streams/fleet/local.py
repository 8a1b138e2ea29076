"""A partition's local store, and where it stands: every batch says so in itself.

Theory of operation. States follow the changelog, whoever writes it: their place is the offset of the last record that
is applied. URL rows and their index (`streams.core.index`) are no part of the changelog: they are written by the owner
that runs here, together with the stamp of the transaction that they belong to. So they are whole exactly while that
stamp is the one of the states' own mark. A store that is one transaction behind is brought up to it by the redo of
that one; any other index is cleared, and loaded anew from the shared rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from connectors.crawldb_rocksdb import CrawlDb
from connectors.ports import Record, UrlWrite
from connectors.store_memory import StoreMemory
from streams.core.rows import decode_row
from streams.core.rules.urls import host_id
from streams.core.seen import seen_value
from streams.core.turn import Family, Write
from streams.fleet import changelog
from streams.fleet.changelog import Mark

STANDING_MS_MAX = 20 * 3_600_000  # deletions stay in the changelog for a day: an older store would miss some

_OFFSET, _MARK, _INDEX, _REDO = "offset", "mark", "index", "redo-"
_encode = msgspec.msgpack.Encoder().encode
_decode_stamp = msgspec.msgpack.Decoder(tuple[int, int]).decode


class LocalStore:
    """One partition's. One thread writes at a time; any may read."""

    def __init__(self, path: Path, *, now_ms: int, memory: StoreMemory | None = None) -> None:
        """Opens it; one that stood still for too long is begun anew. Raises StoreFailed.

        `memory`: shared with the worker's other partitions.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self.db = CrawlDb(path, memory=memory, synced=False)
        mark = self.mark
        if mark is not None and now_ms - mark.written_ms > STANDING_MS_MAX:
            self.db.close()
            shutil.rmtree(path)
            self.db = CrawlDb(path, memory=memory, synced=False)

    @property
    def offset(self) -> int | None:
        """Of the last changelog record that is applied."""
        raw = self.db.meta(_OFFSET)
        return None if raw is None else int.from_bytes(raw, "big")

    @property
    def mark(self) -> Mark | None:
        """Of the last transaction that is applied; None before the partition's first."""
        raw = self.db.meta(_MARK)
        return None if raw is None else changelog.decode_mark(raw)

    # --- a follower's side ----------------------------------------------------------------------------------------

    def follow(self, records: Sequence[Record], last: int) -> None:
        """Apply what others committed, up to the offset `last`."""
        read = changelog.take_apart((record.key, record.value) for record in records)
        meta = {_OFFSET: last.to_bytes(8, "big")}
        if read.mark is not None:
            meta[_MARK] = changelog.encode_mark(read.mark)
        for number, value in read.redo.items():
            meta[f"{_REDO}{number}"] = value
        self.db.commit(read.writes, meta=meta)

    # --- an owner's side ------------------------------------------------------------------------------------------

    def redo(self) -> list[UrlWrite]:
        """The rows of the last transaction, where it was another's: those of an own one were written before it was
        applied, and what lies here of an earlier one must not be written under its stamp."""
        mark = self.mark
        rows: list[UrlWrite] = []
        for number in range(0 if mark is None else mark.redo):
            value = self.db.meta(f"{_REDO}{number}")
            redo = None if value is None else changelog.decode_redo(value)
            if redo is not None and mark is not None and redo.stamp == mark.stamp:
                rows += redo.rows
        return rows

    def settle_index(self, rows: Sequence[UrlWrite]) -> str:
        """Bring rows and index to where the states are, or clear them. `rows`: the redo. What was done, in a word."""
        mark = self.mark
        stamp = None if mark is None else mark.stamp
        raw = self.db.meta(_INDEX)
        stands = None if raw is None else _decode_stamp(raw)
        if stands is not None and stands == stamp:
            return "kept"
        if mark is not None and stands is not None and stands == mark.before:
            self.db.commit(self._index_writes(rows), meta={_INDEX: _encode(mark.stamp)})
            return "redone"
        self.db.clear_index()
        self.db.clear_rows()
        return "cleared" if stands is not None else "new"

    def apply(self, writes: Sequence[Write], mark: Mark, offset: int) -> None:
        """A transaction of our own, whole: states, rows and index, and where all of it stands."""
        meta = {_OFFSET: offset.to_bytes(8, "big"), _MARK: changelog.encode_mark(mark), _INDEX: _encode(mark.stamp)}
        self.db.commit(writes, meta=meta)

    def close(self) -> None:
        self.db.close()

    def _index_writes(self, rows: Sequence[UrlWrite]) -> list[Write]:
        """What a transaction that has these rows did to rows and index."""
        writes: list[Write] = []
        for host_key, url_id, raw in rows:
            host = host_id(host_key)
            key = host + url_id
            before = self.db.rows([key])[0]
            if before is not None and (place := decode_row(before).place):
                writes.append((Family.QUEUE, host + place + url_id, None))
            writes.append((Family.URL, key, raw))
            if raw is None:
                writes.append((Family.SEEN, key, None))
                continue
            row = decode_row(raw)
            writes.append((Family.SEEN, key, seen_value(row)))
            if row.place:
                writes.append((Family.QUEUE, host + row.place + url_id, b""))
        return writes
