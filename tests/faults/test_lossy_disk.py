"""The power-loss layer itself: what it must forget, and what it must keep."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.lossy_disk import Disk

KEPT_AND_LOST = """
import os, sys
root = sys.argv[1]
def sync(path):
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
handle = os.open(root + "/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(handle, b"kept ")
os.fdatasync(handle)
os.write(handle, b"lost")
nameless = os.open(root + "/nameless", os.O_WRONLY | os.O_CREAT)
sync(root)
os.mkdir(root + "/folder")
sync(root)
os.rename(root + "/log", root + "/log.new")
os.open(root + "/late", os.O_WRONLY | os.O_CREAT)
os.write(nameless, b"never synced")
os.kill(os.getpid(), 9)
"""


def _run(disk: Disk, program: str, **options: int) -> int:
    command = [sys.executable, "-c", program, str(disk.root)]
    return subprocess.run(command, env=disk.environment(**options), check=False).returncode


def test_only_synced_bytes_and_synced_names_are_left(tmp_path: Path) -> None:
    """The layer forgets unsynced bytes, names and renames: else the durability tests would judge nothing."""
    disk = Disk(tmp_path / "disk", tmp_path)
    assert _run(disk, KEPT_AND_LOST) == -signal.SIGKILL
    assert {path.name for path in disk.root.iterdir()} == {"log.new", "nameless", "folder", "late"}
    disk.lose()
    left = {path.name: path.read_bytes() if path.is_file() else None for path in disk.root.iterdir()}
    assert left == {"log": b"kept ", "nameless": b"", "folder": None}


def test_what_lay_there_at_the_start_is_durable(tmp_path: Path) -> None:
    """A restored folder is the next process's durable past, and bytes cut off and synced stay cut off."""
    disk = Disk(tmp_path / "disk", tmp_path)
    (disk.root / "deep").mkdir()
    (disk.root / "deep" / "old").write_bytes(b"0123456789")
    program = """
import os, sys
handle = os.open(sys.argv[1] + "/deep/old", os.O_RDWR)
os.ftruncate(handle, 4)
os.pwrite(handle, b"xy", 6)
os.fsync(handle)
os.pwrite(handle, b"zz", 0)
os.unlink(sys.argv[1] + "/deep/old")
"""
    assert _run(disk, program) == 0
    disk.lose()
    assert (disk.root / "deep" / "old").read_bytes() == b"0123\0\0xy"


def test_the_process_ends_before_the_change_that_was_named(tmp_path: Path) -> None:
    """A power cut can be put before any change or sync, so that every step can be tried."""
    disk = Disk(tmp_path / "disk", tmp_path)
    program = """
import os, sys
handle = os.open(sys.argv[1] + "/a", os.O_WRONLY | os.O_CREAT)
os.write(handle, b"1")
os.write(handle, b"2")
"""
    assert _run(disk, program, cut_at=3) == -signal.SIGKILL
    assert (disk.root / "a").read_bytes() == b"1"
    (disk.root / "a").unlink()
    assert _run(disk, program, cut_at=4) == 0
    assert disk.changes() == 3


@pytest.mark.parametrize("room_bytes", [0, 3])
def test_a_full_disk_takes_what_fits_and_then_nothing(tmp_path: Path, room_bytes: int) -> None:
    """A write that does not fit is short, the next one fails as on a full disk, and other folders are not touched."""
    disk = Disk(tmp_path / "disk", tmp_path)
    program = """
import errno, os, sys
handle = os.open(sys.argv[1] + "/a", os.O_WRONLY | os.O_CREAT)
room = int(sys.argv[2])
try:
    assert os.write(handle, b"12345") == room > 0
    os.write(handle, b"45")
except OSError as error:
    assert error.errno == errno.ENOSPC
    os.write(os.open(os.path.dirname(sys.argv[1]) + "/outside", os.O_WRONLY | os.O_CREAT), b"12345")
    sys.exit(7)
"""
    command = [sys.executable, "-c", program, str(disk.root), str(room_bytes)]
    assert subprocess.run(command, env=disk.environment(room_bytes=room_bytes), check=False).returncode == 7
    assert (disk.root / "a").stat().st_size == room_bytes
    assert (tmp_path / "outside").stat().st_size == 5
