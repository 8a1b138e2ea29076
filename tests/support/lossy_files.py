"""File layers that fail: one forgets on a crash all that was never synced, one has a disk with little room.

What a crash may leave is any state between "only what was synced" and "all"; the first is made here. A file's bytes
come back to its last synced length; a created, renamed or removed name whose folder was not synced afterwards is as it
was before. A created file that was itself synced still loses its name.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from connectors.files import Files, OsFiles


class LossyFiles(OsFiles):
    """The operating system's files below one folder, until `crash()` takes the unsynced away.

    It acts on the real files, so any other reader sees them too. Bytes that replaced others are not followed: the store
    only appends and cuts. After `crash()` every handle is closed and the layer starts afresh, as after a reboot; a
    process that is to die calls it last.
    """

    def __init__(self) -> None:
        self._paths: dict[int, str] = {}
        self._synced_bytes: dict[str, int] = {}
        self._undo: list[tuple[str, Callable[[], None]]] = []  # (folder, how), in order of the changes
        self.crashes = 0

    def crash(self) -> None:
        """The plug is pulled: only what was synced remains."""
        for handle in list(self._paths):
            self.close(handle)
        for path, length in self._synced_bytes.items():
            if os.path.exists(path) and os.path.getsize(path) > length:
                os.truncate(path, length)
        for _, undo in reversed(self._undo):
            undo()
        self._undo.clear()
        self._synced_bytes.clear()
        self.crashes += 1

    def create(self, path: str) -> int:
        handle = super().create(path)
        self._paths[handle] = path
        self._synced_bytes[path] = 0
        self._undo.append((os.path.dirname(path), lambda: os.unlink(path)))
        return handle

    def cut(self, handle: int, length_bytes: int) -> None:
        super().cut(handle, length_bytes)
        path = self._paths[handle]
        self._synced_bytes[path] = min(self._synced_bytes[path], length_bytes)

    def sync(self, handle: int) -> None:
        super().sync(handle)
        path = self._paths[handle]
        self._synced_bytes[path] = os.path.getsize(path)

    def close(self, handle: int) -> None:
        super().close(handle)
        del self._paths[handle]

    def rename(self, old: str, new: str) -> None:
        if os.path.exists(new):
            self.remove(new)  # two steps here, so that a crash undoes both: to this layer a rename is atomic anyhow
        super().rename(old, new)
        if old in self._synced_bytes:
            self._synced_bytes[new] = self._synced_bytes.pop(old)
        for handle, path in self._paths.items():
            if path == old:
                self._paths[handle] = new
        self._undo.append((os.path.dirname(new), lambda: os.rename(new, old)))

    def remove(self, path: str) -> None:
        with open(path, "rb") as file:
            kept = file.read(self._synced_bytes.get(path, -1))
        super().remove(path)
        self._synced_bytes.pop(path, None)

        def put_back() -> None:
            with open(path, "xb") as file:
                file.write(kept)

        self._undo.append((os.path.dirname(path), put_back))

    def sync_folder(self, path: str) -> None:
        super().sync_folder(path)
        self._undo = [(folder, undo) for folder, undo in self._undo if folder != path]


class FullDisk(OsFiles):
    """A disk with `room_bytes`: an append that needs more writes what fits and then fails as the kernel does."""

    def __init__(self, room_bytes: int, *, code: int = errno.ENOSPC) -> None:
        self.room_bytes = room_bytes
        self.code = code

    def append(self, handle: int, data: bytes) -> None:
        super().append(handle, data[: self.room_bytes])
        if len(data) > self.room_bytes:
            self.room_bytes = 0
            raise OSError(self.code, os.strerror(self.code))
        self.room_bytes -= len(data)

    def cut(self, handle: int, length_bytes: int) -> None:
        self.room_bytes += os.fstat(handle).st_size - length_bytes
        super().cut(handle, length_bytes)


class BrokenSync(OsFiles):
    """A disk that loses a write and says so once, at the sync: the kernel reports EIO a single time."""

    def __init__(self, fails_at: int) -> None:
        self.syncs_left = fails_at

    def sync(self, handle: int) -> None:
        self.syncs_left -= 1
        if self.syncs_left == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(handle)


_FITS: tuple[Files, ...] = (LossyFiles(), FullDisk(0), BrokenSync(0))  # mypy holds the fakes to the seam
