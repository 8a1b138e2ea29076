"""An operator's words and shared limits by the real command, judged by what the site saw."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from tests.support.access_log_oracle import Expected, judge
from tests.support.crawls import crawl_words, end, fetched, kill, page_rows, run, start
from tests.support.site import Asked, ServedSite

HOSTS = tuple(f"{name}.test" for name in "abcde")
PAGES = 4


def chain(root: Path, pages: int) -> Path:
    """A site whose every page names the next one."""
    root.mkdir()
    for number in range(1, pages + 1):
        link = f"<a href=/p{number + 1}.html>next</a>" if number < pages else "the end"
        (root / f"p{number}.html").write_text(f"<title>{number}</title><p>{link}")
    return root


def together(log: Sequence[Asked]) -> list[float]:
    """Of all hosts as one: from the end of each answer to the start of the next request, in ms."""
    ordered = sorted(log, key=lambda line: line.start_ms)
    return [later.start_ms - earlier.end_ms for earlier, later in pairwise(ordered)]


def test_all_hosts_of_an_address_are_asked_like_one_through_a_kill(tmp_path: Path) -> None:
    """With the address's limit on, the site's log shows one request at a time and the delay between any two hosts."""
    delay_ms = 150
    out, env = tmp_path / "crawl", {**os.environ, "HEADRACE_POLITENESS__ADDRESS_DELAY_MS": str(delay_ms)}
    with ServedSite(chain(tmp_path / "site", PAGES), "--delay-ms", "20") as site:
        words = crawl_words(out, *(site.url("/p1.html", host) for host in HOSTS))
        words += [word for host in HOSTS for word in ("--resolve", f"{host}=127.0.0.1")]
        running = start(words, env)
        assert site.wait_for(lambda lines: len(lines) >= 7, or_end_of=running)
        kill(running)
        end(running)
        ended = run(words, env)
        assert ended.code == 0, ended
        log = site.log()
    assert min(together(log)) >= delay_ms
    assert len(fetched(page_rows(out))) == len(HOSTS) * PAGES
    first_of = {host: min(at for at, line in enumerate(log) if line.host == host) for host in HOSTS}
    assert max(first_of.values()) < len(log) // 2, "no host waits until another is done"


def test_a_pause_stops_a_running_crawl_and_a_resume_lets_it_go_on(tmp_path: Path) -> None:
    """From the acknowledgement of a pause the site sees nothing more, until the host is resumed under other manners."""
    out = tmp_path / "crawl"
    with ServedSite(chain(tmp_path / "site", 12)) as site:
        running = start(crawl_words(out, site.url("/p1.html"), delay="200ms", concurrency=1))
        assert site.wait_for(lambda lines: len(lines) >= 3, or_end_of=running)
        paused = run(["host", str(out), "127.0.0.1", "--pause"])
        assert paused.code == 0, paused
        seen = len(site.log())
        said = run(["explain", str(out), f"127.0.0.1:{site.port}"])  # takes longer than several delays
        assert "an operator paused it" in said.out
        shown = run(["host", str(out), "127.0.0.1", "--json"])
        assert len(site.log()) == seen
        resumed = run(["host", str(out), "127.0.0.1", "--resume", "--delay", "400ms"])
        assert resumed.code == 0, resumed
        ended = end(running)
        assert ended.code == 0, ended
        log = site.log()
    assert [msgspec.json.decode(line)["policy_version"] for line in shown.out.splitlines()] == [1, 2]
    after = [line.as_request() for line in log[seen:]]
    assert len(after) == 13 - seen
    assert judge(after, lambda host: Expected(delay_ms=400, robots=False)) == []
    rows = [row for file in sorted((out / "fetchlog").iterdir()) for row in pq.read_table(file).to_pylist()]
    assert [(row["policy_version"], row["delay_ms"]) for row in rows] == [(1, 200)] * seen + [(3, 400)] * (13 - seen)


def test_a_word_on_a_stopped_crawl_holds_when_it_goes_on(tmp_path: Path) -> None:
    """Deleted between two runs, a host is not asked again by the second one; blocked URLs are not, either."""
    out = tmp_path / "crawl"
    with ServedSite(chain(tmp_path / "site", 6)) as site:
        words = crawl_words(out, *(site.url("/p1.html", host) for host in HOSTS[:2]))
        words += [word for host in HOSTS[:2] for word in ("--resolve", f"{host}=127.0.0.1")]
        assert run([*words, "--pages", "4"]).code == 0
        before = len(site.log())
        assert run(["host", str(out), f"{HOSTS[0]}:{site.port}", "--delete"]).code == 0
        assert run(["host", str(out), "*", "--block", "/p6"]).code == 0
        listed = run(["host", str(out), "--list"]).out
        ended = run(words)
        assert ended.code == 0, ended
        log = site.log()
    assert "deleted" in listed
    assert "/p6" in listed
    assert {line.host for line in log[before:]} <= {HOSTS[1]}
    paths = [line.path for line in log if line.host == HOSTS[1]]
    assert "/p5.html" in paths
    assert "/p6.html" not in paths
