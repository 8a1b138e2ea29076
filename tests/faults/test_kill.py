"""kill -9 of a real crawl of a real site, and Ctrl-C: nothing is lost, and nothing is asked for twice."""

from __future__ import annotations

import random
import signal
from pathlib import Path

from tests.support import doc_pages
from tests.support.after_crash import Witness, judge_whole
from tests.support.crawls import crawl_of, end, fetched, kill, page_rows, run, start
from tests.support.site import ServedSite

SEED = 20_261_130
KILLS = 10
CONCURRENCY = 8


def test_ten_kills_at_random_moments_lose_no_page_and_fetch_none_twice(tmp_path: Path) -> None:
    """A crawl killed ten times and resumed each time ends as one that ran through; each kill leaves a whole folder."""
    expected = doc_pages.walked_paths()
    moments = sorted(random.Random(SEED).sample(range(2, len(expected) - 50), KILLS))
    out = tmp_path / "crawl"
    witness = Witness(out, CONCURRENCY)
    with ServedSite(doc_pages.root()) as site:
        words = crawl_of(site, out, doc_pages.START, concurrency=CONCURRENCY)
        for moment in moments:
            running = start(words)
            seen = site.wait_for(lambda lines, moment=moment: len(lines) >= moment, or_end_of=running)  # type: ignore[misc]
            kill(running)
            ended = end(running)
            assert seen, f"it ended before request {moment} (seed {SEED}): {ended}"
            assert ended.code == -signal.SIGKILL
            witness.judge(site.log())
        ended = run(words)
        assert ended.code == 0, ended
        log = site.log()
        witness.judge(log)
    judge_whole(out, expected)
    assert sum(line.path == "/robots.txt" for line in log) == 1
    assert len(log) <= 1 + len(expected) + KILLS * CONCURRENCY


def test_the_first_interrupt_drains_and_the_crawl_goes_on_later(tmp_path: Path) -> None:
    """Ctrl-C: nothing new is asked, what is in flight is kept, the exit code is 0, the next run completes the set."""
    out = tmp_path / "crawl"
    with ServedSite(doc_pages.root()) as site:
        words = crawl_of(site, out, doc_pages.START, concurrency=CONCURRENCY)
        running = start(words)
        assert site.wait_for(lambda lines: len(lines) >= 200, or_end_of=running)
        running.send_signal(signal.SIGINT)
        ended = end(running)
        assert ended.code == 0, ended
        assert "Ctrl-C again" in ended.out + ended.err
        (summary,) = (event for event in ended.events() if event["event"] == "summary")
        assert summary["reason"] == "drained"
        asked = {line.path for line in site.log()} - {"/robots.txt"}
        assert len(asked) < len(doc_pages.walked_paths())
        assert doc_pages.paths(fetched(page_rows(out))) == asked, "what was in flight is completed"
        assert run(words).code == 0
        log = site.log()
    assert len({line.path for line in log}) == len(log), "no page is asked for twice"
    judge_whole(out, doc_pages.walked_paths())


def test_the_second_interrupt_stops_at_once_and_loses_nothing(tmp_path: Path) -> None:
    """Ctrl-C twice does not wait for a site that is silent; what was decided is kept; the next run completes it."""
    out = tmp_path / "crawl"
    witness = Witness(out, CONCURRENCY)
    with ServedSite(doc_pages.root()) as site:
        words = crawl_of(site, out, doc_pages.START, concurrency=CONCURRENCY)
        running = start(words)
        assert site.wait_for(lambda lines: len(lines) >= 200, or_end_of=running)
        with site.silent():
            running.send_signal(signal.SIGINT)
            assert running.stderr is not None
            assert "Ctrl-C again" in running.stderr.readline()
            running.send_signal(signal.SIGINT)
            ended = end(running)
        assert ended.code == 130, ended
        witness.judge(site.log())
        assert run(words).code == 0
        witness.judge(site.log())
    judge_whole(out, doc_pages.walked_paths())
