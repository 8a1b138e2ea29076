"""Which addresses may be asked."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from streams.core.rules.addresses import literal_address, refusal
from streams.core.rules.urls import host_key, host_name, normalize


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.255.255", "loopback"),
        ("10.0.0.1", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("169.254.1.1", "link_local"),
        ("100.64.0.1", "shared"),
        ("100.127.255.255", "shared"),
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "reserved"),
        ("192.0.0.1", "reserved"),
        ("192.0.2.1", "reserved"),
        ("198.18.0.1", "reserved"),
        ("198.19.255.255", "reserved"),
        ("198.51.100.7", "reserved"),
        ("203.0.113.7", "reserved"),
        ("192.88.99.1", "reserved"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "broadcast"),
        ("169.254.169.254", "metadata_service"),
        ("100.100.100.200", "metadata_service"),
        ("192.0.0.192", "metadata_service"),
        ("168.63.129.16", "metadata_service"),
        ("fd00:ec2::254", "metadata_service"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("fc00::1", "private"),
        ("fdff::1", "private"),
        ("fe80::1", "link_local"),
        ("fe80::1%eth0", "link_local"),
        ("fec0::1", "private"),
        ("ff02::1", "multicast"),
        ("2001:db8::1", "reserved"),
        ("3fff::1", "reserved"),
        ("100::1", "reserved"),
        ("5f00::1", "reserved"),
        ("2001:2::1", "reserved"),
        ("2001:20::1", "reserved"),
        ("4000::1", "reserved"),
        ("64:ff9b:1::808:808", "private"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:169.254.169.254", "metadata_service"),
        ("::10.0.0.1", "private"),
        ("64:ff9b::a00:1", "private"),
        ("2002:7f00:1::1", "loopback"),
        ("2002:c0a8:101::", "private"),
        ("2001:0:a00:1::f7f7:f7f7", "private"),  # Teredo: server 10.0.0.1, client 8.8.8.8
        ("2001:0:808:808::80ff:fffe", "loopback"),  # Teredo: client 127.0.0.1, inverted
        ("not an address", "not_an_address"),
        ("", "not_an_address"),
        ("1.2.3", "not_an_address"),
    ],
)
def test_refused(address: str, reason: str) -> None:
    """No page can make the crawler ask a machine inside, in whatever form its address is written."""
    assert refusal(address) == reason


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "1.0.0.1",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.0.3.0",
        "192.167.255.255",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2606:4700::1111",
        "2001:4860:4860::8888",
        "2a00:1450:4001::1",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2002:808:808::1",
        "2001:0:808:808::f7f7:f7f7",
    ],
)
def test_public(address: str) -> None:
    """The public network up to the very edges of the special ranges may be asked."""
    assert refusal(address) is None


def test_allowed_networks() -> None:
    """A setting that allows a network allows it, in IPv6 dress too, and nothing beside it."""
    allowed = (ip_network("127.0.0.0/8"), ip_network("192.0.2.0/24"), ip_network("fd00:1::/32"))
    for address in ("127.0.0.1", "192.0.2.9", "fd00:1::5", "::ffff:127.0.0.1"):
        assert refusal(address, allowed) is None
    assert refusal("::1", allowed) == "loopback"
    assert refusal("10.0.0.1", allowed) == "private"
    assert refusal("192.0.3.0", ()) is None
    assert refusal("::ffff:10.0.0.1", allowed) == "private"


@pytest.mark.parametrize(
    ("url", "literal"),
    [
        ("http://127.0.0.1/", "127.0.0.1"),
        ("http://0x7f000001/", "127.0.0.1"),
        ("http://017700000001:8080/", "127.0.0.1"),
        ("http://127.1./", "127.0.0.1"),
        ("http://[::ffff:127.0.0.1]/", "::ffff:7f00:1"),
        ("http://[0::1]:81/", "::1"),
        ("http://example.com/", None),
        ("http://1.2.3.4.example.com/", None),
        ("http://a1/", None),
        ("http://./", None),
    ],
)
def test_literal_address(url: str, literal: str | None) -> None:
    """A host that is an address is known for one, however the link wrote it."""
    normal = normalize(url)
    assert normal is not None
    assert literal_address(host_name(host_key(normal))) == literal
