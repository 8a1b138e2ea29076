"""Entries of an XML sitemap or feed, streamed: urlset, sitemapindex, RSS 0.9x, 1.0 and 2.0, Atom 0.3 and 1.0.

Theory of operation. The prolog is looked at before any parser sees it: it names the root, and a document that declares
entities of its own is refused there (no sitemap needs one; blow-ups and file inclusion do). The document then goes
through a pull parser in chunks; each entry is read when its element ends and taken out of the tree at once, so memory
does not follow the document's length. The first reading is strict. When it fails, a second one begins anew with
ampersands mended and a parser that recovers; what it gives stands, and `not_well_formed` is reported.

Names are compared by local part: the namespace is wrong in too many sitemaps. Sources: sitemaps.org protocol 0.9,
RSS 2.0, RSS 1.0, RFC 4287.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from html.entities import html5
from typing import Any
from urllib.parse import urljoin

import msgspec

from streams.core.rules.sitemap_dates import feed_ms, w3c_ms

PROLOG_BYTES_MAX = 1024 * 1024
_BASE = "{http://www.w3.org/XML/1998/namespace}base"
_ABOUT = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}about"
_ROOTS = {"urlset": "urlset", "sitemapindex": "index", "rss": "rss", "rdf": "rss", "feed": "atom"}
_ENTRY_NAMES = {"urlset": ("url", "sitemap"), "index": ("sitemap", "url"), "rss": ("item",), "atom": ("entry",)}
_NAME = re.compile(rb"<(?:[^\s<>/:&;=]{1,64}:)?([A-Za-z][A-Za-z0-9._-]{0,63})[\s/>]")
_EXTENSION = re.compile(r"schemas/sitemap-|w3\.org/1999/xhtml")
_FEED_DATES = ("pubdate", "date", "updated", "published", "modified", "issued")


class Entry(msgspec.Struct, frozen=True):
    """One entry as written: `loc` is a reference relative to `base` (empty: it must be absolute)."""

    loc: str
    lastmod_ms: int | None = None
    is_sitemap: bool = False
    base: str = ""
    images: tuple[str, ...] = ()
    videos: tuple[str, ...] = ()
    alternates: tuple[tuple[str, str], ...] = ()  # (hreflang, href)
    news_ms: int | None = None


Take = Callable[[Entry], bool]
"""Receives each entry in order; false ends the reading."""


def root_of(head: bytes) -> tuple[str | None, str]:
    """(local name of the root in lower case, error) of a document in UTF-8. No root: (None, "").

    Error `entity_expansion`: the prolog declares an entity. `head`: the document's first PROLOG_BYTES_MAX bytes.
    """
    place = 0
    while True:
        place = head.find(b"<", place)
        if place < 0:
            return None, ""
        if head.startswith(b"<?", place):
            place = head.find(b"?>", place)
        elif head.startswith(b"<!--", place):
            place = head.find(b"-->", place + 4)
        elif head[place : place + 9].upper() == b"<!DOCTYPE":
            end = _doctype_end(head, place)
            if b"<!ENTITY" in head[place : len(head) if end < 0 else end]:
                return None, "entity_expansion"
            place = end
        else:
            match = _NAME.match(head, place)
            return (match.group(1).decode("ascii").lower(), "") if match else (None, "")
        if place < 0:
            return None, ""


def type_of(root: str | None) -> str | None:
    """urlset, index, rss or atom; `None` when a document with this root is no sitemap."""
    return _ROOTS.get(root or "")


def read_entries(chunks: Iterable[bytes], kind: str, take: Take, *, url: str, recover: bool, extensions: bool) -> bool:
    """Hand each entry of a UTF-8 document to `take`, in order. False when the document is not well formed.

    With `recover`, what can be read is read and the answer is false only where the parser gave up.
    """
    from lxml import etree  # read at its first use: 20 ms of CPU that a process without sitemaps never needs

    names = _ENTRY_NAMES[kind]
    tags = ["{*}" + form for name in names for form in (name, name.upper(), name.title())]
    parser = etree.XMLPullParser(
        events=("end",),
        tag=tags,
        encoding="utf-8",
        recover=recover,
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
        collect_ids=False,
    )
    read_one = _feed_entries if kind in ("rss", "atom") else _sitemap_entries
    well_formed = True
    for chunk in _and_end(chunks):
        try:
            if chunk is None:
                parser.close()
            else:
                parser.feed(chunk)
        except etree.XMLSyntaxError:
            well_formed = False
        for _, element in parser.read_events():
            for entry in read_one(element, kind, url, extensions):
                if not take(entry):
                    return well_formed
            _forget(element)
        if not well_formed:
            break
    return well_formed


def _and_end(chunks: Iterable[bytes]) -> Iterable[bytes | None]:
    yield from chunks
    yield None


def _doctype_end(head: bytes, place: int) -> int:
    """Where the DOCTYPE that begins at `place` ends; -1 when it does not. Skips quotes and the internal subset."""
    subset = False
    for match in re.finditer(rb"""\[|\]|>|"[^"]*"|'[^']*'|<!--(?:.*?-->|.*\Z)""", head[place:], re.DOTALL):
        token = match.group()
        if token == b"[":
            subset = True
        elif token == b"]":
            subset = False
        elif token == b">" and not subset:
            return place + match.end()
    return -1


def _forget(element: Any) -> None:
    """Free an entry and all that stands before it."""
    element.clear()
    parent = element.getparent()
    if parent is not None:
        while element.getprevious() is not None:
            del parent[0]


@lru_cache(maxsize=1024)
def _split(tag: str) -> tuple[str, str]:
    """(namespace, local name in lower case). A prefix that was never declared counts as part of the name."""
    namespace, _, local = tag.rpartition("}")
    return namespace[1:], local.lower()


def _text(element: Any) -> str:
    """The text of an element without that of its children; entities that HTML knows are what HTML takes them for."""
    if not len(element):
        return element.text or ""
    from lxml import etree

    parts = [element.text or ""]
    for child in element:
        if isinstance(child, etree._Entity):
            parts.append(html5.get((child.name or "") + ";", child.text or ""))
            parts.append(child.tail or "")
        else:
            break
    return "".join(parts)


def _sitemap_entries(element: Any, kind: str, url: str, extensions: bool) -> list[Entry]:
    """The entries of a <url> or <sitemap>: one for each <loc>, with the <lastmod> that belongs to it.

    An element that was never closed holds the next one (recovery nests them): the outer ones are read first.
    """
    outer: list[Any] = []
    inner, parent = element, element.getparent()
    entries: list[Entry] = []
    while parent is not None and _split(parent.tag)[1] in _ENTRY_NAMES[kind]:
        outer.append((parent, inner))
        inner, parent = parent, parent.getparent()
    for unclosed, next_one in reversed(outer):
        # Only what stands before: the parser is ahead of us, and may be at work on what stands behind.
        entries += [entry for entry in _locations(unclosed, extensions, next_one) if entry.loc]
        for child in list(unclosed):
            if child is next_one:
                break
            unclosed.remove(child)
    return entries + _locations(element, extensions)


def _locations(element: Any, extensions: bool, until: Any = None) -> list[Entry]:
    """The entries of one element alone, or of its children before `until`."""
    own_ns, own_name = _split(element.tag)
    locs: list[str] = []
    dates: list[int | None] = []
    early: int | None = None
    attached = False
    for child in element:
        if child is until:
            break
        tag = child.tag
        if not isinstance(tag, str):
            continue
        namespace, name = _split(tag)
        if namespace != own_ns and _EXTENSION.search(namespace):
            attached = True
        elif name == "loc":
            locs.append(_text(child))
            dates.append(None)
        elif name == "lastmod":
            if not locs:
                early = w3c_ms(_text(child))
            elif dates[-1] is None:
                dates[-1] = w3c_ms(_text(child))
    is_sitemap = own_name == "sitemap"
    if not locs:
        # An entry that only says what its images are names no page; there is nothing wrong with a location it has not.
        return [] if attached else [Entry("", is_sitemap=is_sitemap)]
    if dates[0] is None:
        dates[0] = early
    more = _extensions(element) if attached and extensions else {}
    return [Entry(loc, lastmod_ms, is_sitemap, **more) for loc, lastmod_ms in zip(locs, dates, strict=True)]


def _extensions(element: Any) -> dict[str, Any]:
    """Images, videos, alternates and the news date of one <url>, as written."""
    images: list[str] = []
    videos: list[str] = []
    alternates: list[tuple[str, str]] = []
    news_ms: int | None = None
    for child in element.iterdescendants():
        if not isinstance(child.tag, str):
            continue
        namespace, name = _split(child.tag)
        if name == "loc" and "sitemap-image" in namespace:
            images.append(_text(child).strip())
        elif name == "content_loc" and "sitemap-video" in namespace:
            videos.append(_text(child).strip())
        elif name == "publication_date" and "sitemap-news" in namespace:
            news_ms = w3c_ms(_text(child))
        elif name == "link" and "xhtml" in namespace and "alternate" in (child.get("rel") or "").lower().split():
            alternates.append((child.get("hreflang") or "", (child.get("href") or "").strip()))
    return {"images": tuple(images), "videos": tuple(videos), "alternates": tuple(alternates), "news_ms": news_ms}


def _feed_entries(element: Any, kind: str, url: str, extensions: bool) -> list[Entry]:
    """The page that an <item> or <entry> stands for, with its date."""
    find = _atom_links if kind == "atom" else _rss_link
    base = _base_of(element, url)
    dates: dict[str, int] = {}
    for child in element:
        if isinstance(child.tag, str):
            name = _split(child.tag)[1]
            if name in _FEED_DATES and name not in dates:
                instant_ms = feed_ms(_text(child))
                if instant_ms is not None:
                    dates[name] = instant_ms
    # Atom's `updated` goes before `published`; RSS has `pubDate`, or Dublin Core's `date`.
    order = ("updated", "modified", "published", "issued") if kind == "atom" else _FEED_DATES
    lastmod_ms = next((dates[name] for name in order if name in dates), None)
    return [Entry(loc, lastmod_ms, False, base) for loc, base in find(element, base)]


def _rss_link(item: Any, base: str) -> list[tuple[str, str]]:
    """The <link> of an item, else its <guid> while that is a permalink, else an Atom link, else rdf:about."""
    link = guid = atom = ""
    for child in item:
        if not isinstance(child.tag, str):
            continue
        name = _split(child.tag)[1]
        if name == "link":
            text = _text(child).strip()
            if text and not link:
                link = text
            elif not text and not atom and (child.get("rel") or "alternate").lower() == "alternate":
                atom = (child.get("href") or "").strip()
        elif name == "guid" and not guid and (child.get("isPermaLink") or "true").strip().lower() != "false":
            text = _text(child).strip()
            guid = text if text[:7].lower() == "http://" or text[:8].lower() == "https://" else ""
    return [(link or atom or guid or (item.get(_ABOUT) or "").strip(), base)]


def _atom_links(entry: Any, base: str) -> list[tuple[str, str]]:
    """The alternates of an entry (RFC 4287 4.2.7.2: `alternate` where `rel` is missing): HTML ones, else the first."""
    pages: list[tuple[str, str]] = []
    others: list[tuple[str, str]] = []
    for child in entry:
        if not isinstance(child.tag, str) or _split(child.tag)[1] != "link" or not child.get("href"):
            continue
        rel = (child.get("rel") or "alternate").strip().lower().rpartition("/")[2]
        if rel != "alternate":
            continue
        media_type = (child.get("type") or "text/html").lower()
        link = (child.get("href").strip(), _join(base, child.get(_BASE) or ""))
        (pages if "html" in media_type else others).append(link)
    return pages or others[:1] or [("", base)]


def _base_of(element: Any, url: str) -> str:
    """The base that xml:base attributes from the root down to `element` make of the document's own URL."""
    bases = [value for node in (element, *element.iterancestors()) if (value := node.get(_BASE))]
    for value in reversed(bases):
        url = _join(url, value)
    return url


def _join(base: str, reference: str) -> str:
    try:
        return urljoin(base, reference)
    except ValueError:
        return base
