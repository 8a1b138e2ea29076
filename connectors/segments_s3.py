"""WARC segments in an S3 store: the `Segments` port for the fleet, in the format of `connectors.segments_local`.

Theory of operation. Records are appended to a file of a local spool, so that what waits for the store costs disk and
no memory, and a store that is away costs nothing but room there. `sync` takes the open segments, begins new ones for
what comes meanwhile, uploads them, and returns when all that was appended before the call is in the store; only then
may anybody be told of it. Nothing in the spool outlives its process: what was not uploaded was not announced, and is
fetched or parsed again. So the spool is never synced to disk, and a start removes what it finds there, with the
uploads that were begun of it.

Names are unique for ever: `headrace-<worker>-<epoch>-<number>`, where worker and epoch are one process's alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import threading
from pathlib import Path

from connectors.bodies_s3 import S3Bodies
from connectors.files import failing_as_store, store_failed
from connectors.object_store import ObjectStore
from connectors.ports import ParseOutput, Response, StoredContent
from connectors.segment_records import parsed_members, response_member, whole
from connectors.segments_local import FOLDERS, PARSED, RESPONSES, SUFFIX
from schemas.records import BodyRef
from streams.core import store
from streams.core.failures import EXIT_FOLDER, CrawlError
from streams.core.policy import SEGMENT_BYTES_MAX

__all__ = ["S3Segments", "Spool"]


class Spool:
    """A folder of one process, held as long as it lives."""

    def __init__(self, folder: Path) -> None:
        """Raises CrawlError when another process holds it, StoreFailed when it cannot be had."""
        self.folder = folder
        with failing_as_store("spool", f"make the folder {folder}"):
            for name in FOLDERS:
                (folder / name).mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise CrawlError(
                f"spool {folder}: needed a folder of its own, another worker holds it; give each worker its own"
                " fleet.data",
                EXIT_FOLDER,
            ) from error

    def remains(self) -> list[str]:
        """Names of the segments that lie here."""
        with failing_as_store("spool", f"list {self.folder}"):
            return sorted(
                f"{folder}/{name}"
                for folder in FOLDERS
                for name in os.listdir(self.folder / folder)
                if name.endswith(SUFFIX)
            )

    def close(self) -> None:
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


class S3Segments:
    """Appends from one thread at a time; `sync`, `read` and the counts from any, `sync` also several at once."""

    def __init__(
        self,
        objects: ObjectStore,
        spool: Spool,
        *,
        worker: str,
        epoch: int,
        info: tuple[tuple[str, str], ...] = (),
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
    ) -> None:
        """`worker` and `epoch` have never been used before; `info` are the lines of each segment's warcinfo record."""
        assert re.fullmatch(r"[A-Za-z0-9_.]+", worker), f"a worker's name is letters, digits, _ and ., not {worker!r}"
        self._objects, self._spool, self._bodies = objects, spool, S3Bodies(objects)
        self._prefix = f"headrace-{worker}-{epoch:05d}-"
        self._info, self._segment_bytes_max = info, segment_bytes_max
        self._state = threading.Condition()  # over all that follows
        self._open: dict[str, _Segment] = {}  # by folder: appended to
        self._closed: dict[str, _Segment] = {}  # by name: full, or taken by a `sync`; not in the store yet
        self._numbers = dict.fromkeys(FOLDERS, 0)
        self._remains = spool.remains()

    def recover(self) -> int:
        """Remove what a killed process left in the spool, and end its uploads. How many segments it had open.

        Waits while the store is away; appends and syncs need not wait for it.
        """
        for name in self._remains:
            self._objects.end_uploads(name)
            with failing_as_store("spool", f"remove {name}"):
                (self._spool.folder / name).unlink()
        return len(self._remains)

    # --- append -------------------------------------------------------------------------------------------------------

    def append_response(
        self, url: str, response: Response, content_hash: bytes, duplicate_of: StoredContent | None = None
    ) -> BodyRef:
        """A `response` record, or a `revisit` when `duplicate_of` says where the same bytes lie.

        Those must lie in the store, or in the segment that is open: the two must not become durable apart.
        """
        member = response_member(url, response, content_hash, duplicate_of)
        return self._append(RESPONSES, (member,), response.fetched_ms)[0]

    def append_parsed(self, output: ParseOutput) -> BodyRef | None:
        """Text and facts of a parsed page; the reference is that of the text, None when there is none."""
        members, has_text = parsed_members(output)
        refs = self._append(PARSED, members, output.page.fetched_ms)
        return refs[0] if has_text else None

    def open_segment(self) -> str:
        """Name of the segment that the next response goes to; "" when it will be a new one."""
        with self._state:
            segment = self._open.get(RESPONSES)
            return "" if segment is None else segment.name

    def backlog_bytes(self) -> int:
        """Appended, and not in the store yet."""
        with self._state:
            return sum(segment.end for several in (self._open, self._closed) for segment in several.values())

    def _append(self, folder: str, members: tuple[bytes, ...], date_ms: int) -> list[BodyRef]:
        with self._state:
            segment = self._open.get(folder)
            if segment is None:
                segment = self._open[folder] = self._new_segment(folder, date_ms)
            refs = segment.append(members)
            if segment.end >= self._segment_bytes_max:
                self._close(folder)
            return refs

    def _new_segment(self, folder: str, date_ms: int) -> _Segment:
        base = f"{self._prefix}{self._numbers[folder]:05d}{SUFFIX}"
        self._numbers[folder] += 1
        segment = _Segment(f"{folder}/{base}", self._spool.folder)
        segment.append((store.warcinfo_record(base, date_ms, self._info),))
        return segment

    def _close(self, folder: str) -> None:
        segment = self._open.pop(folder)
        self._closed[segment.name] = segment

    # --- make durable -------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """All that was appended before this call is in the store when it returns. Waits while the store is away.

        Raises StoreClosed when the worker ends meanwhile, StoreFailed when the store refuses: then nothing is lost,
        and the next call tries again.
        """
        with self._state:
            for folder in list(self._open):
                self._close(folder)
            ours = sorted(self._closed.values(), key=lambda one: one.uploading)  # what others bring is waited for last
        for segment in ours:
            self._bring(segment)

    def close(self) -> None:
        """Sync, and let the spool go."""
        self.sync()
        self._spool.close()

    def _bring(self, segment: _Segment) -> None:
        """Upload it, unless another thread does: then wait for that."""
        with self._state:
            while segment.uploading:
                self._state.wait()
            if segment.name not in self._closed:
                return
            segment.uploading = True
        try:
            self._objects.put_parts(segment.name, segment.part, segment.end)
        finally:
            with self._state:
                segment.uploading = False
                self._state.notify_all()
        with self._state:
            if self._closed.pop(segment.name, None) is not None:
                segment.remove()

    # --- read ---------------------------------------------------------------------------------------------------------

    def read(self, ref: BodyRef) -> bytes:
        """The payload: a response's body, a conversion's text, nothing of a revisit; else StoreFailed."""
        return self.read_record(ref).payload

    def read_record(self, ref: BodyRef) -> store.Record:
        """The whole record, from the spool or the store."""
        with self._state:
            here = (*self._open.values(), *self._closed.values())
            segment = next((one for one in here if one.name == ref.segment), None)
            member = None if segment is None else segment.read(ref)
        return self._bodies.read_record(ref) if member is None else whole(ref, member)


class _Segment:
    """A file of the spool. Its first `end` bytes are whole records; what a failed write left behind them is nothing."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.end, self.uploading = name, 0, False
        self._path = folder / name
        with failing_as_store("spool", f"make {self._path}"):
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)

    def append(self, members: tuple[bytes, ...]) -> list[BodyRef]:
        refs, at = [], self.end
        try:
            for member in members:
                refs.append(BodyRef(self.name, at, len(member)))
                at = self._write(member, at)
        except OSError as error:
            raise store_failed("spool", f"append to {self._path}", error) from error
        self.end = at
        return refs

    def read(self, ref: BodyRef) -> bytes:
        with failing_as_store("spool", f"read {self._path}"):
            return os.pread(self._file, ref.record_bytes, ref.offset_bytes)

    def part(self, offset: int, length: int) -> bytes:
        with failing_as_store("spool", f"read {self._path}"):
            data = os.pread(self._file, length, offset)
        assert len(data) == length, f"{self._path} holds what was written to it: {len(data)} of {length} bytes"
        return data

    def remove(self) -> None:
        os.close(self._file)
        with contextlib.suppress(OSError):  # the next start removes it
            self._path.unlink()

    def _write(self, data: bytes, at: int) -> int:
        left = memoryview(data)
        while left:
            written = os.pwrite(self._file, left, at)
            at, left = at + written, left[written:]
        return at
