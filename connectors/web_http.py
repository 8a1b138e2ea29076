"""The web, over HTTP/1.1: one lease, one request, one answer.

The life of a lease here: wait for `not_before_ms`; drop it past `start_by_ms`; drop it when it permits one address and
the host has another; lend a connection (open to this host, or a new one whose address is checked at look-up and at
connect); look at `start_by_ms` again; write the request, once; read the answer under limits; say what came of it. No
redirect is followed, no cookie kept, nothing asked twice.

A host never has more connections than leases in hand, and never more open than it had leases at once. In a fleet that
holds over all fetchers: what is open to a host whose leases go to another from now on is closed (`keep_only`).
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Callable

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver

from connectors.http_connection import AddressRefused, Connector, Origin
from connectors.ports import Fetched, Response
from connectors.receiving import Receiving
from connectors.resolver import ResolveFailed
from schemas.records import FetchLease, FetchResult, Kind, Outcome
from streams.core import fetch, policy, robots_fetch
from streams.core.answer import AnswerReader
from streams.core.fetch import Agent, Exchange, RequestPlan
from streams.core.policy import FetchLimits
from streams.core.rules.addresses import Network, literal_address, refusal
from streams.core.starting import UNOWNED

_ERRNO_CODES = {
    errno.ECONNREFUSED: "connect_refused",
    errno.ECONNRESET: "connection_reset",
    errno.EPIPE: "connection_reset",
    errno.ETIMEDOUT: "connect_timeout",
    errno.ENETUNREACH: "connect_unreachable",
    errno.EHOSTUNREACH: "connect_unreachable",
}


class HttpWeb:
    """The `Web` port. Made while the event loop runs; `now_ms` is the clock that leases are measured with."""

    def __init__(
        self,
        *,
        agent: Agent,
        resolver: AbstractResolver,
        now_ms: Callable[[], int],
        limits: FetchLimits | None = None,
        allowed: tuple[Network, ...] = (),
        verify_tls: bool = True,
        tls: ssl.SSLContext | None = None,
        connections_max: int = policy.CONNECTIONS_MAX,
        idle_hosts_max: int = policy.IDLE_HOSTS_MAX,
        keepalive_ms: int = policy.KEEPALIVE_MS,
        may_start: Callable[[], bool] = lambda: True,
        receiving: Receiving | None = None,
    ) -> None:
        """`allowed` networks may be asked though they are not public. The resolver is closed with this.

        `tls` in place of the system's trust; `verify_tls` False takes any certificate. `may_start` is asked when a
        request is about to be written: False, nothing is, and the lease is `UNOWNED`. `receiving`: the limit of all
        bodies that are received at once, in place of the policy's.
        """
        self._agent = agent
        self._resolver = resolver
        self._now_ms = now_ms
        self._limits = limits if limits is not None else FetchLimits()
        self._allowed = allowed
        self._may_start = may_start
        self._ours: Callable[[str], bool] = lambda host_key: True
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(connections_max)
        self._connector = Connector(
            resolver=resolver,
            allowed=allowed,
            tls=lambda: tls if tls is not None else _tls_context(verify_tls),
            idle_hosts_max=idle_hosts_max,
            keepalive_s=keepalive_ms / 1000,
            receiving=Receiving() if receiving is None else receiving,
        )

    async def fetch(self, lease: FetchLease) -> Fetched:
        """Send the one request of a lease, or none: past `start_by_ms`, or to an address that must not be asked."""
        now_ms = self._now_ms()
        while now_ms < lease.not_before_ms:
            await asyncio.sleep((lease.not_before_ms - now_ms) / 1000)
            now_ms = self._now_ms()
        async with self._slots:
            return await self._start(lease)

    def keep_only(self, ours: Callable[[str], bool]) -> None:
        """Close what is open to hosts that are not `ours`, by host_key: at once, or when its request has ended.

        `ours` is asked from now on. To be called again whenever a host is no longer.
        """
        self._ours = ours
        self._connector.close_idle(ours)

    async def close(self) -> None:
        """Close every connection, then the resolver."""
        await self._connector.close()
        await self._resolver.close()

    async def _start(self, lease: FetchLease) -> Fetched:
        now_ms = self._now_ms()
        if now_ms > lease.start_by_ms:
            return Fetched(fetch.expired(lease, now_ms=now_ms))
        plan = fetch.plan(lease, self._agent, now_ms=now_ms)
        literal = literal_address(f"[{plan.host}]" if ":" in plan.host else plan.host)
        if literal is not None and refusal(literal, self._allowed) is not None:
            return self._without_answer(lease, plan, now_ms, "private_address", literal)
        return await self._exchange(lease, plan, now_ms)

    async def _exchange(self, lease: FetchLease, plan: RequestPlan, started_ms: int) -> Fetched:
        limits = self._limits
        duration_s = min(lease.duration_ms_max, limits.duration_ms_max) / 1000
        deadline_s = self._loop.time() + duration_s
        connect_s = min(limits.connect_ms_max / 1000, duration_s)
        try:
            if lease.permitted_address is not None:
                async with asyncio.timeout(connect_s):
                    there = await self._address_of(plan, lease.permitted_address)
                if there != lease.permitted_address:
                    return Fetched(fetch.address_changed(lease, there, now_ms=self._now_ms()))
            origin = Origin(plan.scheme, plan.host, plan.port, lease.permitted_address)
            lent, connection = await self._connector.lend(origin, within_s=connect_s)
            connection.host_key = lease.host_key
        except TimeoutError:
            return self._without_answer(lease, plan, started_ms, "connect_timeout", "")
        except (aiohttp.ClientError, OSError) as error:
            code, address = _connect_failure(error)
            return self._without_answer(lease, plan, started_ms, code, address)
        kept = False
        answer = AnswerReader(lease.kind, limits)
        try:
            now_ms = self._now_ms()
            if now_ms > lease.start_by_ms:
                kept = True
                return Fetched(fetch.expired(lease, now_ms=now_ms))
            if not self._may_start():
                kept = True
                return Fetched(msgspec.structs.replace(fetch.expired(lease, now_ms=now_ms), error=UNOWNED))
            address = connection.address
            await connection.ask(plan.request, answer, idle_s=limits.idle_ms_max / 1000, deadline_s=deadline_s)
            kept = answer.reusable
        finally:
            if kept and self._ours(lease.host_key):
                self._connector.give_back(lent)
            else:
                lent.close()
        return self._result(lease, plan, answer, address, started_ms)

    async def _address_of(self, plan: RequestPlan, permitted: str) -> str:
        """The permitted address where the host has it, else the first that it has. Raises ResolveFailed."""
        literal = literal_address(f"[{plan.host}]" if ":" in plan.host else plan.host)
        if literal is not None:
            return literal
        found = [one["host"] for one in await self._resolver.resolve(plan.host, plan.port)]
        return permitted if permitted in found else found[0]

    def _without_answer(
        self, lease: FetchLease, plan: RequestPlan, started_ms: int, code: str, address: str
    ) -> Fetched:
        """No request was sent."""
        exchange = Exchange(started_ms, self._now_ms(), failure=code, address=address)
        return Fetched(self._with_robots(lease, exchange, fetch.outcome(lease, exchange, conditional=plan.conditional)))

    def _result(
        self, lease: FetchLease, plan: RequestPlan, answer: AnswerReader, address: str, started_ms: int
    ) -> Fetched:
        exchange = Exchange(
            started_ms,
            self._now_ms(),
            failure=answer.failure,
            address=address,
            head=answer.head,
            body=b"" if answer.failure else answer.take_body(),
            wire_bytes=answer.wire_bytes,
            truncated=answer.truncated,
        )
        result = self._with_robots(lease, exchange, fetch.outcome(lease, exchange, conditional=plan.conditional))
        head = exchange.head
        if result.outcome is not Outcome.FETCHED or head is None:
            return Fetched(result)
        return Fetched(
            result,
            Response(
                url=lease.url,
                address=address,
                status=head.status,
                reason=head.reason,
                http_version=head.version,
                headers=head.headers,
                body=exchange.body,
                content_codings=answer.content_codings,
                fetched_ms=exchange.finished_ms,
                truncated=exchange.truncated,
            ),
        )

    def _with_robots(self, lease: FetchLease, exchange: Exchange, result: FetchResult) -> FetchResult:
        if lease.kind is not Kind.ROBOTS:
            return result
        answer, target = robots_fetch.decide(
            exchange.head.status if exchange.head is not None else 0,
            exchange.failure,
            exchange.head.headers if exchange.head is not None else (),
            exchange.body,
            request_url=lease.url,
            hops_so_far=lease.redirect_hops,
            product_token=self._agent.product_token,
            truncated=exchange.truncated,
        )
        return fetch.with_robots(result, answer, target)


def _tls_context(verify: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _connect_failure(error: Exception) -> tuple[str, str]:
    """The code for FetchResult.error, and the address that was refused if one was."""
    if isinstance(error, aiohttp.ClientSSLError):
        return "tls_error", ""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    match cause:
        case ResolveFailed():
            return cause.code, cause.address
        case AddressRefused():
            return "private_address", cause.address
        case ssl.SSLError():
            return "tls_error", ""
        case OSError():
            return _ERRNO_CODES.get(cause.errno or 0, "connect_error"), ""
        case _:
            return "connect_error", ""
