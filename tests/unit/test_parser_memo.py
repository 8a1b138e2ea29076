"""A parser leaves out links that it named before, and never one that the owner may still need."""

from __future__ import annotations

import msgspec

from connectors.parser_worker import without_known_links
from schemas.records import Kind, Link, ParsedPage
from streams.core.memo import Memo


def _page(depth: int, *links: Link, follow: bool = True) -> ParsedPage:
    page = ParsedPage(
        url_id=b"u" * 16,
        host_key="http://a.test",
        url="http://a.test/",
        url_version=1,
        kind=Kind.PAGE,
        depth=depth,
        fetched_ms=0,
        extractor_version=1,
    )
    return msgspec.structs.replace(page, links=links, follow=follow)


X, Y = Link("http://a.test/x", "a"), Link("http://a.test/y", "a")


def test_a_link_that_was_named_is_left_out_and_counted() -> None:
    """Most links of real pages are such: they must not cost the owner a look each."""
    memo = Memo()
    assert without_known_links(_page(1, X), memo).links == (X,)
    second = without_known_links(_page(1, X, Y), memo)
    assert second.links == (Y,)
    assert second.links_omitted == 1


def test_a_link_nearer_to_a_seed_is_named_again() -> None:
    """What lies within a depth limit must not depend on the order of parsing."""
    memo = Memo()
    without_known_links(_page(3, X), memo)
    assert without_known_links(_page(1, X), memo).links == (X,)
    assert without_known_links(_page(2, X), memo).links == ()


def test_a_link_that_was_not_to_be_followed_is_not_remembered() -> None:
    """A nofollow link, or one of a page that says nofollow, was not admitted: a later free one must be."""
    memo = Memo()
    without_known_links(_page(1, msgspec.structs.replace(X, nofollow=True)), memo)
    without_known_links(_page(1, X, follow=False), memo)
    assert without_known_links(_page(1, X), memo).links == (X,)


def test_a_new_generation_begins_anew() -> None:
    """A scope that grew lets in what was refused before."""
    memo = Memo()
    without_known_links(_page(1, X), memo)
    generation = memo.generation
    memo.forget()
    assert memo.generation > generation
    assert without_known_links(_page(1, X), memo).links == (X,)
