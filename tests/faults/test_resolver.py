"""The resolver against DNS servers that fail, lie, or say nothing. All of them are ours, on loopback."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from connectors.resolver import ResolveFailed, Resolver
from streams.core.policy import DNS_NEGATIVE_MS, DNS_TTL_MS_MAX, DNS_TTL_MS_MIN
from tests.support.dns_server import DnsServer, Zone

PUBLIC = "93.184.216.34"
OTHER = "93.184.216.35"
PUBLIC_6 = "2606:2800:220:1::1"
START_MS = 1_717_243_200_000


class Clock:
    """Stands still unless a test moves it."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


async def found(resolver: Resolver, name: str = "site.example") -> list[str]:
    """The addresses that aiohttp would be given, or one entry with the error's code."""
    try:
        return [one["host"] for one in await resolver.resolve(name, 80)]
    except ResolveFailed as failed:
        return [failed.code]


def with_servers(
    act: Callable[[Resolver, Clock, list[DnsServer]], Awaitable[None]],
    *zones: dict[str, Zone],
    overrides: dict[str, list[str]] | None = None,
    allow: str = "198.18.0.0/15",
) -> None:
    """Run `act` with a resolver that asks one server for each table."""

    async def main() -> None:
        clock = Clock()
        servers = [DnsServer(zone) for zone in zones]
        for server in servers:
            await server.__aenter__()
        resolver = Resolver(
            now_ms=clock,
            servers=[server.server for server in servers],
            overrides=overrides,
            allowed=(ipaddress.ip_network(allow),),
            attempt_ms=100,
        )
        try:
            await act(resolver, clock, servers)
        finally:
            await resolver.close()
            for server in servers:
                await server.__aexit__()

    uvloop.run(main())


def test_both_families_are_asked_and_ipv4_comes_first() -> None:
    """A site is reachable by any of its addresses."""

    async def act(resolver: Resolver, _: Clock, servers: list[DnsServer]) -> None:
        assert await found(resolver) == [PUBLIC, OTHER, PUBLIC_6]
        assert sorted(servers[0].log) == [("site.example", "A"), ("site.example", "AAAA")]

    with_servers(act, {"site.example": Zone((PUBLIC_6, PUBLIC, OTHER))})


@pytest.mark.parametrize(
    ("ttl_s", "serves_ms"), [(0, DNS_TTL_MS_MIN), (1, DNS_TTL_MS_MIN), (300, 300_000), (10_000_000, DNS_TTL_MS_MAX)]
)
def test_an_answer_serves_for_its_ttl_within_bounds(ttl_s: int, serves_ms: int) -> None:
    """A TTL of seconds must not cost a look-up a page, one of months must not outlive a move."""

    async def act(resolver: Resolver, _: Clock, servers: list[DnsServer]) -> None:
        assert (await resolver.addresses("site.example")).until_ms == START_MS + serves_ms

    with_servers(act, {"site.example": Zone((PUBLIC,), ttl_s)})


def test_a_cached_answer_is_used_until_its_end_and_no_longer() -> None:
    """One look-up serves a host's pages, in whatever case its name is written; then the servers are asked again.

    The TTL is 0, since c-ares has a cache of its own that goes by the real time.
    """

    async def act(resolver: Resolver, clock: Clock, servers: list[DnsServer]) -> None:
        await found(resolver)
        clock.now_ms += DNS_TTL_MS_MIN - 1
        assert await found(resolver, "SITE.example.") == [PUBLIC]
        assert servers[0].log.count(("site.example", "A")) == 1
        clock.now_ms += 1
        assert await found(resolver) == [PUBLIC]
        assert servers[0].log.count(("site.example", "A")) == 2

    with_servers(act, {"site.example": Zone((PUBLIC,), 0)})


def test_an_alias_bounds_the_ttl_too() -> None:
    """Content networks move a site by its CNAME: the shorter of the two TTLs counts."""

    async def act(resolver: Resolver, _: Clock, servers: list[DnsServer]) -> None:
        known = await resolver.addresses("site.example")
        assert (known.addresses, known.until_ms) == ((PUBLIC,), START_MS + 120_000)

    with_servers(act, {"site.example": Zone((PUBLIC,), 3_600, cname="cdn.example", cname_ttl_s=120)})


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        ("servfail", "dns_servfail"),
        ("nxdomain", "dns_nxdomain"),
        ("refused", "dns_refused"),
        ("timeout", "dns_timeout"),
        ("", "dns_no_data"),
    ],
)
def test_failures_are_codes_and_rest_a_while(failure: str, code: str) -> None:
    """A name that fails is not asked for again at once, and is asked again later."""

    async def act(resolver: Resolver, clock: Clock, servers: list[DnsServer]) -> None:
        assert await found(resolver) == [code]
        asked = len(servers[0].log)
        clock.now_ms += DNS_NEGATIVE_MS - 1
        assert await found(resolver) == [code]
        assert len(servers[0].log) == asked
        clock.now_ms += 1
        assert await found(resolver) == [code]
        # c-ares keeps an empty answer for a while itself; a failure is asked for again.
        assert len(servers[0].log) > asked or code == "dns_no_data"

    with_servers(act, {"site.example": Zone(failure=failure)})


@pytest.mark.parametrize("failure", ["servfail", "refused", "timeout"])
def test_another_server_is_asked_when_one_fails(failure: str) -> None:
    """One dead DNS server must not make half of the web unreachable."""

    async def act(resolver: Resolver, _: Clock, servers: list[DnsServer]) -> None:
        assert await found(resolver) == [PUBLIC]
        assert await found(resolver, "b.example") == [OTHER]

    dead = Zone(failure=failure)
    good = {"site.example": Zone((PUBLIC,)), "b.example": Zone((OTHER,))}
    with_servers(act, {"site.example": dead, "b.example": dead}, good)


def test_a_name_that_does_not_exist_is_asked_of_one_server() -> None:
    """NXDOMAIN is an answer: asking all servers would multiply the load of dead links."""

    async def act(resolver: Resolver, _: Clock, servers: list[DnsServer]) -> None:
        assert await found(resolver) == ["dns_nxdomain"]
        assert sum(len(server.log) for server in servers) == 2

    with_servers(act, {}, {})


def test_servers_take_turns() -> None:
    """The load of many names is spread over all servers."""

    async def act(resolver: Resolver, _: Clock, servers: list[DnsServer]) -> None:
        for number in range(4):
            assert await found(resolver, f"n{number}.example") == [PUBLIC]
        assert [len(server.log) for server in servers] == [4, 4]

    zones = {f"n{number}.example": Zone((PUBLIC,)) for number in range(4)}
    with_servers(act, zones, zones)


def test_one_name_is_looked_up_once_at_a_time() -> None:
    """A host's leases that start together share one look-up, also when the first of them is cancelled."""

    async def act(resolver: Resolver, _: Clock, servers: list[DnsServer]) -> None:
        first = asyncio.ensure_future(found(resolver))
        others = [asyncio.ensure_future(found(resolver)) for _ in range(5)]
        await asyncio.wait([first], timeout=0)
        first.cancel()
        assert await asyncio.gather(*others) == [[PUBLIC]] * 5
        assert len(servers[0].log) == 2

    with_servers(act, {"site.example": Zone((PUBLIC,))})


@pytest.mark.parametrize(
    ("addresses", "kept"),
    [
        (("10.0.0.1", PUBLIC), [PUBLIC]),
        (("10.0.0.1", "127.0.0.1"), ["private_address"]),
        (("169.254.169.254",), ["private_address"]),
        (("198.18.5.5", "10.0.0.1"), ["198.18.5.5"]),
        (("fd00::1", "::1"), ["private_address"]),
    ],
)
def test_addresses_that_must_not_be_asked_are_left_out(addresses: tuple[str, ...], kept: list[str]) -> None:
    """A name can never lead into a private network, unless a setting allows that network."""

    async def act(resolver: Resolver, _: Clock, servers: list[DnsServer]) -> None:
        assert await found(resolver) == kept

    with_servers(act, {"site.example": Zone(addresses)})


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST.", "a.localhost"])
def test_localhost_is_loopback_without_asking(name: str) -> None:
    """RFC 6761 6.3: no DNS server may say where localhost is; and loopback is refused."""

    async def act(resolver: Resolver, _: Clock, servers: list[DnsServer]) -> None:
        assert await found(resolver, name) == ["private_address"]
        assert servers[0].log == []

    with_servers(act, {"localhost": Zone((PUBLIC,))})


def test_an_override_stands_before_dns_and_is_checked_all_the_same() -> None:
    """`--resolve` names the address, but only `--allow-address` opens a private network."""

    async def act(resolver: Resolver, _: Clock, servers: list[DnsServer]) -> None:
        assert await found(resolver, "Site.Example") == [OTHER, "198.18.0.1"]
        assert await found(resolver, "inside.example") == ["private_address"]
        assert servers[0].log == []

    overrides = {"site.example": [OTHER, "198.18.0.1"], "inside.example": ["10.0.0.1"]}
    with_servers(act, {"site.example": Zone((PUBLIC,))}, overrides=overrides)


def test_a_name_that_dns_cannot_say_is_no_exception() -> None:
    """Links hold any name; one that no DNS message can carry does not exist."""

    async def act(resolver: Resolver, _: Clock, servers: list[DnsServer]) -> None:
        for name in ("a" * 64 + ".example", "a..example", ".".join(["label"] * 60)):
            assert (await found(resolver, name))[0].startswith("dns_")

    with_servers(act, {})


def test_without_servers_the_system_is_asked() -> None:
    """No --dns-server: the system's configuration is used. A name under .invalid never exists (RFC 6761 6.4)."""

    async def main() -> list[str]:
        resolver = Resolver(now_ms=Clock(), attempt_ms=50)
        got = await found(resolver, "headrace-test.invalid")
        await resolver.close()
        return got

    assert uvloop.run(main())[0].startswith("dns_")
