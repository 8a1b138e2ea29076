"""A database that lost commits is refused before anything of it is changed, and goes on once its files are back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from connectors.crawldb_rocksdb import CrawlDb
from connectors.files import StoreFailed
from streams.core.turn import Family

COMMITS = 200
KEYS = [number.to_bytes(16, "big") for number in range(COMMITS)]


def _killed(root: Path) -> Path:
    """A database whose process was killed after COMMITS commits: all of them lie in the log."""
    db = CrawlDb(root / "running" / "db")
    for key in KEYS:
        db.commit([(Family.URL, key, b"row" * 20)])
    killed = root / "killed"
    shutil.copytree(root / "running", killed)
    db.close()
    return killed


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _log(db: Path) -> Path:
    return max(db.glob("*.log"), key=lambda path: path.stat().st_size)


def _remove_all(db: Path) -> None:
    shutil.rmtree(db)


def _empty(db: Path) -> None:
    for path in db.iterdir():
        path.unlink()


def _remove_current(db: Path) -> None:
    (db / "CURRENT").unlink()


def _remove_log(db: Path) -> None:
    _log(db).unlink()


def _cut_log(db: Path) -> None:
    log = _log(db)
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])


def _cut_end(db: Path) -> None:
    log = _log(db)
    log.write_bytes(log.read_bytes()[:-3])


def _flip_in_log(db: Path) -> None:
    raw = bytearray(_log(db).read_bytes())
    raw[len(raw) // 3] ^= 0x40
    _log(db).write_bytes(raw)


def _older(db: Path) -> None:
    """One put back from a backup, without the segments that belong to it."""
    shutil.rmtree(db)
    old = CrawlDb(db.parent / "elsewhere" / "db")
    old.commit([(Family.URL, KEYS[0], b"row")])
    old.close()
    (db.parent / "elsewhere" / "db").rename(db)
    shutil.rmtree(db.parent / "elsewhere")


@pytest.mark.parametrize(
    "damage", [_remove_all, _empty, _remove_current, _remove_log, _cut_log, _cut_end, _flip_in_log, _older]
)
def test_a_database_that_lost_commits_is_refused_and_left_alone(damage: Callable[[Path], None], tmp_path: Path) -> None:
    """RocksDB would begin anew or forget the end of its log, and clear the rest away; the folder is left as it was."""
    killed = _killed(tmp_path)
    damaged = tmp_path / "damaged"
    shutil.copytree(killed, damaged)
    damage(damaged / "db")
    before = _files(damaged)
    for _ in range(2):  # a second start is told the same
        with pytest.raises(StoreFailed, match="committed writes"):
            CrawlDb(damaged / "db")
        assert _files(damaged) == before
    shutil.rmtree(damaged / "db", ignore_errors=True)
    shutil.copytree(killed / "db", damaged / "db")
    db = CrawlDb(damaged / "db")
    assert all(db.rows(KEYS))
    db.close()


@pytest.mark.parametrize("mark", [None, b"", b"\0\0\1"])
def test_a_database_without_a_mark_is_taken_as_it_is(mark: bytes | None, tmp_path: Path) -> None:
    """The mark is not synced: after a power cut it may be torn or gone, which says nothing against the database."""
    killed = _killed(tmp_path)
    path = killed / "db.committed"
    path.unlink()
    if mark is not None:
        path.write_bytes(mark)
    db = CrawlDb(killed / "db")
    assert all(db.rows(KEYS))
    db.close()
    assert int.from_bytes(path.read_bytes(), "big") >= COMMITS


def test_writes_past_the_mark_stand(tmp_path: Path) -> None:
    """A process that is killed between a commit and its mark has committed."""
    killed = _killed(tmp_path)
    path = killed / "db.committed"
    path.write_bytes((int.from_bytes(path.read_bytes(), "big") - 1).to_bytes(8, "big"))
    db = CrawlDb(killed / "db")
    assert all(db.rows(KEYS))
    db.close()
