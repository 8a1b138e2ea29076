"""The crawl's state on one machine: RocksDB, one synced write batch for each group of decisions.

All column families share one log, so a batch is one atomic, durable step: the owner's writes, the position of the
segments, the content index and the fetch log's journal become visible together or not at all.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rocksdict import (
    AccessType,
    Options,
    Rdict,
    WriteBatch,
    WriteOptions,
)

from connectors.crawldb_mark import CommitMark
from connectors.crawldb_options import database_options, family_options
from connectors.files import StoreFailed
from connectors.ports import StoredContent
from connectors.store_memory import StoreMemory
from streams.core.turn import INDEX_FAMILIES, Family, Write

_OWNER_FAMILIES = {
    Family.URL: "url",
    Family.QUEUE: "queue",
    Family.HOST: "host",
    Family.RULES: "rules",
    Family.TEMPLATES: "templates",
    Family.TASK: "task",
    Family.DEAD: "dead",
    Family.POLICY: "policy",
    Family.GROUP: "group",
    Family.OWNER: "owner",
    Family.SEEN: "seen",
    Family.INDEX: "index",
}
_META, _CONTENT, _LOG = "meta", "content", "log"
_TABLES_BYTES = "rocksdb.total-sst-files-size"
_AFTER_ALL = b"\xff" * 64  # after every key
_ALL = (*_OWNER_FAMILIES.values(), _META, _CONTENT, _LOG)

_RESTATED = "rocksdict-config.json"  # what rocksdict writes at each opening
_SIZE_LOOK_COMMITS = 512  # between two looks at how much lies in tables

_decode_content = msgspec.msgpack.Decoder(StoredContent).decode
_encode = msgspec.msgpack.Encoder().encode


class CrawlDb:
    """Reads see the last commit. One thread commits; any may read."""

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        secondary: Path | None = None,
        memory: StoreMemory | None = None,
        synced: bool = True,
    ) -> None:
        """`memory`: shared with other stores of the process. `secondary`: a scratch folder for a reader that follows a
        running crawl. Raises StoreFailed.

        `synced`: a commit is on disk when it returns. Without, a machine that stops may lose the last ones, in order:
        for a store that another log fills up again.
        """
        access = AccessType.read_write()
        if secondary is not None:
            access = AccessType.secondary(str(secondary))
            if not os.access(path, os.W_OK):
                path = _linked(path, secondary / "linked")
        elif read_only:
            access = AccessType.read_only(False)
        self._name, self._memory = str(path), StoreMemory() if memory is None else memory
        self._commits = 0
        self._mark = CommitMark(path)
        writing = access_is_write(read_only, secondary)
        if writing and synced:
            _refuse_if_commits_are_lost(path, self._mark.read(), self._memory)
        try:
            there = _ALL if writing else _families_in(path)
            self._db: Any = Rdict(
                str(path),
                database_options(self._memory, create=writing),
                {name: family_options(name, self._memory) for name in there},
                access,
            )
        except Exception as error:  # rocksdict has no narrower class
            raise _not_opened(path, error) from error
        if writing and synced:
            self._mark.open()
            self._mark.note(self._db.latest_sequence_number())
        self._families: dict[str, Any] = {name: self._db.get_column_family(name) for name in there}
        self._handles: dict[str, Any] = {name: self._db.get_column_family_handle(name) for name in there}
        # Lists by the family's number: a dict would hash an enum's member, which is a call of Python.
        self._by_family: list[Any] = [self._families.get(_OWNER_FAMILIES[family]) for family in Family]
        self._handle_of: list[Any] = [self._handles.get(_OWNER_FAMILIES[family]) for family in Family]
        self._synced = WriteOptions()
        self._synced.sync = synced

    # --- what the owner reads (streams.core.turn.Reads) ------------------------------------------------------------

    def rows(self, keys: list[bytes]) -> list[bytes | None]:
        return self._several(Family.URL, keys)

    def seen(self, keys: list[bytes]) -> list[bytes | None]:
        return self._several(Family.SEEN, keys)

    def _several(self, family: Family, keys: list[bytes]) -> list[bytes | None]:
        try:
            found: list[bytes | None] = self._by_family[family].get(keys)
        except Exception as error:  # rocksdict has no narrower class
            raise _unreadable(error) from error
        return found

    def get(self, family: Family, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._by_family[family].get(key)
        except Exception as error:  # rocksdict has no narrower class
            raise _unreadable(error) from error
        return value

    def queue(self, host_id: bytes, queue: int, after: bytes, entries_max: int) -> list[bytes]:
        """Tails of one class that follow `after`, in order."""
        prefix = host_id + bytes((queue,))
        width = len(host_id)
        entries = self._by_family[Family.QUEUE].iter()
        entries.seek(host_id + after + b"\0" if after else prefix)
        found: list[bytes] = []
        while len(found) < entries_max and entries.valid():
            key: bytes = entries.key()
            if not key.startswith(prefix):
                break
            found.append(key[width:])
            entries.next()
        _check(entries)
        return found

    def rows_after(self, after: bytes, rows_max: int, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        """(key, value) of the URL rows that follow `after` and begin with `prefix`, in order."""
        entries = self._by_family[Family.URL].iter()
        if after:
            entries.seek(after + b"\0")
        else:
            entries.seek_to_first()
        found: list[tuple[bytes, bytes]] = []
        while len(found) < rows_max and entries.valid():
            key: bytes = entries.key()
            if not key.startswith(prefix):
                break
            found.append((key, entries.value()))
            entries.next()
        _check(entries)
        return found

    def hosts(self) -> Iterator[tuple[bytes, bytes]]:
        return self.scan(Family.HOST)

    def following(self, family: Family, after: bytes) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of all keys behind `after`, in order, as of the first one's reading."""
        entries = self._by_family[family].iter()
        entries.seek(after + b"\0")
        while entries.valid():
            yield entries.key(), entries.value()
            entries.next()
        _check(entries)

    def tasks(self) -> Iterator[tuple[bytes, bytes]]:
        return self.scan(Family.TASK)

    def scan(self, family: Family, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of all keys with the prefix, in order, as of the first one's reading."""
        entries = self._by_family[family].iter()
        if prefix:
            entries.seek(prefix)
        else:
            entries.seek_to_first()
        while entries.valid():
            key: bytes = entries.key()
            if not key.startswith(prefix):
                return
            yield key, entries.value()
            entries.next()
        _check(entries)

    # --- what the shell keeps beside it ----------------------------------------------------------------------------

    def meta(self, key: str) -> bytes | None:
        return self._kept(_META, key.encode())

    def content(self, content_hash: bytes) -> StoredContent | None:
        raw = self._kept(_CONTENT, content_hash)
        return None if raw is None else _decode_content(raw)

    def _kept(self, name: str, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._families[name].get(key)
        except Exception as error:  # rocksdict has no narrower class
            raise _unreadable(error) from error
        return value

    def log_rows(self) -> Iterator[tuple[int, bytes]]:
        """The fetch log's journal: (sequence, row), in order."""
        entries = self._families[_LOG].iter()
        entries.seek_to_first()
        while entries.valid():
            yield int.from_bytes(entries.key(), "big"), entries.value()
            entries.next()
        _check(entries)

    def commit(
        self,
        writes: Sequence[Write] = (),
        *,
        meta: dict[str, bytes] | None = None,
        content: dict[bytes, StoredContent] | None = None,
        log: Sequence[tuple[int, bytes]] = (),
        log_end: int | None = None,
    ) -> None:
        """One atomic, synced step. `log_end`: rows below this sequence lie in Parquet now and are forgotten here."""
        batch: Any = WriteBatch(raw_mode=True)
        handles = self._handle_of
        put, delete = batch.put, batch.delete
        for family, key, value in writes:
            if value is None:
                delete(key, handles[family])
            else:
                put(key, value, handles[family])
        for name, stored in (content or {}).items():
            put(name, _encode(stored), self._handles[_CONTENT])
        for sequence, row in log:
            put(sequence.to_bytes(8, "big"), row, self._handles[_LOG])
        if log_end is not None:
            batch.delete_range(b"\0" * 8, log_end.to_bytes(8, "big"), self._handles[_LOG])
        for label, data in (meta or {}).items():
            put(label.encode(), data, self._handles[_META])
        self._write(batch, f"to commit {len(writes)} writes")

    def _write(self, batch: Any, what: str) -> None:
        try:
            self._db.write(batch, self._synced)
        except Exception as error:  # rocksdict has no narrower class
            raise StoreFailed(
                f"crawl state: needed {what}, got: {error}; "
                "free room on the disk, then run the same command again: nothing that was committed is lost"
            ) from error
        self._mark.note(self._db.latest_sequence_number())
        self._commits += 1
        if self._commits % _SIZE_LOOK_COMMITS == 1:
            sizes = (family.property_int_value(_TABLES_BYTES) or 0 for family in self._families.values())
            self._memory.sized(self._name, sum(sizes))

    def clear_index(self) -> None:
        """Forget all of the owner's index, in one step: the next owner makes it anew from the URL rows."""
        batch: Any = WriteBatch(raw_mode=True)
        for family in INDEX_FAMILIES:
            batch.delete_range(b"", _AFTER_ALL, self._handle_of[family])
        self._write(batch, "to clear the index")

    def clear_rows(self) -> None:
        """Forget the URL rows, where others hold them, too."""
        batch: Any = WriteBatch(raw_mode=True)
        batch.delete_range(b"", _AFTER_ALL, self._handle_of[Family.URL])
        self._write(batch, "to clear the rows")

    def catch_up(self) -> None:
        """A secondary sees what was committed until now."""
        try:
            self._db.try_catch_up_with_primary()
        except Exception as error:  # rocksdict has no narrower class
            raise _unreadable(error) from error

    def close(self) -> None:
        """The lock is free when this returns: every handle that keeps the database open is let go first.

        Closing moves what lies in the log into tables. Where a full disk forbids that, the next start does it.
        """
        self._families.clear()
        self._by_family.clear()
        self._handles.clear()
        self._handle_of.clear()
        with contextlib.suppress(Exception):  # rocksdict has no narrower class; every commit lies synced in the log
            self._db.close()
        self._mark.close()
        self._memory.sized(self._name, 0)


def _linked(path: Path, linked: Path) -> Path:
    """The files as links in a folder of our own: rocksdict writes one of its own beside them, even for a reader."""
    try:
        linked.mkdir(parents=True)
        for name in os.listdir(path):
            if name != _RESTATED:
                (linked / name).symlink_to((path / name).resolve())
    except OSError as error:
        raise _not_opened(path, error) from error
    return linked


def _refuse_if_commits_are_lost(path: Path, committed: int, memory: StoreMemory) -> None:
    """Look before the database is opened for writing, which clears away the log. Raises StoreFailed."""
    if not committed:
        return
    found = 0
    if (path / "CURRENT").exists():
        try:
            names = Rdict.list_cf(str(path), Options(raw_mode=True))
            families = {name: family_options(name, memory) for name in names if name != "default"}
            db: Any = Rdict(str(path), database_options(memory, create=False), families, AccessType.read_only(False))
        except Exception as error:  # rocksdict has no narrower class
            raise _not_opened(path, error) from error
        found = db.latest_sequence_number()
        db.close()
    if found < committed:
        raise StoreFailed(
            f"crawl state: needed {committed} committed writes in {path}, got {found}: its files are damaged, or not"
            " the ones that were there; put them back as they were (or restore the whole crawl folder from one backup)"
            " and start again"
        )


def _families_in(path: Path) -> list[str]:
    """For a reader: a folder of an earlier version lacks the families that came later, until a crawl goes on in it."""
    found = Rdict.list_cf(str(path), Options(raw_mode=True))
    return [name for name in _ALL if name in found]


def _check(entries: Any) -> None:
    """An iterator stops at a damaged block as it stops at the end: what it says of itself tells which."""
    try:
        entries.status()
    except Exception as error:  # rocksdict has no narrower class
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> StoreFailed:
    return StoreFailed(
        f"crawl state: needed to read it, got: {error}; the folder is damaged: see to the disk, then restore a copy or"
        " crawl into another folder"
    )


def _not_opened(path: Path, error: Exception) -> StoreFailed:
    said = " ".join(str(error).split())  # RocksDB speaks in several lines
    return StoreFailed(f"crawl state: needed to open {path}, got: {said}; see that the folder is whole and not in use")


def access_is_write(read_only: bool, secondary: Path | None) -> bool:
    return not read_only and secondary is None
