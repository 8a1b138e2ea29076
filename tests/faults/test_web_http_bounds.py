"""The fetcher's bounds: connections, time, what an answer may cost, certificates and names."""

from __future__ import annotations

import asyncio
import datetime
import socket

import pytest
import uvloop
from aiohttp.abc import ResolveResult

from connectors.ports import Fetched
from connectors.resolver import Resolver
from connectors.web_http import HttpWeb
from schemas.records import FetchLease, Kind, Outcome, RobotsDecision
from tests.support import certificates
from tests.support.exchanges import wire
from tests.support.fetching import AGENT, LOOPBACK, NOW_MS, PAGE, QUICK, Clock, Names, lease, outcomes, play
from tests.support.raw_server import RawServer


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


def test_connections_to_hosts_that_are_anothers_are_closed() -> None:
    """One connection a host over all fetchers: an idle one is closed when the host is given up, one in use as soon as
    its answer has come, and neither is there to be used again when the host comes back."""
    mine, others = "http://mine.example", "http://others.example"

    async def act(web: HttpWeb, server: RawServer) -> None:
        for host in (mine, others):
            await web.fetch(lease("/1", host=host))
        web.keep_only(lambda host_key: host_key == mine)
        await _sees(server, 1)
        await web.fetch(lease("/in-hand", host=others))
        await _sees(server, 1)
        web.keep_only(lambda host_key: True)
        for host in (mine, others):
            await web.fetch(lease("/2", host=host))

    server = play([wire(PAGE) for _ in range(5)], act)
    assert [request.connection for request in server.log] == [0, 1, 2, 0, 3]


async def _sees(server: RawServer, connections: int) -> None:
    """The server hears of a close a moment later."""
    async with asyncio.timeout(10):
        while len(server.transports) != connections:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)


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
