"""A crawl's folder: one holder, one format, written whole."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from infra.folder import (
    FORMAT,
    LOCK,
    MANIFEST,
    STATUS,
    Folder,
    Manifest,
    is_held,
    read_manifest,
    read_status,
    write_whole,
)
from streams.core.failures import CrawlError
from streams.core.progress import Progress


def test_a_new_folder_gets_a_manifest_and_a_resumed_one_keeps_it(tmp_path: Path) -> None:
    """Protects the crawl's identity over runs."""
    first = Folder(tmp_path / "deep" / "crawl", now_ms=17)
    first.close()
    second = Folder(tmp_path / "deep" / "crawl", now_ms=99)
    assert second.manifest == first.manifest
    assert (second.manifest.created_ms, second.manifest.format) == (17, FORMAT)
    second.close()


def test_a_held_folder_names_its_holder_and_is_free_after_close(tmp_path: Path) -> None:
    """Protects the one writer, and tells people whom to wait for."""
    folder = Folder(tmp_path / "c", now_ms=1)
    assert is_held(tmp_path / "c")
    with pytest.raises(CrawlError, match=f"process {os.getpid()} holds it"):
        Folder(tmp_path / "c", now_ms=2)
    assert is_held(tmp_path / "c")  # the refused one took nothing with it
    folder.close()
    assert not is_held(tmp_path / "c")
    Folder(tmp_path / "c", now_ms=3).close()


def test_a_folder_with_other_things_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    """Protects people's files."""
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(CrawlError, match=r"holds 'thesis\.txt'"):
        Folder(tmp_path, now_ms=1)
    assert [entry.name for entry in tmp_path.iterdir() if entry.name != LOCK] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (b'{"format": 2, "crawl_id": "x", "created_ms": 1}', "got format 2"),
        (b'{"format": 1', "damaged"),
        (b"[]", "damaged"),
        (b"", "damaged"),
    ],
)
def test_another_format_or_a_damaged_manifest_is_one_clear_error(tmp_path: Path, manifest: bytes, words: str) -> None:
    """Protects a crawl of another version, and leaves the lock free."""
    (tmp_path / MANIFEST).write_bytes(manifest)
    for _ in range(2):
        with pytest.raises(CrawlError, match=words):
            Folder(tmp_path, now_ms=1)
    assert (tmp_path / MANIFEST).read_bytes() == manifest
    assert not is_held(tmp_path)


def test_what_is_no_folder_is_one_clear_error(tmp_path: Path) -> None:
    """Protects people from a stack trace for `--out` of a file."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(CrawlError, match="needed a folder to write to"):
        Folder(tmp_path / "file", now_ms=1)
    assert read_manifest(tmp_path) is None


def test_status_is_told_only_while_somebody_holds_the_folder(tmp_path: Path) -> None:
    """Protects people from the numbers of a run that is over, or half written."""
    folder = Folder(tmp_path / "c", now_ms=1)
    assert read_status(tmp_path / "c") is None
    folder.publish(Progress(pages=7))
    seen = read_status(tmp_path / "c")
    assert seen is not None
    assert seen.pages == 7
    (tmp_path / "c" / STATUS).write_bytes(b"{")
    assert read_status(tmp_path / "c") is None
    folder.publish(Progress(pages=8))
    folder.close()
    assert read_status(tmp_path / "c") is None


@pytest.mark.parametrize("name", ["", "lock", MANIFEST, "db", "db/CURRENT", "warc", "parsed"])
def test_a_folder_that_is_taken_away_ends_the_run_within_a_second(name: str, tmp_path: Path) -> None:
    """Protects hours of pages from being written to files that nobody can reach any more."""
    root = tmp_path / "c"
    folder = Folder(root, now_ms=1)
    for place in ("warc", "parsed", "db"):
        (root / place).mkdir()
    (root / "db" / "CURRENT").write_text("MANIFEST-000001\n")
    folder.publish(Progress(pages=7))
    (root / name).rename(tmp_path / "elsewhere")
    with pytest.raises(CrawlError, match="is there no more"):
        folder.publish(Progress(pages=8))
    folder.close()


def test_another_folder_in_the_place_of_the_first_is_not_taken_for_it(tmp_path: Path) -> None:
    """Protects a crawl that was moved aside from a run that tells its progress in the folder that came after."""
    root = tmp_path / "c"
    folder = Folder(root, now_ms=1)
    folder.publish(Progress(pages=7))
    root.rename(tmp_path / "elsewhere")
    Folder(root, now_ms=2).close()
    with pytest.raises(CrawlError, match="is there no more"):
        folder.publish(Progress(pages=8))
    folder.close()


@pytest.mark.parametrize("crawl_id", ["", "../x", "a b", "1a\n", "G", "1" * 17])
def test_a_manifest_whose_id_could_not_name_a_file_is_damaged(crawl_id: str, tmp_path: Path) -> None:
    """Protects what lies beside the folder: the id goes into the names of segments."""
    Folder(tmp_path / "c", now_ms=1).close()
    (tmp_path / "c" / MANIFEST).write_bytes(msgspec.json.encode(Manifest(FORMAT, crawl_id, 1)))
    with pytest.raises(CrawlError, match="crawl's id"):
        Folder(tmp_path / "c", now_ms=2)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """Protects readers: the old content stands until the new one is there."""
    path = tmp_path / "x"
    write_whole(path, b"old", sync=True)
    (tmp_path / "x.part").mkdir()  # the new one cannot be written
    with pytest.raises(OSError, match="directory"):
        write_whole(path, b"new", sync=True)
    assert path.read_bytes() == b"old"
