"""A disk that fills up under a running crawl: one clear error, nothing lost, and the same command goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import doc_pages
from tests.support.after_crash import Witness, judge_whole
from tests.support.crawls import Ended, crawl_words, run
from tests.support.lossy_disk import Disk
from tests.support.site import ServedSite

CONCURRENCY = 8


def complained_once(ended: Ended) -> str:
    """The one line of the error on stderr. No traceback, no line of a library."""
    errors = [line for line in ended.err.splitlines() if not line.startswith(("resuming:", "note:"))]
    assert len(errors) == 1, ended.err
    assert errors[0].startswith("headrace: "), ended.err
    return errors[0]


@pytest.mark.parametrize("room_bytes", [0, 40, 60_000, 1_500_000, 6_000_000])
def test_a_full_disk_ends_the_run_with_one_error_and_room_lets_it_go_on(tmp_path: Path, room_bytes: int) -> None:
    """Wherever the room ends (new folder, RocksDB's files, segments), the error says so and a resume completes."""
    disk = Disk(tmp_path / "disk", tmp_path)
    out = disk.root / "crawl"
    witness = Witness(out, CONCURRENCY)
    with ServedSite(doc_pages.root()) as site:
        words = crawl_words(out, site.url(doc_pages.START), concurrency=CONCURRENCY)
        ended = run(words, disk.environment(room_bytes=room_bytes))
        assert ended.code in (1, 3), ended
        assert "No space left on device" in complained_once(ended)
        witness.judge(site.log())
        ended = run(words)
        assert ended.code == 0, ended
        witness.judge(site.log())
    judge_whole(out, doc_pages.walked_paths())


def test_a_disk_that_is_full_again_and_again_loses_nothing(tmp_path: Path) -> None:
    """Each run gets a little further; what each completed stays completed, as on a disk that somebody keeps filling."""
    disk = Disk(tmp_path / "disk", tmp_path)
    out = disk.root / "crawl"
    witness = Witness(out, CONCURRENCY)
    runs = 0
    with ServedSite(doc_pages.root()) as site:
        words = crawl_words(out, site.url(doc_pages.START), concurrency=CONCURRENCY)
        while (ended := run(words, disk.environment(room_bytes=3_000_000))).code != 0:
            runs += 1
            assert "No space left on device" in complained_once(ended)
            witness.judge(site.log())
            assert runs < 20
        witness.judge(site.log())
    assert runs >= 2
    judge_whole(out, doc_pages.walked_paths())
