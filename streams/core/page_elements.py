"""What one pass over a page's elements gives: links, directives, title, base, refresh, and where its text lies.

The tree is built as in a browser that runs scripts: the content of `<noscript>` is then text, a picture in the head's
noscript does not end the head, and a refresh in it, meant for others, is not taken. Its links and its robots directives
are read on their own. Links are resolved against the page's base.
"""

from __future__ import annotations

from typing import Any

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

from schemas.records import HeadLink, Link, ParseTask, Refresh
from streams.core.policy import ParseLimits
from streams.core.rules import directives
from streams.core.rules.links import FEED_TYPES, HEAD_LINK_RELS, mime_essence, parse_refresh, srcset_urls, words
from streams.core.rules.urls import Resolver, normalize
from streams.core.rules.visible_text import BLOCK_IDS, UNSEEN_IDS, tag_ids

__all__ = ["Reading"]

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


class Reading:
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
