"""A page to parse without a crawl around it."""

from __future__ import annotations

from schemas.records import BodyRef, Kind, ParseTask
from streams.core.parse import ParsedBody, parse_page
from streams.core.policy import ParseLimits
from streams.core.rules.urls import host_key, url_id

PAGE_URL = "http://www.example.com/dir/page.html"
HTML_UTF_8 = "text/html; charset=utf-8"


def parse(
    body: bytes | str,
    *,
    url: str = PAGE_URL,
    content_type: str | None = HTML_UTF_8,
    robots_tags: tuple[str, ...] = (),
    link_headers: tuple[str, ...] = (),
    limits: ParseLimits | None = None,
    product_token: str = "Headrace",
    now_ms: int = 0,
    with_resources: bool = False,
) -> ParsedBody:
    """`parse_page` on a body as if it had just been fetched; text is sent as UTF-8."""
    task = ParseTask(
        url_id=url_id(url),
        host_key=host_key(url),
        url=url,
        url_version=1,
        kind=Kind.PAGE,
        content=BodyRef("", 0, 0),
        fetched_ms=now_ms,
        depth=0,
        extractor_version=1,
        content_type=content_type,
        robots_tags=robots_tags,
        link_headers=link_headers,
    )
    return parse_page(
        task,
        body.encode() if isinstance(body, str) else body,
        limits=limits or ParseLimits(),
        product_token=product_token,
        now_ms=now_ms,
        with_resources=with_resources,
    )


def urls(parsed: ParsedBody) -> list[str]:
    """The URLs of a page's links, in the order found."""
    return [link.url for link in parsed.page.links]
