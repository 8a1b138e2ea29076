"""A parsed page as messages: whole nearly always, in parts when it names more than one message can hold.

A part has all facts of the page, and its share of the lists; each list keeps its order from part to part. What a single
message cannot hold at all (a link whose `rel` is a megabyte) loses what makes it so long, and no page is lost for it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from schemas.records import HeadLink, Link, ParsedPage, SitemapEntry

__all__ = ["encodable", "parts_of"]

_ITEM_BYTES = 24  # lengths, flags and block counts of one item in Avro, more than there ever are
_ATTRIBUTE_CHARS_MAX = 1_000  # of `rel`, `hreflang`, `media` and `type` in a message

_Item = Link | SitemapEntry | HeadLink | tuple[str, str]


def parts_of(page: ParsedPage, bytes_max: int) -> list[ParsedPage]:
    """The page in as few parts as hold it, each of `bytes_max` at most when encoded; their `part` and `parts` say
    which. One part is the page itself. Facts alone must have room: `bytes_max` is some hundred kilobytes."""
    if _bytes_of(page) <= bytes_max:
        return [page]
    bare = msgspec.structs.replace(page, links=(), entries=(), head_links=(), feeds=(), resources=())
    shares = list(_shares(page, bytes_max - _facts_bytes(bare)))
    return [
        msgspec.structs.replace(
            bare,
            links=tuple(one for one in share if isinstance(one, Link)),
            entries=tuple(one for one in share if isinstance(one, SitemapEntry)),
            head_links=tuple(one for one in share if isinstance(one, HeadLink)),
            feeds=tuple(one[1] for one in share if isinstance(one, tuple) and one[0] == "feed"),
            resources=tuple(one[1] for one in share if isinstance(one, tuple) and one[0] == "resource"),
            part=part,
            parts=len(shares),
        )
        for part, share in enumerate(shares)
    ]


def encodable(page: ParsedPage) -> ParsedPage:
    """The page with "?" for lone surrogates, which have no UTF-8. URLs in normal form have none."""
    return msgspec.structs.replace(
        page,
        title=_clean(page.title),
        language=_clean(page.language),
        charset=_clean(page.charset),
        error=_clean(page.error),
        links=tuple(msgspec.structs.replace(one, rel=tuple(map(_clean, one.rel))) for one in page.links),
        head_links=tuple(
            msgspec.structs.replace(
                one,
                rel=tuple(map(_clean, one.rel)),
                hreflang=_clean(one.hreflang),
                media=_clean(one.media),
                type=_clean(one.type),
            )
            for one in page.head_links
        ),
    )


def _shares(page: ParsedPage, bytes_max: int) -> Iterator[list[_Item]]:
    share: list[_Item] = []
    room = bytes_max
    for item in _items(page):
        cost = _cost(item)
        if cost > bytes_max:
            item = _shortened(item)
            cost = _cost(item)
        assert cost <= bytes_max, f"{page.url}: an item of {cost} bytes has no room in {bytes_max}"
        if cost > room:
            yield share
            share, room = [], bytes_max
        share.append(item)
        room -= cost
    yield share


def _items(page: ParsedPage) -> Iterator[_Item]:
    """What is short and may be needed first comes first."""
    yield from page.head_links
    yield from (("feed", url) for url in page.feeds)
    yield from page.links
    yield from page.entries
    yield from (("resource", url) for url in page.resources)


def _cost(item: _Item) -> int:
    """Bytes in a message, rather too many."""
    if isinstance(item, Link):
        return _ITEM_BYTES + _length(item.url) + _length(item.kind) + sum(_length(word) + 3 for word in item.rel)
    if isinstance(item, SitemapEntry):
        return _ITEM_BYTES + _length(item.url)
    if isinstance(item, HeadLink):
        words = sum(_length(word) + 3 for word in item.rel)
        return _ITEM_BYTES + _length(item.url) + words + sum(map(_length, (item.hreflang, item.media, item.type)))
    return _ITEM_BYTES + _length(item[1])


def _shortened(item: _Item) -> _Item:
    if isinstance(item, Link):
        return msgspec.structs.replace(item, rel=())
    if isinstance(item, HeadLink):
        few = _ATTRIBUTE_CHARS_MAX
        rel = tuple(word[:few] for word in item.rel[:16])
        return msgspec.structs.replace(
            item, rel=rel, hreflang=item.hreflang[:few], media=item.media[:few], type=item.type[:few]
        )
    return item


def _bytes_of(page: ParsedPage) -> int:
    return _facts_bytes(page) + sum(map(_cost, _items(page)))


def _facts_bytes(page: ParsedPage) -> int:
    """All but the lists, rather too many."""
    texts = (page.url, page.host_key, page.error, page.title, page.language, page.charset, page.base_url)
    urls = (page.canonical, page.canonical_element, page.canonical_header, page.refresh and page.refresh.url)
    segment = page.text.segment if page.text is not None else ""
    named = sum(_length(url) for url in (*urls, *page.trusted_hosts) if url)
    return 600 + sum(map(_length, texts)) + named + _length(segment)


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
