"""A crawl's folder: who holds it, which version laid it down, and what it keeps beside the database."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from pathlib import Path

import msgspec

from streams.core.failures import EXIT_FAILED, CrawlError
from streams.core.progress import Progress

FORMAT = 1
MANIFEST, LOCK, STATUS, DATABASE = "crawl.json", "lock", "status.json", "db"
PART = ".part"
WRITTEN = (LOCK, MANIFEST, f"{DATABASE}/CURRENT", "warc", "parsed")  # what a running crawl counts on
_CRAWL_ID = re.compile(r"[0-9a-f]{1,16}")  # it goes into the segments' names
PLACES = (
    ("pages, WARC", "warc/"),
    ("text and links, WARC", "parsed/"),
    ("fetch log, Parquet", "fetchlog/"),
    ("crawl state, RocksDB", "db/"),
)


class Manifest(msgspec.Struct, frozen=True):
    """What identifies a crawl; written once, when the folder is made."""

    format: int
    crawl_id: str
    created_ms: int


class Folder:
    """The folder, held by this process until `close`."""

    def __init__(self, root: Path, *, now_ms: int) -> None:
        """Make or take the folder. Raises CrawlError: another version's, held, unreadable, not a crawl's."""
        self.root = root
        self._seen: set[str] = set()  # of WRITTEN, by an earlier look
        try:
            _make_durably(root)
            self._refuse_foreign()
            self._lock = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise CrawlError(
                f"{root}: needed a folder to write to, got: {error.strerror}; name another one with --out"
            ) from error
        self._hold()
        try:
            self.manifest = self._read_or_make(now_ms)
        except BaseException:
            self.close()
            raise

    def _refuse_foreign(self) -> None:
        """Before anything is written: a folder with other things in it is not ours."""
        names = set(os.listdir(self.root))
        others = sorted(names - {LOCK, MANIFEST + PART})  # what a start leaves that was killed, or found the disk full
        if others and MANIFEST not in names:
            raise CrawlError(
                f"{self.root}: needed an empty folder or a crawl's, but it has no {MANIFEST} and holds {others[0]!r};"
                " name another one with --out"
            )

    def _hold(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._lock)
            raise CrawlError(
                f"{self.root}: needed the folder for this process, but process {holder} holds it; wait until it ends"
                " (headrace status shows it), or name another folder with --out"
            ) from error
        with contextlib.suppress(OSError):  # only for the sentence above; a full disk is met by who needs the room
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _read_or_make(self, now_ms: int) -> Manifest:
        manifest = read_manifest(self.root)
        if manifest is not None:
            return manifest
        manifest = Manifest(FORMAT, f"{now_ms:x}", now_ms)
        try:
            write_whole(self.root / MANIFEST, msgspec.json.encode(manifest), sync=True)
        except OSError as error:
            raise CrawlError(
                f"{self.root}: needed to write {MANIFEST}, got: {error.strerror}; make room on that disk, or name"
                " another folder with --out"
            ) from error
        return manifest

    def publish(self, progress: Progress) -> None:
        """For `headrace status`, in another process. A view: not synced, and a full disk does not end a run for it.

        Raises CrawlError when what the crawl writes to lies in the folder no more: the files that are open would go on
        taking pages for hours, in a place that nobody can reach.
        """
        there = {name for name in WRITTEN if self._is_there(name)}
        gone = min(self._seen - there, default=None)
        self._seen |= there
        if gone is not None:
            raise CrawlError(
                f"{self.root}: needed the folder that the crawl began in, but {gone} is there no more; put it back and"
                " start again: the crawl goes on from what was committed",
                EXIT_FAILED,
            )
        with contextlib.suppress(OSError):
            write_whole(self.root / STATUS, msgspec.json.encode(progress), sync=False)

    def _is_there(self, name: str) -> bool:
        try:
            found = os.stat(self.root / name)
        except FileNotFoundError:
            return False
        except OSError:  # not to be seen now, which does not say that it is gone
            return name in self._seen
        return name != LOCK or os.path.samestat(found, os.fstat(self._lock))

    def close(self) -> None:
        os.ftruncate(self._lock, 0)
        os.close(self._lock)


def _make_durably(root: Path) -> None:
    """The folder and those above it, their names synced: a crawl whose folder a power cut takes away is no crawl."""
    missing = [root]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        with contextlib.suppress(PermissionError):  # a parent that may be passed through, not read
            _sync_folder(folder.parent)


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_manifest(root: Path) -> Manifest | None:
    """None when there is none. Raises CrawlError for one of another version, or that cannot be read."""
    try:
        raw = (root / MANIFEST).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CrawlError(f"{root / MANIFEST}: needed to read it, got: {error.strerror}; see its permissions") from error
    try:
        manifest = msgspec.json.decode(raw, type=Manifest)
    except msgspec.MsgspecError as error:
        raise CrawlError(
            f"{root / MANIFEST}: needed a crawl's manifest, got: {error}; the folder is damaged or not a crawl's"
        ) from error
    if manifest.format != FORMAT:
        raise CrawlError(
            f"{root}: needed a folder of format {FORMAT}, got format {manifest.format}; use the version of Headrace"
            " that made it, or start anew in another folder with --out"
        )
    if _CRAWL_ID.fullmatch(manifest.crawl_id) is None:
        raise CrawlError(
            f"{root / MANIFEST}: needed the crawl's id in hexadecimal, got {manifest.crawl_id!r}; the folder is damaged"
            " or not a crawl's"
        )
    return manifest


def is_held(root: Path) -> bool:
    """Whether a process holds the folder now."""
    try:
        lock = os.open(root / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def read_status(root: Path) -> Progress | None:
    """The last snapshot of the run that holds the folder."""
    return read_last_status(root) if is_held(root) else None


def read_last_status(root: Path) -> Progress | None:
    """The last snapshot of the last run, whether it goes on or not."""
    try:
        return msgspec.json.decode((root / STATUS).read_bytes(), type=Progress)
    except (OSError, msgspec.MsgspecError):
        return None


def write_whole(path: Path, data: bytes, *, sync: bool) -> None:
    """Whole or not at all. Raises OSError."""
    part = path.with_name(path.name + PART)
    with open(part, "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    os.replace(part, path)
    if sync:
        _sync_folder(path.parent)
