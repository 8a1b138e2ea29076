"""The plug is pulled out of a running crawl: what was never synced is gone, in every file of its folder."""

from __future__ import annotations

import random
import shutil
import signal
from pathlib import Path

import pytest

from tests.support import doc_pages
from tests.support.access_log_oracle import Expected, judge
from tests.support.after_crash import Witness, judge_whole
from tests.support.crawls import crawl_words, end, run, start
from tests.support.lossy_disk import Disk
from tests.support.site import ServedSite
from tests.support.walk import pages, walk

SEED = 20_261_130
START = "/tutorial.html"


@pytest.fixture(scope="module")
def small_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tutorial alone, some 30 pages: many power cuts can be afforded. Links to other chapters answer 404."""
    folder = tmp_path_factory.mktemp("small")
    for page in sorted(doc_pages.root().glob("tutorial*.html")):
        shutil.copy(page, folder)
    return folder


@pytest.mark.parametrize("power", ["cut", "stays"])
def test_an_end_before_each_of_the_first_steps_leaves_a_folder_to_start_from(
    tmp_path: Path, small_site: Path, power: str
) -> None:
    """However early it is killed or the power fails, the same command starts again and forgets nothing released."""
    disk = Disk(tmp_path / "disk", tmp_path)
    out = disk.root / "crawl"
    witness = Witness(out, 1)
    with ServedSite(small_site) as site:
        words = [*crawl_words(out, site.url(START), delay="20ms", concurrency=1), "--workers", "1"]
        expected = doc_pages.paths(pages(walk(site.url(START))))
        before = len(site.log())
        for cut_at in (*range(1, 40, 3), *range(40, 300, 60)):
            ended = run(words, disk.environment(cut_at=cut_at))
            assert ended.code == -signal.SIGKILL, (cut_at, ended)
            if power == "cut":
                disk.lose()
            witness.judge(site.log()[before:])
        ended = run(words)
        assert ended.code == 0, ended
        log = site.log()[before:]
        witness.judge(log)
    judge_whole(out, expected)
    breaches = judge((line.as_request() for line in log), lambda host: Expected(delay_ms=20))
    assert breaches == []


@pytest.mark.parametrize("seed", range(SEED, SEED + 2))
def test_cuts_at_random_steps_forget_nothing_that_was_released(tmp_path: Path, seed: int) -> None:
    """Cut after cut of a crawl of the whole site: completed pages stay, charged delays stay, the set is whole."""
    dice = random.Random(seed)
    disk = Disk(tmp_path / "disk", tmp_path)
    out = disk.root / "crawl"
    concurrency = 8
    witness = Witness(out, concurrency)
    with ServedSite(doc_pages.root()) as site:
        words = crawl_words(out, site.url(doc_pages.START), concurrency=concurrency)
        cuts = []
        while True:
            cuts.append(dice.randrange(100, 400))
            ended = run(words, disk.environment(cut_at=cuts[-1]))
            if ended.code == 0:
                break
            assert ended.code == -signal.SIGKILL, (seed, cuts, ended)
            disk.lose()
            witness.judge(site.log())
        log = site.log()
        witness.judge(log)
    assert len(cuts) > 2  # how many steps a crawl takes follows from how its groups fall
    judge_whole(out, doc_pages.walked_paths())
    assert sum(line.path == "/robots.txt" for line in log) == 1, "the rules are durable before they are used"


def test_after_a_cut_a_host_is_not_asked_sooner_than_its_delay(tmp_path: Path, small_site: Path) -> None:
    """The charge for a lease is durable before the lease is released: the next start still waits the delay."""
    disk = Disk(tmp_path / "disk", tmp_path)
    out = disk.root / "crawl"
    with ServedSite(small_site) as site:
        words = [*crawl_words(out, site.url(START), delay="2500ms", concurrency=1), "--pages", "2"]
        running = start(words, disk.environment())
        assert site.wait_for(lambda lines: len(lines) >= 2, or_end_of=running)
        running.kill()
        end(running)
        disk.lose()
        ended = run(words)
        assert ended.code == 0, ended
        log = site.log()
    assert judge((line.as_request() for line in log), lambda host: Expected(delay_ms=2_500)) == []
    assert [line.path for line in log].count("/robots.txt") == 1


def test_what_a_finished_crawl_reported_survives_a_cut_right_after_it(tmp_path: Path, small_site: Path) -> None:
    """Once the command has ended well, nothing of it depends on the page cache: exports, segments, fetch log."""
    disk = Disk(tmp_path / "disk", tmp_path)
    out = disk.root / "crawl"
    with ServedSite(small_site) as site:
        ended = run(crawl_words(out, site.url(START)), disk.environment())
        assert ended.code == 0, ended
        expected = doc_pages.paths(pages(walk(site.url(START))))
    logged = sorted(path.name for path in (out / "fetchlog").iterdir())
    disk.lose()
    judge_whole(out, expected)
    assert sorted(path.name for path in (out / "fetchlog").iterdir()) == logged != []
