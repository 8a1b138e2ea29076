"""Whatever bytes come, a page comes of them: bounded, in normal form, without an exception."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import ParsedPage
from streams.core.policy import ParseLimits
from streams.core.rules.charset import sniff
from streams.core.rules.directives import of_headers, parse_date_ms
from streams.core.rules.fingerprints import distance, simhash
from streams.core.rules.links import link_header_targets, parse_refresh, srcset_urls, words
from streams.core.rules.markup_guard import safe_length
from streams.core.rules.urls import normalize
from tests.support.pages import parse

PIECES = [
    *("<a href=", "'/x'", '"y?z"', "<p", "<div>", "</div>", "<!--", "-->", ">", "<", "=", "'", '"', "<script>"),
    *("</script", "<svg>", "<table>", "<td>", "<template>", "<noscript>", "<base href=//b.example>", "<body x=1>"),
    *("<meta http-equiv=refresh content=", "<meta name=robots content=none>", "<link rel=canonical href=/c>"),
    *("<iframe src=i>", "<frameset>", "<title>", "\x00", " ", "\n", "text", "é", "&amp;", "&#0;", "<![CDATA[", "]]>"),
    *("<?xml encoding='koi8-r'?>", "<meta charset=gbk>", "#", "0;", " rel=nofollow", " srcset='a 1x,b 2x'", "<img"),
    *("<font color=red>", "<b>", "</b>", "<plaintext>", "<a xlink:href=s>", "<math>", "<foreignObject>", "<select>"),
]
MARKUP = st.lists(st.sampled_from(PIECES), max_size=60).map(lambda pieces: "".join(pieces).encode())
BODIES = st.one_of(MARKUP, st.binary(max_size=300))
TYPES = st.sampled_from(
    [None, "", "text/html", "text/html; charset=utf-16", "application/xhtml+xml", "text/plain", "x"]
)
LIMITS = msgspec.structs.replace(ParseLimits(), links_max=5, text_bytes_max=50, title_chars_max=5)


@given(BODIES, TYPES, st.text(max_size=40), st.text(max_size=40))
@settings(max_examples=400, deadline=None)
def test_any_body_gives_a_page_within_its_limits(body: bytes, kind: str | None, robots: str, link: str) -> None:
    """No body, type or header raises; every URL is a normal form and stands once; every bound holds."""
    parsed = parse(
        body, content_type=kind, robots_tags=(robots,), link_headers=(link,), limits=LIMITS, with_resources=True
    )
    page = parsed.page
    found = [url.url for url in page.links]
    assert len(found) == len(set(found)) <= 5
    assert all(normalize(url) == url for url in [*found, *page.feeds, *page.resources])
    assert all(normalize(url) == url for url in (page.canonical, page.base_url or None) if url is not None)
    assert len(page.title) <= 5
    assert page.text_bytes == len(parsed.text.encode()) <= 50
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(page), type=ParsedPage) == page


@given(BODIES, st.sampled_from(["a", "b&c", "é"]))
@settings(max_examples=200, deadline=None)
def test_the_same_bytes_give_the_same_page(body: bytes, title: str) -> None:
    """Replay and takeover parse again: what they find must not depend on the run."""
    body = f"<title>{title}</title>".encode() + body
    assert parse(body) == parse(body)


@given(BODIES)
@settings(max_examples=200, deadline=None)
def test_the_guard_gives_a_length_and_a_reason_together(body: bytes) -> None:
    """Small pages are never cut, and a cut always says why."""
    length, error = safe_length(body * 40, attributes_per_tag_max=20)
    assert 0 <= length <= len(body) * 40
    assert bool(error) == (length < len(body) * 40)


@given(st.text(max_size=80), st.text(max_size=80))
@settings(max_examples=300, deadline=None)
def test_no_value_of_an_attribute_or_header_raises(first: str, second: str) -> None:
    """Values come from strangers: each rule takes any text."""
    for value in (first, f"0;url={first}", f"unavailable_after: {first}", f"<{first}>; {second}"):
        parse_refresh(value)
        list(srcset_urls(value))
        words(value)
        list(link_header_targets(value, "canonical"))
        of_headers((value, second), product_token=second, now_ms=0)
        parse_date_ms(value)
        sniff(value.encode("utf-8", "surrogatepass"), second)


@given(st.lists(st.sampled_from("abcdefgh"), max_size=300), st.lists(st.sampled_from("abcdefgh"), max_size=300))
def test_fingerprints_are_64_bits_of_words_alone(first: list[str], second: list[str]) -> None:
    """White space and case are no words; distance is symmetric and zero for the same text."""
    a, b = simhash(" ".join(first)), simhash(" ".join(second))
    assert 0 <= a < 2**64
    assert a == simhash("\n\t".join(word.upper() for word in first))
    assert distance(a, b) == distance(b, a) <= 64
    assert distance(a, a) == 0
