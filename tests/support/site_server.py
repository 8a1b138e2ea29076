"""A documentation tree as a web site, in a process of its own, with a log that says what the site saw.

    python -m tests.support.site_server ROOT [--overlay DIR] [--robots FILE] [--copies N] [--delay-ms N] [--log FILE]

Its first line on stdout is `{"port": N}`. A line of the log (stdout unless a file is named; `--log none` for none) is
JSON, written at once: when the request had come and when its answer was ready (milliseconds since the epoch), the
connection (its port at the other end), the host asked (without port), how many connections that asked this host are
open, method, path, status, whether validators came, and the user agent. The end is taken before the first byte leaves,
so it is never later than the crawler's receipt: a gap from an end to the next start is never shorter here than the
crawler kept it.

It is cheap on purpose: one protocol, no framework, files as they lie on disk. With `--copies N` the tree stands N
times, under /0/ to /N-1/, each copy's HTML with a comment of its own at the end, so that no two bodies are the same.
"""

from __future__ import annotations

import argparse
import asyncio
import email.utils
import json
import mimetypes
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

HEAD_BYTES_MAX = 64 * 1024
_REASONS = {200: "OK", 301: "Moved Permanently", 304: "Not Modified", 400: "Bad Request", 404: "Not Found"}


class _File(NamedTuple):
    path: bytes
    etag: str
    last_modified: str
    content_type: str


class Site:
    """What lies where. An overlay's file stands for the tree's of the same name."""

    def __init__(self, root: Path, overlay: Path | None, robots: Path | None, copies: int) -> None:
        self._roots = [os.fsencode(folder.resolve()) for folder in (overlay, root) if folder is not None]
        self._robots = robots
        self._copies = copies

    def answer(self, path: str, headers: dict[str, str]) -> tuple[int, list[tuple[str, str]], bytes]:
        """(status, header lines, body) for a GET."""
        if path == "/robots.txt":
            if self._robots is None or not self._robots.exists():
                return 404, [("Content-Type", "text/plain")], b"none\n"
            return 200, [("Content-Type", "text/plain")], self._robots.read_bytes()
        relative = unquote_to_bytes(path.partition("?")[0])
        mark = b""
        if self._copies:
            copy, slash, rest = relative[1:].partition(b"/")
            if not slash or not copy.isdigit() or int(copy) >= self._copies:
                return 404, [("Content-Type", "text/plain")], b"no such copy\n"
            relative, mark = b"/" + rest, b"<!-- copy %b -->\n" % copy
        file = self._find(relative)
        if file is None:
            if any(os.path.isdir(root + relative) for root in self._roots):
                return 301, [("Location", path + "/")], b""
            return 404, [("Content-Type", "text/html")], b"<title>404</title>not here\n"
        tag = file.etag[:-1] + (f'-{mark[10:-5].decode()}"' if mark else '"')
        validators = [("ETag", tag), ("Last-Modified", file.last_modified)]
        if "if-none-match" in headers:
            same = headers["if-none-match"] == tag
        else:
            same = headers.get("if-modified-since") == file.last_modified
        if same:
            return 304, validators, b""
        with open(file.path, "rb") as stream:
            body = stream.read()
        if mark and file.content_type == "text/html":
            body += mark
        return 200, [("Content-Type", file.content_type), *validators], body

    def _find(self, relative: bytes) -> _File | None:
        if relative.endswith(b"/"):
            relative += b"index.html"
        if b"/../" in relative or b"\0" in relative:
            return None
        for root in self._roots:
            try:
                facts = os.stat(root + relative)
            except OSError:
                continue
            if not os.path.isdir(root + relative):
                return _file(root + relative, facts.st_mtime_ns, facts.st_size)
        return None


@lru_cache(4_096)
def _file(path: bytes, modified_ns: int, size: int) -> _File:
    content_type = mimetypes.guess_type(os.fsdecode(path))[0] or "application/octet-stream"
    modified = email.utils.formatdate(modified_ns // 1_000_000_000, usegmt=True)
    return _File(path, f'"{modified_ns:x}-{size:x}"', modified, content_type)


class _Connection(asyncio.Protocol):
    """Keep-alive, one request after the other."""

    def __init__(self, site: Site, open_by_host: Counter[str], log: Callable[[bytes], object], delay_ms: int) -> None:
        self._site, self._open_by_host, self._log, self._delay_ms = site, open_by_host, log, delay_ms
        self._buffer = b""
        self._host = ""
        self._waiting = False
        self._peer = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._peer = transport.get_extra_info("peername")[1]

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._host:
            self._open_by_host[self._host] -= 1

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    def _next(self) -> None:
        while not self._waiting and self._transport is not None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > HEAD_BYTES_MAX:
                    self._transport.abort()
                return
            head, self._buffer = self._buffer[:end].decode("latin-1"), self._buffer[end + 4 :]
            self._take(head, time.time() * 1_000)

    def _take(self, head: str, start_ms: float) -> None:
        first, *lines = head.split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        host = headers.get("host", "")
        name, _, port = host.rpartition(":")
        host = name if port.isdigit() else host
        if self._host != host:
            if self._host:
                self._open_by_host[self._host] -= 1
            self._open_by_host[host] += 1
            self._host = host
        if self._delay_ms:
            self._waiting = True
            loop = asyncio.get_running_loop()
            loop.call_later(self._delay_ms / 1_000, self._answer_late, method, path, headers, start_ms)
        else:
            self._answer(method, path, headers, start_ms)

    def _answer_late(self, method: str, path: str, headers: dict[str, str], start_ms: float) -> None:
        self._waiting = False
        self._answer(method, path, headers, start_ms)
        self._next()

    def _answer(self, method: str, path: str, headers: dict[str, str], start_ms: float) -> None:
        status, lines, body = self._site.answer(path, headers)
        end_ms = time.time() * 1_000
        self._log(
            json.dumps(
                {
                    "start_ms": start_ms,
                    "end_ms": end_ms,
                    "connection": self._peer,
                    "host": self._host,
                    "connections_open": self._open_by_host[self._host],
                    "method": method,
                    "path": path,
                    "status": status,
                    "conditional": "if-none-match" in headers or "if-modified-since" in headers,
                    "user_agent": headers.get("user-agent", ""),
                }
            ).encode()
            + b"\n"
        )
        if self._transport is None:
            return
        head = [f"HTTP/1.1 {status} {_REASONS[status]}", *(f"{name}: {value}" for name, value in lines)]
        if status != 304:
            head.append(f"Content-Length: {len(body)}")
        self._transport.write("\r\n".join((*head, "", "")).encode("latin-1") + (b"" if method == "HEAD" else body))


async def _serve(arguments: argparse.Namespace) -> None:
    site = Site(arguments.root, arguments.overlay, arguments.robots, arguments.copies)
    open_by_host: Counter[str] = Counter()
    stdout = sys.stdout.fileno()
    target = stdout if arguments.log == "-" else -1
    if arguments.log not in ("-", "none"):
        target = os.open(arguments.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def log(line: bytes) -> None:
        if target >= 0:
            os.write(target, line)  # a whole line at once, and no buffer that a kill could lose

    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: _Connection(site, open_by_host, log, arguments.delay_ms), arguments.address, arguments.port, backlog=512
    )
    os.write(stdout, json.dumps({"port": server.sockets[0].getsockname()[1]}).encode() + b"\n")
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.site_server")
    parser.add_argument("root", type=Path)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--overlay", type=Path, help="a folder whose files stand for the tree's")
    parser.add_argument("--robots", type=Path, help="a robots.txt; without it, or while it does not exist, 404")
    parser.add_argument("--copies", type=int, default=0, help="serve the tree so many times, under /0/, /1/, ...")
    parser.add_argument("--delay-ms", type=int, default=0, help="of each answer")
    parser.add_argument("--log", default="-", help="a file, - for stdout, none for none")
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
