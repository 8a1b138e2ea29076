"""The folder of one service: its data, its log, and the record of the process that runs there.

A folder is ours when it holds `MARK`; another that holds anything is refused, and `wipe` never touches one without it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from infra.services.errors import ServiceError
from infra.services.processes import Identity, is_alive

__all__ = ["Record", "ServiceFolder", "at_work_in", "locked"]

MARK = "headrace-service"
RECORD = "process.json"
LOG_TAIL_BYTES = 64 << 10


class Record(NamedTuple):
    """A process that was started here, with what it was started from."""

    who: Identity
    ports: Mapping[str, int]  # its own, as `Service.ports` names them
    programs: str  # the folders of its bundle and plugins


class _Kept(msgspec.Struct):
    """A `Record` as its file has it."""

    pid: int
    started: str
    ports: dict[str, int]
    programs: str

    def __post_init__(self) -> None:
        if "main" not in self.ports:
            raise ValueError("no main port")


class ServiceFolder:
    """`DATA/NAME`."""

    def __init__(self, data: Path, name: str) -> None:
        self.path = data / name
        self.name = name
        self.log = self.path / "log"

    def claim(self) -> None:
        """Make it, or find that it is ours. Raises `ServiceError`."""
        try:
            if self.path.is_dir() and any(self.path.iterdir()) and not (self.path / MARK).is_file():
                raise ServiceError(
                    f"{self.path} holds something that is no service's data; name another folder with --data"
                )
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / MARK).touch()
        except OSError as error:
            raise ServiceError(f"{self.path} cannot be written ({error.strerror}); name another with --data") from error

    def wipe(self) -> None:
        """Take away all that the service kept, the mark last, so that a kill in the middle leaves it ours."""
        if not (self.path / MARK).is_file():
            return
        for entry in self.path.iterdir():
            if entry.name == MARK:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        (self.path / MARK).unlink()
        self.path.rmdir()

    def running(self) -> Record | None:
        """The recorded process, when it is that one which still runs."""
        record = self.record()
        return record if record is not None and is_alive(record.who) else None

    def record(self) -> Record | None:
        """The process last started here, until `forget`; it may have died since."""
        try:
            kept = msgspec.json.decode((self.path / RECORD).read_bytes(), type=_Kept)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise ServiceError(
                f"{self.path / RECORD} is unreadable ({error}); see with ps whether {self.name} runs, end it, "
                "and remove the file"
            ) from error
        return Record(Identity(kept.pid, kept.started), kept.ports, kept.programs)

    def keep(self, record: Record) -> None:
        kept = {**record.who._asdict(), "ports": dict(record.ports), "programs": record.programs}
        part = self.path / (RECORD + ".part")
        part.write_text(json.dumps(kept))
        part.replace(self.path / RECORD)

    def forget(self) -> None:
        (self.path / RECORD).unlink(missing_ok=True)

    def new_log(self) -> None:
        """Begin a log; the one before it is kept beside it."""
        if self.log.exists():
            self.log.replace(self.path / "log.1")

    def last_lines(self, count: int) -> list[str]:
        """The log's end, without its line ends; no more than `LOG_TAIL_BYTES` are read."""
        try:
            with open(self.log, "rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except FileNotFoundError:
            return []
        return list(deque(lines, maxlen=count))


def at_work_in(pid: int) -> Path | None:
    """The folder of the service that this process is; None when it is none, or not ours to look into."""
    try:
        place = Path(f"/proc/{pid}/cwd").readlink()
        record = ServiceFolder(place.parent, place.name).running() if (place / MARK).is_file() else None
    except (OSError, ServiceError):
        return None
    return place if record is not None and record.who.pid == pid else None


@contextmanager
def locked(folder: Path, option: str, say: Callable[[str], None]) -> Iterator[None]:
    """Hold `folder/lock`: one command at a time works in it, a second waits. `option` names another folder."""
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held = stack.enter_context(open(folder / "lock", "w"))
        except OSError as error:
            raise ServiceError(f"{folder} cannot be written ({error.strerror}); name another with {option}") from error
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another command that works in {folder}")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
