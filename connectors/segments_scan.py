"""Segments read from start to end, for exports and replay: every record with its place, one in memory at a time.

Any process may do so, also while a crawl appends: an open segment is read as far as a position says, or to its last
whole record.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

from isal import isal_zlib

from connectors.files import StoreFailed, failing_as_store
from connectors.segments_local import OPEN, SUFFIX, Position
from schemas.records import BodyRef
from streams.core import store
from streams.core.policy import RECORD_BYTES_MAX

_CHUNK_BYTES = 256 * 1024
_GZIP_WBITS = 31
_IsalError: type[Exception] = isal_zlib.IsalError  # type: ignore[assignment]  # its stub calls the class an instance


def scan(
    root: str | os.PathLike[str], folder: str, position: Position | None = None
) -> Iterator[tuple[BodyRef, store.Record]]:
    """All records of a folder's segments, oldest segment first. StoreFailed when a sealed one is damaged.

    With a `position`, an open segment is read to its length there, and one that it does not name is skipped; one that
    it names and that is not there is damage, too.
    """
    lengths = None if position is None else dict(position)
    where = os.path.join(root, folder)
    with failing_as_store("segments", f"list {where}"):
        names = sorted(os.listdir(where)) if os.path.isdir(where) else []
    for segment in lengths or ():
        path = os.path.join(root, segment)
        # Sealed while it is looked for, it has the name that was asked for first.
        if segment.startswith(f"{folder}/") and not any(map(os.path.exists, (path, path + OPEN, path))):
            raise StoreFailed(f"segments: needed {path}, got no such file; put it back: the crawl counts on it")
    for name in names:
        segment = f"{folder}/{name.removesuffix(OPEN)}"
        if not segment.endswith(SUFFIX):
            continue
        is_open = name.endswith(OPEN)
        if is_open and lengths is not None and segment not in lengths:
            continue
        path = os.path.join(where, name)
        if is_open and not os.path.exists(path):  # sealed since it was listed
            path, is_open = path.removesuffix(OPEN), False
        end = lengths.get(segment) if lengths is not None and is_open else None
        with failing_as_store("segments", f"read {path}"), open(path, "rb") as file:
            yield from _records(file, segment, path, end, is_open and end is None)


def _records(
    file: BinaryIO, segment: str, path: str, end: int | None, may_be_torn: bool
) -> Iterator[tuple[BodyRef, store.Record]]:
    chunks = _Chunks(file)
    while end is None or chunks.offset < end:
        start = chunks.offset
        data = _member(chunks)
        if data is None:
            return
        record = data if isinstance(data, store.BadRecord) else store.unpacked_record(data)
        if isinstance(record, store.BadRecord):
            if may_be_torn:
                return
            raise StoreFailed(
                f"segments: needed a record at {start} of {path}, got bytes that are none ({record.reason}); "
                "restore that file from a backup, or move it away"
            )
        yield BodyRef(segment, start, chunks.offset - start), record


class _Chunks:
    """A file's bytes with a way to give some back. `offset` is that of the next byte."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._rest = b""
        self.offset = 0

    def take(self) -> bytes:
        chunk, self._rest = self._rest or self._file.read(_CHUNK_BYTES), b""
        self.offset += len(chunk)
        return chunk

    def give_back(self, rest: bytes) -> None:
        self._rest = rest
        self.offset -= len(rest)


def _member(chunks: _Chunks) -> bytes | store.BadRecord | None:
    """The next gzip member unpacked; None at the end of the file."""
    unpacker = isal_zlib.decompressobj(_GZIP_WBITS)
    pieces: list[bytes] = []
    room = RECORD_BYTES_MAX
    chunk = chunks.take()
    if not chunk:
        return None
    try:
        while True:
            piece = unpacker.decompress(chunk, room + 1)
            pieces.append(piece)
            room -= len(piece)
            if room < 0:
                return store.BadRecord(f"unpacks to more than {RECORD_BYTES_MAX} bytes")
            if unpacker.eof:
                chunks.give_back(unpacker.unused_data)
                return b"".join(pieces)
            chunk = unpacker.unconsumed_tail or chunks.take()
            if not chunk:
                return store.BadRecord("the gzip member is cut")
    except _IsalError as error:
        return store.BadRecord(f"no gzip member: {error}")
