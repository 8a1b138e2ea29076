"""Serves the demo's web on loopback, in a thread with a loop of its own, and logs every request as the site saw it.

A line of the log is JSON: when the request had come and when its answer was ready (milliseconds), the connection (its
port at the crawler's end), host, path, status, and the Retry-After that was sent. The end is taken before the first
byte leaves, so it is never later than the crawler's receipt: a gap from an end to the next start is never
shorter here than the crawler kept it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from aiohttp import web

from infra.demo_site import HOSTS, Answer, Asked, answer

__all__ = ["DemoWeb", "LogLine"]

START_S_MAX = 10.0


class LogLine(msgspec.Struct, frozen=True):
    """One request, as the site saw it."""

    start_ms: float
    end_ms: float
    connection: int
    host: str
    path: str
    status: int
    retry_after_s: int | None = None


class DemoWeb:
    """`with DemoWeb(log) as demo:` serves `demo.hosts` at 127.0.0.1:`demo.port` until the block ends."""

    hosts = tuple(HOSTS)

    def __init__(self, log: Path | None = None) -> None:
        self._log_path = log
        self._lines: list[LogLine] = []
        self._asked: Counter[str] = Counter()
        self._started = threading.Event()
        self._failure: OSError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._serve_in_thread, name="demo web", daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(START_S_MAX):
            raise TimeoutError(f"the demo's web did not start within {START_S_MAX:.0f} s")
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._loop is not None and self._end is not None:
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(START_S_MAX)

    def url(self, host: str, path: str = "/") -> str:
        return f"http://{host}:{self.port}{path}"

    def log(self) -> list[LogLine]:
        """All requests so far, in the order in which their answers were ready."""
        return list(self._lines)

    def _serve_in_thread(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.1)
        try:
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]
        except OSError as error:
            self._failure = error
        finally:
            self._started.set()
        if self._failure is None:
            await self._end.wait()
        await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        start_ms = time.time() * 1_000
        connection = request.get_extra_info("peername")[1]  # now: it is gone once the crawler has hung up
        host = request.host.rpartition(":")[0] or request.host
        number = self._asked[host]
        self._asked[host] += 1
        given = answer(Asked(host, request.path_qs, number, self.port, request.headers.get("If-None-Match")))
        await asyncio.sleep(given.after_ms / 1_000)
        self._record(request, connection, host, start_ms, given)
        response = web.Response(status=given.status, body=given.body, headers=dict(given.headers))
        if given.content_type:
            response.headers["Content-Type"] = given.content_type
        return response

    def _record(self, request: web.BaseRequest, connection: int, host: str, start_ms: float, given: Answer) -> None:
        retry_after = dict(given.headers).get("Retry-After")
        line = LogLine(
            start_ms=start_ms,
            end_ms=time.time() * 1_000,
            connection=connection,
            host=host,
            path=request.path_qs,
            status=given.status,
            retry_after_s=int(retry_after) if retry_after else None,
        )
        self._lines.append(line)
        if self._log_path is not None:
            with self._log_path.open("ab") as stream:
                stream.write(msgspec.json.encode(line) + b"\n")
