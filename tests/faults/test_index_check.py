"""`headrace check index`: a folder's index against its URLs, made anew on wish, and after an upgrade by the crawl."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from connectors.crawldb_rocksdb import CrawlDb
from infra.folder import DATABASE, Folder
from infra.settings import Crawl, Settings
from infra.wiring import open_engine
from streams.cli import main
from streams.core.failures import EXIT_FOLDER
from streams.core.owner import Owner
from streams.core.policy import CrawlPolicy, Politeness
from streams.core.rows import QueueClass, due_ms_of
from streams.core.turn import Family, Turn, Write
from tests.support.core_world import ANY, NOW_MS, answer, found, stored
from tests.support.fake_engine import Captured

SETTINGS = Settings(crawl=Crawl(workers=1))
URLS = 300


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A crawl's folder that knows 300 URLs of three hosts and fetches nothing."""
    out = tmp_path / "crawl"
    asyncio.run(open_engine(SETTINGS, [], out).run())
    db = CrawlDb(out / DATABASE)
    owner = Owner(db, CrawlPolicy(), ANY, epoch=1, jitter=lambda: 0.5)
    turn: Turn = owner.decide([[found(f"http://h{n % 3}.test/{n}") for n in range(URLS)]], NOW_MS, 0)
    db.commit(turn.writes)
    db.close()
    return out


def check(out: Path, *words: str, code: int = 0) -> dict[str, Any]:
    shell = Captured()
    assert main(["check", "index", str(out), *words, "--json"], shell) == code, shell.said
    report: dict[str, Any] = json.loads(shell.printed)
    return report


def write(out: Path, *writes: Write) -> None:
    db = CrawlDb(out / DATABASE)
    db.commit(writes)
    db.close()


def index_of(out: Path) -> list[dict[bytes, bytes]]:
    db = CrawlDb(out / DATABASE)
    found_ = [dict(db.scan(family)) for family in (Family.QUEUE, Family.SEEN)]
    db.close()
    return found_


def test_an_index_as_a_crawl_leaves_it_is_right(out: Path) -> None:
    """Protects the answer for a sound folder: whole, nothing missing, nothing stale."""
    assert check(out) == {"rows": URLS, "whole": True, "missing": 0, "stale": 0}


def test_a_wrong_index_is_told_and_made_anew(out: Path) -> None:
    """Protects an operator's wish: lost and foreign entries are seen, and a rebuild leaves what was there before."""
    before = index_of(out)
    keys = list(before[1])
    entry = next(iter(before[0]))
    write(
        out, (Family.SEEN, keys[0], None), (Family.SEEN, keys[1], b"\7\7"), (Family.QUEUE, entry[:10] + b"\1" * 23, b"")
    )
    report = check(out, code=1)
    assert (report["missing"], report["stale"]) == (1, 2)
    assert "--rebuild" in report["refused"]
    report = check(out, "--rebuild")
    assert (report["rows"], report["missing"], report["stale"], report["whole"]) == (URLS, 0, 0, True)
    assert report["loaded_rows_per_s"] > 0
    assert index_of(out) == before


def test_a_folder_of_before_is_loaded_by_the_next_crawl(out: Path) -> None:
    """Protects an upgrade: what is missing is said, and a crawl in the folder makes it good."""
    before = index_of(out)
    db = CrawlDb(out / DATABASE)
    queue = [(Family.QUEUE, key, value) for key, value in db.scan(Family.QUEUE)]
    db.clear_index()
    db.commit(queue)
    db.close()
    report = check(out)
    assert (report["missing"], report["whole"]) == (URLS, False)
    assert "next crawl" in report["note"]
    engine = open_engine(SETTINGS, [], out)
    engine.stop()
    asyncio.run(engine.run())
    db = CrawlDb(out / DATABASE)
    owner = Owner(db, CrawlPolicy(), ANY, epoch=9, jitter=lambda: 0.5)
    while owner.index.loading:
        db.commit(owner.load_index(NOW_MS).writes)
    db.close()
    assert check(out) == {"rows": URLS, "whole": True, "missing": 0, "stale": 0}
    assert index_of(out) == before


def test_no_check_while_a_crawl_runs(out: Path) -> None:
    """Protects the run that holds the folder, and people from an answer about a moving target."""
    folder = Folder(out, now_ms=NOW_MS)
    shell = Captured()
    assert main(["check", "index", str(out)], shell) == EXIT_FOLDER
    folder.close()
    assert check(out)["whole"]


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    """Protects people who mistype: nothing is made there."""
    shell = Captured()
    assert main(["check", "index", str(tmp_path / "nowhere")], shell) == EXIT_FOLDER
    assert "headrace crawl" in shell.said
    assert not (tmp_path / "nowhere").exists()


def test_a_refresh_waits_for_the_whole_index(out: Path) -> None:
    """Protects `--refresh` of a folder of before: every known URL comes up, also one whose entry had to be loaded."""
    policy = CrawlPolicy(politeness=Politeness(respect_robots=False))
    db = CrawlDb(out / DATABASE)
    owner = Owner(db, policy, ANY, epoch=1, jitter=lambda: 0.5)
    turn = owner.adopt(NOW_MS, close_leases=True)
    db.commit(turn.writes)
    turn = owner.decide([], NOW_MS, 3)
    assert len(turn.leases) == 3
    db.commit(turn.writes)
    events = [event for lease in turn.leases for event in (answer(lease, NOW_MS), stored(lease))]
    db.commit(owner.decide(events, NOW_MS, 0).writes)
    db.clear_index()
    db.close()
    engine = open_engine(SETTINGS, [], out, refresh=True)
    engine.stop()
    asyncio.run(engine.run())
    known = [key for key in index_of(out)[0] if key[10] == QueueClass.REVISIT]
    assert [due_ms_of(key[10:17]) for key in known] == [0, 0, 0]
    assert check(out)["whole"]
