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
from streams.core.policy import CrawlPolicy
from streams.core.turn import Family, Turn, Write
from tests.support.core_world import ANY, NOW_MS, found
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
