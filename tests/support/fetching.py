"""A fetcher in front of a server that plays what it is told: clock, names and leases of the fetcher's tests."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable

import uvloop
from aiohttp.abc import AbstractResolver, ResolveResult

from connectors.ports import Fetched
from connectors.web_http import HttpWeb
from schemas.records import FetchLease, Kind
from streams.core import fetch
from streams.core.policy import FetchLimits
from streams.core.rules.addresses import Network
from tests.support.exchanges import Wire
from tests.support.raw_server import RawServer

LOOPBACK: tuple[Network, ...] = (ipaddress.ip_network("127.0.0.0/8"),)
AGENT = fetch.agent("Headrace/0.1")
QUICK = FetchLimits(connect_ms_max=400, idle_ms_max=100, duration_ms_max=300)
NOW_MS = 1_717_243_200_000
PAGE = {"status": 200, "headers": {"Content-Type": "text/html"}, "body": "<p>Hello"}


class Clock:
    """Stands still unless a test moves it."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


class Names(AbstractResolver):
    """Gives the addresses that it is told, unchecked: a resolver that was fooled, or a name that was bound anew."""

    def __init__(self, port: int, *addresses: str) -> None:
        self.port = port
        self.addresses = list(addresses)
        self.asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.asked += 1
        return [
            ResolveResult(hostname=host, host=address, port=self.port, family=socket.AF_INET, proto=0, flags=0)
            for address in self.addresses
        ]

    async def close(self) -> None:
        """Nothing is open."""


def lease(
    path: str = "/", *, host: str = "http://site.example", kind: Kind = Kind.PAGE, start_by_ms: int = NOW_MS + 1_000
) -> FetchLease:
    """A lease of one URL of a site that our server plays."""
    return FetchLease(
        lease_id=bytes(16),
        host_key=host,
        url_id=bytes(16),
        url=host + path,
        url_version=1,
        kind=kind,
        attempt=0,
        policy_version=1,
        owner_epoch=1,
        not_before_ms=NOW_MS,
        start_by_ms=start_by_ms,
        duration_ms_max=60_000,
    )


def play(
    script: list[Wire],
    act: Callable[[HttpWeb, RawServer], Awaitable[None]],
    *,
    limits: FetchLimits | None = None,
    allowed: tuple[Network, ...] = LOOPBACK,
    idle_hosts_max: int = 10,
    clock: Clock | None = None,
    may_start: Callable[[], bool] = lambda: True,
) -> RawServer:
    """Serve the script, let `act` fetch, and give the server with its log back."""

    async def main() -> RawServer:
        async with RawServer(script) as server:
            web = HttpWeb(
                agent=AGENT,
                resolver=Names(server.port, "127.0.0.1"),
                now_ms=clock or Clock(),
                limits=limits,
                allowed=allowed,
                idle_hosts_max=idle_hosts_max,
                may_start=may_start,
            )
            try:
                await act(web, server)
            finally:
                await web.close()
            return server

    return uvloop.run(main())


def outcomes(
    script: list[Wire],
    *leases: FetchLease,
    limits: FetchLimits | None = None,
    allowed: tuple[Network, ...] = LOOPBACK,
) -> tuple[list[Fetched], RawServer]:
    """Fetch the leases one after the other."""
    results: list[Fetched] = []

    async def act(web: HttpWeb, _: RawServer) -> None:
        results.extend([await web.fetch(one) for one in leases])

    return results, play(script, act, limits=limits, allowed=allowed)
