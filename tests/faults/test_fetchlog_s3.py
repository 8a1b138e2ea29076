"""The fetch log in S3: every row comes to the store once, whatever ends the process."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from connectors.fetchlog import read_segments
from connectors.fetchlog_s3 import S3FetchLog
from connectors.object_store import ObjectStore
from schemas.records import FetchLogRow
from streams.core import policy
from tests.support.fake_s3 import BUCKET, FakeS3
from tests.unit.test_fetchlog import BARE, ROW


class World:
    """A store and a spool. `rows` reads what came to the store by the log's own reader."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.s3 = FakeS3()
        self.objects = ObjectStore(self.s3, BUCKET, pause=self._pause)

    def open(self, epoch: int) -> S3FetchLog:
        return S3FetchLog(self.objects, self._folder / "spool", worker="w", epoch=epoch)

    def rows(self) -> list[FetchLogRow]:
        copies = self._folder / "copies"
        copies.mkdir(exist_ok=True)
        for name, data in self.s3.objects.items():
            (copies / name.rpartition("/")[2]).write_bytes(data)
        return list(read_segments(copies))

    def _pause(self, seconds: float) -> None:
        self.s3.away = False  # it comes back while somebody waits

    def journals(self) -> list[Path]:
        return sorted((self._folder / "spool" / "fetchlog").iterdir())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_rows_become_objects_in_order(world: World) -> None:
    """All fields of all rows, over several objects, also of a store that was away; no journal is left."""
    log = world.open(1)
    log.roll()
    assert world.s3.objects == {}
    for rows in ([ROW, BARE], [BARE]):
        for row in rows:
            log.add(row)
        assert log.rows == len(rows)
        world.s3.away = True
        log.roll()
    assert world.rows() == [ROW, BARE, BARE]
    assert sorted(world.s3.objects) == [f"fetchlog/fetches-w-00001-0000{number}.parquet" for number in range(2)]
    assert world.journals() == []


def test_a_killed_worker_loses_no_row(world: World) -> None:
    """The next start on that disk writes what the killed one had; a row that the kill cut off is left out."""
    log = world.open(1)
    for row in (ROW, BARE, ROW):
        log.add(row)
    (journal,) = world.journals()
    journal.write_bytes(journal.read_bytes()[:-5])
    again = world.open(2)
    again.add(BARE)
    assert again.recover(()) == 2
    assert world.rows() == [ROW, BARE]
    again.roll()
    assert world.rows() == [ROW, BARE, BARE]
    assert world.open(3).recover(()) == 0


def test_a_body_that_never_came_to_the_store_is_not_referred_to(world: World) -> None:
    """The request was made, so its row stands; where its segment was lost, it says of no body where it lies."""
    assert ROW.body is not None
    other = msgspec.structs.replace(ROW, body=msgspec.structs.replace(ROW.body, segment="warc/b.warc.gz"))
    log = world.open(1)
    log.add(ROW)
    log.add(other)
    world.open(2).recover({ROW.body.segment})
    assert world.rows() == [msgspec.structs.replace(ROW, body=None), other]


def test_a_crash_before_the_journal_is_removed_writes_no_row_twice(world: World) -> None:
    """The object has the journal's name: it is written again, in its own place."""
    log = world.open(1)
    log.add(ROW)
    (journal,) = world.journals()
    data = journal.read_bytes()
    log.roll()
    journal.write_bytes(data)
    assert world.open(2).recover(()) == 1
    assert world.rows() == [ROW]


def test_more_rows_than_a_file_takes_become_several(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that outgrew the bound, since the store was away, is cut; it says when it is full."""
    monkeypatch.setattr("connectors.fetchlog_s3.FETCH_LOG_ROWS_MAX", 2)
    log = world.open(1)
    for at in range(5):
        assert log.is_full == (at >= 2)
        log.add(ROW)
    log.roll()
    assert len(world.s3.objects) == 3
    assert world.rows() == [ROW] * 5
    assert policy.FETCH_LOG_ROWS_MAX > 2
