"""Segments under a pulled plug, a full disk and a failing one."""

from __future__ import annotations

import errno
import resource
from pathlib import Path

import pytest

from connectors.files import Files, OsFiles, StoreFailed
from connectors.segments_local import LocalSegments, Position, read_record
from schemas.records import BodyRef
from tests.support.lossy_files import BrokenSync, FullDisk, LossyFiles
from tests.support.warc_samples import digest, parsed, read_all, read_at, response

URL = "http://www.example.org/"


def open_segments(root: Path, *, epoch: int = 1, files: Files | None = None, limit: int = 1 << 30) -> LocalSegments:
    return LocalSegments(root, crawl_id="c", epoch=epoch, files=files, segment_bytes_max=limit)


def body_of(n: int) -> bytes:
    return digest(n.to_bytes(4, "big")) * 20


def append(segments: LocalSegments, n: int) -> BodyRef:
    segments.append_parsed(parsed(f"{URL}{n}", body_of(n).hex().encode()))
    return segments.append_response(f"{URL}{n}", response(f"{URL}{n}", body_of(n)), digest(body_of(n)))


def names(root: Path) -> list[str]:
    return sorted(f"{path.parent.name}/{path.name}" for path in root.glob("*/*"))


def uris(root: Path) -> list[str]:
    """Target URIs of all responses, every file read from start to end."""
    seen = [x for path in sorted((root / "warc").iterdir()) for x in read_all(path)]
    return [x.headers["warc-target-uri"] for x in seen if x.type == "response"]


@pytest.mark.parametrize("limit", [1 << 30, 1_500])
@pytest.mark.parametrize("crash_after", range(12))
def test_a_pulled_plug_leaves_exactly_what_was_committed(tmp_path: Path, crash_after: int, limit: int) -> None:
    """Whatever step the plug is pulled after, with the unsynced gone, the committed records are there and no others.

    Steps of a group: append two pages, sync, commit. Three groups an incarnation; a second one follows the crash.
    """
    files = LossyFiles()
    committed: Position = ()
    kept: list[tuple[BodyRef, int]] = []
    page = 0
    for epoch, steps in ((1, crash_after), (2, 12)):
        segments = open_segments(tmp_path, epoch=epoch, files=files, limit=limit)
        segments.recover(committed)
        assert uris(tmp_path) == [f"{URL}{n}" for _, n in kept]
        group: list[tuple[BodyRef, int]] = []
        for step in range(steps):
            match step % 4:
                case 0 | 1:
                    group.append((append(segments, page), page))
                    page += 1
                case 2:
                    segments.sync()
                case 3:
                    committed = segments.position()
                    kept += group
                    group = []
        files.crash()
    open_segments(tmp_path, epoch=3, files=files).recover(committed)
    assert not [name for name in names(tmp_path) if name.endswith(".open")]
    assert uris(tmp_path) == [f"{URL}{n}" for _, n in kept]
    assert all(read_at(tmp_path, ref).payload == body_of(n) for ref, n in kept)


def test_what_a_start_seals_stays_sealed(tmp_path: Path) -> None:
    """A new run commits a position that no longer names the old segments: by then their sealing must be durable."""
    files = LossyFiles()
    segments = open_segments(tmp_path, files=files)
    append(segments, 1)
    segments.sync()
    open_segments(tmp_path, epoch=2, files=files).recover(segments.position())
    files.crash()
    open_segments(tmp_path, epoch=3, files=files).recover(())
    assert uris(tmp_path) == [f"{URL}1"]


def test_a_sync_claims_only_what_was_there_when_it_began(tmp_path: Path) -> None:
    """Records that come while another thread syncs belong to the next group: no position covers them yet."""

    class Interleaved(OsFiles):
        """Another page comes while the first segment of a group is written."""

        page = 2

        def append(self, handle: int, data: bytes) -> None:
            if self.page:
                page, self.page = self.page, 0
                append(segments, page)
            super().append(handle, data)

    segments = open_segments(tmp_path, files=Interleaved())
    append(segments, 1)
    segments.sync()
    committed = segments.position()
    segments.sync()
    assert all(after > before for (_, before), (_, after) in zip(committed, segments.position(), strict=True))
    recovered = open_segments(tmp_path, epoch=2)
    recovered.recover(committed)
    assert uris(tmp_path) == [f"{URL}1"]
    assert len(read_all(next((tmp_path / "parsed").iterdir()))) == 3


def test_a_write_that_the_kernel_cuts_short_is_finished_or_fails(tmp_path: Path) -> None:
    """A write may take a part only (here at a size limit); the rest is tried, and the kernel's word is the error."""
    files = OsFiles()
    handle = files.create(str(tmp_path / "f"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            files.append(handle, bytes(1_500_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert files.length(str(tmp_path / "f")) == 1_000_000
    files.close(handle)


def test_a_torn_tail_is_cut(tmp_path: Path) -> None:
    """Records of a group that was written and not committed, torn or whole, are gone after a start."""
    segments = open_segments(tmp_path)
    first = append(segments, 1)
    segments.sync()
    committed = segments.position()
    append(segments, 2)
    segments.sync()
    path = tmp_path / f"{first.segment}.open"
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 7)
    open_segments(tmp_path, epoch=2).recover(committed)
    assert uris(tmp_path) == [f"{URL}1"]
    assert (tmp_path / first.segment).stat().st_size == dict(committed)[first.segment]


def test_less_than_was_committed_is_refused_and_nothing_touched(tmp_path: Path) -> None:
    """A file that lost committed bytes is one clear error, before any file is changed: someone may have the rest."""
    segments = open_segments(tmp_path)
    ref = append(segments, 1)
    segments.sync()
    committed = segments.position()
    path = tmp_path / f"{ref.segment}.open"
    short = path.read_bytes()[:-1]
    path.write_bytes(short)
    (tmp_path / "warc" / "headrace-c-00001-00007.warc.gz.open").write_bytes(b"unknown")
    before = names(tmp_path)
    with pytest.raises(StoreFailed, match=rf"needed {len(short) + 1} committed bytes .* got {len(short)} bytes; put"):
        open_segments(tmp_path, epoch=2).recover(committed)
    assert names(tmp_path) == before
    path.unlink()
    with pytest.raises(StoreFailed, match="got no such file"):
        open_segments(tmp_path, epoch=2).recover(committed)


def test_other_files_of_the_folder_are_left_alone(tmp_path: Path) -> None:
    """Recovery removes only open segments that no commit names; sealed ones and strangers' files stay."""
    (tmp_path / "warc").mkdir()
    for name in (
        "notes.txt",
        "mine.warc.gz.open",
        "headrace-c-00001-00000.warc.gz",
        "headrace-c-00001-00001.warc.gz.open",
    ):
        (tmp_path / "warc" / name).write_bytes(b"x")
    segments = open_segments(tmp_path)
    segments.recover(())
    assert names(tmp_path) == ["warc/headrace-c-00001-00000.warc.gz", "warc/mine.warc.gz.open", "warc/notes.txt"]
    assert append(segments, 1).segment == "warc/headrace-c-00001-00001.warc.gz"


def test_a_full_disk_leaves_no_torn_record_and_loses_nothing(tmp_path: Path) -> None:
    """ENOSPC is one clear error; the file ends with a whole record, and once there is room the group goes through."""
    disk = FullDisk(10_000)
    segments = open_segments(tmp_path, files=disk)
    first = append(segments, 1)
    segments.sync()
    committed = segments.position()
    disk.room_bytes = 300
    second = append(segments, 2)
    with pytest.raises(StoreFailed, match=r"needed to append \d+ bytes to .*No space left.*make room"):
        segments.sync()
    assert segments.position() == committed
    assert uris(tmp_path) == [f"{URL}1"]
    assert segments.read(second) == body_of(2)
    disk.room_bytes = 10_000
    segments.sync()
    assert uris(tmp_path) == [f"{URL}1", f"{URL}2"]
    assert [read_record(tmp_path, ref).payload for ref in (first, second)] == [body_of(1), body_of(2)]


def test_an_append_that_fails_takes_its_record_back(tmp_path: Path) -> None:
    """A large append that had to write at once and failed gave no reference, so its record never appears."""
    disk = FullDisk(1_000)
    segments = open_segments(tmp_path, files=disk)
    first = append(segments, 1)
    body = b"".join(digest(n.to_bytes(4, "big")) for n in range(300_000))  # 9.6 MB that do not compress
    with pytest.raises(StoreFailed, match="No space left"):
        segments.append_response(URL, response(URL, body), digest(body))
    disk.room_bytes = 10_000
    segments.sync()
    assert uris(tmp_path) == [f"{URL}1"]
    assert segments.read(first) == body_of(1)


def test_after_a_failed_sync_nothing_more_is_claimed(tmp_path: Path) -> None:
    """An fsync that failed may have dropped pages, and a second one would lie: the segment is done with."""
    segments = open_segments(tmp_path, files=BrokenSync(3))  # the first of the second group: warc and parsed had one
    append(segments, 1)
    segments.sync()
    committed = segments.position()
    append(segments, 2)
    with pytest.raises(StoreFailed, match=r"sync .*Input/output error.*check the disk"):
        segments.sync()
    with pytest.raises(StoreFailed, match="could not be synced"):
        segments.sync()
    assert segments.position() == committed
    open_segments(tmp_path, epoch=2).recover(committed)
    assert uris(tmp_path) == [f"{URL}1"]


def test_quota_and_read_only_disks_have_their_own_advice(tmp_path: Path) -> None:
    """The advice fits the failure, since a user acts on it."""
    segments = open_segments(tmp_path, files=FullDisk(0, code=errno.EDQUOT))
    append(segments, 1)
    with pytest.raises(StoreFailed, match="quota"):
        segments.sync()


def test_closing_seals_only_what_was_committed(tmp_path: Path) -> None:
    """A close after sync and commit seals; with a group that nobody committed it leaves `.open` to recovery."""
    segments = open_segments(tmp_path)
    append(segments, 1)
    segments.sync()
    committed = segments.position()
    append(segments, 2)
    segments.close()
    assert all(name.endswith(".open") for name in names(tmp_path))
    again = open_segments(tmp_path, epoch=2)
    again.recover(committed)
    append(again, 3)
    again.sync()
    again.close()
    assert not any(name.endswith(".open") for name in names(tmp_path))
    assert uris(tmp_path) == [f"{URL}1", f"{URL}3"]
