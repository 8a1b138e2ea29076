"""Which IP addresses a crawler may ask: the public ones, and those that a setting allows by name.

A URL is the world's word. Without this rule a page could make the crawler ask the machines beside it, its own host, or
the service that hands out a cloud machine's credentials. Every address is judged twice by the fetcher: when the name
is resolved and when the socket is about to connect, on every hop.

The tables are written out from the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890, 8190), since the
properties of Python's ipaddress module change from version to version. Whatever is in one of them is refused, also
the few anycast services that are globally reachable: none of them serves pages.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Network = IPv4Network | IPv6Network

# Longest prefix first where one lies in another: the first match names the reason.
_IPV4 = tuple(
    (IPv4Network(network), reason)
    for network, reason in (
        ("169.254.169.254/32", "metadata_service"),  # AWS, Azure, Google Cloud, OpenStack, ...
        ("169.254.170.2/32", "metadata_service"),  # AWS ECS credentials
        ("169.254.170.23/32", "metadata_service"),  # AWS EKS pod identity
        ("100.100.100.200/32", "metadata_service"),  # Alibaba Cloud
        ("192.0.0.192/32", "metadata_service"),  # Oracle Cloud
        (
            "168.63.129.16/32",
            "metadata_service",
        ),  # Azure's host agent: a public address, but only its machines reach it
        ("0.0.0.0/32", "unspecified"),
        ("0.0.0.0/8", "reserved"),  # RFC 791: this network; Linux connects 0.0.0.0 to itself
        ("10.0.0.0/8", "private"),  # RFC 1918
        ("100.64.0.0/10", "shared"),  # RFC 6598: carrier-grade NAT
        ("127.0.0.0/8", "loopback"),  # RFC 1122
        ("169.254.0.0/16", "link_local"),  # RFC 3927
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),  # RFC 6890: IETF protocol assignments
        ("192.0.2.0/24", "reserved"),  # RFC 5737: documentation
        ("192.31.196.0/24", "reserved"),  # RFC 7535: AS112
        ("192.52.193.0/24", "reserved"),  # RFC 7450: AMT
        ("192.88.99.0/24", "reserved"),  # RFC 7526: 6to4 relays, deprecated
        ("192.168.0.0/16", "private"),
        ("192.175.48.0/24", "reserved"),  # RFC 7534: AS112
        ("198.18.0.0/15", "reserved"),  # RFC 2544: benchmarks
        ("198.51.100.0/24", "reserved"),  # RFC 5737
        ("203.0.113.0/24", "reserved"),  # RFC 5737
        ("224.0.0.0/4", "multicast"),  # RFC 5771
        ("255.255.255.255/32", "broadcast"),  # RFC 8190
        ("240.0.0.0/4", "reserved"),  # RFC 1112
    )
)
_IPV6 = tuple(
    (IPv6Network(network), reason)
    for network, reason in (
        ("fd00:ec2::254/128", "metadata_service"),  # AWS
        ("fd00:ec2::23/128", "metadata_service"),  # AWS EKS pod identity
        ("fd20:ce::254/128", "metadata_service"),  # Google Cloud
        ("fd00:c1::a9fe:a9fe/128", "metadata_service"),  # Oracle Cloud
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("64:ff9b:1::/48", "private"),  # RFC 8215: a network's own translation
        ("fc00::/7", "private"),  # RFC 4193: unique local
        ("fe80::/10", "link_local"),
        ("fec0::/10", "private"),  # RFC 3879: site-local, deprecated
        ("ff00::/8", "multicast"),
        ("2001:db8::/32", "reserved"),  # RFC 3849: documentation
        ("2620:4f:8000::/48", "reserved"),  # RFC 7534: AS112
        ("3fff::/20", "reserved"),  # RFC 9637: documentation
    )
)
_IPV6_PROTOCOLS = IPv6Network("2001::/23")  # RFC 2928: IETF protocol assignments; Teredo is looked into first
_IPV6_UNICAST = IPv6Network("2000::/3")  # RFC 4291 2.4: the rest is not assigned to anybody

# Where an IPv6 address carries an IPv4 one: how many bits lie to the right of it.
_EMBEDDINGS = (
    (IPv6Network("::ffff:0:0/96"), 0),  # RFC 4291 2.5.5.2: mapped; the system connects to the IPv4 address
    (IPv6Network("::/96"), 0),  # RFC 4291 2.5.5.1: compatible, deprecated
    (IPv6Network("64:ff9b::/96"), 0),  # RFC 6052: NAT64
    (IPv6Network("2002::/16"), 80),  # RFC 3056: 6to4
)
_TEREDO = IPv6Network("2001::/32")  # RFC 4380: server in bits 64..95, client inverted in the last 32


@lru_cache(maxsize=16_384)
def refusal(address: str, allowed: tuple[Network, ...] = ()) -> str | None:
    """Why `address` must not be asked, as a short code; None when it may be.

    Codes: loopback, private, link_local, shared, multicast, broadcast, unspecified, reserved, metadata_service,
    not_an_address. An address within `allowed` may always be asked; so may an IPv6 form of such an IPv4 address.
    """
    try:
        parsed = ip_address(address.partition("%")[0])  # a zone names our interface, not another address
    except ValueError:
        return "not_an_address"
    return _refusal(parsed, allowed)


def literal_address(host: str) -> str | None:
    """The IP address that a normal form's host is, without brackets; None when the host is a name."""
    if host.startswith("["):
        return host[1:-1]
    # WHATWG URL "ends in a number checker": such a host is an IPv4 address, and the normal form writes it out.
    if not host[-1:].isdigit():
        return None
    try:
        return str(IPv4Address(host))
    except ValueError:
        return None


def _refusal(address: IPv4Address | IPv6Address, allowed: tuple[Network, ...]) -> str | None:
    if any(address.version == network.version and address in network for network in allowed):
        return None
    if isinstance(address, IPv4Address):
        return next((reason for network, reason in _IPV4 if address in network), None)
    reason = next((reason for network, reason in _IPV6 if address in network), None)
    if reason is not None:
        return reason
    embedded = _embedded(address)
    if embedded:
        return next((reason for inner in embedded if (reason := _refusal(inner, allowed))), None)
    if address in _IPV6_PROTOCOLS or address not in _IPV6_UNICAST:
        return "reserved"
    return None


def _embedded(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that packets to `address` reach, in the order in which they do."""
    bits = int(address)
    for network, shift in _EMBEDDINGS:
        if address in network:
            return (IPv4Address(bits >> shift & 0xFFFF_FFFF),)
    if address in _TEREDO:
        return IPv4Address(bits >> 64 & 0xFFFF_FFFF), IPv4Address(~bits & 0xFFFF_FFFF)
    return ()
