"""What every adapter of the `Segments` port owes its callers."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.files import StoreFailed
from connectors.ports import ParseOutput, StoredContent
from connectors.segments_local import LocalSegments, read_record
from connectors.segments_scan import scan
from schemas.records import BodyRef
from streams.core import store
from tests.support.warc_samples import digest, parsed, read_all, read_at, response

URL = "http://www.example.org/"


@pytest.fixture(params=["local"])
def segments(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalSegments]:
    """Each adapter on a fresh store, with small segments so that several are filled."""
    opened = LocalSegments(tmp_path, crawl_id="c1", epoch=1, info=(("software", "t"),), segment_bytes_max=2_000)
    yield opened
    opened.close()


def test_a_reference_reads_at_once_and_ever_after(segments: LocalSegments) -> None:
    """A payload can be had by its reference while pending, after the sync, and after its segment was sealed."""
    body = bytes(range(256)) * 4
    ref = segments.append_response(URL, response(URL, body), digest(body))
    assert segments.read(ref) == body
    segments.sync()
    assert segments.read(ref) == body
    segments.sync()
    segments.close()
    assert segments.read(ref) == body


def test_text_is_what_a_parsed_reference_names(segments: LocalSegments) -> None:
    """append_parsed refers to the text; a page without text has no reference, though its facts are kept."""
    ref = segments.append_parsed(parsed(URL, b"some text"))
    assert ref is not None
    assert segments.read(ref) == b"some text"
    assert segments.append_parsed(parsed(URL, b"")) is None


def test_ready_made_records_are_the_same(segments: LocalSegments) -> None:
    """Records made by a parser's process are appended as they are, and read like those made here."""
    output = parsed(URL, b"some text")
    made = store.parsed_records(output.page, output.text)
    ready = ParseOutput(output.page, b"", made.data, made.text_record_bytes)
    refs = [segments.append_parsed(output), segments.append_parsed(ready)]
    first, second = (segments.read_record(ref) for ref in refs if ref is not None)
    assert first == second


def test_a_duplicate_is_a_revisit(segments: LocalSegments) -> None:
    """The second copy of the same bytes costs no body: its record has none, and the first one's reference stands."""
    body = b"y" * 1_000
    first = segments.append_response(URL, response(URL, body), digest(body))
    content = StoredContent(first, URL, 5)
    again = segments.append_response(URL + "2", response(URL + "2", body), digest(body), content)
    assert segments.read_record(again).type == "revisit"
    assert segments.read(again) == b""
    assert segments.read(first) == body
    assert "x-crawler-content-encoding" in segments.read_record(again).http_header.decode().lower()


def test_segments_fill_up_and_are_sealed(segments: LocalSegments, tmp_path: Path) -> None:
    """Full segments lose `.open` once committed; each is a WARC of its own that begins with warcinfo, read whole."""
    refs = []
    for n in range(30):
        body = digest(bytes([n])) * 9  # hardly compressible
        refs.append((segments.append_response(f"{URL}{n}", response(f"{URL}{n}", body), digest(body)), body))
        segments.append_parsed(parsed(f"{URL}{n}", body.hex().encode()))
        if n % 5 == 4:
            segments.sync()
    segments.sync()
    segments.close()
    for folder, per_page in (("warc", 1), ("parsed", 2)):
        paths = sorted((tmp_path / folder).iterdir())
        assert len(paths) > 3
        assert all(path.name.startswith("headrace-c1-00001-") and path.suffix == ".gz" for path in paths)
        seen = [read_all(path) for path in paths]
        assert all(records[0].type == "warcinfo" for records in seen)
        assert sum(len(records) - 1 for records in seen) == 30 * per_page
        assert [x.headers["warc-target-uri"] for records in seen for x in records[1:]] == [
            f"{URL}{n}" for n in range(30) for _ in range(per_page)
        ]
    assert all(read_at(tmp_path, ref).payload == body for ref, body in refs)
    assert all(read_record(tmp_path, ref).payload == body for ref, body in refs)


def test_warcio_check_passes(segments: LocalSegments, tmp_path: Path) -> None:
    """`warcio check`, the command that people run on an archive, finds nothing wrong and every body's digest right."""
    for n in range(3):
        segments.append_response(f"{URL}{n}", response(f"{URL}{n}", bytes([n]) * 50), digest(bytes([n]) * 50))
        segments.append_parsed(parsed(f"{URL}{n}", b"text"))
    segments.sync()
    segments.close()
    paths = [str(path) for path in sorted(tmp_path.glob("*/*.warc.gz*"))]
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


def test_position_is_what_sync_made_durable(segments: LocalSegments) -> None:
    """The position never runs ahead of the disk: appends change it only with the next sync."""
    assert segments.position() == ()
    ref = segments.append_response(URL, response(URL, b"x"), digest(b"x"))
    assert segments.position() == ()
    segments.sync()
    assert segments.position() == ((ref.segment, ref.offset_bytes + ref.record_bytes),)
    segments.append_response(URL, response(URL, b"y"), digest(b"y"))
    assert dict(segments.position())[ref.segment] == ref.offset_bytes + ref.record_bytes


def test_readers_and_the_writer_do_not_wait_for_luck(segments: LocalSegments) -> None:
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


def test_a_missing_or_foreign_record_is_one_clear_error(segments: LocalSegments) -> None:
    """A reference to nothing, or to the middle of a record, says what was needed and what came."""
    ref = segments.append_response(URL, response(URL, b"x" * 100), digest(b"x" * 100))
    segments.sync()
    with pytest.raises(StoreFailed, match="no such file"):
        segments.read(BodyRef("warc/headrace-c1-00001-00099.warc.gz", 0, 10))
    with pytest.raises(StoreFailed, match="bytes that are none"):
        segments.read(BodyRef(ref.segment, ref.offset_bytes + 1, ref.record_bytes))


def test_a_committed_segment_that_is_gone_is_no_empty_one(segments: LocalSegments, tmp_path: Path) -> None:
    """An export of a folder that lost a segment says so; it does not come out short with exit code 0."""
    segments.append_response(URL, response(URL, b"one"), digest(b"one"))
    segments.sync()
    (name, _), *_ = segments.position()
    assert len(list(scan(tmp_path, "warc", segments.position()))) == 2
    (tmp_path / f"{name}.open").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreFailed, match="no such file"):
        list(scan(tmp_path, "warc", segments.position()))
    assert list(scan(tmp_path, "parsed", segments.position())) == []
    (tmp_path / "elsewhere").rename(tmp_path / f"{name}.open")
