"""What an owner is told of a page that was parsed elsewhere."""

from __future__ import annotations

import msgspec
import pytest

from schemas.codec import decode, encode
from schemas.records import HeadLink, Kind, Link, OwnerMessage, OwnerMessageKind, ParsedPage, SitemapEntry
from streams.core.tasks import parsed_message

HOST = "https://a.test"
PAGE = ParsedPage(
    bytes(16),
    HOST,
    HOST + "/",
    3,
    Kind.PAGE,
    1,
    5,
    1,
    links=tuple(Link(f"{HOST}/{n}", "a") for n in range(2_000)),
    entries=(SitemapEntry(HOST + "/s"),),
    simhash=(1 << 64) - 1,
    title="t",
    head_links=(HeadLink(HOST + "/n", ("next",)),),
    feeds=(HOST + "/feed",),
    resources=(HOST + "/i.png",),
    links_omitted=9,
)


def test_a_message_has_what_was_found_out_and_the_number_of_links_alone() -> None:
    """Protects owner-messages from pages of a megabyte, and the row from forgetting how many links a page has."""
    message = parsed_message(PAGE)
    assert (message.to_key, message.kind) == (HOST, OwnerMessageKind.PARSED)
    assert message.page == msgspec.structs.replace(
        PAGE, links=(), entries=(), head_links=(), feeds=(), resources=(), links_omitted=2_010
    )
    written = encode(message)
    assert len(written) < 200
    assert decode(written, OwnerMessage) == (message,)


def test_a_part_of_a_page_is_not_told() -> None:
    """Protects the owner from half of a page's links taken for all of them."""
    with pytest.raises(AssertionError, match="part 0 of 2"):
        parsed_message(msgspec.structs.replace(PAGE, parts=2))
