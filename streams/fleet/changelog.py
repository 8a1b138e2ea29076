"""What the owners of a partition leave one another: the records of the changelog.

| key           | value                                                | written by                     |
|---------------|------------------------------------------------------|--------------------------------|
| family ‖ key  | a value of `streams.core.turn.Family`; none: deleted | a transaction that changes it  |
| REDO ‖ number | URL rows of the last transaction, some               | a transaction that has rows    |
| MARK          | `Mark`: where the owner stands with it               | every transaction, as its last |

URL rows are durable in the URL table and their index is made from them, so neither lies here: but the rows of the very
last transaction do, since they are written to the table after it (infra/decisions/0061). The next transaction's take
their keys, so compaction keeps one transaction's rows and no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from connectors.ports import UrlWrite
from streams.core import policy as bounds
from streams.core.turn import INDEX_FAMILIES, Family, Write

STATE_FAMILIES = frozenset(Family) - {Family.URL, *INDEX_FAMILIES}

_REDO = 0xFE
_MARK = b"\xff"
_ROW_OVERHEAD_BYTES = 64


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """Where a partition's owners stand. Each transaction's own; (epoch, version) rises with each."""

    epoch: int
    version: int  # of the transactions of that epoch
    positions: dict[str, int]  # of each input topic: the last offset that is applied
    redo: int  # records of URL rows that belong to this transaction
    written_ms: int
    before: tuple[int, int] | None = None  # the stamp of the transaction before this one

    @property
    def stamp(self) -> tuple[int, int]:
        return self.epoch, self.version


encode_mark = msgspec.msgpack.Encoder().encode
decode_mark = msgspec.msgpack.Decoder(Mark).decode
_encode_redo = msgspec.msgpack.Encoder().encode

Entry = tuple[bytes, bytes | None]
"""(key, value) of one record."""


def states(writes: Iterable[Write]) -> list[Entry]:
    """The records of the writes that are states."""
    return [(_FAMILY_BYTE[family] + key, value) for family, key, value in writes if family in STATE_FAMILIES]


_FAMILY_BYTE = {family: bytes((family,)) for family in Family}


class Redo(msgspec.Struct, frozen=True, array_like=True):
    """Some rows of the transaction of that stamp."""

    stamp: tuple[int, int]
    rows: tuple[UrlWrite, ...]


decode_redo = msgspec.msgpack.Decoder(Redo).decode


def redo(rows: Sequence[UrlWrite], stamp: tuple[int, int]) -> list[Entry]:
    """The records of a transaction's URL rows, each within a message's limit."""
    entries: list[Entry] = []
    part: list[UrlWrite] = []
    size = 0
    for row in rows:
        row_bytes = len(row.row or b"") + len(row.host_key) + _ROW_OVERHEAD_BYTES
        if part and size + row_bytes > bounds.MESSAGE_BYTES_MAX:
            entries.append((_redo_key(len(entries)), _encode_redo(Redo(stamp, tuple(part)))))
            part, size = [], 0
        part.append(row)
        size += row_bytes
    if part:
        entries.append((_redo_key(len(entries)), _encode_redo(Redo(stamp, tuple(part)))))
    return entries


def marked(mark: Mark) -> Entry:
    return _MARK, encode_mark(mark)


class Read(msgspec.Struct):
    """Records of a changelog, taken apart. `mark` is the last one among them, `redo` by number."""

    writes: list[Write]
    redo: dict[int, bytes]
    mark: Mark | None = None


def take_apart(entries: Iterable[tuple[bytes | None, bytes | None]]) -> Read:
    """(key, value) in order. A later write of a key comes after an earlier one."""
    read = Read([], {})
    for key, value in entries:
        assert key, "a changelog's records have keys"
        first = key[0]
        if first == _REDO:
            if value is not None:
                read.redo[int.from_bytes(key[1:], "big")] = value
        elif key == _MARK:
            read.mark = None if value is None else decode_mark(value)
        else:
            read.writes.append((Family(first), key[1:], value))
    return read


def _redo_key(number: int) -> bytes:
    return bytes((_REDO,)) + number.to_bytes(2, "big")
