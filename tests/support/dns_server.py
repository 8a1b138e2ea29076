"""A DNS server on loopback that answers from a table, or fails as it is told to. Knows A, AAAA and CNAME, no more."""

from __future__ import annotations

import asyncio
import ipaddress
import struct
from collections.abc import Callable, Mapping

import msgspec

RCODES = {"": 0, "formerr": 1, "servfail": 2, "nxdomain": 3, "refused": 5}
A, CNAME, AAAA = 1, 5, 28


class Zone(msgspec.Struct, frozen=True):
    """What the server says of one name. `failure` is a key of RCODES, or "timeout" for no answer at all."""

    addresses: tuple[str, ...] = ()
    ttl_s: int = 300
    failure: str = ""
    cname: str = ""  # answered first, with `cname_ttl_s`; the addresses are its
    cname_ttl_s: int = 300


Table = Mapping[str, Zone] | Callable[[str], Zone]


class DnsServer:
    """`server` is what the resolver is told; `log` holds (name, "A" or "AAAA") of each query."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._transport: asyncio.DatagramTransport | None = None
        self.log: list[tuple[str, str]] = []
        self.server = ""

    async def __aenter__(self) -> DnsServer:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: _Protocol(self), ("127.0.0.1", 0))
        self._transport = transport
        host, port = transport.get_extra_info("sockname")[:2]
        self.server = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._transport is not None
        self._transport.close()

    def answer(self, query: bytes) -> bytes | None:
        """The datagram to send back, None for silence."""
        name, kind, question_end = _question(query)
        self.log.append((name, {A: "A", AAAA: "AAAA"}.get(kind, str(kind))))
        zone = self._table(name) if callable(self._table) else self._table.get(name, Zone(failure="nxdomain"))
        if zone.failure == "timeout":
            return None
        records: list[bytes] = []
        if not zone.failure:
            if zone.cname:
                records.append(_record(CNAME, zone.cname_ttl_s, _name(zone.cname)))
            parsed = [ipaddress.ip_address(address) for address in zone.addresses]
            wanted = [address for address in parsed if address.version == (4 if kind == A else 6)]
            if kind in (A, AAAA):
                records += [_record(kind, zone.ttl_s, address.packed, name=zone.cname) for address in wanted]
        flags = 0x8180 | RCODES[zone.failure]
        header = query[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0)
        return header + query[12:question_end] + b"".join(records)


class _Protocol(asyncio.DatagramProtocol):
    def __init__(self, server: DnsServer) -> None:
        self._server = server
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        answer = self._server.answer(data)
        if answer is not None:
            self._transport.sendto(answer, addr)


def _question(query: bytes) -> tuple[str, int, int]:
    """Name, type and the end of the first question."""
    labels: list[str] = []
    at = 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("ascii").lower())
        at += 1 + query[at]
    return ".".join(labels), struct.unpack("!H", query[at + 1 : at + 3])[0], at + 5


def _name(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def _record(kind: int, ttl_s: int, data: bytes, name: str = "") -> bytes:
    owner = _name(name) if name else b"\xc0\x0c"  # a pointer to the question's name
    return owner + struct.pack("!HHIH", kind, 1, ttl_s, len(data)) + data
