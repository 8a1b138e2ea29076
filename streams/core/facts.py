"""What is kept of a parsed page beside its text: its links and facts, as the JSON of `metadata` records.

A page may name so many links, or give one so long a `rel`, that one JSON would outgrow what a reader takes at once: its
lists are then spread over several blocks, each with all the other facts.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from schemas.records import Kind, Link, ParsedPage, SitemapEntry
from streams.core.policy import FACTS_BYTES_MAX

_json = msgspec.json.Encoder()


class PageFacts(msgspec.Struct, frozen=True):
    """The JSON of a `metadata` record.

    A link is an array [url, kind, [rel, ...], nofollow], a sitemap's entry [url, lastmod_ms or null, is_sitemap].
    """

    url: str
    url_id: str  # hex
    url_version: int
    kind: Kind
    depth: int
    fetched_ms: int
    extractor_version: int
    error: str = ""
    title: str = ""
    language: str = ""
    charset: str = ""
    canonical: str | None = None
    index: bool = True
    follow: bool = True
    simhash: str = ""  # 16 hex digits
    text_bytes: int = 0
    part: int = 0  # `links` and `entries` are those of part 0, then of part 1, ... up to `parts`
    parts: int = 1
    links: tuple[Link, ...] = ()
    entries: tuple[SitemapEntry, ...] = ()


def facts_blocks(page: ParsedPage, *, block_bytes_max: int = FACTS_BYTES_MAX) -> list[bytes]:
    """The JSON of a page's facts: one block nearly always, more when it would exceed `block_bytes_max`."""
    facts = _facts(page)
    try:
        block = _json.encode(facts)
    except UnicodeEncodeError:
        facts = _encodable(facts)
        block = _json.encode(facts)
    if len(block) <= block_bytes_max:
        return [block]
    bare = msgspec.structs.replace(facts, links=(), entries=())
    shares = list(_shares(facts, block_bytes_max - len(_json.encode(bare)) - 100))  # the parts' numbers take some bytes
    return [
        _json.encode(msgspec.structs.replace(bare, links=links, entries=entries, part=part, parts=len(shares)))
        for part, (links, entries) in enumerate(shares)
    ]


def _shares(facts: PageFacts, bytes_max: int) -> Iterator[tuple[tuple[Link, ...], tuple[SitemapEntry, ...]]]:
    """Links and entries in their order, in shares of at most `bytes_max`; a link too long for any loses its `rel`."""
    links: list[Link] = []
    entries: list[SitemapEntry] = []
    room = bytes_max
    items: tuple[Link | SitemapEntry, ...] = (*facts.links, *facts.entries)
    for item in items:
        cost = len(_json.encode(item)) + 1
        if cost > bytes_max and isinstance(item, Link):
            item = msgspec.structs.replace(item, rel=())
            cost = len(_json.encode(item)) + 1
        assert cost <= bytes_max, f"a URL of {cost} bytes has no room in {bytes_max}"
        if cost > room:
            yield tuple(links), tuple(entries)
            links, entries, room = [], [], bytes_max
        room -= cost
        if isinstance(item, Link):
            links.append(item)
        else:
            entries.append(item)
    yield tuple(links), tuple(entries)


def _facts(page: ParsedPage) -> PageFacts:
    return PageFacts(
        url=page.url,
        url_id=page.url_id.hex(),
        url_version=page.url_version,
        kind=page.kind,
        depth=page.depth,
        fetched_ms=page.fetched_ms,
        extractor_version=page.extractor_version,
        error=page.error,
        title=page.title,
        language=page.language,
        charset=page.charset,
        canonical=page.canonical,
        index=page.index,
        follow=page.follow,
        simhash=f"{page.simhash:016x}",
        text_bytes=page.text_bytes,
        links=page.links,
        entries=page.entries,
    )


def _encodable(facts: PageFacts) -> PageFacts:
    """A lone surrogate in what a page calls itself or its links has no UTF-8: it becomes "?"."""
    links = tuple(Link(x.url, x.kind, tuple(map(_without_surrogates, x.rel)), x.nofollow) for x in facts.links)
    return msgspec.structs.replace(
        facts,
        links=links,
        title=_without_surrogates(facts.title),
        language=_without_surrogates(facts.language),
        charset=_without_surrogates(facts.charset),
        error=_without_surrogates(facts.error),
    )


def _without_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
