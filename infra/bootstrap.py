"""Makes the private environment from a lock, once. Standard library only: it runs before anything is installed.

`python bootstrap.py run|fleet|dev` makes it and prints nothing when it stands already. The launchers beside this file
first compare the lock with the copy that a finished environment keeps (`STAMPS/run.txt`), so a start that needs no
set-up does not come here at all. Each lock holds the one before it: a larger environment serves the smaller needs, and
a smaller one grows, under a crawl that runs in it, without a change of what it has.

Order, so that a kill at any point leaves something that the next start recognises as half-made:
1. hold `STAMPS/lock` (two starts at once: the second waits, then finds the work done);
2. take away the stamps; 3. empty the folder; 4. make the environment; 5. install, hashes checked; 6. write the stamps.
Growing leaves out 2 to 4: instead `STAMPS/growing` is written before 5 and removed after 6, and who finds it there and
needs more than the stamps promise begins at 2.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PYTHON_MIN = (3, 11)
ROOT = Path(__file__).resolve().parent.parent
LOCKS = {name: ROOT / "infra" / "lock" / f"{name}.txt" for name in ("run", "fleet", "dev")}  # each holds those before
SPANS = {"run": "10 to 20 s", "fleet": "15 to 25 s", "dev": "20 to 40 s"}  # of a whole set-up
STAMPS = ".headrace"  # in the environment's folder; its presence says that the folder is ours to empty
GROWING = "growing"  # among the stamps: packages are being added to what they promise
PIP_OPTIONS = (
    "--no-input",
    "--disable-pip-version-check",
    "--require-hashes",
    "--no-deps",  # the lock names every package; without this pip resolves them all again
    "--no-compile",  # 2.6 s of CPU saved; what is imported is compiled on its first import
    "--quiet",
)


class SetupError(Exception):
    """What stopped the set-up and what to do about it, in one sentence each."""


def main(arguments: Sequence[str]) -> int:
    """Make the environment that `arguments` names; the exit code is 0 when it stands."""
    if len(arguments) != 1 or arguments[0] not in LOCKS:
        print(f"usage: bootstrap.py {'|'.join(LOCKS)}", file=sys.stderr)
        return 2
    try:
        ensure(arguments[0], venv_folder())
    except SetupError as error:
        print(f"headrace: set-up failed: {error}", file=sys.stderr)
        return 1
    return 0


def venv_folder() -> Path:
    """`HEADRACE_VENV`, or `.venv` in the checkout."""
    return Path(os.environ.get("HEADRACE_VENV") or ROOT / ".venv").absolute()


def ensure(lock: str, folder: Path) -> None:
    """Make `folder` an environment that holds what the lock (a name of `LOCKS`) names. Raises `SetupError`."""
    if tuple(sys.version_info[:2]) < PYTHON_MIN:
        have = ".".join(map(str, sys.version_info[:3]))
        raise SetupError(f"Python 3.11 or newer is needed, this is {have}; name one: HEADRACE_PYTHON=/path/to/python3")

    stamps = folder / STAMPS
    try:
        if folder.is_dir() and any(folder.iterdir()) and not stamps.is_dir():
            raise SetupError(f"{folder} was not made by Headrace; remove it, or name another folder with HEADRACE_VENV")
        stamps.mkdir(parents=True, exist_ok=True)
        with open(stamps / "lock", "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            if not is_ready(lock, folder):
                _make(lock, folder)
    except OSError as error:
        raise SetupError(f"{folder} cannot be written ({error}); name another folder with HEADRACE_VENV") from error


def is_ready(lock: str, folder: Path) -> bool:
    """True when a finished environment of this very lock stands there and its interpreter still runs."""
    stamp = folder / STAMPS / LOCKS[lock].name
    if not stamp.is_file() or stamp.read_bytes() != LOCKS[lock].read_bytes():
        return False
    try:
        return subprocess.run([interpreter(folder), "-c", ""], stdin=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


def interpreter(folder: Path) -> Path:
    """The environment's own Python."""
    return folder / "bin" / "python"


def _make(lock: str, folder: Path) -> None:
    stamps = folder / STAMPS
    grows = _can_grow(lock, folder)
    task = f"adding the packages of {lock} to the" if grows else "setting up a"
    print(f"headrace: {task} private environment in {folder}, once (about {SPANS[lock]})", file=sys.stderr, flush=True)
    if grows:
        (stamps / GROWING).touch()
    else:
        _begin_afresh(folder)
    _run(
        [interpreter(folder), "-m", "pip", "install", *PIP_OPTIONS, "-r", LOCKS[lock]],
        "the packages could not be installed; see pip's words above, then start again (it begins afresh)",
    )
    for name in LOCKS:
        if name == lock or holds_all(LOCKS[lock], LOCKS[name]):
            part = stamps / (LOCKS[name].name + ".part")
            part.write_bytes(LOCKS[name].read_bytes())
            part.replace(stamps / LOCKS[name].name)
    (stamps / GROWING).unlink(missing_ok=True)


def _can_grow(lock: str, folder: Path) -> bool:
    """True when what stands there is whole and all of it belongs to `lock`, so that pip has only to add."""
    return not (folder / STAMPS / GROWING).exists() and any(
        name != lock and holds_all(LOCKS[lock], LOCKS[name]) and is_ready(name, folder) for name in LOCKS
    )


def _begin_afresh(folder: Path) -> None:
    for path in LOCKS.values():
        (folder / STAMPS / path.name).unlink(missing_ok=True)
    for entry in folder.iterdir():
        if entry.name == STAMPS:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    _run(
        [sys.executable, "-m", "venv", folder],
        "the environment could not be made; where Python comes without its venv module, install it "
        "(Debian and Ubuntu: apt-get install python3-venv)",
    )


def holds_all(larger: Path, smaller: Path) -> bool:
    """True when every package of one lock stands in the other, in the same version."""
    return set(_pins(smaller)) <= set(_pins(larger))


def _pins(lock: Path) -> list[str]:
    """`name==version` of each entry; the marker behind it differs between locks that ask for the same version."""
    return [line.split()[0] for line in lock.read_text().splitlines() if line[:1].strip() and line[0] != "#"]


def _run(command: Sequence[str | Path], remedy: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([os.fspath(part) for part in command], stdin=subprocess.DEVNULL, env=environment, check=False)
    if done.returncode != 0:
        raise SetupError(remedy)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
