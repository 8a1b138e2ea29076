"""A page in parts is the page: nothing lost, nothing twice, each part within a message, whatever the page names."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import BadRecord, decode, encode
from schemas.records import HeadLink, Kind, Link, ParsedPage, SitemapEntry
from streams.core.parts import encodable, parts_of

HOST = "https://a.test"
BYTES_MAX = 4_000
words = st.text(st.characters(codec="utf-8"), max_size=40)
urls = words.map(lambda word: f"{HOST}/{word}")
pages = st.builds(
    ParsedPage,
    url_id=st.just(bytes(16)),
    host_key=st.just(HOST),
    url=st.just(HOST + "/"),
    url_version=st.just(3),
    kind=st.sampled_from(list(Kind)),
    depth=st.just(1),
    fetched_ms=st.just(5),
    extractor_version=st.just(1),
    title=words,
    canonical=st.none() | urls,
    links=st.lists(st.builds(Link, urls, st.just("a"), st.lists(words, max_size=3).map(tuple)), max_size=80).map(tuple),
    entries=st.lists(st.builds(SitemapEntry, urls, st.none() | st.just(1 << 62)), max_size=40).map(tuple),
    head_links=st.lists(st.builds(HeadLink, urls, st.just(("next",)), words), max_size=20).map(tuple),
    feeds=st.lists(urls, max_size=9).map(tuple),
    resources=st.lists(urls, max_size=9).map(tuple),
)
LISTS = ("links", "entries", "head_links", "feeds", "resources")


@given(pages)
def test_parts_are_the_page(page: ParsedPage) -> None:
    """Protects links from being lost between two messages, and messages from being refused for their length."""
    parts = parts_of(page, BYTES_MAX)
    assert all(len(encode(part)) <= BYTES_MAX for part in parts)
    assert [(part.part, part.parts) for part in parts] == [(at, len(parts)) for at in range(len(parts))]
    for name in LISTS:
        together = tuple(one for part in parts for one in getattr(part, name))
        assert together == getattr(page, name)
    bare = {**dict.fromkeys(LISTS, ()), "part": 0, "parts": 1}
    assert all(msgspec.structs.replace(part, **bare) == msgspec.structs.replace(page, **bare) for part in parts)


def _page(**more: object) -> ParsedPage:
    return ParsedPage(bytes(16), HOST, HOST + "/", 3, Kind.PAGE, 1, 5, 1, **more)  # type: ignore[arg-type]


def test_a_page_that_fits_stays_whole() -> None:
    """Protects the usual page from being taken apart for nothing."""
    page = _page(links=tuple(Link(f"{HOST}/{n}", "a") for n in range(20)))
    assert parts_of(page, BYTES_MAX) == [page]


@pytest.mark.parametrize(
    "item",
    [{"links": (Link(HOST + "/x", "a", ("w" * 9_000,)),)}, {"head_links": (HeadLink(HOST + "/x", ("v",) * 9_000),)}],
)
def test_what_no_message_holds_loses_what_makes_it_long(item: dict[str, object]) -> None:
    """Protects a link's address from the megabyte that a page has put beside it."""
    (part,) = parts_of(_page(**item), BYTES_MAX)[-1:]
    (name,) = item
    assert [one.url for one in getattr(part, name)] == [HOST + "/x"]
    assert len(encode(part)) <= BYTES_MAX


def test_lone_surrogates_become_question_marks() -> None:
    """Protects a page from being lost for half a character in its title or in a `rel`."""
    page = _page(
        title="a\ud800",
        language="\udfff",
        links=(Link(HOST + "/x", "a", ("\ud800",)),),
        head_links=(HeadLink(HOST + "/y", ("next",), "\ud800"),),
    )
    with pytest.raises(BadRecord):
        encode(page)
    (read,) = decode(encode(encodable(page)), ParsedPage)
    assert (read.title, read.links[0].rel, read.head_links[0].hreflang) == ("a?", ("?",), "?")
