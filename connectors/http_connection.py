"""One kept-alive HTTP/1.1 connection, and the aiohttp connector that opens and pools such connections.

aiohttp's connector does what it is good at: resolve through our resolver, connect, TLS, pool, close idle ones. Requests
and answers do not pass through its client session: the session repeats a GET once when a kept-alive connection is dead,
which would be a second request under one lease, and its parser loses an answer that stray bytes follow. Here one
request is written once, and `AnswerReader` reads the answer.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import aiohttp
from aiohttp import ClientRequest, ClientTimeout
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection

from connectors.receiving import Receiving
from streams.core.answer import AnswerReader
from streams.core.rules.addresses import Network, refusal


class AddressRefused(OSError):
    """The address that a socket was about to connect to is not one that we ask."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address} is {reason}")
        self.address = address


class HttpConnection(ResponseHandler):
    """Writes one request at a time and feeds what comes to that request's `AnswerReader`.

    A subclass because aiohttp's pool keeps its own kind of protocol; of that one only the transport's care is used.
    Everything is read in `data_received`: no task wakes between the request and the whole answer, and one timer
    watches both the idle time and the deadline. Of an answer that is held back nothing is read; its deadline holds.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, receiving: Receiving) -> None:
        super().__init__(loop)
        self._receiving = receiving
        self._is_back = False
        self.address = ""
        self.host_key = ""  # whom it was lent for last
        self.requests = 0  # sent on this connection
        self._answer: AnswerReader | None = None
        self._answered: asyncio.Future[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._idle_s = 0.0
        self._deadline_s = 0.0
        self._last_read_s = 0.0
        self._spent = False

    async def ask(self, request: bytes, answer: AnswerReader, *, idle_s: float, deadline_s: float) -> None:
        """Write `request` and return when `answer` is done. `deadline_s` is a time of the loop's clock."""
        assert self._answer is None, "a connection carries one request at a time"
        transport = self.transport
        if transport is None or transport.is_closing():
            answer.fail("connection_reset")
            return
        self._answer = answer
        self._answered = self._loop.create_future()
        self._idle_s, self._deadline_s = idle_s, deadline_s
        self._last_read_s = self._loop.time()
        self._watch = self._loop.call_at(min(self._last_read_s + idle_s, deadline_s), self._look)
        self.requests += 1
        transport.write(request)
        try:
            await self._answered
        finally:
            self._watch.cancel()
            self._watch = None
            self._answer = self._answered = None
            self._spent = not answer.reusable
            self._receiving.ended(self)

    def hold_back(self) -> None:
        """Read no more for now."""
        self._is_back = True
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def go_on(self) -> None:
        self._is_back = False
        self._last_read_s = self._loop.time()
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    @property
    def should_close(self) -> bool:
        """Asked by the pool when the connection is given back."""
        return self._spent or self.transport is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None or answer.done:
            # Nothing was asked: these bytes must never be read as the next answer.
            self._spent = True
            if answer is None and self.transport is not None:
                self.transport.abort()
            return
        self._last_read_s = self._loop.time()
        if answer.feed(data):
            self._done()
        self._receiving.grew(self, answer.held_bytes)

    def eof_received(self) -> None:
        """None lets the transport close, and `connection_lost` follows."""

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connection_lost_called = True
        self._spent = True
        closed = self._closed
        if closed is not None and not closed.done():
            closed.set_result(None)
        answer = self._answer
        if answer is not None and not answer.done:
            if exc is None:
                answer.feed_eof()
            answer.fail("tls_error" if isinstance(exc, ssl.SSLError) else "connection_reset")
            self._done()
        self.transport = None

    def _done(self) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    def _look(self) -> None:
        """The watch rang: is the time over, or have bytes come since it was set?"""
        assert self._answer is not None, "the watch is cancelled with the request"
        now_s = self._loop.time()
        if now_s >= self._deadline_s:
            self._answer.fail("timeout")
        elif now_s >= self._last_read_s + self._idle_s and not self._is_back:
            self._answer.fail("read_timeout")
        else:
            since_s = now_s if self._is_back else self._last_read_s
            self._watch = self._loop.call_at(min(since_s + self._idle_s, self._deadline_s), self._look)
            return
        self._done()


class _Where(NamedTuple):
    """What the connector reads of a request's URL."""

    raw_host: str


class Origin:
    """Scheme, host and port in the form in which aiohttp's connector takes a request."""

    __slots__ = ("connection_key", "port", "server_hostname", "ssl", "url")

    proxy = None
    proxy_headers = None

    def __init__(self, scheme: str, host: str, port: int, address: str | None = None) -> None:
        """`address`: the only one to connect to; such a connection is lent to nobody who may ask another."""
        self.url = _Where(host if address is None else address)
        self.server_hostname = None if address is None else host
        self.port = port
        self.ssl: bool | ssl.SSLContext = True  # the connector puts its own in
        pooled = host if address is None else f"{host} {address}"
        self.connection_key = ConnectionKey(pooled, port, scheme == "https", True, None, None, None)

    def is_ssl(self) -> bool:
        """Asked by the connector."""
        return self.connection_key.is_ssl


class Connector(aiohttp.TCPConnector):
    """aiohttp's connector with our connections, and the second look at every address it is about to connect to."""

    def __init__(
        self,
        *,
        resolver: aiohttp.abc.AbstractResolver,
        allowed: tuple[Network, ...],
        tls: Callable[[], ssl.SSLContext],
        idle_hosts_max: int,
        keepalive_s: float,
        receiving: Receiving,
    ) -> None:
        """`tls` is asked for its one context at the first https origin: to read the system's trust takes 20 ms."""
        super().__init__(
            resolver=resolver,
            use_dns_cache=False,  # the resolver caches, by the records' own TTL
            limit=0,  # whoever lends counts: waiting for a slot must not pass for a slow connect
            happy_eyeballs_delay=None,  # RFC 8305 would open two connections to a slow host; one after the other is one
            keepalive_timeout=keepalive_s,
            socket_factory=functools.partial(_checked_socket, allowed),
        )
        self._factory = cast(
            "functools.partial[ResponseHandler]", functools.partial(HttpConnection, self._loop, receiving)
        )
        self._idle_hosts_max = idle_hosts_max
        self._tls = functools.cache(tls)

    async def lend(self, origin: Origin, *, within_s: float) -> tuple[Connection, HttpConnection]:
        """An idle connection to `origin`, or a new one. Raises what aiohttp raises, TimeoutError after `within_s`."""
        timeout = _timeout(within_s)
        if origin.is_ssl():
            origin.ssl = self._tls()
        lent = await self.connect(cast(ClientRequest, origin), [], timeout)
        return lent, cast(HttpConnection, lent.protocol)

    def give_back(self, lent: Connection) -> None:
        """Keep it open when it can serve again and not too many hosts have one open."""
        if len(self._conns) >= self._idle_hosts_max:
            lent.close()
        else:
            lent.release()

    def close_idle(self, ours: Callable[[str], bool]) -> None:
        """Close what nobody has in hand of hosts that are not `ours`, by host_key."""
        for key, idle in list(self._conns.items()):
            stays = type(idle)()
            for connection, since_s in idle:
                if ours(cast(HttpConnection, connection).host_key):
                    stays.append((connection, since_s))
                else:
                    connection.close()
            if stays:
                self._conns[key] = stays
            else:
                del self._conns[key]


@functools.lru_cache(maxsize=64)
def _timeout(within_s: float) -> ClientTimeout:
    # Half of it for one address, so that a second one still has its turn.
    return ClientTimeout(total=None, connect=within_s, sock_connect=within_s / 2, ceil_threshold=float("inf"))


def _checked_socket(allowed: tuple[Network, ...], addr_info: Any) -> socket.socket:
    """The socket for one address, unless it must not be asked. The name may have been bound anew since the look-up."""
    family, kind, proto, _, address = addr_info
    reason = refusal(address[0], allowed)
    if reason is not None:
        raise AddressRefused(address[0], reason)
    return socket.socket(family, kind, proto)
