"""The fetch log in an S3 store: every result as a row of Parquet objects below `fetchlog/`.

Rows wait in a journal of the spool until some thousands are there or some time has passed; an object is then written
whole, named as the journal is, and the journal removed. A process that is killed leaves its journal, and the next start
on that disk writes the object: rows are handed to the kernel before anybody hears of their result, so a kill loses
none. A crash between the object and the journal's removal writes the same object again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from connectors.fetchlog import FOLDER, SUFFIX, to_parquet
from connectors.files import failing_as_store
from connectors.object_store import ObjectStore
from schemas.records import FetchLogRow
from streams.core.policy import FETCH_LOG_ROWS_MAX

__all__ = ["S3FetchLog"]

_JOURNAL = ".rows"
_LENGTH_BYTES = 4
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(FetchLogRow).decode


class S3FetchLog:
    """`add` from one thread; `roll` and `recover` from others, one at a time."""

    def __init__(self, objects: ObjectStore, spool: Path, *, worker: str, epoch: int) -> None:
        """`spool`: a folder that this process holds. `worker` and `epoch` have never been used before."""
        self._objects, self._folder = objects, spool / FOLDER
        with failing_as_store("fetch log", f"make the folder {self._folder}"):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._remains = sorted(one for one in self._folder.iterdir() if one.suffix == _JOURNAL)
        self._prefix = f"fetches-{worker}-{epoch:05d}-"
        self._lock = threading.Lock()  # over what follows
        self._number = 0
        self._file = -1  # of the open journal; -1: none yet
        self.rows = 0  # in it

    def add(self, row: FetchLogRow) -> None:
        """Kept by this machine when it returns. Raises StoreFailed."""
        data = _encode(row)
        with self._lock, failing_as_store("fetch log", f"append to a journal in {self._folder}"):
            if self._file < 0:
                self._file = os.open(self._path(), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            os.write(self._file, len(data).to_bytes(_LENGTH_BYTES, "big") + data)
            self.rows += 1

    @property
    def is_full(self) -> bool:
        return self.rows >= FETCH_LOG_ROWS_MAX

    def roll(self) -> None:
        """What was added so far goes to the store. Waits while it is away; StoreClosed, StoreFailed as there."""
        with self._lock:
            if not self.rows:
                return
            path = self._path()
            os.close(self._file)
            self._file, self.rows = -1, 0
            self._number += 1
        self._write(path, ())

    def recover(self, lost_segments: Collection[str]) -> int:
        """Write what a killed process left. How many rows. `lost_segments`: bodies there never came to the store."""
        return sum(self._write(path, lost_segments) for path in self._remains)

    def close(self) -> None:
        """What was not rolled stays in its journal, for the next start."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _path(self) -> Path:
        return self._folder / f"{self._prefix}{self._number:05d}{_JOURNAL}"

    def _write(self, path: Path, lost_segments: Collection[str]) -> int:
        with failing_as_store("fetch log", f"read {path}"):
            data = path.read_bytes()
        rows = [
            msgspec.structs.replace(row, body=None) if row.body and row.body.segment in lost_segments else row
            for row in _rows(data)
        ]
        for number, at in enumerate(range(0, len(rows), FETCH_LOG_ROWS_MAX)):
            name = f"{FOLDER}/{path.stem}{f'-{number}' if number else ''}{SUFFIX}"
            self._objects.put(name, to_parquet(rows[at : at + FETCH_LOG_ROWS_MAX]))
        with failing_as_store("fetch log", f"remove {path}"):
            path.unlink()
        return len(rows)


def _rows(data: bytes) -> Iterator[FetchLogRow]:
    """Up to the last whole row: a kill may have cut one."""
    at = 0
    while at + _LENGTH_BYTES <= len(data):
        start = at + _LENGTH_BYTES
        at = start + int.from_bytes(data[at:start], "big")
        if at <= len(data):
            yield _decode(data[start:at])
