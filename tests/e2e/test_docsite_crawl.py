"""A real site, crawled by the real command and read back by other people's tools; then crawled once more."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from tests.support import doc_pages
from tests.support.crawls import crawl_of, export, fetched, page_rows, record_at, records, run, segments
from tests.support.site import Asked, ServedSite
from tests.support.walk import pages, walk

CHANGED = ("/sql-select.html", "/tutorial-join.html", "/btree.html")
ADDED = "/added-later.html"


class First(NamedTuple):
    """The first crawl, and what it left."""

    site: ServedSite
    overlay: Path
    out: Path
    rows: list[dict[str, Any]]
    log: list[Asked]


class Second(NamedTuple):
    """The second crawl, with `--refresh`, of a site that changed a little."""

    out: Path
    rows: list[dict[str, Any]]
    log: list[Asked]
    new_segments: list[Path]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[First]:
    folder = tmp_path_factory.mktemp("docsite")
    overlay, out = folder / "overlay", folder / "crawl"
    overlay.mkdir()
    with ServedSite(doc_pages.root(), "--overlay", str(overlay)) as site:
        ended = run(crawl_of(site, out, doc_pages.START))
        assert ended.code == 0, ended
        yield First(site, overlay, out, page_rows(out), site.log())


@pytest.fixture(scope="module")
def second(first: First) -> Second:
    site, overlay, out, _, log = first
    (overlay / CHANGED[0][1:]).write_text("<title>changed</title><p>the same new text for two pages")
    (overlay / CHANGED[1][1:]).write_text("<title>changed</title><p>the same new text for two pages")
    (overlay / CHANGED[2][1:]).write_text(f'<title>changed, too</title><p>see <a href="{ADDED}">this</a>')
    (overlay / ADDED[1:]).write_text("<title>added</title><p>a page that was not there before")
    before = set(segments(out))
    ended = run([*crawl_of(site, out, doc_pages.START), "--refresh"])
    assert ended.code == 0, ended
    new_segments = [path for path in segments(out) if path not in before]
    return Second(out, page_rows(out), site.log()[len(log) :], new_segments)


def test_the_crawl_finds_what_an_independent_walk_finds(first: First) -> None:
    """No page of the site is missed, and none is invented."""
    crawled = doc_pages.paths(fetched(first.rows))
    assert crawled == doc_pages.walked_paths(), crawled ^ doc_pages.walked_paths()


def test_every_page_is_asked_for_once(first: First) -> None:
    """A crawl costs a site one request a page, robots.txt first, and each says who asks."""
    asked = Counter(line.path for line in first.log)
    assert [path for path, times in asked.items() if times > 1] == []
    assert first.log[0].path == "/robots.txt"
    assert {line.user_agent for line in first.log} == {"HeadraceTest/1.0 (+https://example.org/bot)"}


def test_every_segment_is_readable_from_start_to_end(first: First) -> None:
    """warcio reads all records of all segments, digests included, and finds one record a page."""
    urls = [one.url for path in segments(first.out) for one in records(path) if one.type in ("response", "revisit")]
    assert sorted(urls) == sorted(fetched(first.rows))
    parsed = Counter(one.type for path in segments(first.out, "parsed") for one in records(path))
    assert parsed["metadata"] == len(urls)
    assert parsed["conversion"] > 0.99 * len(urls)


def test_every_body_lies_where_the_export_says(first: First) -> None:
    """Each row's body is the record of its URL, its bytes those that the site serves and that the hash is of."""
    for row in first.rows:
        record = record_at(first.out, row["content"])
        assert row["body"] == row["content"] or record.url != row["url"]
        assert record_at(first.out, row["body"]).url == row["url"]
        assert hashlib.sha256(record.payload).hexdigest() == row["content_hash"]
        path = doc_pages.root() / next(iter(doc_pages.paths([row["url"]])))[1:]
        assert record.payload == path.read_bytes(), row["url"]
        assert record_at(first.out, row["text"]).url == row["url"]


def test_the_exported_pages_say_what_a_reader_needs(first: First) -> None:
    """Depth counts links from the seed, instants are typed, titles are there."""
    by_path = {next(iter(doc_pages.paths([row["url"]]))): row for row in first.rows}
    assert by_path[doc_pages.START]["depth"] == 0
    assert {row["depth"] for row in first.rows} >= {0, 1}
    assert all(row["fetched_at"].timestamp() * 1_000 == row["fetched_ms"] for row in first.rows)
    assert by_path["/sql-select.html"]["title"] == "SELECT"
    assert all(row["title"] for row in first.rows)


def test_the_exported_links_are_those_of_the_pages(first: First) -> None:
    """links.parquet has the links of every page; followed from the seed they lead to every page."""
    links = pq.read_table(export(first.out, "links.parquet")).to_pylist()
    targets: dict[str, set[str]] = {}
    for link in links:
        targets.setdefault(link["source_url"], set()).add(link["target_url"])
    assert set(targets) <= fetched(first.rows)
    reached, queue = {first.site.url(doc_pages.START)}, [first.site.url(doc_pages.START)]
    while queue:
        for url in targets.get(queue.pop(), set()) - reached:
            if url.startswith(first.site.url("/")):
                reached.add(url)
                queue.append(url)
    assert reached == fetched(first.rows)


def test_the_index_finds_every_record(first: First) -> None:
    """Each line of crawl.cdxj names file, offset and length of a gzip member that is the record of its URL."""
    lines = export(first.out, "crawl.cdxj").read_bytes().splitlines()
    assert lines == sorted(lines)
    seen = []
    for line in lines:
        _, _, rest = line.decode().split(" ", 2)
        fields = json.loads(rest)
        with (first.out / "warc" / fields["filename"]).open("rb") as stream:
            stream.seek(int(fields["offset"]))
            member = gzip.decompress(stream.read(int(fields["length"])))
        assert f"WARC-Target-URI: {fields['url']}\r\n".encode() in member
        assert member.startswith(b"WARC/1.")
        seen.append(fields["url"])
    assert sorted(seen) == sorted(fetched(first.rows))


def test_a_second_crawl_asks_each_known_page_conditionally(second: Second, first: First) -> None:
    """Unchanged pages answer 304, each asked once; only what changed or was added costs a body."""
    known = doc_pages.walked_paths()
    asked = [line for line in second.log if line.path != "/robots.txt"]
    assert Counter(line.path for line in asked) == Counter([*known, ADDED])
    assert {line.path for line in asked if not line.conditional} == {ADDED}
    assert {line.path for line in asked if line.status == 200} == {*CHANGED, ADDED}
    assert {line.status for line in asked} == {200, 304}


def test_a_second_crawl_stores_only_what_changed_and_equal_bodies_once(second: Second, first: First) -> None:
    """No record for a 304; of two pages with the same new bytes one is a response, the other a revisit record."""
    stored = [one for path in second.new_segments for one in records(path) if one.type != "warcinfo"]
    assert doc_pages.paths(one.url for one in stored) == {*CHANGED, ADDED}
    assert Counter(one.type for one in stored) == {"response": 3, "revisit": 1}
    (repeat,) = (one for one in stored if one.type == "revisit")
    assert repeat.payload == b""
    assert sum(one.digest == repeat.digest for one in stored) == 2
    rows = {row["url"]: row for row in second.rows}
    for path in (*CHANGED, ADDED):
        row = rows[first.site.url(path)]
        payload = record_at(second.out, row["content"]).payload
        assert payload == (first.overlay / path[1:]).read_bytes()
        assert row["content_hash"] == hashlib.sha256(payload).hexdigest()


def test_after_the_second_crawl_all_pages_are_known_and_readable(second: Second, first: First) -> None:
    """The set is again that of a walk, and every row's body is still there."""
    assert fetched(second.rows) == pages(walk(first.site.url(doc_pages.START)))
    before = {row["url"]: row for row in first.rows}
    for row in second.rows:
        assert record_at(second.out, row["content"]).payload
        path = next(iter(doc_pages.paths([row["url"]])))
        if path not in (*CHANGED, ADDED):
            assert (row["content"], row["title"]) == (before[row["url"]]["content"], before[row["url"]]["title"])
            assert row["fetched_ms"] > before[row["url"]]["fetched_ms"]
