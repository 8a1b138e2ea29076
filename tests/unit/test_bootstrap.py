"""The set-up finds a half-made environment, leaves others' folders alone, and says what to do when it cannot go on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from infra import bootstrap
from streams.cli import VERBS

ROOT = bootstrap.ROOT


def fake_environment(folder: Path, interpreter: str = "exec true", locks: Iterable[str] = bootstrap.LOCKS) -> None:
    """A finished environment of `locks`, as `ensure` would leave it, with a script for an interpreter."""
    (folder / bootstrap.STAMPS).mkdir(parents=True)
    for lock in map(bootstrap.LOCKS.__getitem__, locks):
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


def test_each_lock_is_part_of_the_next() -> None:
    """Who ran the tests need not install again to crawl, with one machine or many; and what is tested is what runs."""
    run, fleet, dev = bootstrap.LOCKS.values()
    assert (run.stem, fleet.stem, dev.stem) == ("run", "fleet", "dev")
    assert bootstrap.holds_all(dev, fleet)
    assert bootstrap.holds_all(fleet, run)
    assert not bootstrap.holds_all(fleet, dev)
    assert not bootstrap.holds_all(run, fleet)


def test_an_environment_grows_without_losing_what_it_has(tmp_path: Path) -> None:
    """A crawl may run in it while the fleet's packages are added: nothing is taken away, not even its stamp."""
    folder = tmp_path / "venv"
    fake_environment(folder, f'echo "$@" >> {tmp_path}/calls', locks=["run"])
    (folder / "lib").write_text("in use")
    bootstrap.ensure("fleet", folder)
    assert (folder / "lib").read_text() == "in use"
    assert [bootstrap.is_ready(lock, folder) for lock in bootstrap.LOCKS] == [True, True, False]
    installs = [line for line in (tmp_path / "calls").read_text().splitlines() if line.startswith("-m pip install")]
    assert len(installs) == 1
    assert installs[0].endswith(f"-r {bootstrap.LOCKS['fleet']}")


def test_a_growth_that_was_cut_off_begins_afresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip takes a half-copied package for a whole one; the one-machine verbs work on meanwhile."""
    folder = tmp_path / "venv"
    fake_environment(folder, '[ "$1" != -m ]', locks=["run"])
    (folder / "lib").write_text("half copied")
    with pytest.raises(bootstrap.SetupError, match="could not be installed"):
        bootstrap.ensure("fleet", folder)
    bootstrap.ensure("run", folder)
    assert (folder / "lib").exists()
    commands: list[Sequence[str | Path]] = []
    monkeypatch.setattr(bootstrap, "_run", lambda command, remedy: commands.append(command))
    bootstrap.ensure("fleet", folder)
    assert [command[2] for command in commands] == ["venv", "pip"]
    assert sorted(path.name for path in folder.rglob("*")) == [bootstrap.STAMPS, "fleet.txt", "lock", "run.txt"]


def fleet_words() -> list[str]:
    """The verbs for which the launcher asks for the fleet's packages."""
    listed = re.search(r"^(.*)\) lock=fleet ;;$", (ROOT / "infra" / "headrace").read_text(), re.MULTILINE)
    assert listed is not None
    return listed.group(1).split(" | ")


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


@pytest.mark.parametrize("verb", fleet_words())
def test_a_verb_of_the_fleet_asks_for_its_packages(tmp_path: Path, verb: str) -> None:
    """Who only crawled so far gets what is missing at the first such verb, not an ImportError."""
    folder = tmp_path / "venv"
    fake_environment(folder, "exit 7", locks=["run"])
    maker = tmp_path / "python"
    maker.write_text('#!/bin/sh\n[ "$1" = -c ] || { echo "asked for $2" >&2; exit 3; }\n')
    maker.chmod(0o755)
    done = launch(folder, tmp_path, verb, HEADRACE_PYTHON=str(maker))
    assert (done.returncode, done.stderr) == (1, "asked for fleet\n")


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (("explain", "--fleet", "https://a.test"), True),
        (("host", "a.test", "--pause", "--fleet"), True),
        (("dead-letters", "--fleet"), True),
        (("explain", "news", "--", "--fleet"), False),
    ],
)
def test_a_folders_verb_asked_for_the_fleet_gets_its_packages(
    tmp_path: Path, words: tuple[str, ...], asked: bool
) -> None:
    """`--fleet` needs Kafka's client wherever it stands among the words; behind `--` it is a word like any other."""
    folder = tmp_path / "venv"
    fake_environment(folder, "exit 7", locks=["run"])
    maker = tmp_path / "python"
    maker.write_text('#!/bin/sh\n[ "$1" = -c ] || { echo "asked for $2" >&2; exit 3; }\n')
    maker.chmod(0o755)
    done = launch(folder, tmp_path, *words, HEADRACE_PYTHON=str(maker))
    assert (done.returncode, done.stderr) == ((1, "asked for fleet\n") if asked else (7, ""))


@pytest.mark.parametrize("verb", ["", "--help", *(verb.name for verb in VERBS if not verb.fleet)])
def test_the_other_verbs_do_not_pay_for_the_fleet(tmp_path: Path, verb: str) -> None:
    """Who crawls with one machine keeps the smaller environment."""
    folder = tmp_path / "venv"
    fake_environment(folder, "exit 7", locks=["run"])
    assert launch(folder, tmp_path, verb).returncode == 7


def test_the_launcher_knows_every_fleet_verb() -> None:
    """A verb that is marked as the fleet's but is not in the launcher's list would miss its packages."""
    assert {verb.name for verb in VERBS if verb.fleet} <= set(fleet_words())
