"""The few file operations that durability rests on, behind one seam: the operating system, or a layer that forgets.

A name is durable once its folder was synced, bytes once their file was: tests put a layer here that drops the rest.
The world's failures are `StoreFailed`, one sentence that says who, what was needed, what came and what to do.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Protocol

from streams.core.failures import EXIT_FAILED, CrawlError

TEMPORARY = ".tmp"  # ends the name of a file that is not whole yet; whoever finds one may remove it


class StoreFailed(CrawlError):
    """The disk did not do what the store needs. Nothing that was reported durable is lost."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_FAILED)


class Files(Protocol):
    """Files by path; a handle stands for one file open for appending. Every method may raise OSError."""

    def make_folder(self, path: str) -> None:
        """With its parents; present is well."""
        ...

    def list_folder(self, path: str) -> list[str]:
        """Names, sorted."""
        ...

    def length(self, path: str) -> int: ...

    def create(self, path: str) -> int:
        """A handle on a new, empty file; FileExistsError when the name is taken."""
        ...

    def append(self, handle: int, data: bytes) -> None:
        """All of it, or OSError after which any part may have been written."""
        ...

    def cut(self, handle: int, length_bytes: int) -> None:
        """Shorten the open file, so that the next append continues there."""
        ...

    def sync(self, handle: int) -> None:
        """Bytes and length are durable when this returns (fdatasync); the name is not."""
        ...

    def close(self, handle: int) -> None: ...

    def cut_file(self, path: str, length_bytes: int) -> None:
        """Shorten a file that is not open here, durably."""
        ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def sync_folder(self, path: str) -> None:
        """Creations, renames and removals in the folder are durable when this returns."""
        ...

    def read_at(self, path: str, offset_bytes: int, bytes_max: int) -> bytes:
        """Up to `bytes_max`, fewer only at the end of the file."""
        ...


class OsFiles:
    """The operating system's."""

    def make_folder(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def list_folder(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def length(self, path: str) -> int:
        return os.stat(path).st_size

    def create(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def append(self, handle: int, data: bytes) -> None:
        written = os.write(handle, data)
        while written < len(data):  # a signal or a nearly full disk; the next call tells which
            written += os.write(handle, memoryview(data)[written:])

    def cut(self, handle: int, length_bytes: int) -> None:
        os.ftruncate(handle, length_bytes)

    def sync(self, handle: int) -> None:
        os.fdatasync(handle)

    def close(self, handle: int) -> None:
        os.close(handle)

    def cut_file(self, path: str, length_bytes: int) -> None:
        handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(handle, length_bytes)
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def sync_folder(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def read_at(self, path: str, offset_bytes: int, bytes_max: int) -> bytes:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            pieces = []
            while bytes_max > 0 and (piece := os.pread(handle, bytes_max, offset_bytes)):
                pieces.append(piece)
                offset_bytes += len(piece)
                bytes_max -= len(piece)
            return b"".join(pieces)
        finally:
            os.close(handle)


_AGAIN = "then run the command again (a crawl resumes from what was committed)"
_ADVICE = {
    errno.ENOSPC: f"make room on that disk, {_AGAIN}",
    errno.EDQUOT: f"raise the disk quota or make room, {_AGAIN}",
    errno.EFBIG: f"raise the file size limit (ulimit -f), {_AGAIN}",
    errno.EIO: f"check the disk (the kernel's log tells), {_AGAIN}",
    errno.EROFS: f"mount the disk writable, {_AGAIN}",
    errno.EACCES: "give this user the right to it, or name another folder",
    errno.EPERM: "give this user the right to it, or name another folder",
    errno.ENOENT: "make the folder, or name another one",
    errno.EMFILE: f"raise the limit of open files (ulimit -n), {_AGAIN}",
}


def replace_file(files: Files, path: str, data: bytes) -> None:
    """The whole file or none, durably: a temporary beside it, synced, renamed over it, its folder synced. OSError."""
    temporary = path + TEMPORARY
    with contextlib.suppress(FileNotFoundError):  # of a run that was killed
        files.remove(temporary)
    handle = files.create(temporary)
    try:
        files.append(handle, data)
        files.sync(handle)
    finally:
        files.close(handle)
    files.rename(temporary, path)
    files.sync_folder(os.path.dirname(path))


def store_failed(who: str, needed: str, error: OSError) -> StoreFailed:
    """The one sentence of a failed file operation: who, what was needed, what came, what to do."""
    advice = _ADVICE.get(error.errno or 0, f"see to that file, {_AGAIN}")
    return StoreFailed(f"{who}: needed to {needed}, got {error.strerror or repr(error)}; {advice}")


@contextlib.contextmanager
def failing_as_store(who: str, needed: str) -> Iterator[None]:
    """Turns an OSError of the block into `StoreFailed`."""
    try:
        yield
    except OSError as error:
        raise store_failed(who, needed, error) from error
