"""A served site as tests hold it: started, asked what it saw, and waited on, without ever sleeping."""

from __future__ import annotations

import contextlib
import http.client
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from tests.support.access_log_oracle import Request

PROJECT = Path(__file__).resolve().parent.parent.parent
WAIT_S_MAX = 120.0
_MARK = "/-mark-"


class Asked(msgspec.Struct, frozen=True):
    """One request, as the site saw it; `tests.support.site_server` says what the fields are."""

    start_ms: float
    end_ms: float
    connection: int
    host: str
    connections_open: int
    method: str
    path: str
    status: int
    conditional: bool
    user_agent: str

    def as_request(self) -> Request:
        """As the judge of politeness takes it."""
        return Request(self.start_ms, self.end_ms, self.connection, self.host, self.path, self.status)


_decode = msgspec.json.Decoder(Asked).decode


class ServedSite:
    """`with ServedSite(root) as site:` serves until the block ends."""

    def __init__(self, root: Path, *options: str, log: bool = True) -> None:
        self._command = [sys.executable, "-m", "tests.support.site_server", str(root), *options]
        if not log:
            self._command += ["--log", "none"]
        self._lines: list[Asked] = []
        self._marks = 0
        self._news = threading.Condition()
        self._process: subprocess.Popen[bytes] | None = None
        self._reader = threading.Thread(target=self._read, name="site log", daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, cwd=PROJECT, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        first = self._process.stdout.readline()
        assert first, f"the site did not start: {self._command}"
        self.port = msgspec.json.decode(first)["port"]
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def log(self) -> list[Asked]:
        """All requests that were sent before this call, in the order in which their answers were ready.

        What a killed client sent may still lie unread at the server. Two requests of our own, one after the other, come
        after it: once they are logged, all is.
        """
        with self._news:
            due = self._marks + 2
        for _ in range(2):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S_MAX)
            connection.request("GET", _MARK)
            connection.getresponse().read()
            connection.close()
        with self._news:
            assert self._news.wait_for(lambda: self._marks >= due, WAIT_S_MAX)
            return list(self._lines)

    def wait_for(self, enough: Callable[[Sequence[Asked]], bool], *, or_end_of: subprocess.Popen[str]) -> bool:
        """True once the log is enough; False when that process ended first. Fails after two minutes."""
        ended = threading.Event()

        def watch() -> None:
            or_end_of.wait()
            with self._news:
                ended.set()
                self._news.notify_all()

        threading.Thread(target=watch, daemon=True).start()
        with self._news:
            done = self._news.wait_for(lambda: enough(self._lines) or ended.is_set(), WAIT_S_MAX)
            assert done, f"after {WAIT_S_MAX:.0f} s the site had seen {len(self._lines)} requests, not what was needed"
            return enough(self._lines)

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Within the block the site takes requests and answers none."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            asked = _decode(line)
            with self._news:
                if asked.path == _MARK:
                    self._marks += 1
                else:
                    self._lines.append(asked)
                self._news.notify_all()
