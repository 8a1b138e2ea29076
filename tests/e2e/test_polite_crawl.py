"""A short crawl with the default manners, judged by the sites' own log."""

from __future__ import annotations

from pathlib import Path
from urllib.robotparser import RobotFileParser

from tests.support import doc_pages
from tests.support.access_log_oracle import Expected, judge
from tests.support.crawls import crawl_words, end, fetched, page_rows, run, start
from tests.support.site import ServedSite

ROBOTS = "User-agent: *\nDisallow: /sql-\nDisallow: /intro\n"
HOSTS = ("one.test", "two.test")


def test_by_default_a_host_sees_one_connection_and_a_second_between_requests(tmp_path: Path) -> None:
    """The site's log shows robots.txt first, nothing forbidden, one connection, and 1 s after each answer."""
    (tmp_path / "robots.txt").write_text(ROBOTS)
    rules = RobotFileParser()
    rules.parse(ROBOTS.splitlines())
    with ServedSite(doc_pages.root(), "--robots", str(tmp_path / "robots.txt")) as site:
        seeds = [site.url(doc_pages.START, host) for host in HOSTS]
        words = crawl_words(tmp_path / "crawl", *seeds, delay=None, concurrency=None)
        words += ["--pages", "8", *(word for host in HOSTS for word in ("--resolve", f"{host}=127.0.0.1"))]
        ended = run(words)
        assert ended.code == 0, ended
        log = site.log()
    expected = Expected(delay_ms=1_000, concurrency=1, allowed=lambda path: rules.can_fetch("HeadraceTest", path))
    assert judge((line.as_request() for line in log), lambda host: expected) == []
    assert {line.host for line in log} == set(HOSTS)
    assert max(line.connections_open for line in log) == 1
    pages = [line for line in log if line.path != "/robots.txt"]
    assert len(pages) == 8
    assert len({(line.host, line.path) for line in pages}) == 8
    assert len(fetched(page_rows(tmp_path / "crawl"))) == 8


def test_a_lost_lease_costs_the_host_its_delay(tmp_path: Path) -> None:
    """Killed while a request is out and started again at once, the crawl still waits its delay after that request."""
    delay_ms = 3_000
    with ServedSite(doc_pages.root()) as site:
        words = crawl_words(tmp_path / "crawl", site.url(doc_pages.START), delay=f"{delay_ms}ms", concurrency=1)
        words += ["--pages", "2"]
        running = start(words)
        assert site.wait_for(lambda lines: len(lines) >= 2, or_end_of=running)
        running.kill()
        end(running)
        ended = run(words)
        assert ended.code == 0, ended
        log = site.log()
    expected = Expected(delay_ms=delay_ms)
    assert judge((line.as_request() for line in log), lambda host: expected) == []
    assert [line.path for line in log].count("/robots.txt") == 1, "the rules are durable"
