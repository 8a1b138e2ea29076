"""Serves the web of the outside judge (`tests.support.judge_web`) on loopback, and logs every request.

    python -m tests.support.judge_site --log FILE --policies FILE [--delay-ms N] [--port N]

Its first line on stdout is `{"port": N}`; each line of the log goes to stdout, too, for whoever waits for something to
happen. A line's end is taken before its first byte leaves, so a gap from an end to the next start is never shorter here
than the crawler kept it; a connection that broke before has no end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import uvloop

from tests.support.judge import Line
from tests.support.judge_web import HOSTS, Answer, Web, address, policies

HEAD_BYTES_MAX = 64 * 1024


class _Connection(asyncio.Protocol):
    """One request after the other."""

    def __init__(self, web: Web, log: Callable[[Line], None]) -> None:
        self._web, self._log = web, log
        self._transport: asyncio.Transport | None = None
        self._number = 0
        self._buffer = b""
        self._out: tuple[Line, Answer] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._number = transport.get_extra_info("peername")[1]

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if self._out is not None:
            self._log(self._out[0])
            self._out = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    def _next(self) -> None:
        while self._out is None and self._transport is not None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > HEAD_BYTES_MAX:
                    self._transport.abort()
                return
            head, self._buffer = self._buffer[:end].decode("latin-1"), self._buffer[end + 4 :]
            self._take(head, time.time() * 1e3)

    def _take(self, head: str, now_ms: float) -> None:
        first, *lines = head.split("\r\n")
        path = first.split(" ")[1]
        name = next((value.strip() for key, _, value in (x.partition(":") for x in lines) if key.lower() == "host"), "")
        name = name.partition(":")[0]
        answer = self._web.answer(name, path, now_ms)
        self._out = (Line(now_ms, None, self._number, name, path, answer.status, rules=answer.rules), answer)
        if answer.delay_ms:
            self._timer = asyncio.get_running_loop().call_later(answer.delay_ms / 1e3, self._answer_late)
        else:
            self._answer()

    def _answer_late(self) -> None:
        self._answer()
        self._next()

    def _answer(self) -> None:
        assert self._out is not None
        line, answer = self._out
        self._out = self._timer = None
        now_ms = time.time() * 1e3
        retry_after_s = (answer.retry_after_ms - now_ms) / 1e3 if answer.retry_after_ms else None
        self._log(msgspec.structs.replace(line, end_ms=now_ms, retry_after_s=retry_after_s))
        assert self._transport is not None
        head = [f"HTTP/1.1 {answer.status} -", *(f"{name}: {value}" for name, value in answer.headers)]
        head += [f"Content-Length: {len(answer.body)}", "", ""]
        self._transport.write("\r\n".join(head).encode("latin-1") + answer.body)


async def _serve(arguments: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    addresses = sorted({address(index) for index in range(HOSTS)})
    target = os.open(arguments.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    stdout = sys.stdout.fileno()

    def log(line: Line) -> None:
        data = msgspec.json.encode(line) + b"\n"
        os.write(target, data)  # a whole line at once, and no buffer that a kill could lose
        os.write(stdout, data)

    webs: list[Web] = []
    first = await loop.create_server(lambda: _Connection(webs[0], log), addresses[0], arguments.port, backlog=512)
    port = first.sockets[0].getsockname()[1]
    webs.append(Web(port, time.time() * 1e3))
    others = addresses[1:]
    second = await loop.create_server(lambda: _Connection(webs[0], log), others, port, backlog=512)
    os.write(stdout, msgspec.json.encode({"port": port}) + b"\n")
    await asyncio.gather(first.serve_forever(), second.serve_forever())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.judge_site")
    parser.add_argument("--log", required=True, help="a file, begun anew")
    parser.add_argument("--policies", required=True, help="a file: what the hosts may expect")
    parser.add_argument("--delay-ms", type=int, default=1_000, help="the crawler's own delay")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    arguments = parser.parse_args()
    Path(arguments.policies).write_bytes(msgspec.json.encode(policies(arguments.delay_ms)))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(arguments))


if __name__ == "__main__":
    main()
