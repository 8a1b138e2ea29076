"""Exports as other people's readers find them, whole or not there."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from connectors import exports
from connectors.export_cdxj import export_cdxj, sorted_lines
from connectors.exports import PageRow, export_kind, export_links, export_pages, place
from connectors.files import StoreFailed
from connectors.ports import ParseOutput, StoredContent
from connectors.segments_local import LocalSegments
from schemas.records import BodyRef
from streams.core.failures import UsageError
from tests.support.warc_samples import FETCHED_MS, digest, parsed, read_all, read_at, response

PAGE = PageRow(
    url="http://www.example.org/",
    url_id="00" * 16,
    kind="page",
    state="fetched",
    source="seed",
    depth=0,
    url_version=1,
    status=200,
    fetched_ms=FETCHED_MS,
    content_hash="ab" * 32,
    body=place(BodyRef("warc/a.warc.gz", 2**33, 9)),
    title="Ünïcode \u0000 \U0001f600",
    index=False,
    links=3,
)
NEW = PageRow("http://www.example.org/new", "11" * 16, "page", "new", "link", 1, 0)


@pytest.fixture
def crawl(tmp_path: Path) -> Path:
    """Four responses of three URLs over several sealed segments, one of them a revisit, and an open segment."""
    root = tmp_path / "crawl"
    segments = LocalSegments(root, crawl_id="c", epoch=1, segment_bytes_max=600)
    first = None
    for n, (name, body) in enumerate((("b", b"1"), ("a", b"2"), ("c", b"1"), ("a", b"3"))):
        url, at = f"http://www.example.org/{name}", FETCHED_MS + n * 1_000
        duplicate = StoredContent(first, "http://www.example.org/b", FETCHED_MS) if name == "c" and first else None
        ref = segments.append_response(url, response(url, body, fetched_ms=at), digest(body), duplicate)
        first = first or ref
        output = parsed(url, b"text", links=2, fetched_ms=at)
        segments.append_parsed(ParseOutput(msgspec.structs.replace(output.page, url_version=n), output.text))
        segments.sync()
    return root


def test_pages_as_parquet(tmp_path: Path) -> None:
    """Parquet's own reader sees typed columns: instants as timestamps beside the milliseconds, absent as null."""
    path = tmp_path / "pages.parquet"
    assert export_pages(iter([PAGE, NEW]), path) == 2
    first, second = pq.read_table(path).to_pylist()
    assert first["url"] == PAGE.url
    assert first["title"] == PAGE.title
    assert first["body"] == "warc/a.warc.gz:8589934592:9"
    assert first["fetched_ms"] == FETCHED_MS
    assert first["fetched_at"] == datetime.datetime(2025, 11, 30, 10, 53, 20, 123_000, datetime.UTC)
    assert (second["fetched_at"], second["status"], second["index"]) == (None, None, None)


def test_pages_as_json_lines(tmp_path: Path) -> None:
    """One object a line, with all the fields of a row and the instants as ISO 8601, too."""
    path = tmp_path / "pages.jsonl"
    assert export_pages(iter([PAGE, NEW]), path) == 2
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert set(first) == set(second) == {*PageRow.__struct_fields__, "fetched_at", "next_due_at"}
    assert (first["fetched_at"], first["depth"], first["title"]) == ("2025-11-30T10:53:20.123Z", 0, PAGE.title)
    assert (second["fetched_at"], second["fetched_ms"], second["content_hash"]) == (None, None, None)


@pytest.mark.parametrize("name", ["pages.parquet", "pages.jsonl"])
def test_many_rows_go_in_batches(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is lost or doubled where one batch ends and the next begins, and an empty crawl is an empty file."""
    monkeypatch.setattr(exports, "EXPORT_ROWS_MAX", 3)
    for count in (0, 1, 3, 7):
        path = tmp_path / name
        assert export_pages((msgspec.structs.replace(NEW, depth=n) for n in range(count)), path) == count
        rows = pq.read_table(path).to_pylist() if name.endswith("t") else [*map(json.loads, path.open())]
        assert [row["depth"] for row in rows] == list(range(count))


@pytest.mark.parametrize("name", ["pages.parquet", "pages.jsonl"])
def test_an_export_that_fails_leaves_the_old_one(tmp_path: Path, name: str) -> None:
    """The file under its name is always a whole export; nothing else is left in the folder."""
    path = tmp_path / name
    export_pages([PAGE], path)
    before = path.read_bytes()

    def failing() -> Iterator[PageRow]:
        yield NEW
        raise StoreFailed("the crawl's database is gone")

    with pytest.raises(StoreFailed, match="database is gone"):
        export_pages(failing(), path)
    assert path.read_bytes() == before
    assert [x.name for x in tmp_path.iterdir()] == [name]


def test_a_folder_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    """A wrong path names itself."""
    with pytest.raises(StoreFailed, match=r"export: needed to write .*none/pages.jsonl, got No such file"):
        export_pages([PAGE], tmp_path / "none" / "pages.jsonl")


def test_the_name_says_what_is_wanted() -> None:
    """A file's name chooses the export; one that says nothing is refused with names that do."""
    assert [export_kind(x) for x in ("pages.parquet", "x.JSONL", "my-links.parquet", "links.jsonl", "a/b.cdxj")] == [
        "pages",
        "pages",
        "links",
        "links",
        "cdxj",
    ]
    for name in ("pages.csv", "pages", ".parquet"):
        with pytest.raises(UsageError, match=r"pages\.parquet"):
            export_kind(name)
    with pytest.raises(UsageError, match="rename it"):
        export_pages([], "pages.csv")


def test_links_are_those_of_the_parsed_pages(crawl: Path, tmp_path: Path) -> None:
    """Every link of every page is a row with its page, kind, rel and nofollow."""
    path = tmp_path / "links.parquet"
    assert export_links(crawl, path) == 8
    rows = pq.read_table(path).to_pylist()
    assert [row["target_url"] for row in rows[:2]] == ["http://www.example.org/b?0", "http://www.example.org/b?1"]
    assert [(row["kind"], row["rel"], row["nofollow"]) for row in rows[:2]] == [
        ("a", "", False),
        ("a", "nofollow", True),
    ]
    assert rows[0]["source_url"] == "http://www.example.org/b"


def test_links_of_chosen_versions_only(crawl: Path, tmp_path: Path) -> None:
    """The caller knows which parse of a page stands: of a page parsed twice the older links can be left out."""
    path = tmp_path / "links.jsonl"
    assert export_links(crawl, path, keep=lambda facts: facts.url_version != 1) == 6
    sources = [json.loads(line)["source_url"][-1] for line in path.open()]
    assert sources == ["b", "b", "c", "c", "a", "a"]


def test_open_segments_count_as_far_as_they_are_committed(crawl: Path, tmp_path: Path) -> None:
    """With a position, what no commit names is not exported; without one, a torn tail is passed over."""
    (last,) = (crawl / "parsed").glob("*.open")
    name = f"parsed/{last.name.removesuffix('.open')}"
    everything = export_links(crawl, tmp_path / "links.jsonl")
    sealed = export_links(crawl, tmp_path / "links.jsonl", position=())
    assert sealed < everything
    assert export_links(crawl, tmp_path / "links.jsonl", position=((name, last.stat().st_size),)) == everything
    whole, records = last.read_bytes(), [x.offset for x in read_all(last)]
    assert export_links(crawl, tmp_path / "links.jsonl", position=((name, records[-1]),)) == everything - 2
    with open(last, "ab") as file:
        file.write(whole[:50])
    assert export_links(crawl, tmp_path / "links.jsonl") == everything


def test_damage_in_a_sealed_segment_is_named(crawl: Path, tmp_path: Path) -> None:
    """An export does not pass over a hole in the archive: it says which file and where."""
    damaged = sorted((crawl / "parsed").glob("*.gz"))[0]
    damaged.write_bytes(damaged.read_bytes()[:-3])
    with pytest.raises(StoreFailed, match=rf"record at \d+ of .*{damaged.name}, got bytes that are none"):
        export_links(crawl, tmp_path / "links.jsonl")


def test_cdxj_lines_lead_to_their_records(crawl: Path, tmp_path: Path) -> None:
    """Lines are in byte order, one for each visit; at each line's place lies the record that it tells of."""
    path = tmp_path / "crawl.cdxj"
    assert export_cdxj(crawl, path) == 4
    lines = path.read_bytes().splitlines()
    assert lines == sorted(lines)
    keys = [line.split(b" ")[:2] for line in lines]
    assert keys == [
        [b"org,example)/a", b"20251130105321"],
        [b"org,example)/a", b"20251130105323"],
        [b"org,example)/b", b"20251130105320"],
        [b"org,example)/c", b"20251130105322"],
    ]
    facts = [json.loads(line.split(b" ", 2)[2]) for line in lines]
    assert [x["mime"] for x in facts] == ["text/html", "text/html", "text/html", "warc/revisit"]
    for fact in facts:
        ref = BodyRef(f"warc/{fact['filename']}", int(fact["offset"]), int(fact["length"]))
        seen = read_at(crawl, ref)
        assert seen.headers["warc-target-uri"] == fact["url"]
        assert seen.headers["warc-payload-digest"] == fact["digest"]
        assert fact["status"] == "200"


def test_sorting_in_files_is_sorting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines beyond the memory come out in order, through runs that are merged themselves when there are many."""
    monkeypatch.setattr("connectors.export_cdxj.EXPORT_RUNS_MAX", 3)
    lines = [b"%d\n" % (n * 7919 % 1000) for n in range(1000)]
    for memory in (1, 1_000, 10_000_000):
        assert list(sorted_lines(iter(lines), str(tmp_path), memory)) == sorted(lines)
        assert len(list(tmp_path.iterdir())) < 20
        for run in tmp_path.iterdir():
            run.unlink()
