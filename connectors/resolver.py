"""Names to addresses: several DNS servers in rotation, a cache by the records' TTL, one look-up at a time for a name.

| asked                          | answered by                                                                  |
|--------------------------------|------------------------------------------------------------------------------|
| a name with an override        | the override's addresses (`--resolve NAME=ADDR`)                             |
| a name in the cache            | the cache: an answer for its TTL, within bounds; an error for a short time   |
| a name that is being looked up | that look-up                                                                 |
| any other name                 | A and AAAA of one server, the next name another one; after a failure another |

Without servers the system's resolver configuration is used (through c-ares, /etc/hosts included).
Every address is checked here and again at connect. Refused ones are left out; when none is left, the name is refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import aiodns
import msgspec
import pycares
from aiodns.error import DNSError
from aiohttp.abc import AbstractResolver, ResolveResult

from streams.core import policy
from streams.core.rules.addresses import Network, refusal

_CODES = {
    aiodns.error.ARES_ENOTFOUND: "dns_nxdomain",
    aiodns.error.ARES_ENODATA: "dns_no_data",
    aiodns.error.ARES_ESERVFAIL: "dns_servfail",
    aiodns.error.ARES_ETIMEOUT: "dns_timeout",
    aiodns.error.ARES_EREFUSED: "dns_refused",
    aiodns.error.ARES_ECONNREFUSED: "dns_refused",
    aiodns.error.ARES_EBADNAME: "dns_nxdomain",
    aiodns.error.ARES_ENONAME: "dns_nxdomain",
}
_FINAL = frozenset({"dns_nxdomain", "dns_no_data"})  # an answer, not a failure to answer: no other server is asked


class ResolveFailed(OSError):
    """A name that has no address for us. `code` as in FetchResult.error; `address` is one that was refused."""

    def __init__(self, name: str, code: str, address: str = "") -> None:
        super().__init__(f"{name}: {code}")
        self.code = code
        self.address = address


class Found(msgspec.Struct, frozen=True):
    """What is known of a name: addresses, or an error code."""

    addresses: tuple[str, ...]
    error: str
    until_ms: int


class Resolver(AbstractResolver):
    """aiohttp's resolver interface; see the module's text. `now_ms` is the clock for the cache."""

    def __init__(
        self,
        *,
        now_ms: Callable[[], int],
        servers: Sequence[str] = (),
        overrides: Mapping[str, Sequence[str]] | None = None,
        allowed: tuple[Network, ...] = (),
        attempt_ms: int = policy.DNS_ATTEMPT_MS,
    ) -> None:
        """`servers` are `ADDR:PORT` or `ADDR`. Must be made while the event loop runs."""
        self._now_ms = now_ms
        self._allowed = allowed
        self._overrides = {name.lower().rstrip("."): tuple(found) for name, found in (overrides or {}).items()}
        self._clients: list[_Server | _System] = [_Server(server, attempt_ms / 1000) for server in servers]
        if not self._clients:
            self._clients.append(_System(attempt_ms / 1000))
        self._turn = 0
        self._found: OrderedDict[str, Found] = OrderedDict()
        self._looking: dict[str, asyncio.Task[Found]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """All addresses of a name that may be asked, IPv4 first. Raises ResolveFailed."""
        found = await self.addresses(host)
        if found.error:
            raise ResolveFailed(host, found.error)
        kept = [address for address in found.addresses if refusal(address, self._allowed) is None]
        if not kept:
            raise ResolveFailed(host, "private_address", found.addresses[0])
        return [_result(host, address, port) for address in kept if family in (socket.AF_UNSPEC, _family(address))]

    async def addresses(self, host: str) -> Found:
        """What is known of a name, looked up when need be; unchecked."""
        name = host.lower().rstrip(".")
        override = self._overrides.get(name)
        if override is not None:
            return Found(override, "", self._now_ms() + policy.DNS_TTL_MS_MAX)
        if name == "localhost" or name.endswith(".localhost"):  # RFC 6761 6.3: never asked of a server
            return Found(("127.0.0.1", "::1"), "", self._now_ms() + policy.DNS_TTL_MS_MAX)
        known = self._found.get(name)
        if known is not None and self._now_ms() < known.until_ms:
            self._found.move_to_end(name)
            return known
        task = self._looking.get(name)
        if task is None:
            # A task of its own: the lease that asked first may be cancelled, those that wait with it must not be.
            task = asyncio.create_task(self._look_up(name))
            self._looking[name] = task
            task.add_done_callback(lambda _: self._looking.pop(name, None))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Look-ups under way end; whoever waits for them is cancelled."""
        for task in list(self._looking.values()):
            task.cancel()
        for client in self._clients:
            await client.close()

    async def _look_up(self, name: str) -> Found:
        first = self._turn
        self._turn = (first + 1) % len(self._clients)
        error = "dns_error"
        for attempt in range(policy.DNS_ROUNDS_MAX * len(self._clients)):
            client = self._clients[(first + attempt) % len(self._clients)]
            addresses, error, ttl_ms = await client.ask(name)
            if addresses or error in _FINAL:
                break
        until_ms = self._now_ms() + (
            min(max(ttl_ms, policy.DNS_TTL_MS_MIN), policy.DNS_TTL_MS_MAX) if addresses else policy.DNS_NEGATIVE_MS
        )
        found = Found(addresses, "" if addresses else error, until_ms)
        self._found[name] = found
        self._found.move_to_end(name)
        while len(self._found) > policy.DNS_NAMES_MAX:
            self._found.popitem(last=False)
        return found


class _Server:
    """One DNS server."""

    def __init__(self, server: str, attempt_s: float) -> None:
        self._channel = aiodns.DNSResolver(nameservers=[server], timeout=attempt_s, tries=1)

    async def ask(self, name: str) -> tuple[tuple[str, ...], str, int]:
        """Addresses, an error code when there are none, and the least TTL in ms.

        One of the two families is enough: many name servers answer AAAA wrongly or not at all.
        """
        answers = await asyncio.gather(self._records(name, "A"), self._records(name, "AAAA"))
        addresses = tuple(address for found, _, _ in answers for address in found)
        if addresses:
            return addresses, "", min(ttl_ms for found, _, ttl_ms in answers if found)
        errors = [error for _, error, _ in answers]
        temporary = [error for error in errors if error not in _FINAL]
        return (), (temporary or errors)[0], 0

    async def close(self) -> None:
        """Queries under way fail."""
        await self._channel.close()

    async def _records(self, name: str, kind: str) -> tuple[list[str], str, int]:
        try:
            result = await self._channel.query_dns(name, kind)
        except DNSError as error:
            return [], _CODES.get(error.args[0], "dns_error"), 0
        found: list[str] = []
        ttl_s = policy.DNS_TTL_MS_MAX // 1000
        for record in result.answer:
            ttl_s = min(ttl_s, record.ttl)  # a CNAME on the way bounds it too
            if isinstance(record.data, pycares.ARecordData | pycares.AAAARecordData):
                found.append(str(ipaddress.ip_address(record.data.addr)))
        return found, "" if found else "dns_no_data", ttl_s * 1000


class _System:
    """The system's own configuration: its servers and search rules, and /etc/hosts."""

    def __init__(self, attempt_s: float) -> None:
        self._channel = aiodns.DNSResolver(timeout=attempt_s, tries=2)

    async def ask(self, name: str) -> tuple[tuple[str, ...], str, int]:
        """As `_Server.ask`."""
        try:
            result = await self._channel.getaddrinfo(name, socket.AF_UNSPEC, type=socket.SOCK_STREAM)
        except DNSError as error:
            return (), _CODES.get(error.args[0], "dns_error"), 0
        nodes = sorted(result.nodes, key=lambda node: node.family != socket.AF_INET)
        addresses = tuple(dict.fromkeys(node.addr[0].decode() for node in nodes))
        if not addresses:
            return (), "dns_no_data", 0
        return addresses, "", min(node.ttl for node in nodes) * 1000

    async def close(self) -> None:
        """Queries under way fail."""
        await self._channel.close()


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _result(host: str, address: str, port: int) -> ResolveResult:
    return ResolveResult(
        hostname=host, host=address, port=port, family=_family(address), proto=0, flags=socket.AI_NUMERICHOST
    )
