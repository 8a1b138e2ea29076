"""The fetcher against a server that misbehaves: one lease is one request, and whatever a site does is a value."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
from collections.abc import Iterator

import pytest
import uvloop

from connectors.ports import Fetched
from connectors.web_http import HttpWeb
from schemas.records import Kind, Outcome, RobotsDecision
from tests.support.exchanges import Wire, wire
from tests.support.fetching import AGENT, LOOPBACK, PAGE, QUICK, Clock, Names, lease, outcomes, play
from tests.support.raw_server import RawServer, reset


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
