"""The link router: from one parsed body to the URLs that it names, grouped by the host that will admit them.

| named by                        | source, kind     | depth           | unless                                 |
|---------------------------------|------------------|-----------------|----------------------------------------|
| link, frame, refresh, alternate | LINK, PAGE       | the page's + 1  | page or link says nofollow             |
| canonical (never a merge)       | LINK, PAGE       | the page's + 1  | page says nofollow                     |
| feed that a page declares       | FEED, SITEMAP    | the page's + 1  | `feeds` is off, which it is by default |
| URL of a sitemap or feed        | SITEMAP, PAGE    | the sitemap's   |                                        |
| sitemap that an index names     | SITEMAP, SITEMAP | the index's + 1 | the index is SITEMAP_DEPTH_MAX deep    |

A sitemap stands beside the site and not on a path through it, so what it lists is no deeper than itself; an index that
names an index, and so for ever, does get deeper, and ends. Feeds repeat what the pages link to and would be fetched
again and again: reading them is for a crawl that wants news early, and then it is switched on.

Within a host the order is that of the document, and each URL stands once; a page's link to itself is left out.
"""

from __future__ import annotations

from schemas.records import DiscoveredUrl, Kind, ParsedPage, Source
from streams.core.rules.urls import url_id

FEED = "feed"  # `Link.kind` of a feed that a page declares
SITEMAP_DEPTH_MAX = 8  # an index at this depth names no further sitemaps
ORDINARY_HINT = 128
DECLARED_HINT = 144  # a canonical is what the site itself holds for the better address

Routed = dict[str, tuple[DiscoveredUrl, ...]]
"""host_key to the URLs of that host, hosts in the order of their first URL."""


def route(page: ParsedPage, *, now_ms: int, follow_nofollow: bool = False, feeds: bool = False) -> Routed:
    """The URLs that `page` names. A page whose parsing failed names none."""
    if page.kind is Kind.SITEMAP:
        found = _of_sitemap(page, now_ms)
    elif page.follow or follow_nofollow:
        found = _of_page(page, now_ms, follow_nofollow, feeds)
    else:
        return {}
    return {key: tuple(urls) for key, urls in found.items()}


def _of_page(page: ParsedPage, now_ms: int, follow_nofollow: bool, feeds: bool) -> dict[str, list[DiscoveredUrl]]:
    found: dict[str, list[DiscoveredUrl]] = {}
    seen = {page.url}
    parent = page.url_id or url_id(page.url)
    depth = page.depth + 1
    link_source, page_kind = Source.LINK, Kind.PAGE
    for link in page.links:
        url = link.url
        if url in seen or (link.nofollow and not follow_nofollow):
            continue
        is_feed = link.kind == FEED
        if is_feed and not feeds:
            continue
        seen.add(url)
        key = url[: url.index("/", 8)]  # host_key(), without the call: this is the hottest loop
        if is_feed:
            one = DiscoveredUrl(url, key, Source.FEED, now_ms, parent, depth, kind=Kind.SITEMAP)
        else:
            one = DiscoveredUrl(url, key, link_source, now_ms, parent, depth, 0, ORDINARY_HINT, None, page_kind)
        urls = found.get(key)
        if urls is None:
            found[key] = [one]
        else:
            urls.append(one)
    canonical = page.canonical
    if canonical and canonical not in seen:
        key = canonical[: canonical.index("/", 8)]
        one = DiscoveredUrl(canonical, key, link_source, now_ms, parent, depth, 0, DECLARED_HINT, None, page_kind)
        found.setdefault(key, []).append(one)
    return found


def _of_sitemap(page: ParsedPage, now_ms: int) -> dict[str, list[DiscoveredUrl]]:
    """Entries of one sitemap. Of a URL listed twice the later lastmod counts, at the place of the first."""
    found: dict[str, dict[str, DiscoveredUrl]] = {}
    parent = page.url_id or url_id(page.url)
    for entry in page.entries:
        url = entry.url
        if entry.is_sitemap and (page.depth >= SITEMAP_DEPTH_MAX or url == page.url):
            continue
        key = url[: url.index("/", 8)]
        urls = found.setdefault(key, {})
        lastmod_ms = entry.lastmod_ms
        before = urls.get(url)
        # Of a URL listed twice: the later date, where there is one.
        if before is not None and (lastmod_ms or 0) <= (before.lastmod_ms or 0):
            continue
        depth = page.depth + 1 if entry.is_sitemap else page.depth
        kind = Kind.SITEMAP if entry.is_sitemap else Kind.PAGE
        urls[url] = DiscoveredUrl(url, key, Source.SITEMAP, now_ms, parent, depth, 0, ORDINARY_HINT, lastmod_ms, kind)
    return {key: list(urls.values()) for key, urls in found.items()}
