"""A server that answers byte for byte what a test gives it, and keeps a log of what was asked.

It knows no HTTP but the end of a request's head. One script serves all connections, in the order of the requests.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Iterable, Iterator

import msgspec

from tests.support.exchanges import Wire

DRIP_S = 0.02
HEAD_BYTES_MAX = 64 * 1024


class Request(msgspec.Struct, frozen=True):
    """One request as it came."""

    connection: int  # 0 for the first connection that was made
    address: str  # of ours, that was connected to
    target: str
    lines: tuple[str, ...]  # header lines

    def header(self, name: str) -> str | None:
        """The value of a header, None when it was not sent."""
        for line in self.lines:
            key, _, value = line.partition(":")
            if key.lower() == name.lower():
                return value.strip()
        return None


class RawServer:
    """Listens on one port of one or several loopback addresses. `script` gives the answer to each request in turn.

    After the script's end a connection is closed on its next request. `log` and `connections` may be read at any time.
    """

    def __init__(
        self,
        script: Iterable[Wire | Callable[[], Wire]] = (),
        addresses: Iterable[str] = ("127.0.0.1",),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._script = iter(script)
        self._addresses = tuple(addresses)
        self._tls = tls
        self._servers: list[asyncio.Server] = []
        self.transports: set[asyncio.Transport] = set()
        self.log: list[Request] = []
        self.connections = 0
        self.port = 0

    async def __aenter__(self) -> RawServer:
        loop = asyncio.get_running_loop()
        for address in self._addresses:
            server = await loop.create_server(lambda: _Connection(self), address, self.port, ssl=self._tls)
            self.port = server.sockets[0].getsockname()[1]
            self._servers.append(server)
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for transport in list(self.transports):
            transport.abort()
        for server in self._servers:
            await server.wait_closed()

    def next_wire(self) -> Wire:
        """The answer to the next request."""
        item = next(self._script, None)
        if item is None:
            return Wire(iter(()), "empty_reply")
        return item if isinstance(item, Wire) else item()


class _Connection(asyncio.Protocol):
    def __init__(self, server: RawServer) -> None:
        self._server = server
        self._buffer = b""
        self._number = server.connections
        server.connections += 1
        self._blocks: Iterator[bytes] | None = None
        self._behaviour = ""
        self._paused = False
        self._timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]
        self._server.transports.add(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.transports.discard(self.transport)
        self._blocks = None
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > HEAD_BYTES_MAX or not b"GET ".startswith(self._buffer[:4]):
                self.transport.write(b"this is no HTTP, and no TLS\r\n")
                self.transport.close()
            return
        head, self._buffer = self._buffer[:end], self._buffer[end + 4 :]
        lines = head.decode("latin-1").split("\r\n")
        address = self.transport.get_extra_info("sockname")[0]
        self._server.log.append(Request(self._number, address, lines[0].split(" ")[1], tuple(lines[1:])))
        answer = self._server.next_wire()
        self._behaviour = answer.behaviour
        self._blocks = _dripped(answer.blocks) if answer.drip else answer.blocks
        if answer.drip:
            self._drip()
        else:
            self._write_on()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._write_on()

    def _write_on(self) -> None:
        """One block a turn of the loop, so that a client in the same loop can stop what has no end."""
        if self._blocks is None or self._paused:
            return
        block = next(self._blocks, None)
        if block is None:
            self._blocks = None
            self._end()
            return
        self.transport.write(block)
        asyncio.get_running_loop().call_soon(self._write_on)

    def _drip(self) -> None:
        block = next(self._blocks, None) if self._blocks is not None else None
        if block is not None:
            self.transport.write(block)
            self._timer = asyncio.get_running_loop().call_later(DRIP_S, self._drip)

    def _end(self) -> None:
        match self._behaviour:
            case "close" | "close_early" | "empty_reply" | "tls_error" | "tls_handshake" | "tls_expired":
                self.transport.close()
            case "connection_reset":
                reset(self.transport)
            case _:
                pass  # stay open and silent


def reset(transport: asyncio.Transport) -> None:
    """End a connection by RST (SO_LINGER of 0 s)."""
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _dripped(blocks: Iterator[bytes]) -> Iterator[bytes]:
    for block in blocks:
        for index in range(len(block)):
            yield block[index : index + 1]
