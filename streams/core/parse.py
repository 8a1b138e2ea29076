"""The parse stage: from the bytes of one page to links, directives, title, language and text.

Only HTML and XHTML have links; text/plain has text; everything else has neither and that is no error. The order of the
steps: type (Content-Type, or the first bytes without one), bounds on hostile markup, encoding, lexbor's tree, one walk
over all elements (`streams.core.page_elements`), text, fingerprint.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser

from schemas.records import ParsedPage, ParseTask
from streams.core.page_elements import Reading
from streams.core.policy import ParseLimits
from streams.core.rules import directives
from streams.core.rules.charset import sniff
from streams.core.rules.fingerprints import simhash
from streams.core.rules.links import link_header_targets, mime_essence
from streams.core.rules.markup_guard import safe_length
from streams.core.rules.mime_sniff import HTML, TEXT, XHTML, page_type
from streams.core.rules.soft404 import is_soft_404
from streams.core.rules.urls import normalize
from streams.core.rules.visible_text import visible_text

BODY_CUT = "body_cut"
TOO_MANY_LINKS = "too_many_links"

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
    reading = Reading(task, encoding, product_token, now_ms, spoken, limits)
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


def _finish(page: ParsedPage, reading: Reading, tree: LexborHTMLParser, error: str) -> ParsedBody:
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
