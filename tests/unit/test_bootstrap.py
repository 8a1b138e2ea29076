"""The set-up finds a half-made environment, leaves others' folders alone, and says what to do when it cannot go on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra import bootstrap

ROOT = bootstrap.ROOT


def fake_environment(folder: Path, interpreter: str = "exec true") -> None:
    """A finished environment, as `ensure` would leave it, with a script for an interpreter."""
    (folder / bootstrap.STAMPS).mkdir(parents=True)
    for lock in bootstrap.LOCKS.values():
        (folder / bootstrap.STAMPS / lock.name).write_bytes(lock.read_bytes())
    (folder / "bin").mkdir()
    python = folder / "bin" / "python"
    python.write_text(f"#!/bin/sh\n{interpreter}\n")
    python.chmod(0o755)


def test_ready_means_whole_and_of_this_lock(tmp_path: Path) -> None:
    """An environment of another lock, without its stamp, or with a dead interpreter must be made anew."""
    folder = tmp_path / "venv"
    assert not bootstrap.is_ready("run", folder)
    fake_environment(folder)
    assert bootstrap.is_ready("run", folder)
    stamp = folder / bootstrap.STAMPS / "run.txt"
    stamp.write_bytes(stamp.read_bytes() + b"\n")
    assert not bootstrap.is_ready("run", folder)
    assert bootstrap.is_ready("dev", folder)
    (folder / "bin" / "python").unlink()
    assert not bootstrap.is_ready("dev", folder)


def test_a_ready_environment_is_left_as_it_is(tmp_path: Path) -> None:
    """The second start does nothing, so two crawls may start from one checkout."""
    folder = tmp_path / "venv"
    fake_environment(folder)
    before = sorted(folder.rglob("*"))
    bootstrap.ensure("run", folder)
    assert [path for path in sorted(folder.rglob("*")) if path.name != "lock"] == before


def test_somebody_elses_folder_is_refused(tmp_path: Path) -> None:
    """HEADRACE_VENV that names a folder with other things in it must not empty it."""
    (tmp_path / "thesis.txt").write_text("do not lose")
    with pytest.raises(bootstrap.SetupError, match="was not made by Headrace; remove it, or name another"):
        bootstrap.ensure("run", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    """An unwritable place ends in a sentence with the remedy, no traceback."""
    (tmp_path / "file").write_text("")
    with pytest.raises(bootstrap.SetupError, match="name another folder with HEADRACE_VENV"):
        bootstrap.ensure("run", tmp_path / "file" / "venv")


def test_an_old_python_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Python 3.10 the first words are what to install, not a syntax error from somewhere inside."""
    monkeypatch.setattr(sys, "version_info", (3, 10, 9))
    with pytest.raises(bootstrap.SetupError, match=r"3\.11 or newer is needed, this is 3\.10\.9"):
        bootstrap.ensure("run", tmp_path / "venv")


def test_the_run_lock_is_part_of_the_dev_lock() -> None:
    """Who ran the tests need not install again to crawl, and what is tested is what runs."""
    assert bootstrap.holds_all(bootstrap.LOCKS["dev"], bootstrap.LOCKS["run"])
    assert not bootstrap.holds_all(bootstrap.LOCKS["run"], bootstrap.LOCKS["dev"])


def launch(folder: Path, cwd: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The README's command, from any folder, with an environment of our choosing."""
    return subprocess.run(
        [ROOT / "infra" / "headrace", *arguments],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HEADRACE_VENV": str(folder), **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_launcher_passes_arguments_on_from_anywhere(tmp_path: Path) -> None:
    """Arguments with blanks arrive whole, the exit code comes back, and the checkout is the only path."""
    folder = tmp_path / "venv"
    fake_environment(folder, 'printf "%s|" "$PYTHONPATH" "$PYTHONSAFEPATH" "$@"; exit 7')
    done = launch(folder, tmp_path, "crawl", "a b", PYTHONPATH="/elsewhere")
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout == f"{ROOT}|1|-m|streams.cli|crawl|a b|"


def test_the_launcher_without_a_python_says_so(tmp_path: Path) -> None:
    """A machine without Python 3.11 gets the remedy, and a code that is not 0."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sh", "dirname", "readlink", "cmp"):
        found = next(Path(part) / tool for part in ("/usr/bin", "/bin") if (Path(part) / tool).exists())
        (tools / tool).symlink_to(found)
    done = launch(tmp_path / "venv", tmp_path, "demo", PATH=str(tools))
    assert done.returncode == 1
    assert "needs Python 3.11 or newer" in done.stderr
    assert "HEADRACE_PYTHON" in done.stderr
