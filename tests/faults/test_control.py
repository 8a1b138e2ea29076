"""The way of an operator's change into a crawl's folder: never lost, never twice, never taken for applied too early."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from connectors.control_folder import ControlFolder
from connectors.crawldb_rocksdb import CrawlDb
from infra.control import change_host_policies
from infra.folder import DATABASE, Folder
from infra.settings import Crawl, Settings
from infra.wiring import open_engine, open_reader
from schemas.records import HostPolicy
from streams.core.failures import CrawlError
from streams.core.host_policy import history
from streams.core.hosts import Override
from streams.core.turn import Family

NOW_MS = 1_796_000_000_000
PAUSE = HostPolicy("a.test", 0, paused=True)


def made(tmp_path: Path) -> Path:
    """The folder of a crawl that knows nothing and that nobody runs."""
    out = tmp_path / "crawl"
    asyncio.run(open_engine(Settings(crawl=Crawl(workers=1)), [], out).run())
    return out


def change(out: Path, *changes: HostPolicy, wait_s: float = 5.0) -> object:
    return change_host_policies(out, changes, wait_s=wait_s, now_ms=lambda: NOW_MS, pause=lambda seconds: None)


def versions(out: Path) -> list[tuple[int, str]]:
    db = CrawlDb(out / DATABASE)
    try:
        return [(one.policy.policy_version, one.policy.host_key) for one in history(db.scan(Family.POLICY))]
    finally:
        db.close()


def test_a_stopped_crawl_takes_a_change_at_once(tmp_path: Path) -> None:
    """It lies in the database when the call returns, numbered after the crawl's own, and the inbox is empty."""
    out = made(tmp_path)
    (applied,) = change_host_policies(out, [PAUSE], wait_s=5, now_ms=lambda: NOW_MS) or []
    assert (applied.policy.policy_version, applied.error) == (2, "")
    assert versions(out) == [(1, ""), (2, "a.test")]
    assert ControlFolder(out).waiting() == []
    reader = open_reader(out)
    assert reader.policies.override("https://a.test") == Override(paused=True)
    reader.close()


def test_a_held_folder_keeps_the_change_until_somebody_reads_it(tmp_path: Path) -> None:
    """Nobody answers: it is not said to be applied, and the next crawl that opens the folder applies it."""
    out = made(tmp_path)
    holder = Folder(out, now_ms=NOW_MS)
    assert change(out, PAUSE, wait_s=0.2) is None
    holder.close()
    assert versions(out) == [(1, "")]
    asyncio.run(open_engine(Settings(crawl=Crawl(workers=1)), [], out).run())
    assert versions(out) == [(1, ""), (2, "a.test")]
    assert ControlFolder(out).waiting() == []


def test_a_crash_between_the_commit_and_the_removal_applies_nothing_twice(tmp_path: Path) -> None:
    """The request lies there again after a crash; its id is known, and the next change gets the next number."""
    out = made(tmp_path)
    inbox = ControlFolder(out)
    (applied,) = change_host_policies(out, [PAUSE], wait_s=5, now_ms=lambda: NOW_MS) or []
    inbox.put(applied.policy)
    change(out, HostPolicy("b.test", 0, paused=True))
    assert versions(out) == [(1, ""), (2, "a.test"), (3, "b.test")]
    assert inbox.waiting() == []


def test_what_is_no_change_is_put_aside(tmp_path: Path) -> None:
    """A file that somebody wrote by hand, wrongly, must neither stop the crawl nor hide the changes behind it."""
    out = made(tmp_path)
    inbox = ControlFolder(out)
    inbox.put(msgspec.structs.replace(PAUSE, request_id="0"))
    (out / "control" / "1.json").write_text('{"host_key": 5}')
    (out / "control" / "2.json").write_bytes(b"\xff\xfe")
    (out / "control" / "notes.txt").write_text("not ours")
    assert [one.request_id for one in inbox.waiting()] == ["0"]
    assert sorted(path.name for path in (out / "control").iterdir()) == [
        "0.json",
        "1.refused",
        "2.refused",
        "notes.txt",
    ]


def test_a_change_that_is_wrong_comes_back_with_its_reason(tmp_path: Path) -> None:
    """What slips past the command line is refused by the owner, and whoever asked is told why."""
    out = made(tmp_path)
    (applied,) = (
        change_host_policies(out, [HostPolicy("a.test", 0, block=("(",))], wait_s=5, now_ms=lambda: NOW_MS) or []
    )
    assert "is not a regular expression" in applied.error


def test_there_must_be_a_crawl(tmp_path: Path) -> None:
    """A mistyped folder is an error, not a new crawl with one word in it."""
    with pytest.raises(CrawlError, match="no crawl in it"):
        change(tmp_path / "nothing", PAUSE)
    assert not (tmp_path / "nothing").exists()
