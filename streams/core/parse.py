"""The parse stage: from the bytes of one page to links, directives, title, language and text.

Only HTML and XHTML have links; text/plain has text; everything else has neither and that is no error. The order of the
steps: type (Content-Type, or the first bytes without one), bounds on hostile markup, encoding, lexbor's tree, one walk
over all elements, links resolved against the page's base, text, fingerprint.

The tree is built as in a browser that runs scripts: the content of `<noscript>` is then text, a picture in the head's
noscript does not end the head, and a refresh in it, meant for others, is not taken. Its links and its robots directives
are read on their own.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

from schemas.records import HeadLink, Link, ParsedPage, ParseTask, Refresh
from streams.core.policy import ParseLimits
from streams.core.rules import directives
from streams.core.rules.charset import sniff
from streams.core.rules.fingerprints import simhash
from streams.core.rules.links import (
    FEED_TYPES,
    HEAD_LINK_RELS,
    link_header_targets,
    mime_essence,
    parse_refresh,
    srcset_urls,
    words,
)
from streams.core.rules.markup_guard import safe_length
from streams.core.rules.mime_sniff import HTML, TEXT, XHTML, page_type
from streams.core.rules.soft404 import is_soft_404
from streams.core.rules.urls import Resolver, normalize
from streams.core.rules.visible_text import BLOCK_IDS, UNSEEN_IDS, tag_ids, visible_text

BODY_CUT = "body_cut"
TOO_MANY_LINKS = "too_many_links"

NOSCRIPTS_MAX = 1_000
SVG_ANCESTORS_MAX = 64
HEAD_LINKS_MAX = 2_000

_READ = "a area iframe frame link meta base title noscript svg"
_LINKED_QUERY = "a[href],area[href]"
_NOSCRIPT_QUERY = "a[href],area[href],iframe[src],meta[name]"
_READ_IDS = tag_ids(_READ)
_SOURCE_ATTRIBUTE = {"a": "href", "area": "href", "iframe": "src", "frame": "src"}
_RESOURCE_QUERY = (
    "img,source,video,audio,track,embed,object,input[src],script[src],link[href],body[background],image,use"
)
_RESOURCE_ATTRIBUTES = ("src", "poster", "data", "background")
_RESOURCE_RELS = frozenset(("stylesheet", "icon", "apple-touch-icon", "preload", "modulepreload", "manifest"))
_SELF_CLOSED = re.compile(
    rb"<(?!(?:area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr)[\t\n\f\r />])"
    rb"([a-zA-Z][\w:.-]*+)((?:[^<>\"'/]|/(?!>)|\"[^\"<]{0,4000}+\"|'[^'<]{0,4000}+')*+)/>"
)


class ParsedBody(msgspec.Struct, frozen=True):
    """A page and its text. `page.text` is still None: whoever stores the text fills it."""

    page: ParsedPage
    text: str = ""


def parse_page(
    task: ParseTask,
    body: bytes,
    *,
    limits: ParseLimits,
    product_token: str,
    now_ms: int,
    with_resources: bool = False,
) -> ParsedBody:
    """What one body gives. Never raises on any body; what could not be read to the end has an error and what was read.

    Links are listed whatever the page's or their own nofollow says; a URL that is linked more than once stands once, as
    its first link that may be followed says, and is nofollow only when all of them are.
    """
    spoken = directives.of_headers(task.robots_tags, product_token=product_token, now_ms=now_ms)
    page = ParsedPage(
        url_id=task.url_id,
        host_key=task.host_key,
        url=task.url,
        url_version=task.url_version,
        kind=task.kind,
        depth=task.depth,
        fetched_ms=task.fetched_ms,
        extractor_version=task.extractor_version,
        index=spoken.index,
        follow=spoken.follow,
        canonical_header=_canonical_of_headers(task),
    )
    page = msgspec.structs.replace(page, canonical=page.canonical_header)
    essence = page_type(mime_essence(task.content_type), body)
    error = BODY_CUT if len(body) > limits.body_bytes_max else ""
    body = body[: limits.body_bytes_max]
    if essence == TEXT:
        return _parse_text(page, body, task.content_type, limits, error)
    if essence not in (HTML, XHTML):
        return ParsedBody(page)
    encoding, content = sniff(body, task.content_type, xml=essence == XHTML)
    markup = content if isinstance(content, bytes) else content.encode("utf-8", "replace")
    if essence == XHTML:
        markup = _SELF_CLOSED.sub(rb"<\1\2></\1>", markup)
    length, hostile = safe_length(markup, attributes_per_tag_max=limits.attributes_per_tag_max)
    if hostile:
        error, markup = hostile, markup[:length]
    reading = _Reading(task, encoding, product_token, now_ms, spoken, limits)
    tree = LexborHTMLParser(markup, options=LexborDocumentOptions.WO_EVENTS, scripting=True)
    reading.read(tree)
    if with_resources:
        reading.read_resources(tree)
    return _finish(page, reading, tree, error)


def _parse_text(page: ParsedPage, body: bytes, content_type: str | None, limits: ParseLimits, error: str) -> ParsedBody:
    """Plain text: words and their fingerprint, no links."""
    encoding, content = sniff(body, content_type)
    text = content if isinstance(content, str) else content.decode("utf-8", "replace")
    text = _bounded_utf8(" ".join(text.split()), limits.text_bytes_max)
    page = msgspec.structs.replace(
        page, error=error, charset=encoding, simhash=simhash(text), text_bytes=len(text.encode())
    )
    return ParsedBody(page, text)


def _finish(page: ParsedPage, reading: _Reading, tree: LexborHTMLParser, error: str) -> ParsedBody:
    """Put together what was read."""
    root = tree.body if tree.body is not None else tree.root
    limits = reading.limits
    text = ""
    if root is not None:
        text = visible_text(root, blocks=reading.blocks, unseen=reading.unseen, chars_max=limits.text_bytes_max)
        text = _bounded_utf8(text, limits.text_bytes_max)
    html = tree.css_first("html")
    attributes = html.attributes if html is not None else {}
    canonical = reading.canonical()
    header = page.canonical_header
    page = msgspec.structs.replace(
        page,
        error=error or (TOO_MANY_LINKS if reading.is_cut else ""),
        links=tuple(reading.links.values()),
        canonical_element=canonical,
        canonical=None if reading.has_contradicting_canonicals or (canonical and header and canonical != header)
        else canonical or header,
        index=reading.robots.index,
        follow=reading.robots.follow,
        simhash=simhash(text),
        title=reading.title[: limits.title_chars_max],
        language=(attributes.get("lang") or attributes.get("xml:lang") or "").strip()[:64],
        charset=reading.encoding,
        text_bytes=len(text.encode()),
        base_url=reading.base_url,
        refresh=reading.refresh,
        head_links=tuple(reading.head_links),
        feeds=tuple(dict.fromkeys(reading.feeds)),
        resources=tuple(reading.resources),
        soft_404=is_soft_404(reading.title, text),
    )  # fmt: skip
    return ParsedBody(page, text)


class _Reading:
    """What one pass over a page's elements has gathered so far."""

    def __init__(
        self,
        task: ParseTask,
        encoding: str,
        product_token: str,
        now_ms: int,
        spoken: directives.Directives,
        limits: ParseLimits,
    ) -> None:
        self.encoding = encoding
        self.limits = limits
        self.robots = spoken
        self.base_url = task.url
        self.links: dict[str, Link] = {}
        self.head_links: list[HeadLink] = []
        self.feeds: list[str] = []
        self.resources: dict[str, None] = {}
        self.refresh: Refresh | None = None
        self.title = ""
        self.is_cut = False
        self._task = task
        self._product_token = product_token
        self._now_ms = now_ms
        self.blocks: list[LexborNode] = []
        self.unseen: list[LexborNode] = []
        self._linked: set[int] | None = None
        self._canonicals: dict[str, None] = {}
        self._settled: set[str] = set()  # hrefs of links that may be followed: a second one of them changes nothing
        self._resolver = Resolver(task.url, encoding)
        self._resolve = self._resolver.resolve

    @property
    def has_contradicting_canonicals(self) -> bool:
        return len(self._canonicals) > 1

    def canonical(self) -> str | None:
        """The canonical URL that the page's head declares; None when it declares none, or several."""
        return next(iter(self._canonicals)) if len(self._canonicals) == 1 else None

    def read(self, tree: LexborHTMLParser) -> None:
        """Take from the tree all but text. The base comes first, wherever it stands: it holds for the whole page."""
        named = self._elements(tree)
        names = {name for name, _ in named}
        has_svg = "svg" in names
        if "base" in names:
            bases = (node for name, node in named if name == "base" and "href" in node.attributes)
            self._set_base(node for node in bases if not (has_svg and _in_svg(node)))
        noscripts: list[LexborNode] = []
        has_title = False
        for name, node in named:
            if name == "a" or name == "area":
                attributes = node.attributes
                if attributes.get("href") in self._settled:
                    continue
                if "href" in attributes or ("xlink:href" in attributes and self._is_linked(node, tree)):
                    self._link(attributes, "href", "svg-a" if has_svg and name == "a" and _in_svg(node) else name)
            elif name == "iframe" or name == "frame":
                self._link(node.attributes, "src", name)
            elif name == "link":
                self._head_link(node)
            elif name == "meta":
                self._meta(node.attributes)
            elif name == "noscript":
                noscripts.append(node)
            elif name == "title" and not has_title and not (has_svg and _in_svg(node)):
                self.title = " ".join(node.text().split())
                has_title = True
        for node in noscripts[:NOSCRIPTS_MAX]:
            self._noscript(node.text())
        if self.refresh is not None and self.refresh.url != self._task.url:
            self._keep(Link(url=self.refresh.url, kind="refresh"))  # last: an element's link to it says more

    def _elements(self, tree: LexborHTMLParser) -> list[tuple[str, LexborNode]]:
        """The elements that are read, with their names; those that text depends on go to `blocks` and `unseen`."""
        named: list[tuple[str, LexborNode]] = []
        read, add_block, unseen = _READ_IDS, self.blocks.append, UNSEEN_IDS
        for node in tree.root.traverse() if tree.root is not None else ():
            tag = node.tag_id
            if tag in read:
                named.append((read[tag], node))
            if tag in BLOCK_IDS:
                add_block(node)
            if tag in unseen:
                self.unseen.append(node)
        return named

    def _is_linked(self, node: LexborNode, tree: LexborHTMLParser) -> bool:
        """Whether an element without `href` has an `xlink:href` that counts: in SVG and MathML, not in HTML."""
        if self._linked is None:
            self._linked = {other.mem_id for other in tree.css(_LINKED_QUERY)}
        return node.mem_id in self._linked

    def read_resources(self, tree: LexborHTMLParser) -> None:
        """What the page loads, in document order. Nothing of it is crawled unless somebody asks."""
        for node in tree.css(_RESOURCE_QUERY):
            attributes = node.attributes
            if node.tag == "link":
                if _RESOURCE_RELS.intersection(words(attributes.get("rel"))):
                    self._resource(attributes.get("href"))
                continue
            if node.tag in ("image", "use"):
                self._resource(attributes.get("href") or attributes.get("xlink:href"))
                continue
            for name in _RESOURCE_ATTRIBUTES:
                self._resource(attributes.get(name))
            for url in srcset_urls(attributes.get("srcset") or ""):
                self._resource(url)

    def _resource(self, value: str | None) -> None:
        url = self._resolve(value) if value and value.strip() else None
        if url is not None and len(self.resources) < self.limits.links_max:
            self.resources[url] = None

    def _set_base(self, nodes: Any) -> None:
        """HTML standard 4.2.3: the first base with a href counts; one that cannot be a base leaves the page's URL."""
        first = next(nodes, None)
        if first is None:
            return
        base = normalize(first.attributes.get("href") or "", self._task.url, self.encoding)
        if base is not None:
            self.base_url = base
            self._resolver = Resolver(base, self.encoding)
        self._resolve = self._resolver.resolve

    def _link(self, attributes: dict[str, str | None], source: str, kind: str) -> None:
        # In SVG the selector's `href` also finds xlink:href, which counts where href is missing (SVG 2, 16.2).
        href = attributes.get(source, attributes.get("xlink:href")) or ""
        if not href and source == "src":
            return  # an empty frame is about:blank
        cut = href.find("#")
        if cut >= 0:
            href = href[:cut]  # sections of one page are one link
        if href in self._settled:
            return
        rel = words(attributes["rel"]) if "rel" in attributes else ()
        is_nofollow = "nofollow" in rel
        if not is_nofollow:
            self._settled.add(href)
        url = self._resolver.known.get(href) or self._resolve(href)
        if url is not None:
            known = self.links.get(url)
            if known is None or (known.nofollow and not is_nofollow):
                self._keep(Link(url, kind, rel, is_nofollow))

    def _keep(self, link: Link) -> None:
        known = self.links.get(link.url)
        if known is None and len(self.links) >= self.limits.links_max:
            self.is_cut = True
        elif known is None or (known.nofollow and not link.nofollow):
            self.links[link.url] = link

    def _noscript(self, markup: str) -> None:
        """Links and directives of a noscript's content, which is text to a browser that runs scripts."""
        if "=" not in markup:
            return
        fragment = LexborHTMLParser(markup, is_fragment=True, options=LexborDocumentOptions.WO_EVENTS)
        for node in fragment.css(_NOSCRIPT_QUERY):
            name = node.tag or ""
            if name == "meta":
                self._meta_robots(node.attributes)
            else:
                self._link(node.attributes, _SOURCE_ATTRIBUTE[name], name)

    def _head_link(self, node: LexborNode) -> None:
        attributes = node.attributes
        rel = words(attributes.get("rel"))
        href = (attributes.get("href") or "").strip()
        if not rel or not href:
            return
        url = self._resolve(href)
        if url is None:
            return
        if "canonical" in rel and node.parent is not None and node.parent.tag == "head":
            # Outside the head it may be a visitor's word, so it does not count.
            self._canonicals[url] = None
        kind = mime_essence(attributes.get("type"))
        if "stylesheet" in rel:
            return
        if ("alternate" in rel and kind in FEED_TYPES) or "feed" in rel:
            self.feeds.append(url)
        elif HEAD_LINK_RELS.intersection(rel) and len(self.head_links) < HEAD_LINKS_MAX:
            self.head_links.append(
                HeadLink(
                    url=url,
                    rel=rel,
                    hreflang=(attributes.get("hreflang") or "").strip(),
                    media=(attributes.get("media") or "").strip(),
                    type=kind,
                )
            )

    def _meta(self, attributes: dict[str, str | None]) -> None:
        self._meta_robots(attributes)
        if self.refresh is None and (attributes.get("http-equiv") or "").strip().lower() == "refresh":
            self._refresh(attributes.get("content") or "")

    def _meta_robots(self, attributes: dict[str, str | None]) -> None:
        name, content = attributes.get("name"), attributes.get("content")
        if name and content:
            token = self._product_token
            self.robots &= directives.of_meta(name, content, product_token=token, now_ms=self._now_ms)

    def _refresh(self, content: str) -> None:
        """The first refresh that is valid counts (HTML standard, "will declaratively refresh")."""
        found = parse_refresh(content)
        if found is None:
            return
        delay_s, target = found
        url = self._task.url if target is None else self._resolve(target)
        if url is not None:
            self.refresh = Refresh(delay_s=delay_s, url=url)


def _in_svg(node: LexborNode) -> bool:
    """Whether an element belongs to an SVG picture, and not to HTML inside one."""
    parent = node.parent
    for _ in range(SVG_ANCESTORS_MAX):
        if parent is None:
            return False
        name = (parent.tag or "").lower()
        if name == "svg":
            return True
        if name in ("foreignobject", "desc"):
            return False
        parent = parent.parent
    return False


def _canonical_of_headers(task: ParseTask) -> str | None:
    """The canonical URL of the Link fields, resolved against the page's URL; None when there is none, or several."""
    found = {
        url
        for line in task.link_headers
        for target in link_header_targets(line, "canonical")
        if target and (url := normalize(target, task.url)) is not None
    }
    return found.pop() if len(found) == 1 else None


def _bounded_utf8(text: str, bytes_max: int) -> str:
    """`text` without the end that would make it longer than `bytes_max` in UTF-8."""
    if len(text) * 4 <= bytes_max:
        return text
    return text.encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore")


def describe(parsed: ParsedBody, *, text_chars_max: int = 500) -> dict[str, Any]:
    """A parsed page as plain data for JSON: what `headrace check page` prints."""
    page = parsed.page
    return {
        "url": page.url,
        "base_url": page.base_url,
        "error": page.error,
        "encoding": page.charset,
        "title": page.title,
        "language": page.language,
        "robots": {"index": page.index, "follow": page.follow},
        "canonical": page.canonical,
        "canonical_element": page.canonical_element,
        "canonical_header": page.canonical_header,
        "refresh": None if page.refresh is None else {"delay": page.refresh.delay_s, "url": page.refresh.url},
        "links": [
            {"url": link.url, "kind": link.kind, "rel": list(link.rel), "nofollow": link.nofollow}
            for link in page.links
        ],
        "head_links": [msgspec.structs.asdict(link) | {"rel": list(link.rel)} for link in page.head_links],
        "feeds": list(page.feeds),
        "resources": list(page.resources),
        "simhash": f"{page.simhash:016x}",
        "text_bytes": page.text_bytes,
        "text": parsed.text[:text_chars_max],
    }
