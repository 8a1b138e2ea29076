"""WARC segments on the local disk: the `Segments` port for one machine.

Below the crawl's folder `warc/` holds responses and revisits, `parsed/` the text and the links. Each appends to one
segment at a time, `headrace-<crawl>-<epoch>-<seq>.warc.gz.open`; references name it without `.open`.

Theory of operation, one group of at most 50 ms after another:
1. Appends go to memory; a reference is good for `read` at once. No file is touched unless much is pending.
2. `sync` writes each dirty segment with one write and makes it durable; then `position` says how far.
3. The owner commits that position with the decisions that name the records.
4. The next `sync` seals the segments that were full at the former one: only committed segments lose their `.open`.
So after a crash the committed position tells all: an open segment that it names is cut to its length and sealed, one
that it does not name holds nothing that anybody refers to and is removed, a sealed one stands.
"""

from __future__ import annotations

import os
import re
import threading

from connectors.files import Files, OsFiles, StoreFailed, failing_as_store, store_failed
from connectors.ports import ParseOutput, Response, StoredContent
from connectors.segment_records import parsed_members, response_member, whole
from schemas.records import BodyRef
from streams.core import store
from streams.core.policy import RECORD_BYTES_MAX, SEGMENT_BYTES_MAX, SEGMENT_PENDING_BYTES_MAX

Position = tuple[tuple[str, int], ...]
"""(segment, durable length in bytes) of every segment not sealed yet, oldest first within a folder."""

RESPONSES = "warc"
PARSED = "parsed"
FOLDERS = (RESPONSES, PARSED)
SUFFIX = ".warc.gz"
OPEN = ".open"
_NAME = re.compile(r"headrace-[A-Za-z0-9_.]+-(\d+)-(\d+)\.warc\.gz")


class LocalSegments:
    """Appends from one thread, `sync` from that or another one, `read` from any."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        crawl_id: str,
        epoch: int,
        info: tuple[tuple[str, str], ...] = (),
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        files: Files | None = None,
    ) -> None:
        """`epoch` rises with each start on this folder; `info` are the lines of each segment's warcinfo record."""
        assert re.fullmatch(r"[A-Za-z0-9_.]+", crawl_id), f"a crawl id is letters, digits, _ and ., not {crawl_id!r}"
        self._root = os.fspath(root)
        self._files = files or OsFiles()
        self._prefix = f"headrace-{crawl_id}-{epoch:05d}-"
        self._info = info
        self._segment_bytes_max = segment_bytes_max
        self._state = threading.Lock()  # names, lengths, pending records: held for moments
        self._io = threading.Lock()  # one writer of files: held over write and sync; taken before _state
        self._open: dict[str, list[_Segment]] = {
            folder: [] for folder in FOLDERS
        }  # oldest first; the last is appended to
        self._next_seq: dict[str, int] = {}
        self._position: Position = ()
        for folder in FOLDERS:
            with failing_as_store("segments", f"make the folder {self._path(folder)}"):
                self._files.make_folder(self._path(folder))
            self._next_seq[folder] = self._first_free_seq(folder)
        with failing_as_store("segments", f"sync the folder {self._root}"):
            self._files.sync_folder(self._root)

    # --- append -------------------------------------------------------------------------------------------------------

    def append_response(
        self, url: str, response: Response, content_hash: bytes, duplicate_of: StoredContent | None = None
    ) -> BodyRef:
        """A `response` record, or a `revisit` when `duplicate_of` says where the same bytes lie."""
        member = response_member(url, response, content_hash, duplicate_of)
        return self._append(RESPONSES, (member,), response.fetched_ms)[0]

    def append_parsed(self, output: ParseOutput) -> BodyRef | None:
        """Text and facts of a parsed page; the reference is that of the text, None when there is none."""
        members, has_text = parsed_members(output)
        refs = self._append(PARSED, members, output.page.fetched_ms)
        return refs[0] if has_text else None

    def _append(self, folder: str, members: tuple[bytes, ...], date_ms: int) -> list[BodyRef]:
        with self._state:
            segments = self._open[folder]
            if not segments or segments[-1].end >= self._segment_bytes_max:
                segments.append(self._new_segment(folder, date_ms))
            segment = segments[-1]
            refs = [BodyRef(segment.name, segment.add(member), len(member)) for member in members]
            much = segment.end - segment.written > SEGMENT_PENDING_BYTES_MAX
        if much:
            with self._io:
                try:
                    self._write(segment, segment.end)
                except StoreFailed:
                    with self._state:  # the caller gets no reference, so these records must not appear later
                        segment.take_back(refs[0].offset_bytes)
                    raise
        return refs

    def _new_segment(self, folder: str, date_ms: int) -> _Segment:
        base = f"{self._prefix}{self._next_seq[folder]:05d}{SUFFIX}"
        self._next_seq[folder] += 1
        segment = _Segment(f"{folder}/{base}")
        segment.add(store.warcinfo_record(base, date_ms, self._info))
        return segment

    # --- make durable -------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Everything appended before this call is durable when it returns, and `position` says so.

        Call it again only when the former position is committed: segments that were full then are sealed now.
        A StoreFailed for want of room leaves the group in memory and no torn record in the file: it may be tried again.
        """
        with self._io:
            with self._state:
                ends = [(segment, segment.end) for folder in FOLDERS for segment in self._open[folder]]
                full = [x for folder in FOLDERS for x in self._open[folder][:-1] if self._is_reported(x)]
            self._seal(full)
            for segment, end in ends:
                if segment.durable < end:
                    self._write(segment, end)
                    self._make_durable(segment)
            self._position = tuple((x.name, x.durable) for x, _ in ends if x not in full)

    def position(self) -> Position:
        """How far the last `sync` made each open segment durable: commit it with what names the records."""
        return self._position

    def close(self) -> None:
        """Sync; seal what was durable before and so committed. What this call had to sync stays open for `recover`."""
        with self._state:
            clean = [x for folder in FOLDERS for x in self._open[folder] if self._is_reported(x)]
        self.sync()
        with self._io:
            self._seal([segment for folder in FOLDERS for segment in self._open[folder] if segment in clean])
            for segments in self._open.values():
                for segment in segments:
                    segment.close(self._files)
                segments.clear()

    def _is_reported(self, segment: _Segment) -> bool:
        """All of it stands in the last position, which the owner has committed by now."""
        return (segment.name, segment.end) in self._position

    def _write(self, segment: _Segment, end: int) -> None:
        """Hand what is pending before `end` to the kernel by one write; if that fails the file ends where it did."""
        segment.refuse_if_broken()
        with self._state:
            records = [(offset, member) for offset, member in segment.pending.items() if offset < end]
        if not records:
            return
        path = self._path(segment.name) + OPEN
        needed = f"append {sum(len(x) for _, x in records)} bytes to {path}"
        try:
            if segment.handle is None:
                segment.handle = self._files.create(path)
            self._files.append(segment.handle, b"".join(member for _, member in records))
        except OSError as error:
            self._cut_back(segment)
            raise store_failed("segments", needed, error) from error
        with self._state:
            for offset, member in records:
                del segment.pending[offset]
                segment.written = offset + len(member)

    def _cut_back(self, segment: _Segment) -> None:
        if segment.handle is None:
            return
        try:
            self._files.cut(segment.handle, segment.written)
        except OSError as error:  # the next start cuts it to the committed length
            segment.broken = f"could not be cut back to {segment.written} bytes ({error.strerror})"

    def _make_durable(self, segment: _Segment) -> None:
        assert segment.handle is not None, f"{segment.name} was never written"
        path = self._path(segment.name) + OPEN
        try:
            self._files.sync(segment.handle)
            if segment.durable == 0:
                self._files.sync_folder(os.path.dirname(path))
        except OSError as error:  # the kernel may have dropped the pages: a second fsync would lie
            segment.broken = f"could not be synced ({error.strerror})"
            raise store_failed("segments", f"sync {path}", error) from error
        segment.durable = segment.written

    def _seal(self, segments: list[_Segment]) -> None:
        folders = set()
        for segment in segments:
            path = self._path(segment.name)
            segment.close(self._files)
            with failing_as_store("segments", f"seal {path}"):
                self._files.rename(path + OPEN, path)
            folders.add(os.path.dirname(path))
        for folder in sorted(folders):
            with failing_as_store("segments", f"sync the folder {folder}"):
                self._files.sync_folder(folder)
        with self._state:
            for folder in FOLDERS:
                self._open[folder] = [x for x in self._open[folder] if x not in segments]

    # --- read ---------------------------------------------------------------------------------------------------------

    def read(self, ref: BodyRef) -> bytes:
        """The payload: a response's body, a conversion's text, nothing of a revisit; else StoreFailed."""
        return self.read_record(ref).payload

    def read_record(self, ref: BodyRef) -> store.Record:
        """The whole record, pending or written."""
        with self._state:
            for segment in self._open.get(ref.segment.partition("/")[0], ()):
                if segment.name == ref.segment and (member := segment.pending.get(ref.offset_bytes)) is not None:
                    return whole(ref, member)
        return read_record(self._root, ref, self._files)

    # --- start --------------------------------------------------------------------------------------------------------

    def recover(self, position: Position) -> None:
        """Make the folder what `position`, the last one committed, says. Call it once, before the first append.

        All is looked at before anything is changed: a folder that does not hold what was committed is left alone.
        """
        assert not any(self._open.values()), "recover comes before the first append"
        lengths = dict(position)
        found = {}
        for folder in FOLDERS:
            with failing_as_store("segments", f"list the folder {self._path(folder)}"):
                for name in self._files.list_folder(self._path(folder)):
                    if _NAME.fullmatch(name.removesuffix(OPEN)):
                        path = self._path(folder, name)
                        found[f"{folder}/{name}"] = self._files.length(path)
        for segment, length in lengths.items():
            have = found.get(segment, found.get(segment + OPEN, -1))
            if have < length:
                came = "no such file" if have < 0 else f"{have} bytes"
                raise StoreFailed(
                    f"segments: needed {length} committed bytes of {self._path(segment)}, got {came}; "
                    "put the file back as it was (or restore the whole crawl folder from one backup) and start again"
                )
        for name, have in found.items():
            segment = name.removesuffix(OPEN)
            self._recover_file(name, segment, have, lengths.get(segment))
        for folder in FOLDERS:
            with failing_as_store("segments", f"sync the folder {self._path(folder)}"):
                self._files.sync_folder(self._path(folder))
            self._next_seq[folder] = self._first_free_seq(folder)

    def _recover_file(self, name: str, segment: str, have_bytes: int, committed_bytes: int | None) -> None:
        path = self._path(name)
        if committed_bytes is None:
            if name != segment:  # open, and no commit names it
                with failing_as_store("segments", f"remove {path}, which no commit names"):
                    self._files.remove(path)
            return
        if have_bytes > committed_bytes:
            with failing_as_store("segments", f"cut {path} to its committed {committed_bytes} bytes"):
                self._files.cut_file(path, committed_bytes)
        if name != segment:
            with failing_as_store("segments", f"seal {path}"):
                self._files.rename(path, self._path(segment))

    def _first_free_seq(self, folder: str) -> int:
        with failing_as_store("segments", f"list the folder {self._path(folder)}"):
            names = self._files.list_folder(self._path(folder))
        mine = (_NAME.match(name) for name in names if name.startswith(self._prefix))
        return max((int(match[2]) for match in mine if match), default=-1) + 1

    def _path(self, *names: str) -> str:
        return os.path.join(self._root, *names)


class _Segment:
    """An open segment. 0 <= durable <= written <= end; `pending` holds the records from `written` to `end`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.handle: int | None = None  # None until the first write
        self.durable = 0
        self.written = 0
        self.end = 0
        self.pending: dict[int, bytes] = {}  # offset -> member, in order
        self.broken = ""

    def add(self, member: bytes) -> int:
        offset = self.end
        self.pending[offset] = member
        self.end += len(member)
        return offset

    def take_back(self, offset: int) -> None:
        for late in [x for x in self.pending if x >= offset]:
            del self.pending[late]
        self.end = offset

    def refuse_if_broken(self) -> None:
        if self.broken:
            raise StoreFailed(
                f"segments: needed to append to {self.name}, but it {self.broken}; "
                "stop, see to the disk and start the crawl again: it resumes from what was committed"
            )

    def close(self, files: Files) -> None:
        if self.handle is not None:
            handle, self.handle = self.handle, None
            with failing_as_store("segments", f"close {self.name}"):
                files.close(handle)


def read_record(root: str | os.PathLike[str], ref: BodyRef, files: Files | None = None) -> store.Record:
    """A written record of an open or sealed segment; any process may call it. StoreFailed when it cannot be had."""
    files = files or OsFiles()
    path = os.path.join(root, ref.segment)
    assert 0 < ref.record_bytes <= RECORD_BYTES_MAX, f"a record of {ref.record_bytes} bytes"
    for candidate in (path, path + OPEN, path):  # sealed meanwhile: look again under the first name
        try:
            member = files.read_at(candidate, ref.offset_bytes, ref.record_bytes)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise store_failed("segments", f"read {candidate}", error) from error
        return whole(ref, member)
    raise StoreFailed(f"segments: needed {path}, got no such file; put it back: the crawl's database refers to it")
