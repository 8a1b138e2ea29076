"""Sitemap reading under any bytes: it never raises, names nothing foreign, and mending changes nothing right."""

from __future__ import annotations

import gzip
from xml.sax.saxutils import escape

from hypothesis import given
from hypothesis import strategies as st

from connectors.parser_frames import HEADER, parse_header, read_output, request_frame, response_frame
from connectors.ports import ParseOutput
from schemas.records import BodyRef, Kind, Link, ParsedPage, ParseTask
from streams.core.policy import ParseLimits
from streams.core.rules.sitemap_bytes import repaired
from streams.core.rules.sitemaps import read

SITE = "http://www.example.com"
LIMITS = ParseLimits(sitemap_bytes_max=100_000, sitemap_urls_max=100)
PIECES = (
    "<urlset>", "</urlset>", "<url>", "</url>", "<loc>", "</loc>", "<lastmod>", "</lastmod>", "2024-01-01", SITE + "/a",
    "<link href='x' xml:base='http://['/>",
    "http://b.example/", "<sitemapindex>", "<sitemap>", "</sitemap>", "<rss>", "<item>", "</item>", "<link>", "</link>",
    "<feed>", "<entry>", '<link href="x"/>', "</entry>", "&", "&amp;", "&x;", "<![CDATA[", "]]>", "<!--", "-->",
    "<?xml?>",     "<!DOCTYPE x [", "]>", "<!ENTITY a 'b'>", "\ufeff", "\x00", " ", "\n", "é", "<", ">", '"', "xml:base='http://['",
)  # fmt: skip


@given(
    st.one_of(
        st.binary(max_size=300),
        st.lists(st.sampled_from(PIECES), max_size=30).map(lambda pieces: "".join(pieces).encode()),
        st.lists(st.sampled_from(PIECES), max_size=30).map(lambda pieces: "".join(pieces).encode("utf-16")),
        st.binary(max_size=300).map(lambda tail: gzip.compress(b"<urlset>")[:-4] + tail),
    ),
    st.one_of(st.none(), st.text(max_size=40), st.sampled_from(["text/xml; charset=utf-16", "a; charset=idna"])),
)
def test_any_bytes_give_a_sitemap_of_the_own_host(body: bytes, content_type: str | None) -> None:
    """No input raises, every URL is of the sitemap's host, and what is refused or no sitemap names nothing."""
    sitemap = read(body, url=f"{SITE}/s.xml", content_type=content_type, limits=LIMITS, extensions=True)
    assert all(entry.url.startswith(SITE + "/") for entry in sitemap.entries + sitemap.children)
    assert len(sitemap.entries) + len(sitemap.children) <= LIMITS.sitemap_urls_max
    if sitemap.type in ("invalid", "refused"):
        assert sitemap.errors
        assert not sitemap.entries
        assert not sitemap.children


@given(st.lists(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=30), max_size=20))
def test_a_written_sitemap_is_read_whole(names: list[str]) -> None:
    """What is written by the rules is read back without an error, one entry for each, in order."""
    locs = [f"{SITE}/{index}?{name}" for index, name in enumerate(names)]
    body = "<urlset>" + "".join(f"<url><loc>{escape(loc)}</loc></url>" for loc in locs) + "</urlset>"
    sitemap = read(body.encode(), url=f"{SITE}/s.xml", content_type=None, limits=LIMITS)
    assert sitemap.errors == ()
    assert [entry.url.partition("?")[0] for entry in sitemap.entries] == [loc.partition("?")[0] for loc in locs]


@given(st.lists(st.sampled_from((*PIECES, "&#38;", "&#x26;", "x" * 50)), max_size=40), st.integers(1, 60))
def test_mending_does_not_depend_on_where_chunks_end(pieces: list[str], size: int) -> None:
    """A reference, a comment or a CDATA section cut in two is treated as one that is not."""
    data = "".join(pieces).encode()
    whole = b"".join(repaired(iter([data])))
    assert b"".join(repaired(data[at : at + size] for at in range(0, len(data), size))) == whole
    assert b"".join(repaired(iter([whole]))) == whole


@given(st.binary(), st.text(max_size=50), st.lists(st.text(max_size=20), max_size=5), st.binary(max_size=50))
def test_frames_come_back_as_they_were(body: bytes, title: str, urls: list[str], records: bytes) -> None:
    """What the pool and a worker say to one another loses nothing."""
    task = ParseTask(b"i", "http://a", "http://a/", 1, Kind.PAGE, BodyRef("s", 1, 2), 3, 4, 5)
    head, sent = request_frame(task, body)
    header = parse_header(head)
    assert (header.first, header.second, sent) == (len(head) - HEADER.size, len(body), body)
    links = tuple(Link(url, "a") for url in urls)
    page = ParsedPage(b"i", "http://a", "http://a/", 1, Kind.PAGE, 4, 3, 5, links=links, title=title)
    output = ParseOutput(page, body, records, len(records))
    frame = response_frame(output)
    assert read_output(parse_header(frame), memoryview(frame)) == output
