"""How far a database had been committed, noted beside it: what tells a damaged database from a young one.

RocksDB takes whatever it cannot read at the end of its log for a write that a crash cut off, drops it with all that
follows, and a log or a whole database that is not there for a new one. Every commit here was synced, so each has a
place in the database's own count of writes; the count after the last commit is written to a file of eight bytes. A
database that counts less than its file has lost commits, and is left as it is: opened for writing, RocksDB would clear
away the very log that may still be saved, and the segments would be cut to what the rest of it knows.

The file is written after the sync of the commit and is not synced itself: at worst it says less than there is.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from connectors.files import failing_as_store

_BYTES = 8


class CommitMark:
    """The file beside the database at `database`. One process writes it: the one that holds the database."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".committed")
        self._handle: int | None = None

    def read(self) -> int:
        """The count of the last commit that was noted; 0 when none was."""
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return 0
        return int.from_bytes(raw, "big") if len(raw) == _BYTES else 0

    def open(self) -> None:
        """Before the first `note`. Raises StoreFailed."""
        with failing_as_store("crawl state", f"open {self._path}"):
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def note(self, count: int) -> None:
        """A commit is durable. Where the disk is full the file keeps what it said, which stays true."""
        if self._handle is not None:
            with contextlib.suppress(OSError):
                os.pwrite(self._handle, count.to_bytes(_BYTES, "big"), 0)

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
