"""The link router: from one parsed body to the URLs that it names, grouped by the host that will admit them.

| named by                        | source, kind     | depth           | unless                                 |
|---------------------------------|------------------|-----------------|----------------------------------------|
| link or frame of a page         | LINK, PAGE       | the page's + 1  | page or link says nofollow             |
| refresh, `<link>` to a page     | LINK, PAGE       | the page's + 1  | page says nofollow; another form       |
| canonical (never a merge)       | LINK, PAGE       | the page's + 1  | page says nofollow                     |
| feed that a page declares       | FEED, SITEMAP    | the page's + 1  | `feeds` is off, which it is by default |
| URL of a sitemap                | SITEMAP, PAGE    | the sitemap's   |                                        |
| URL of a feed                   | FEED, PAGE       | the feed's      |                                        |
| sitemap that an index names     | SITEMAP, SITEMAP | the index's + 1 | the index is SITEMAP_DEPTH_MAX deep    |

A sitemap stands beside the site and not on a path through it, so what it lists is no deeper than itself; an index that
names an index, and so for ever, does get deeper, and ends. Feeds repeat what the pages link to and would be fetched
again and again: reading them is for a crawl that wants news early, and then it is switched on.

Another form of a page (`<link rel="alternate" type="application/json">`) is not HTML and so no page to read; a
translation or a version for another screen is.

Within a host the order is that of the document, and each URL stands once; a page's link to itself is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from schemas.records import DiscoveredUrl, Kind, ParsedPage, Source
from streams.core.rules.urls import host_key, url_id

SITEMAP_DEPTH_MAX = 8  # an index at this depth names no further sitemaps
ORDINARY_HINT = 128
_FEED_TYPES = ("rss", "atom")
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
    source, kind = Source.LINK, Kind.PAGE
    for link in page.links:
        url = link.url
        if url in seen or (link.nofollow and not follow_nofollow):
            continue
        seen.add(url)
        key = url[: url.index("/", 8)]  # host_key(), without the call: this is the hottest loop
        one = DiscoveredUrl(url, key, source, now_ms, parent, depth, 0, ORDINARY_HINT, None, kind)
        urls = found.get(key)
        if urls is None:
            found[key] = [one]
        else:
            urls.append(one)
    for url, hint in _beside_links(page):
        if url not in seen:
            seen.add(url)
            key = host_key(url)
            one = DiscoveredUrl(url, key, source, now_ms, parent, depth, 0, hint, None, kind)
            found.setdefault(key, []).append(one)
    for url in page.feeds if feeds else ():
        if url not in seen:
            seen.add(url)
            key = host_key(url)
            one = DiscoveredUrl(url, key, Source.FEED, now_ms, parent, depth, 0, ORDINARY_HINT, None, Kind.SITEMAP)
            found.setdefault(key, []).append(one)
    return found


def _beside_links(page: ParsedPage) -> Iterator[tuple[str, int]]:
    """(URL, priority hint) of the pages that a page names otherwise than by a link."""
    if page.refresh is not None:
        yield page.refresh.url, ORDINARY_HINT
    for head_link in page.head_links:
        if not head_link.type or "html" in head_link.type.lower():
            yield head_link.url, ORDINARY_HINT
    if page.canonical:
        yield page.canonical, DECLARED_HINT


def _of_sitemap(page: ParsedPage, now_ms: int) -> dict[str, list[DiscoveredUrl]]:
    """Entries of one sitemap. Of a URL listed twice the later lastmod counts, at the place of the first."""
    found: dict[str, dict[str, DiscoveredUrl]] = {}
    parent = page.url_id or url_id(page.url)
    source = Source.FEED if page.sitemap_type in _FEED_TYPES else Source.SITEMAP
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
        # What may be named by an index may be named by the sitemaps that it names.
        trusted = tuple(host for host in page.trusted_hosts if host != key) if entry.is_sitemap else ()
        urls[url] = DiscoveredUrl(url, key, source, now_ms, parent, depth, 0, ORDINARY_HINT, lastmod_ms, kind, trusted)
    return {key: list(urls.values()) for key, urls in found.items()}
