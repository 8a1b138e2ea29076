"""The fetch log: what goes in comes out, by our reader and by Parquet's own."""

from __future__ import annotations

import datetime
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from connectors.fetchlog import FOLDER, read_segments, rows_path, write_segment
from connectors.files import StoreFailed
from schemas.records import BodyRef, FetchLogRow, Kind, Outcome, RobotsDecision
from tests.support.lossy_files import FullDisk, LossyFiles

ROW = FetchLogRow(
    started_ms=1_764_500_000_123,
    finished_ms=1_764_500_000_223,
    url="http://www.example.org/",
    host_key="http://www.example.org",
    kind=Kind.PAGE,
    outcome=Outcome.FETCHED,
    lease_id=bytes(range(16)),
    url_version=2**40,
    attempt=3,
    policy_version=4,
    owner_epoch=5,
    delay_ms=1_000,
    status=200,
    address="192.0.2.1",
    wire_bytes=6,
    body_bytes=7,
    content_type="text/html",
    content_hash=bytes(32),
    body=BodyRef("warc/a.warc.gz", 2**33, 8),
    duplicate=True,
)
BARE = msgspec.structs.replace(
    ROW,
    kind=Kind.ROBOTS,
    outcome=Outcome.RETRY,
    error="timeout",
    content_type=None,
    body=None,
    redirect_target="http://b/",
    retry_after_ms=9,
    robots=RobotsDecision.DISALLOW_ALL,
)


def test_rows_come_back_in_order(tmp_path: Path) -> None:
    """Every field of every row survives, over several files, in the order in which they were logged."""
    for first, rows in ((10, [BARE]), (2, [ROW, BARE]), (0, [ROW, ROW])):
        write_segment(rows_path(tmp_path, first), rows)
    assert list(read_segments(tmp_path / FOLDER)) == [ROW, ROW, ROW, BARE, BARE]


def test_others_read_typed_columns(tmp_path: Path) -> None:
    """Parquet's own reader sees instants as instants and enumerations as their words."""
    path = rows_path(tmp_path, 0)
    write_segment(path, [ROW, BARE])
    first, second = pq.read_table(path).to_pylist()
    assert first["started_at"] == datetime.datetime(2025, 11, 30, 10, 53, 20, 123_000, datetime.UTC)
    assert (first["kind"], first["outcome"], first["robots"]) == ("page", "fetched", None)
    assert (first["segment"], first["offset_bytes"]) == ("warc/a.warc.gz", 2**33)
    assert (second["segment"], second["robots"]) == (None, "disallow_all")


def test_a_repeated_write_replaces(tmp_path: Path) -> None:
    """After a crash the same rows are written again under the same name: no row is there twice, no leftover is read."""
    path = rows_path(tmp_path, 0)
    write_segment(path, [ROW])
    Path(path + ".tmp").write_bytes(b"of a run that was killed")
    write_segment(path, [ROW, BARE])
    assert list(read_segments(tmp_path / FOLDER)) == [ROW, BARE]


def test_a_written_file_outlives_a_pulled_plug(tmp_path: Path) -> None:
    """When the write returned, bytes and name are on the disk: the journal may forget the rows."""
    files = LossyFiles()
    write_segment(rows_path(tmp_path, 0), [ROW], files)
    files.crash()
    assert list(read_segments(tmp_path / FOLDER)) == [ROW]


def test_a_full_disk_leaves_no_half_file(tmp_path: Path) -> None:
    """A file that could not be written whole is not there, and the failure is one clear error."""
    with pytest.raises(StoreFailed, match=r"fetch log: needed to write .*No space left"):
        write_segment(rows_path(tmp_path, 0), [ROW], FullDisk(100))
    assert list(read_segments(tmp_path / FOLDER)) == []


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """A reader of the log learns which file is damaged."""
    (tmp_path / "fetches-00001-000000000000.parquet").write_bytes(b"PAR1 not at all")
    with pytest.raises(StoreFailed, match=r"fetches-00001-000000000000\.parquet"):
        list(read_segments(tmp_path))
