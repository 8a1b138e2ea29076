"""A lease that permits one address: no other is asked, and none at all while it is not known where the host is."""

from __future__ import annotations

import msgspec
import pytest
import uvloop

from connectors.ports import Fetched
from connectors.web_http import HttpWeb
from schemas.records import Kind, Outcome
from tests.support.exchanges import wire
from tests.support.fetching import AGENT, LOOPBACK, PAGE, Clock, Names, lease
from tests.support.raw_server import RawServer


def fetch(permitted: str | None, *addresses: str, kind: Kind = Kind.PAGE, times: int = 1) -> tuple[Fetched, RawServer]:
    """The last result of so many leases for a name that has these addresses; the server listens at all of them."""

    async def main() -> tuple[Fetched, RawServer]:
        async with RawServer([wire(PAGE) for _ in range(times)], sorted(set(addresses))) as server:
            web = HttpWeb(agent=AGENT, resolver=Names(server.port, *addresses), now_ms=Clock(), allowed=LOOPBACK)
            for _ in range(times):
                one = msgspec.structs.replace(
                    lease(kind=kind, host=f"http://site.example:{server.port}"), permitted_address=permitted
                )
                fetched = await web.fetch(one)
            await web.close()
            return fetched, server

    return uvloop.run(main())


def test_the_permitted_address_is_the_one_that_is_asked() -> None:
    """Of several addresses of a host only the one whose group gave leave may see a request."""
    fetched, server = fetch("127.0.0.2", "127.0.0.1", "127.0.0.2")
    assert (fetched.result.outcome, fetched.result.address) == (Outcome.FETCHED, "127.0.0.2")
    assert len(server.log) == 1


@pytest.mark.parametrize("kind", [Kind.PAGE, Kind.ROBOTS])
@pytest.mark.parametrize("permitted", ["127.0.0.9", ""])
def test_outside_the_permitted_group_nothing_is_asked(permitted: str, kind: Kind) -> None:
    """A host that moved, or whose address is not known yet, is not asked: the result says where it is."""
    fetched, server = fetch(permitted, "127.0.0.1", kind=kind)
    result = fetched.result
    assert (result.outcome, result.error, result.address) == (Outcome.EXPIRED, "address_changed", "127.0.0.1")
    assert result.robots is None
    assert (server.connections, server.log) == (0, [])


def test_a_permitted_address_keeps_its_connection() -> None:
    """A limit on the address must not cost a TCP connection and a TLS handshake for each request."""
    _, server = fetch("127.0.0.1", "127.0.0.1", times=3)
    assert (server.connections, len(server.log)) == (1, 3)
