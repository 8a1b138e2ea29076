"""The fetcher against a server that misbehaves: one lease is one request, and whatever a site does is a value."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gzip
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterator

import pytest
import uvloop
from aiohttp.abc import AbstractResolver, ResolveResult

from connectors.ports import Fetched
from connectors.resolver import Resolver
from connectors.web_http import HttpWeb
from schemas.records import FetchLease, Kind, Outcome, RobotsDecision
from streams.core import fetch
from streams.core.policy import FetchLimits
from streams.core.rules.addresses import Network
from tests.support import certificates
from tests.support.exchanges import Wire, wire
from tests.support.raw_server import RawServer, reset

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


def test_a_page_comes_with_all_that_is_stored_of_it() -> None:
    """The store gets header lines as sent, the decoded body, the address that answered, and how it was coded."""
    body = gzip.compress(b"<p>Hello")
    raw = b"HTTP/1.1 200 Fine\r\nX-a: 1\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    (fetched,), _ = outcomes([Wire(iter([raw]))], lease())
    response = fetched.response
    assert response is not None
    assert (response.status, response.reason, response.http_version) == (200, "Fine", "1.1")
    assert (response.body, response.content_codings, response.address) == (b"<p>Hello", "gzip", "127.0.0.1")
    assert response.headers[0] == (b"X-a", b"1")
    result = fetched.result
    assert (result.body_bytes, result.wire_bytes, result.address) == (8, len(body), "127.0.0.1")


def test_a_connection_is_kept_across_a_hosts_leases() -> None:
    """TCP and TLS are paid once a host, also after a 404 and a redirect with bodies."""
    script = [wire(PAGE), wire({"status": 404, "body": "no"}), wire({"status": 302, "headers": {"Location": "/b"}})]
    results, server = outcomes([*script, wire(PAGE)], *(lease(f"/{number}") for number in range(4)))
    assert [one.result.outcome for one in results] == [
        Outcome.FETCHED,
        Outcome.FAILED,
        Outcome.REDIRECT,
        Outcome.FETCHED,
    ]
    assert (server.connections, len(server.log)) == (1, 4)


@pytest.mark.parametrize(
    ("behaviour", "error"), [("empty_reply", "empty_reply"), ("connection_reset", "connection_reset")]
)
def test_a_dead_kept_alive_connection_costs_no_second_request(behaviour: str, error: str) -> None:
    """A repeat by the client would be a second request under one lease, which the site's log would show."""
    results, server = outcomes([wire(PAGE), wire({"behaviour": behaviour}), wire(PAGE)], lease("/1"), lease("/2"))
    assert (results[1].result.outcome, results[1].result.error) == (Outcome.RETRY, error)
    assert [request.target for request in server.log] == ["/1", "/2"]


def test_a_connection_that_the_server_closed_is_not_used() -> None:
    """A close between two leases is seen before the request is written: the next lease gets a new connection."""

    async def act(web: HttpWeb, server: RawServer) -> None:
        await web.fetch(lease("/1"))
        (transport,) = server.transports
        gone = asyncio.get_running_loop().create_future()
        watch(transport, gone)
        reset(transport)
        await asyncio.wait_for(gone, 5)
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.05)  # our side hears of it
        assert (await web.fetch(lease("/2"))).result.outcome is Outcome.FETCHED

    server = play([wire(PAGE), wire(PAGE)], act)
    assert [request.target for request in server.log] == ["/1", "/2"]
    assert server.connections == 2


def watch(transport: asyncio.Transport, gone: asyncio.Future[None]) -> None:
    """`gone` is done once the server's side of the connection is lost."""
    protocol = transport.get_protocol()
    lost = protocol.connection_lost

    def connection_lost(exc: Exception | None) -> None:
        lost(exc)
        gone.set_result(None)

    protocol.connection_lost = connection_lost  # type: ignore[method-assign]


def test_stray_bytes_never_become_the_next_answer() -> None:
    """What follows an answer is dropped with its connection: a site cannot answer for another URL."""
    evil = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
    stray = Wire(iter([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHello" + evil]))
    results, server = outcomes([stray, wire(PAGE)], lease("/1"), lease("/2"))
    assert [one.response.body if one.response else b"" for one in results] == [b"Hello", b"<p>Hello"]
    assert server.connections == 2


def test_bytes_on_an_idle_connection_end_it() -> None:
    """A server that speaks unasked, between two leases, is not listened to, and is no error of ours."""
    troubles: list[object] = []

    async def act(web: HttpWeb, server: RawServer) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
        await web.fetch(lease("/1"))
        (transport,) = server.transports
        gone = asyncio.get_running_loop().create_future()
        watch(transport, gone)
        transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        await asyncio.wait_for(gone, 5)
        fetched = await web.fetch(lease("/2"))
        assert fetched.response is not None
        assert fetched.response.body == b"<p>Hello"

    server = play([wire(PAGE), wire(PAGE)], act)
    assert (server.connections, troubles) == (2, [])


def test_cookies_and_redirects_are_results_and_nothing_more() -> None:
    """No Cookie is ever sent, no Location followed, whatever a site sets."""
    script = [wire({"status": 302, "headers": {"Location": "/b", "Set-Cookie": "a=1"}}), wire(PAGE)]
    _, server = outcomes(script, lease("/a"), lease("/c"))
    assert [request.target for request in server.log] == ["/a", "/c"]
    assert all(request.header("Cookie") is None for request in server.log)


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.5", "169.254.169.254", "0.0.0.0"])
def test_the_address_is_checked_again_as_the_socket_connects(address: str) -> None:
    """DNS rebinding: even a resolver that lets a private address through leads to no connection."""

    async def main() -> tuple[Fetched, int]:
        async with RawServer([wire(PAGE)]) as server:
            web = HttpWeb(agent=AGENT, resolver=Names(server.port, address), now_ms=Clock())
            fetched = await web.fetch(lease())
            await web.close()
            return fetched, server.connections

    fetched, connections = uvloop.run(main())
    assert (fetched.result.outcome, fetched.result.error) == (Outcome.REFUSED, "private_address")
    assert fetched.result.address == address
    assert connections == 0


@pytest.mark.parametrize("host", ["http://127.0.0.1", "http://[::1]", "http://[fd00::1]", "http://169.254.169.254"])
def test_an_address_in_the_url_is_checked_without_a_name(host: str) -> None:
    """An IP literal goes round the resolver, and is refused all the same, robots leases included."""
    leases = [lease(host=host), lease("/robots.txt", host=host, kind=Kind.ROBOTS)]
    results, server = outcomes([wire(PAGE)], *leases, allowed=())
    assert [one.result.error for one in results] == ["private_address", "private_address"]
    assert server.connections == 0
    answer = results[1].result.robots
    assert answer is not None
    assert answer.decision is RobotsDecision.DISALLOW_ALL


def test_a_second_address_is_tried_when_the_first_refuses() -> None:
    """A site with one dead address is reachable, by one request."""

    async def main() -> tuple[Fetched, RawServer]:
        async with RawServer([wire(PAGE)], ["127.0.0.2"]) as server:
            names = Names(server.port, "127.0.0.1", "127.0.0.2")
            web = HttpWeb(agent=AGENT, resolver=names, now_ms=Clock(), allowed=LOOPBACK)
            fetched = await web.fetch(lease())
            await web.close()
            return fetched, server

    fetched, server = uvloop.run(main())
    assert (fetched.result.outcome, fetched.result.address) == (Outcome.FETCHED, "127.0.0.2")
    assert len(server.log) == 1


def test_nobody_listens() -> None:
    """A closed port is a value to try again later."""

    async def main() -> Fetched:
        async with RawServer() as server:
            port = server.port
        web = HttpWeb(agent=AGENT, resolver=Names(port, "127.0.0.1", "127.0.0.2"), now_ms=Clock(), allowed=LOOPBACK)
        fetched = await web.fetch(lease())
        await web.close()
        return fetched

    result = uvloop.run(main()).result
    assert (result.outcome, result.error) == (Outcome.RETRY, "connect_refused")


@contextlib.contextmanager
def drops_packets(address: str, port: int = 0) -> Iterator[int]:
    """A port whose queue of connections is full, so that the kernel answers no more of them."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind((address, port))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(4):
            one = sockets.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex((address, port))
        yield port


def test_a_connect_that_never_ends_is_given_up() -> None:
    """A host that drops packets costs connect_ms_max and no request."""

    async def main() -> Fetched:
        with drops_packets("127.0.0.1") as port:
            names = Names(port, "127.0.0.1")
            web = HttpWeb(agent=AGENT, resolver=names, now_ms=Clock(), allowed=LOOPBACK, limits=QUICK)
            fetched = await web.fetch(lease())
            await web.close()
            return fetched

    result = uvloop.run(main()).result
    assert (result.outcome, result.error) == (Outcome.RETRY, "connect_timeout")


def test_an_address_that_drops_packets_leaves_time_for_the_next() -> None:
    """One connection at a time, and half of the time at most for each address."""

    async def main() -> tuple[Fetched, RawServer]:
        async with RawServer([wire(PAGE)], ["127.0.0.3"]) as server:
            with drops_packets("127.0.0.2", server.port):
                names = Names(server.port, "127.0.0.2", "127.0.0.3")
                web = HttpWeb(agent=AGENT, resolver=names, now_ms=Clock(), allowed=LOOPBACK, limits=QUICK)
                fetched = await web.fetch(lease())
                await web.close()
                return fetched, server

    fetched, server = uvloop.run(main())
    assert (fetched.result.error, fetched.result.address) == ("", "127.0.0.3")
    assert len(server.log) == 1


def test_connections_are_bounded_in_total() -> None:
    """Leases beyond connections_max wait, whatever host they are for, and a wait is no failure of the site."""

    async def main() -> tuple[list[Fetched], RawServer, int]:
        most = 0

        class Counting(Names):
            async def resolve(
                self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
            ) -> list[ResolveResult]:
                nonlocal most
                most = max(most, len(server.log) - len(done) + 1)
                return await super().resolve(host, port, family)

        done: list[Fetched] = []
        async with RawServer([wire(PAGE) for _ in range(6)]) as server:
            names = Counting(server.port, "127.0.0.1")
            web = HttpWeb(agent=AGENT, resolver=names, now_ms=Clock(), allowed=LOOPBACK, connections_max=1)

            async def one(number: int) -> None:
                done.append(await web.fetch(lease(host=f"http://site{number}.example")))

            await asyncio.gather(*(one(number) for number in range(6)))
            await web.close()
            return done, server, most

    done, server, most = uvloop.run(main())
    assert [fetched.result.outcome for fetched in done] == [Outcome.FETCHED] * 6
    assert (len(server.log), most) == (6, 1)


def test_an_expired_lease_asks_nothing() -> None:
    """Past start_by the token may have gone to another lease: the site must not see this one."""
    results, server = outcomes([wire(PAGE)], lease(start_by_ms=NOW_MS - 1))
    assert results[0].result.outcome is Outcome.EXPIRED
    assert (server.connections, server.log) == (0, [])


def test_a_lease_that_expires_while_connecting_asks_nothing() -> None:
    """start_by is looked at once more when the connection stands, since that can take seconds."""
    clock = Clock()
    results: list[Fetched] = []

    class Slow(Names):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
        ) -> list[ResolveResult]:
            clock.now_ms += 5_000
            return await super().resolve(host, port, family)

    async def main() -> RawServer:
        async with RawServer([wire(PAGE)]) as server:
            names = Slow(server.port, "127.0.0.1")
            web = HttpWeb(agent=AGENT, resolver=names, now_ms=clock, allowed=LOOPBACK)
            results.append(await web.fetch(lease()))
            await web.close()
            return server

    assert uvloop.run(main()).log == []
    assert results[0].result.outcome is Outcome.EXPIRED


def test_nothing_is_asked_before_its_time() -> None:
    """not_before is kept by the clock that was passed in, not by how long the loop slept."""
    seen: list[int] = []

    class Moving(Clock):
        def __call__(self) -> int:
            self.now_ms += 4
            seen.append(self.now_ms)
            return self.now_ms

    async def act(web: HttpWeb, _: RawServer) -> None:
        early = lease()
        early = FetchLease(
            **{name: getattr(early, name) for name in early.__struct_fields__} | {"not_before_ms": NOW_MS + 12}
        )
        fetched = await web.fetch(early)
        assert fetched.result.started_ms >= NOW_MS + 12

    play([wire(PAGE)], act, clock=Moving())
    assert seen[0] < NOW_MS + 12


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ({"behaviour": "read_timeout"}, "read_timeout"),
        ({"status": 200, "behaviour": "drip_headers"}, "timeout"),
        ({"status": 200, "headers": {"Content-Length": "90"}, "body": "Hello", "behaviour": "stall"}, "read_timeout"),
    ],
)
def test_a_slow_site_costs_a_bounded_time(step: dict[str, object], error: str) -> None:
    """Idle time is measured between reads, and drops that always come in time end at the duration limit."""
    results, server = outcomes([wire(step)], lease(), limits=QUICK)
    assert (results[0].result.outcome, results[0].result.error) == (Outcome.RETRY, error)
    assert len(server.log) == 1


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ({"status": 200, "headers": {"Content-Length": "10000000000"}, "body": "x"}, "too_large"),
        ({"status": 200, "headers": {"X-Many": {"times": 20_000}}, "body": "x"}, "header_too_large"),
        ({"status": 200, "headers": {"X": {"repeat": "x", "times": 1_000_000}}, "body": "x"}, "header_too_large"),
        (
            {
                "status": 200,
                "headers": {"Content-Encoding": "gzip"},
                "body_gen": {"prefix": "", "repeat": "\0" * 1024, "times": 10_000_000, "suffix": ""},
                "encode": ["gzip"],
            },
            "too_large",
        ),
    ],
)
def test_a_hostile_answer_costs_one_record(step: dict[str, object], error: str) -> None:
    """What is too large is refused as soon as that is known, and its connection is gone."""
    results, server = outcomes([wire(step), wire(PAGE)], lease(), lease("/next"))
    assert (results[0].result.outcome, results[0].result.error) == (Outcome.FAILED, error)
    assert results[1].result.outcome is Outcome.FETCHED
    assert server.connections == 2


def test_robots_txt_travels_as_rules() -> None:
    """The answer to a robots lease holds what it means, and is stored like a page; a redirect is a hop."""
    script = [
        wire({"status": 200, "headers": {"Content-Type": "text/plain"}, "body": "User-agent: *\nDisallow: /p\n"}),
        wire({"status": 301, "headers": {"Location": "https://other.example/r"}}),
        wire({"status": 503, "headers": {"Retry-After": "9"}}),
    ]
    robots = lease("/robots.txt", kind=Kind.ROBOTS)
    results, _ = outcomes(script, robots, robots, robots)
    decisions = [one.result.robots.decision if one.result.robots else None for one in results]
    assert decisions == [RobotsDecision.PARSE_RULES, RobotsDecision.HOP, RobotsDecision.DISALLOW_ALL]
    assert results[0].response is not None
    assert (results[1].result.outcome, results[1].result.redirect_target) == (
        Outcome.REDIRECT,
        "https://other.example/r",
    )
    assert (results[2].result.outcome, results[2].result.retry_after_ms) == (Outcome.RETRY, 9_000)


def test_idle_connections_are_bounded() -> None:
    """A crawl of many hosts must not keep a socket for each: beyond the bound a connection is closed at once."""

    async def act(web: HttpWeb, server: RawServer) -> None:
        for number in range(6):
            await web.fetch(lease(host=f"http://site{number}.example"))
        for number in (0, 5):
            await web.fetch(lease("/again", host=f"http://site{number}.example"))

    server = play([wire(PAGE) for _ in range(8)], act, idle_hosts_max=2)
    # The first two hosts' connections stayed open; that of the last host did not.
    assert [request.connection for request in server.log] == [0, 1, 2, 3, 4, 5, 0, 6]


def test_a_cancelled_fetch_gives_its_connection_up() -> None:
    """A lease that is aborted leaves no half-read answer behind for the next one."""

    async def act(web: HttpWeb, server: RawServer) -> None:
        task = asyncio.ensure_future(web.fetch(lease("/1")))
        while not server.log:
            await asyncio.wait([task], timeout=0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        fetched = await web.fetch(lease("/2"))
        assert fetched.result.outcome is Outcome.FETCHED

    server = play([wire({"behaviour": "read_timeout"}), wire(PAGE)], act)
    assert server.connections == 2


@pytest.mark.parametrize(
    ("names", "trusts", "until", "error"),
    [
        (["site.example"], True, certificates.UNTIL, ""),
        (["site.example"], False, certificates.UNTIL, "tls_error"),
        (["other.example"], True, certificates.UNTIL, "tls_error"),
        (["site.example"], True, datetime.datetime(2021, 1, 1, tzinfo=datetime.UTC), "tls_error"),
    ],
)
def test_a_certificate_is_verified(names: list[str], trusts: bool, until: datetime.datetime, error: str) -> None:
    """Name, chain and date of a certificate are looked at before anything is asked."""
    serving, trusting = certificates.contexts(names, until=until)

    async def main() -> tuple[Fetched, RawServer]:
        async with RawServer([wire(PAGE)], tls=serving) as server:
            web = HttpWeb(
                agent=AGENT,
                resolver=Names(server.port, "127.0.0.1"),
                now_ms=Clock(),
                allowed=LOOPBACK,
                tls=trusting if trusts else None,
            )
            fetched = await web.fetch(lease(host="https://site.example"))
            await web.close()
            return fetched, server

    fetched, server = uvloop.run(main())
    assert fetched.result.error == error
    assert len(server.log) == (0 if error else 1)


def test_names_are_looked_up_once_for_a_kept_connection() -> None:
    """A kept connection costs neither a look-up nor a new address check: it stands to the address that was checked."""

    async def main() -> tuple[int, int]:
        async with RawServer([wire(PAGE), wire(PAGE)]) as server:
            names = Names(server.port, "127.0.0.1")
            web = HttpWeb(agent=AGENT, resolver=names, now_ms=Clock(), allowed=LOOPBACK)
            await web.fetch(lease("/1"))
            names.addresses = ["10.0.0.1"]
            await web.fetch(lease("/2"))
            await web.close()
            return names.asked, server.connections

    assert uvloop.run(main()) == (1, 1)


def test_a_failed_look_up_is_a_value() -> None:
    """The resolver's own words reach the result, with nothing connected."""

    async def main() -> Fetched:
        names = Resolver(now_ms=Clock(), overrides={"site.example": ["10.1.2.3"]})
        web = HttpWeb(agent=AGENT, resolver=names, now_ms=Clock())
        fetched = await web.fetch(lease())
        await web.close()
        return fetched

    result = uvloop.run(main()).result
    assert (result.outcome, result.error, result.address) == (Outcome.REFUSED, "private_address", "10.1.2.3")
