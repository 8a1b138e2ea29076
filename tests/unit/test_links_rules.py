"""Rules for the values of link attributes: HTML standard (refresh, srcset, tokens), RFC 8288 (Link)."""

from __future__ import annotations

import pytest

from streams.core.rules.links import link_header_targets, mime_essence, parse_refresh, srcset_urls, words
from streams.core.rules.mime_sniff import page_type


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("0; url=/r", (0, "/r")),
        ("0;URL='/r'", (0, "/r")),
        ('5, Url = "/r" tail', (5, "/r")),
        ("0; url='/r", (0, "/r")),
        ("0; /bare", (0, "/bare")),
        ("0 /blank", (0, "/blank")),
        ("  7.9;url=/r", (7, "/r")),
        (".5;url=/r", (0, "/r")),
        ("1.2.3 ; url=/r", (1, "/r")),
        ("0; upload/x", (0, "upload/x")),
        ("0; url/x", (0, "url/x")),
        ("0; ur", (0, "ur")),
        ("0; '/quoted' x", (0, "/quoted")),
        ("0; url=", (0, "")),
        ("0; url==/r", (0, "=/r")),
        ("30", (30, None)),
        ("30;", (30, None)),
        ("30 ; ", (30, None)),
        ("0;;url=/r", (0, ";url=/r")),
        ("url=/no", None),
        ("-1; url=/no", None),
        ("5x; url=/no", None),
        ("", None),
        ("; url=/no", None),
        ("9" * 400 + "; url=/r", (2**31 - 1, "/r")),
    ],
)
def test_a_refresh_is_parsed_by_the_standard_steps(content: str, found: tuple[int, str | None] | None) -> None:
    """Each step of "shared declarative refresh steps" decides whether a page is left, and for where."""
    assert parse_refresh(content) == found


@pytest.mark.parametrize(
    ("value", "urls"),
    [
        ("a.png 1x, b.png 2x", ["a.png", "b.png"]),
        ("a,b.png 2x", ["a,b.png"]),
        ("a.png, b.png", ["a.png", "b.png"]),
        ("a.png,,, b.png 3w", ["a.png", "b.png"]),
        (" ,\n a.png\t480w ,b.png 800w 600h", ["a.png", "b.png"]),
        ("data:image/png;base64,AA== 1x, b.webp 2x", ["data:image/png;base64,AA==", "b.webp"]),
        ("a.png 1q, b.png", ["b.png"]),
        ("a.png 0w, b.png -1x, c.png 1.5x 2x, d.png 2h, e.png 1e2x", ["e.png"]),
        ("a.png (x, y) 1x, b.png", ["b.png"]),
        ("", []),
        (",", []),
    ],
)
def test_a_srcset_is_parsed_by_the_standard(value: str, urls: list[str]) -> None:
    """Splitting at commas breaks URLs that hold one and invents resources that nobody serves."""
    assert list(srcset_urls(value)) == urls


def test_words_are_a_set_without_case() -> None:
    """rel is a list of words: `nofollow-me` is not nofollow, `NoFollow` is."""
    assert words("\nNoFollow\tUGC nofollow ") == ("nofollow", "ugc")
    assert words(None) == ()
    assert words("a\u00a0b") == ("a\u00a0b",)


@pytest.mark.parametrize(
    ("value", "targets"),
    [
        ("</one>; rel=canonical", ["/one"]),
        ('</a>; rel="next canonical"; x=y, </b>; rel=prev', ["/a"]),
        ('</a>; title="x, <y>; rel=canonical"; rel=next, </b>; REL = "Canonical"', ["/b"]),
        ("</a,b;c>; rel=canonical", ["/a,b;c"]),
        ("</a>; rel=next; rel=canonical", []),
        ("</a>; rel=canonical; anchor='#x'", []),
        ("</a>", []),
        ("<", []),
        ("", []),
    ],
)
def test_link_fields_are_parsed_by_rfc_8288(value: str, targets: list[str]) -> None:
    """A target holds commas and a quoted string holds whole links: a split finds the wrong canonical."""
    assert list(link_header_targets(value, "canonical")) == targets


@pytest.mark.parametrize(
    ("value", "essence"),
    [
        (" Text/HTML ; charset=x", "text/html"),
        ("application/rss+xml", "application/rss+xml"),
        ("text", ""),
        ("text/", ""),
        (None, ""),
        ("text/html, text/plain", "text/html"),
    ],
)
def test_a_mime_type_without_its_parameters(value: str | None, essence: str) -> None:
    """The essence decides what is parsed; parameters and case do not."""
    assert mime_essence(value) == essence


@pytest.mark.parametrize(
    ("declared", "body", "kind"),
    [
        ("", b"  <!DocType HTML><p>", "text/html"),
        ("", b"\xef\xbb\xbf<html>", "text/html"),
        ("", b"<a href=x>", "text/html"),
        ("", b"<abbr>", "text/plain"),
        ("", b"<!-- x", "text/html"),
        ("", b"<?xml version='1.0'?><rss>", "text/xml"),
        ("", b"<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'>", "application/xhtml+xml"),
        ("", b"words", "text/plain"),
        ("", b"\x00\x01<html>", "application/octet-stream"),
        ("", "\ufeff<html>".encode("utf-16-le"), "text/html"),
        ("*/*", b"<html>", "text/html"),
        ("application/octet-stream", b"<html>", "application/octet-stream"),
        ("text/plain", b"<html>", "text/plain"),
    ],
)
def test_only_a_missing_type_is_sniffed(declared: str, body: bytes, kind: str) -> None:
    """A site that calls a file a download means it; one that says nothing leaves it to the bytes."""
    assert page_type(declared, body) == kind
