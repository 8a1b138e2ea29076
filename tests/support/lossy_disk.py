"""Pull the plug of a whole process: whatever it had not synced below a folder is gone, RocksDB's files included.

`tests/support/lossy_disk.c` is preloaded into the process and keeps the image that a disk would hold at any moment;
here it is compiled, switched on by `environment`, and made a folder again by `lose`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

_SOURCE = Path(__file__).with_suffix(".c")


@cache
def library() -> Path:
    """The compiled layer. Fails with a clear message where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None, "the power-loss tests need a C compiler (cc or gcc): apt-get install gcc"
    built = Path(mkdtemp(prefix="headrace-lossy-disk-")) / "lossy_disk.so"
    command = [compiler, "-O1", "-Wall", "-shared", "-fPIC", "-o", str(built), str(_SOURCE), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return built


class Disk:
    """The folder `root`, whose own name is durable, and what a disk would hold of it."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self.root = root.resolve()
        self._shadow = scratch.resolve() / "shadow"
        self.root.mkdir(parents=True, exist_ok=True)

    def environment(self, *, cut_at: int | None = None, room_bytes: int | None = None) -> dict[str, str]:
        """For one process: it is killed before its `cut_at`th change or sync, and may write so many bytes."""
        shutil.rmtree(self._shadow, ignore_errors=True)
        self._shadow.mkdir()
        variables = {
            **os.environ,
            "LD_PRELOAD": str(library()),
            "LOSSY_ROOT": str(self.root),
            "LOSSY_SHADOW": str(self._shadow),
        }
        if cut_at is not None:
            variables["LOSSY_CUT_AT"] = str(cut_at)
        if room_bytes is not None:
            variables["LOSSY_ROOM_BYTES"] = str(room_bytes)
        return variables

    def changes(self) -> int:
        """How many changes and syncs the process made that ended by itself."""
        return int((self._shadow / "changes").read_text())

    def lose(self) -> None:
        """The power is back: below the root lies what was synced and nothing else. The process must have ended."""
        shutil.rmtree(self.root)
        self.root.mkdir()
        self._restore(1, self.root)

    def _restore(self, number: int, folder: Path) -> None:
        names = self._shadow / f"d{number}"
        if not names.exists():  # it was made, and never synced
            return
        for line in names.read_text().splitlines():
            kind, child, name = line.split(" ", 2)
            if kind == "d":
                (folder / name).mkdir()
                self._restore(int(child), folder / name)
            else:
                kept = self._shadow / f"f{child}"
                (folder / name).write_bytes(kept.read_bytes() if kept.exists() else b"")
