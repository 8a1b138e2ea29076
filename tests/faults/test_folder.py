"""A crawl's folder that cannot be taken: the error says why, the exit code is not 0, and nothing in it changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import doc_pages
from tests.support.crawls import crawl_words, end, fetched, page_rows, run, start
from tests.support.site import ServedSite


@pytest.fixture(scope="module")
def site() -> Iterator[ServedSite]:
    with ServedSite(doc_pages.root()) as served:
        yield served


def _files(folder: Path) -> dict[str, str]:
    """Every file and the hash of its bytes."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _crawled(site: ServedSite, out: Path) -> list[str]:
    words = [*crawl_words(out, site.url(doc_pages.START)), "--pages", "3"]
    assert run(words).code == 0
    return words


def test_a_folder_that_another_process_holds_is_refused(tmp_path: Path, site: ServedSite) -> None:
    """A second crawl of a folder names the process that holds it and asks nothing; the first goes on unharmed."""
    out = tmp_path / "crawl"
    seen = len(site.log())
    words = [*crawl_words(out, site.url(doc_pages.START), delay="300ms", concurrency=1), "--pages", "8"]
    running = start(words)
    assert site.wait_for(lambda lines: len(lines) >= seen + 2, or_end_of=running)
    refused = run(words)
    ended = end(running)
    assert refused.code == 3, refused
    assert f"process {running.pid} holds it" in refused.err
    assert len([line for line in refused.err.splitlines() if line.startswith("headrace: ")]) == 1
    assert "Traceback" not in refused.err
    assert ended.code == 0, ended
    assert len(fetched(page_rows(out))) == 8
    assert len(site.log()) == seen + 1 + 8


@pytest.mark.parametrize(
    ("manifest", "word"),
    [
        ({"format": 99}, "format 99"),
        (None, "damaged"),
        ("", "damaged"),
        ({"format": "1"}, "damaged"),
    ],
)
def test_a_folder_of_another_version_or_damaged_is_left_as_it_is(
    tmp_path: Path, site: ServedSite, manifest: dict[str, object] | str | None, word: str
) -> None:
    """A manifest that this version cannot take is an error of one line for each verb, and no file is touched."""
    out = tmp_path / "crawl"
    words = _crawled(site, out)
    path = out / "crawl.json"
    if isinstance(manifest, dict):
        path.write_text(json.dumps({**json.loads(path.read_text()), **manifest}))
    else:
        path.write_bytes(path.read_bytes()[:20] if manifest is None else b"")
    before, asked = _files(out), len(site.log())
    for verb in (words, ["status", str(out)], ["export", str(out), "--to", "pages.jsonl"]):
        ended = run(verb)
        assert ended.code == 3, ended
        assert word in ended.err
        assert [line for line in ended.err.splitlines() if not line.startswith("headrace: ")] == []
    assert _files(out) == before
    assert len(site.log()) == asked


def test_a_folder_of_something_else_is_refused(tmp_path: Path, site: ServedSite) -> None:
    """A folder with other things in it is never taken for a crawl's: --out ~ costs nobody anything."""
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter-1.tex").write_text("not a crawl")
    ended = run(crawl_words(out, site.url(doc_pages.START)))
    assert ended.code == 3, ended
    assert "chapter-1.tex" in ended.err or "holds no crawl" in ended.err or "without a crawl" in ended.err
    assert "Traceback" not in ended.err
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [("chapter-1.tex", "not a crawl")]


def test_segments_that_miss_committed_bytes_are_refused_and_left_alone(tmp_path: Path, site: ServedSite) -> None:
    """Somebody shortened a segment: the crawl says which, and does not cover it up."""
    out = tmp_path / "crawl"
    words = [*crawl_words(out, site.url(doc_pages.START)), "--pages", "30"]
    running = start(words[:-2])
    seen = len(site.log())
    assert site.wait_for(lambda lines: len(lines) >= seen + 100, or_end_of=running)
    running.kill()
    end(running)
    (segment,) = (out / "warc").iterdir()
    with segment.open("r+b") as stream:
        stream.truncate(segment.stat().st_size // 2)
    before = _files(out / "warc")
    ended = run(words)
    assert ended.code != 0
    assert segment.name.removesuffix(".open") in ended.err
    assert "Traceback" not in ended.err
    assert _files(out / "warc") == before
