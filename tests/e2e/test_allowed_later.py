"""A crawl whose network is allowed only by its second run, by the real command."""

from __future__ import annotations

from pathlib import Path

from tests.support.crawls import run
from tests.support.site import ServedSite


def test_a_network_that_is_allowed_later_is_asked_at_once(tmp_path: Path) -> None:
    """Protects whoever forgot --allow-address: run again with it, the crawl goes on now, and says what was refused."""
    root, out = tmp_path / "site", tmp_path / "crawl"
    root.mkdir()
    (root / "index.html").write_text("words")
    with ServedSite(root) as site:
        url = site.url("/index.html", "one.test")
        words = ["crawl", url, "http://two.test/", "--out", str(out), "--contact", "bot@example.org", "--delay", "0"]
        words += ["--resolve", "one.test=127.0.0.1", "--resolve", "two.test=127.0.0.9", "--time", "3s"]
        first = run([*words, "--allow-address", "127.0.0.9"])
        assert "refused for robots.txt: not a public address" in first.out
        assert site.log() == []
        second = run(["crawl", "--out", str(out), "--time", "20s", "--pages", "1", "--allow-address", "127.0.0.0/8"])
        assert "1 page in" in second.out, second
        assert [line.path for line in site.log()] == ["/robots.txt", "/index.html"]
