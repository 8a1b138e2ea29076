"""A crawl that is resumed with another scope, by the real command, judged by the site's own log."""

from __future__ import annotations

from pathlib import Path

from tests.support.crawls import crawl_words, export, fetched, page_rows, records, run, segments
from tests.support.site import ServedSite


def test_a_resumed_crawl_takes_in_what_its_pages_name_and_leaves_what_is_out(tmp_path: Path) -> None:
    """Wider: links that were refused are followed and no page is fetched twice. Narrower: nothing is asked for."""
    root, out = tmp_path / "site", tmp_path / "crawl"
    root.mkdir()
    with ServedSite(root) as site:
        second = site.url("/second.html", "two.test")
        (root / "index.html").write_text(f'<title>T</title>words <a href="/one.html">1</a> <a href="{second}">2</a>')
        (root / "one.html").write_text('one <a href="/deep.html">deep</a>')
        (root / "deep.html").write_text("deep")
        (root / "second.html").write_text('two <a href="/queued.html">q</a>')
        (root / "queued.html").write_text("queued")
        words = [word for host in ("one.test", "two.test") for word in ("--resolve", f"{host}=127.0.0.1")]
        words = crawl_words(out, site.url("/index.html", "one.test")) + words
        paths = []
        for more in (
            ["--depth", "1"],
            ["--scope", "any", "--depth", "1"],
            ["--scope", "any", "--depth", "9", "--pages", "1"],  # one of the two that are queued then
            ["--scope", "host"],
            ["--scope", "any"],
        ):
            before = len(site.log())
            ended = run([*words, *more])
            assert ended.code == 0, ended
            paths.append(sorted(f"{line.host}{line.path}" for line in site.log()[before:] if "robots" not in line.path))
    assert paths[:2] == [["one.test/index.html", "one.test/one.html"], ["two.test/second.html"]]
    assert len(paths[2]) == 1
    assert all(path.startswith("one.test/") for path in paths[3])
    assert sorted(path for run_paths in paths[2:] for path in run_paths) == [
        "one.test/deep.html",
        "two.test/queued.html",
    ]
    rows = page_rows(out)
    assert len(fetched(rows)) == 5
    assert {row["title"] for row in rows} >= {"T"}
    parsed = [one.url for path in segments(out, "parsed") for one in records(path) if one.type == "metadata"]
    assert len(parsed) == 5, "a second reading by the same extractor leaves no second record"
    assert export(out, "links.parquet").exists()
