"""A crawl's folder: who holds it, which version laid it down, and what it keeps beside the database."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

import msgspec

from streams.core.failures import CrawlError
from streams.core.progress import Progress

FORMAT = 1
MANIFEST, LOCK, STATUS, DATABASE = "crawl.json", "lock", "status.json", "db"
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
        try:
            _make_durably(root)
            self._lock = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise CrawlError(
                f"{root}: needed a folder to write to, got: {error.strerror}; name another one with --out"
            ) from error
        try:
            self._hold()
            self.manifest = self._read_or_make(now_ms)
        except BaseException:
            os.close(self._lock)
            raise

    def _hold(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._lock, 32, 0).decode(errors="replace").strip() or "unknown"
            raise CrawlError(
                f"{self.root}: needed the folder for this process, but process {holder} holds it; wait until it ends"
                " (headrace status shows it), or name another folder with --out"
            ) from error
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _read_or_make(self, now_ms: int) -> Manifest:
        manifest = read_manifest(self.root)
        if manifest is not None:
            return manifest
        others = sorted(set(os.listdir(self.root)) - {LOCK})
        if others:
            raise CrawlError(
                f"{self.root}: needed an empty folder or a crawl's, but it has no {MANIFEST} and holds {others[0]!r};"
                " name another one with --out"
            )
        manifest = Manifest(FORMAT, f"{now_ms:x}", now_ms)
        write_whole(self.root / MANIFEST, msgspec.json.encode(manifest), sync=True)
        return manifest

    def publish(self, progress: Progress) -> None:
        """For `headrace status`, in another process. It is a view, so it is not synced."""
        write_whole(self.root / STATUS, msgspec.json.encode(progress), sync=False)

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
    if not is_held(root):
        return None
    try:
        return msgspec.json.decode((root / STATUS).read_bytes(), type=Progress)
    except (OSError, msgspec.MsgspecError):
        return None


def write_whole(path: Path, data: bytes, *, sync: bool) -> None:
    """Whole or not at all. Raises OSError."""
    part = path.with_name(path.name + ".part")
    with open(part, "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    os.replace(part, path)
    if sync:
        _sync_folder(path.parent)
