"""What a sitemap or feed names: the protocol of sitemaps.org (0.9) as XML or text, RSS and Atom, gzipped or not.

A sitemap may name URLs of its own scheme and host only, by the letter; others are admitted where the reader is told
that the other host's robots.txt names this very sitemap (sitemaps.org, "cross submits"). The content decides what it
is: its first bytes, its root element; names and media types lie too often. Bad input is a value: `errors` says what was
wrong, and what could be read stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice

import msgspec

from schemas.records import SitemapEntry
from streams.core.policy import URL_BYTES_MAX, ParseLimits
from streams.core.rules.sitemap_bytes import (
    CHUNK_BYTES,
    Inflated,
    encoding_of,
    inflate,
    repaired,
    utf8_chunks,
    whole_end,
)
from streams.core.rules.sitemap_xml import PROLOG_BYTES_MAX, Entry, read_entries, root_of, type_of
from streams.core.rules.urls import Resolver, host_key

DECODE_RATIO_MAX = 500  # over the size limit and this well packed: an attack. Deflate's most is 1,032, padding's 250
LINE_BYTES_MAX = 8_192  # of a text sitemap; longer lines are no URL
NOT_TAKEN_MAX = 100  # entries that are remembered for whoever asks why they were not taken
BAD_LINES_MAX = 1_000  # a text without any URL is given up after as many lines
_ROOT_NEAR = re.compile(rb"<\?xml\s|<(?:\w{1,32}:)?(?:urlset|sitemapindex|rss|feed|RDF)[\s>]")
_JUNK_BYTES_MAX = 4_096  # before an XML document: output of a script's warnings, more than one byte order mark
_BLANK = b" \t\r\n\x0b\x0c"
_RESOLVERS_MAX = 64  # bases (xml:base) that are remembered at once


class Extensions(msgspec.Struct, frozen=True, array_like=True):
    """What an entry says of itself beyond the protocol. URLs are normal forms, of any host."""

    images: tuple[str, ...] = ()
    videos: tuple[str, ...] = ()
    alternates: tuple[tuple[str, str], ...] = ()  # (hreflang, URL)
    news_ms: int | None = None


class Sitemap(msgspec.Struct, frozen=True):
    """A sitemap as read, in file order.

    `type`: urlset, index, rss, atom, text, invalid (no sitemap) or refused (an attack). `errors`, each once: bad_loc,
    cross_host, not_well_formed, trailing_data, truncated, corrupt_gzip, too_large, too_many_urls, entity_expansion,
    not_a_sitemap. `extensions` is parallel to `entries` when asked for, else empty.
    """

    type: str
    entries: tuple[SitemapEntry, ...] = ()  # pages
    children: tuple[SitemapEntry, ...] = ()  # sitemaps that an index names
    errors: tuple[str, ...] = ()
    extensions: tuple[Extensions, ...] = ()
    not_taken: tuple[tuple[str, str], ...] = ()  # (error, location as written): the first of them, for people
    not_taken_counts: tuple[tuple[str, int], ...] = ()  # (error, how many in all)


def read(
    body: bytes,
    *,
    url: str,
    content_type: str | None,
    limits: ParseLimits,
    trusted_hosts: frozenset[str] | None = frozenset(),
    extensions: bool = False,
) -> Sitemap:
    """Read one sitemap that was fetched from `url` (normal form). Nothing in `body` or `content_type` makes it raise.

    `trusted_hosts` are host_keys whose robots.txt names this sitemap: their URLs are admitted too. None: all hosts'
    are, for whoever handed it over vouches for them.
    """
    content = inflate(body, bytes_max=limits.sitemap_bytes_max)
    if "too_large" in content.errors and content.ratio > DECODE_RATIO_MAX:
        return Sitemap("refused", errors=content.errors)
    collector = _Collector(url, limits, trusted_hosts)
    codec, start = encoding_of(content.data, content_type)
    head = _head(content, codec, start)
    skipped = _skip(head)
    if head[skipped : skipped + 1] != b"<":
        junk = _ROOT_NEAR.search(head, 0, _JUNK_BYTES_MAX)
        if junk is None:
            return _read_text(content, codec, start, collector)
        skipped = junk.start()
    root, error = root_of(head[skipped:])
    kind = type_of(root)
    if kind is None and not error and root != "html":
        junk = _ROOT_NEAR.search(head, skipped, skipped + _JUNK_BYTES_MAX)
        if junk is not None:  # a script's warnings in HTML
            skipped = junk.start()
            root, error = root_of(head[skipped:])
            kind = type_of(root)
    if error:
        return Sitemap("refused", errors=(*content.errors, error))
    if kind is None:
        return Sitemap("invalid", errors=(*content.errors, "not_a_sitemap"))
    # Blanks may stand before a root, but not before an XML declaration (XML 1.0 section 2.8).
    clean = not head[:skipped].strip(_BLANK) and not (skipped and head.startswith(b"<?xml", skipped))
    plan = _Plan(content, codec, start, skipped, kind, url, extensions)
    if not (_read_strictly(plan, collector) and clean):
        collector.malformed = True
    return _result(kind, collector, content)


_NO_EXTENSIONS = Extensions()


class _Plan(msgspec.Struct, frozen=True):
    """How one document is read. `start` is the length of the mark, `skipped` that of what else stands before it."""

    content: Inflated
    codec: str
    start: int
    skipped: int
    kind: str
    url: str
    extensions: bool

    def chunks(self, *, strict: bool) -> Iterator[bytes]:
        """The document as UTF-8, without what stands before it."""
        skip = self.skipped
        data = self.content.data
        if not strict and not self.codec.startswith(("utf-16", "utf-32")):
            data = data[: whole_end(data)]
        for chunk in utf8_chunks(data, self.codec, self.start, strict=strict):
            if skip < len(chunk):
                yield chunk[skip:]
            skip = max(0, skip - len(chunk))


class _Collector:
    """Takes entries up to the limit, normalizes them and keeps the rule of one host."""

    def __init__(self, url: str, limits: ParseLimits, trusted_hosts: frozenset[str] | None) -> None:
        self.hosts = None if trusted_hosts is None else trusted_hosts | {host_key(url)}
        self.resolvers = {"": Resolver(None)}
        self.urls_max = limits.sitemap_urls_max
        self.entries: list[SitemapEntry] = []
        self.children: list[SitemapEntry] = []
        self.extensions: list[Extensions] = []
        self.errors: dict[str, int] = {}  # with the number of entries
        self.not_taken: list[tuple[str, str]] = []
        self.malformed = False
        self.seen = 0

    def reset(self) -> None:
        """Forget everything, for another reading of the same document."""
        self.entries.clear()
        self.children.clear()
        self.extensions.clear()
        self.errors.clear()
        self.not_taken.clear()
        self.seen = 0

    def take(self, entry: Entry) -> bool:
        """Keep one entry; false when the sitemap holds more of them than it may."""
        self.seen += 1
        if self.seen > self.urls_max:
            self.leave("too_many_urls", entry.loc)
            return False
        normal = self.normal(entry.loc, entry.base)
        if normal is None:
            self.leave("bad_loc", entry.loc)
        elif self.hosts is not None and host_key(normal) not in self.hosts:
            self.leave("cross_host", entry.loc)
        elif entry.is_sitemap:
            self.children.append(SitemapEntry(normal, entry.lastmod_ms, True))
        else:
            self.entries.append(SitemapEntry(normal, entry.lastmod_ms))
            self.extensions.append(self.normal_extensions(entry))
        return True

    def leave(self, error: str, loc: str) -> None:
        """Do not take an entry, and remember the first ones of those for whoever asks."""
        self.errors[error] = self.errors.get(error, 0) + 1
        if len(self.not_taken) < NOT_TAKEN_MAX:
            self.not_taken.append((error, loc[:URL_BYTES_MAX]))

    def normal(self, loc: str, base: str = "") -> str | None:
        """The normal form of a location. A sitemap's is absolute (sitemaps.org), a feed's may be relative.

        One with a character that could not be decoded names no page that the site has.
        """
        loc = loc.strip()
        if not loc or "\ufffd" in loc:
            return None
        resolver = self.resolvers.get(base)
        if resolver is None:
            if len(self.resolvers) > _RESOLVERS_MAX:
                self.resolvers = {"": Resolver(None)}
            resolver = self.resolvers[base] = Resolver(base)
        return resolver.resolve(loc)

    def normal_extensions(self, entry: Entry) -> Extensions:
        """An entry's extensions with what names no URL left out."""
        if not (entry.images or entry.videos or entry.alternates or entry.news_ms is not None):
            return _NO_EXTENSIONS
        return Extensions(
            tuple(normal for loc in entry.images if (normal := self.normal(loc))),
            tuple(normal for loc in entry.videos if (normal := self.normal(loc))),
            tuple((language, normal) for language, loc in entry.alternates if (normal := self.normal(loc))),
            entry.news_ms,
        )


def _head(content: Inflated, codec: str, start: int) -> bytes:
    """The beginning of the document as UTF-8, long enough for any prolog that is read."""
    pieces = islice(utf8_chunks(content.data, codec, start, strict=True), PROLOG_BYTES_MAX // CHUNK_BYTES)
    first = next(pieces, b"")
    if root_of(first) != (None, ""):
        return first
    return b"".join(chain((first,), pieces))


def _skip(head: bytes) -> int:
    """Blanks and further byte order marks before the first character that counts."""
    place = 0
    while place < len(head):
        if head[place] in _BLANK:
            place += 1
        elif head.startswith(b"\xef\xbb\xbf", place):
            place += 3
        else:
            break
    return place


def _read_strictly(plan: _Plan, collector: _Collector) -> bool:
    """Read a document; false when it is not well formed: then it was read anew, mended and recovering."""
    strict = plan.chunks(strict=True)
    if read_entries(strict, plan.kind, collector.take, url=plan.url, recover=False, extensions=plan.extensions):
        return True
    collector.reset()
    mended = repaired(plan.chunks(strict=False))
    read_entries(mended, plan.kind, collector.take, url=plan.url, recover=True, extensions=plan.extensions)
    return False


def _read_text(content: Inflated, codec: str, start: int, collector: _Collector) -> Sitemap:
    """One URL a line; a text in which no line is one is no sitemap."""
    urls = bad = 0
    for line in _lines(utf8_chunks(content.data, codec, start, strict=False)):
        if not line.strip():
            continue
        entry = Entry(line if len(line) <= LINE_BYTES_MAX else "")
        if not collector.take(entry):
            break
        if collector.normal(entry.loc) is None:
            bad += 1
        else:
            urls += 1
        if not urls and bad > BAD_LINES_MAX:
            break
    if not urls:
        return Sitemap("invalid", errors=(*content.errors, "not_a_sitemap"))
    return _result("text", collector, content)


def _lines(chunks: Iterator[bytes]) -> Iterator[str]:
    """Lines ended by LF, CR or both. Of one that is too long just enough to see that it is."""
    rest = b""
    for chunk in chunks:
        lines = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
        rest = lines.pop()[: LINE_BYTES_MAX + 1]
        for line in lines:
            yield line[: LINE_BYTES_MAX + 1].decode("utf-8", "replace")
    yield rest.decode("utf-8", "replace")


def _result(kind: str, collector: _Collector, content: Inflated) -> Sitemap:
    """The sitemap as read. One that was cut at the limit and gave nothing until there is refused."""
    errors = dict.fromkeys(content.errors)
    if collector.malformed and "too_large" not in errors:  # otherwise it was cut by us
        errors["not_well_formed"] = None
    errors |= dict.fromkeys(collector.errors)
    if "too_large" in errors and not collector.entries and not collector.children:
        return Sitemap("refused", errors=tuple(errors))
    return Sitemap(
        kind,
        tuple(collector.entries),
        tuple(collector.children),
        tuple(errors),
        tuple(collector.extensions) if any(item is not _NO_EXTENSIONS for item in collector.extensions) else (),
        tuple(collector.not_taken),
        tuple(collector.errors.items()),
    )
