"""What every adapter of the `Segments` port owes its callers."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.files import StoreFailed
from connectors.object_store import ObjectStore
from connectors.ports import ParseOutput, StoredContent
from connectors.segments_local import LocalSegments, read_record
from connectors.segments_s3 import S3Segments, Spool
from connectors.segments_scan import scan
from schemas.records import BodyRef
from streams.core import store
from tests.support.fake_s3 import BUCKET, FakeS3
from tests.support.warc_samples import digest, parsed, read_all, read_at, response

URL = "http://www.example.org/"


class Opened:
    """An adapter on a fresh store, with small segments so that several are filled."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._folder = folder
        self._s3 = FakeS3()
        self.segments: LocalSegments | S3Segments
        if kind == "local":
            self.segments = open_local(folder)
        else:
            objects = ObjectStore(self._s3, BUCKET, part_bytes=700)  # most segments go in several parts
            self.segments = S3Segments(
                objects,
                Spool(folder / "spool"),
                worker="c1",
                epoch=1,
                info=(("software", "t"),),
                segment_bytes_max=2_000,
            )

    def files(self) -> Path:
        """Where all segments lie as files."""
        if isinstance(self.segments, LocalSegments):
            return self._folder
        for name, data in self._s3.objects.items():
            path = self._folder / "copied" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return self._folder / "copied"


def open_local(folder: Path) -> LocalSegments:
    return LocalSegments(folder, crawl_id="c1", epoch=1, info=(("software", "t"),), segment_bytes_max=2_000)


@pytest.fixture(params=["local", "s3"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """Each adapter."""
    made = Opened(request.param, tmp_path)
    yield made
    made.segments.close()


@pytest.fixture
def segments(opened: Opened) -> LocalSegments | S3Segments:
    return opened.segments


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalSegments]:
    """For what the local disk alone promises."""
    made = open_local(tmp_path)
    yield made
    made.close()


def test_a_reference_reads_at_once_and_ever_after(segments: LocalSegments | S3Segments) -> None:
    """A payload can be had by its reference while pending, after the sync, and after its segment was sealed."""
    body = bytes(range(256)) * 4
    ref = segments.append_response(URL, response(URL, body), digest(body))
    assert segments.read(ref) == body
    segments.sync()
    assert segments.read(ref) == body
    segments.sync()
    segments.close()
    assert segments.read(ref) == body


def test_text_is_what_a_parsed_reference_names(segments: LocalSegments | S3Segments) -> None:
    """append_parsed refers to the text; a page without text has no reference, though its facts are kept."""
    ref = segments.append_parsed(parsed(URL, b"some text"))
    assert ref is not None
    assert segments.read(ref) == b"some text"
    assert segments.append_parsed(parsed(URL, b"")) is None


def test_ready_made_records_are_the_same(segments: LocalSegments | S3Segments) -> None:
    """Records made by a parser's process are appended as they are, and read like those made here."""
    output = parsed(URL, b"some text")
    made = store.parsed_records(output.page, output.text)
    ready = ParseOutput(output.page, b"", made.data, made.text_record_bytes)
    refs = [segments.append_parsed(output), segments.append_parsed(ready)]
    first, second = (segments.read_record(ref) for ref in refs if ref is not None)
    assert first == second


def test_a_duplicate_is_a_revisit(segments: LocalSegments | S3Segments) -> None:
    """The second copy of the same bytes costs no body: its record has none, and the first one's reference stands."""
    body = b"y" * 1_000
    first = segments.append_response(URL, response(URL, body), digest(body))
    content = StoredContent(first, URL, 5)
    again = segments.append_response(URL + "2", response(URL + "2", body), digest(body), content)
    assert segments.read_record(again).type == "revisit"
    assert segments.read(again) == b""
    assert segments.read(first) == body
    assert "x-crawler-content-encoding" in segments.read_record(again).http_header.decode().lower()


def test_segments_fill_up_and_are_sealed(opened: Opened) -> None:
    """Full segments lose `.open` once committed; each is a WARC of its own that begins with warcinfo, read whole."""
    segments, refs = opened.segments, []
    for n in range(30):
        body = digest(bytes([n])) * 9  # hardly compressible
        refs.append((segments.append_response(f"{URL}{n}", response(f"{URL}{n}", body), digest(body)), body))
        segments.append_parsed(parsed(f"{URL}{n}", body.hex().encode()))
        if n % 5 == 4:
            segments.sync()
    segments.sync()
    segments.close()
    files = opened.files()
    for folder, per_page in (("warc", 1), ("parsed", 2)):
        paths = sorted((files / folder).iterdir())
        assert len(paths) > 3
        assert all(path.name.startswith("headrace-c1-00001-") and path.suffix == ".gz" for path in paths)
        seen = [read_all(path) for path in paths]
        assert all(records[0].type == "warcinfo" for records in seen)
        assert sum(len(records) - 1 for records in seen) == 30 * per_page
        assert [x.headers["warc-target-uri"] for records in seen for x in records[1:]] == [
            f"{URL}{n}" for n in range(30) for _ in range(per_page)
        ]
    assert all(read_at(files, ref).payload == body for ref, body in refs)
    assert all(read_record(files, ref).payload == body for ref, body in refs)


def test_warcio_check_passes(opened: Opened) -> None:
    """`warcio check`, the command that people run on an archive, finds nothing wrong and every body's digest right."""
    segments = opened.segments
    for n in range(3):
        segments.append_response(f"{URL}{n}", response(f"{URL}{n}", bytes([n]) * 50), digest(bytes([n]) * 50))
        segments.append_parsed(parsed(f"{URL}{n}", b"text"))
    segments.sync()
    segments.close()
    paths = [str(path) for path in sorted(opened.files().glob("*/*.warc.gz*"))]
    done = subprocess.run(
        [sys.executable, "-c", "from warcio.cli import main; main()", "check", "-v", *paths],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("digest pass") == 3
    assert "failed" not in done.stdout


def test_readers_and_the_writer_do_not_wait_for_luck(segments: LocalSegments | S3Segments) -> None:
    """References read right from another thread while the writer appends, syncs and seals."""
    refs: list[tuple[BodyRef, bytes]] = []
    wrong: list[object] = []
    done = threading.Event()

    def reader() -> None:
        while not done.is_set():
            for ref, body in refs[-20:]:
                try:
                    if segments.read(ref) != body:
                        wrong.append(ref)
                except StoreFailed as error:
                    wrong.append(error)

    threads = [threading.Thread(target=reader) for _ in range(2)]
    for thread in threads:
        thread.start()
    for n in range(200):
        body = digest(n.to_bytes(2, "big")) * 10
        refs.append((segments.append_response(f"{URL}{n}", response(f"{URL}{n}", body), digest(body)), body))
        if n % 3 == 0:
            segments.sync()
    done.set()
    for thread in threads:
        thread.join(10)
    assert wrong == []


def test_a_missing_or_foreign_record_is_one_clear_error(segments: LocalSegments | S3Segments) -> None:
    """A reference to nothing, or to the middle of a record, says what was needed and what came."""
    ref = segments.append_response(URL, response(URL, b"x" * 100), digest(b"x" * 100))
    segments.sync()
    with pytest.raises(StoreFailed, match=r"no such (file|object)"):
        segments.read(BodyRef("warc/headrace-c1-00001-00099.warc.gz", 0, 10))
    with pytest.raises(StoreFailed, match="bytes that are none"):
        segments.read(BodyRef(ref.segment, ref.offset_bytes + 1, ref.record_bytes))


def test_position_is_what_sync_made_durable(local: LocalSegments) -> None:
    """The position never runs ahead of the disk: appends change it only with the next sync."""
    assert local.position() == ()
    ref = local.append_response(URL, response(URL, b"x"), digest(b"x"))
    assert local.position() == ()
    local.sync()
    assert local.position() == ((ref.segment, ref.offset_bytes + ref.record_bytes),)
    local.append_response(URL, response(URL, b"y"), digest(b"y"))
    assert dict(local.position())[ref.segment] == ref.offset_bytes + ref.record_bytes


def test_a_committed_segment_that_is_gone_is_no_empty_one(local: LocalSegments, tmp_path: Path) -> None:
    """An export of a folder that lost a segment says so; it does not come out short with exit code 0."""
    local.append_response(URL, response(URL, b"one"), digest(b"one"))
    local.sync()
    (name, _), *_ = local.position()
    assert len(list(scan(tmp_path, "warc", local.position()))) == 2
    (tmp_path / f"{name}.open").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreFailed, match="no such file"):
        list(scan(tmp_path, "warc", local.position()))
    assert list(scan(tmp_path, "parsed", local.position())) == []
    (tmp_path / "elsewhere").rename(tmp_path / f"{name}.open")
