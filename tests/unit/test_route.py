"""The link router: what a parsed body names, for whom, how deep, and what it must not name."""

from __future__ import annotations

from schemas.records import DiscoveredUrl, HeadLink, Kind, Link, ParsedPage, Refresh, SitemapEntry, Source
from streams.core.route import SITEMAP_DEPTH_MAX, route
from streams.core.rules.urls import url_id

HERE = "https://a.example/dir/page"
NOW_MS = 1_700_000_000_000


def page(kind: Kind = Kind.PAGE, depth: int = 3, **fields: object) -> ParsedPage:
    start: dict[str, object] = {
        "url_id": url_id(HERE),
        "host_key": "https://a.example",
        "url": HERE,
        "url_version": 1,
        "kind": kind,
        "depth": depth,
        "fetched_ms": 0,
        "extractor_version": 1,
    }
    return ParsedPage(**(start | fields))  # type: ignore[arg-type]


def links(*urls: str, kind: str = "a", nofollow: bool = False) -> tuple[Link, ...]:
    return tuple(Link(url, kind, (), nofollow) for url in urls)


def urls_of(routed: dict[str, tuple[DiscoveredUrl, ...]]) -> dict[str, list[str]]:
    return {key: [one.url for one in found] for key, found in routed.items()}


def test_links_go_to_their_hosts_in_order() -> None:
    """The owner of a host gets that host's links, each once, as they stand in the document; ports are hosts apart."""
    named = links("https://b.example/2", "https://a.example/1", "https://b.example/1", "https://b.example/2", HERE)
    routed = route(page(links=named + links("https://b.example:8443/")), now_ms=NOW_MS)
    assert urls_of(routed) == {
        "https://b.example": ["https://b.example/2", "https://b.example/1"],
        "https://a.example": ["https://a.example/1"],
        "https://b.example:8443": ["https://b.example:8443/"],
    }


def test_a_link_knows_where_it_came_from() -> None:
    """Parent, depth and time are the finder's: depth limits and `explain` stand on them."""
    (found,) = route(page(links=links("http://b.example/")), now_ms=NOW_MS)["http://b.example"]
    assert found == DiscoveredUrl(
        "http://b.example/", "http://b.example", Source.LINK, NOW_MS, parent_id=url_id(HERE), depth=4
    )


def test_nofollow_is_obeyed_by_page_and_by_link() -> None:
    """A nofollow link names nothing, another link to the same place does; a nofollow page names nothing at all."""
    named = links("http://b.example/no", nofollow=True) + links("http://b.example/yes")
    named += links("http://b.example/both", nofollow=True) + links("http://b.example/both")
    followed = {"http://b.example": ["http://b.example/yes", "http://b.example/both"]}
    assert urls_of(route(page(links=named), now_ms=0)) == followed
    assert route(page(links=named, canonical="http://b.example/c", follow=False), now_ms=0) == {}
    everything = urls_of(route(page(links=named, follow=False), now_ms=0, follow_nofollow=True))
    assert everything == {"http://b.example": [f"http://b.example/{name}" for name in ("no", "yes", "both")]}


def test_a_canonical_is_a_link_and_no_merge() -> None:
    """The canonical is admitted beside the links, once, and the page itself is not replaced by it."""
    routed = route(page(links=links("http://b.example/1"), canonical="http://b.example/c"), now_ms=0)
    assert urls_of(routed) == {"http://b.example": ["http://b.example/1", "http://b.example/c"]}
    assert routed["http://b.example"][1].source is Source.LINK
    again = route(page(links=links("http://b.example/c"), canonical="http://b.example/c"), now_ms=0)
    assert urls_of(again) == {"http://b.example": ["http://b.example/c"]}
    assert route(page(canonical=HERE), now_ms=0) == {}


def test_head_links_and_refresh_name_pages() -> None:
    """The next page, a translation and a refresh's target are pages to read; another form of this page is none."""
    named = (
        HeadLink("http://b.example/next", ("next",)),
        HeadLink("http://b.example/de", ("alternate",), hreflang="de"),
        HeadLink("http://b.example/print", ("alternate",), media="print", type="text/html"),
        HeadLink("http://b.example/json", ("alternate",), type="application/json"),
    )
    routed = route(page(head_links=named, refresh=Refresh(0, "http://b.example/new")), now_ms=0)
    assert urls_of(routed) == {
        "http://b.example": [f"http://b.example/{name}" for name in ("new", "next", "de", "print")]
    }
    assert route(page(head_links=named, refresh=Refresh(0, "http://b.example/new"), follow=False), now_ms=0) == {}


def test_feeds_are_read_only_when_asked_for() -> None:
    """A declared feed is not fetched by default; when it is, it goes to the reader of feeds."""
    named = page(feeds=("http://b.example/feed.xml",))
    assert route(named, now_ms=0) == {}
    (found,) = route(named, now_ms=0, feeds=True)["http://b.example"]
    assert (found.source, found.kind, found.depth) == (Source.FEED, Kind.SITEMAP, 4)


def test_a_sitemap_lists_pages_at_its_own_depth() -> None:
    """Pages of a sitemap are as deep as it is and carry lastmod; its child sitemaps lie one deeper and are sitemaps."""
    entries = (
        SitemapEntry("https://a.example/1", 5),
        SitemapEntry("https://a.example/s.xml", None, True),
        SitemapEntry("https://a.example/1", 9),
        SitemapEntry("https://a.example/1", 7),
    )
    routed = route(page(Kind.SITEMAP, depth=1, entries=entries), now_ms=NOW_MS)
    assert [(one.url, one.depth, one.kind, one.lastmod_ms, one.source) for one in routed["https://a.example"]] == [
        ("https://a.example/1", 1, Kind.PAGE, 9, Source.SITEMAP),
        ("https://a.example/s.xml", 2, Kind.SITEMAP, None, Source.SITEMAP),
    ]


def test_a_chain_of_indexes_ends() -> None:
    """An index that names an index, and so for ever, is followed to a bound; one that names itself not at all."""
    entries = (SitemapEntry("https://a.example/s.xml", None, True), SitemapEntry(HERE, None, True))
    deep = route(page(Kind.SITEMAP, depth=SITEMAP_DEPTH_MAX, entries=entries), now_ms=0)
    assert deep == {}
    last = route(page(Kind.SITEMAP, depth=SITEMAP_DEPTH_MAX - 1, entries=entries), now_ms=0)
    assert urls_of(last) == {"https://a.example": ["https://a.example/s.xml"]}


def test_trust_goes_from_an_index_to_the_sitemaps_that_it_names() -> None:
    """Protects a site whose sitemaps lie on a CDN: what the index may name, they may name; pages carry no trust."""
    entries = (
        SitemapEntry("https://cdn.example/1.xml", is_sitemap=True),
        SitemapEntry("https://b.example/p"),
        SitemapEntry("https://b.example/2.xml", is_sitemap=True),
    )
    index = page(Kind.SITEMAP, entries=entries, trusted_hosts=("https://b.example", "https://c.example"))
    routed = route(index, now_ms=0)
    assert [one.trusted_hosts for one in routed["https://cdn.example"]] == [("https://b.example", "https://c.example")]
    assert [one.trusted_hosts for one in routed["https://b.example"]] == [(), ("https://c.example",)]


def test_what_a_feed_names_is_from_a_feed() -> None:
    """Protects the source that is told: a feed's entries are news, a sitemap's are the whole site."""
    for sitemap_type, source in (("rss", Source.FEED), ("atom", Source.FEED), ("urlset", Source.SITEMAP)):
        feed = page(Kind.SITEMAP, entries=(SitemapEntry("https://a.example/1"),), sitemap_type=sitemap_type)
        assert [one.source for one in route(feed, now_ms=0)["https://a.example"]] == [source]
