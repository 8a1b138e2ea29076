"""The normal form of URLs, rule by rule, and the parts that are cut from it."""

from __future__ import annotations

import ada_url
import pytest

from streams.core.policy import HREF_CHARS_MAX, URL_BYTES_MAX
from streams.core.rules import urls
from streams.core.rules.urls import Resolver, normalize

BASE = "http://example.com/dir/page.html?x=1#f"


@pytest.mark.parametrize(
    ("href", "expected"),
    [
        ("HTTP://EXAMPLE.com:80/", "http://example.com/"),
        ("https://example.com:443", "https://example.com/"),
        ("https://example.com:80/", "https://example.com:80/"),
        ("http://example.com:0/", "http://example.com:0/"),
        ("http://example.com:/", "http://example.com/"),
        ("http://example.com:65536/", None),
        ("http://exa\tmp\nle.com/a\r\nb", "http://example.com/ab"),
        (" \x00\x1f http://example.com/ \x0c", "http://example.com/"),
        ("http:\\\\example.com\\a\\..\\b?c\\d", "http://example.com/b?c\\d"),
        ("http:///////example.com/", "http://example.com/"),
        ("http://example.com/a/%2E%2e/%2e/b", "http://example.com/b"),
        ("http://example.com/a/..%2fb", "http://example.com/a/..%2Fb"),
        ("http://example.com//a///b/", "http://example.com//a///b/"),
        ("http://example.com/Index.HTML", "http://example.com/Index.HTML"),
        ("http://example.com/?", "http://example.com/?"),
        ("http://example.com?a?b", "http://example.com/?a?b"),
        ("http://example.com/?b=2&a=1&b=2&", "http://example.com/?b=2&a=1&b=2&"),
        ("http://example.com/?a/../b", "http://example.com/?a/../b"),
        ("http://example.com/a;b=c/d", "http://example.com/a;b=c/d"),
        ("http://example.com/#!/route", "http://example.com/"),
        ("http://example.com/'\"?'\"", "http://example.com/'%22?%27%22"),
        ("ftp://example.com/", None),
        ("mailto:a@example.com", None),
        ("httpx://example.com/", None),
        ("file:///etc/passwd", None),
        ("//example.com/", None),
        ("relative", None),
        ("", None),
        ("http://", None),
        ("http://exa mple.com/", None),
        ("http://exa%00mple.com/", None),
        ("http://[::1", None),
        ("http://[fe80::1%25eth0]/", None),
    ],
)
def test_absolute(href: str, expected: str | None) -> None:
    """Parsing without a base follows the WHATWG standard, and only http and https pass."""
    assert normalize(href) == expected


@pytest.mark.parametrize(
    ("href", "expected"),
    [
        ("", "http://example.com/dir/page.html?x=1"),
        ("#top", "http://example.com/dir/page.html?x=1"),
        ("?y", "http://example.com/dir/page.html?y"),
        ("?", "http://example.com/dir/page.html?"),
        (".", "http://example.com/dir/"),
        ("../../..", "http://example.com/"),
        ("/a", "http://example.com/a"),
        ("//other.org", "http://other.org/"),
        ("\\\\other.org\\a", "http://other.org/a"),
        ("http:a", "http://example.com/dir/a"),
        ("https:a", "https://a/"),
        (";p", "http://example.com/dir/;p"),
        ("a:b", None),
        ("a/b:c", "http://example.com/dir/a/b:c"),
        ("\u3000x", "http://example.com/dir/%E3%80%80x"),
        ("\ud800", "http://example.com/dir/%EF%BF%BD"),
        ("%zz%4", "http://example.com/dir/%zz%4"),
        (" a ", "http://example.com/dir/a"),
        (" a #x", "http://example.com/dir/a%20"),
        ("?a \n#x", "http://example.com/dir/page.html?a%20"),
        (" \n#x", "http://example.com/dir/page.html?x=1"),
    ],
)
def test_relative(href: str, expected: str | None) -> None:
    """References resolve against the page, its fragment and query left behind where the standard says so."""
    assert normalize(href, BASE) == expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("BÜCHER.de", "xn--bcher-kva.de"),
        ("faß.de", "xn--fa-hia.de"),
        ("ｅｘａｍｐｌｅ.com", "example.com"),
        ("例え。テスト", "xn--r8jz45g.xn--zckzah"),
        ("exa%6Dple.com", "example.com"),
        ("0x7f.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("017700000001", "127.0.0.1"),
        ("1.2.3", "1.2.0.3"),
        ("1.2.3.4.", "1.2.3.4"),
        ("256.1.1.1", None),
        ("1.2.3.4.5", None),
        ("[0:0:0:0:0:0:0:1]", "[::1]"),
        ("[::FFFF:1.2.3.4]", "[::ffff:102:304]"),
        ("[1::2::3]", None),
        ("a_b.example.com", "a_b.example.com"),
        ("example.com.", "example.com."),
        ("xn--a", "xn--a"),
    ],
)
def test_hosts(host: str, expected: str | None) -> None:
    """One host has one name: IDNA, full-width forms, every way to write an IPv4 address, compressed IPv6."""
    assert normalize(f"http://{host}/") == (None if expected is None else f"http://{expected}/")


@pytest.mark.parametrize(
    "href",
    [
        "http://user:pass@example.com/a@b?c@d",
        "http://user@example.com/a@b?c@d",
        "http://:pass@example.com/a@b?c@d",
        "http://@example.com/a@b?c@d",
        "http://a@b@example.com/a@b?c@d",
        "http://us%40er:p%2Fss%3F@example.com/a@b?c@d",
        "//u:p@example.com/a@b?c@d",
    ],
)
def test_user_and_password_are_stripped(href: str) -> None:
    """No credential is ever stored or sent, and no other @ is touched."""
    assert normalize(href, BASE) == "http://example.com/a@b?c@d"


def test_credentials_of_the_base_are_not_inherited() -> None:
    """A page that was named with credentials does not spread them over its links."""
    assert normalize("x", "http://u:p@example.com:8080/a") == "http://example.com:8080/x"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("%7e%2D%5f%2e%41%7A%30", "~-_.Az0"),
        ("%2f%3f%23%25%20%e2%82%ac", "%2F%3F%23%25%20%E2%82%AC"),
        ("%21%2a%27%28%29%3b%3a%40", "%21%2A%27%28%29%3B%3A%40"),
        ("%252e%25%32%65", "%252e%252e"),
        ("%", "%"),
        ("%4", "%4"),
        ("%2%65", "%2%65"),
        ("%%65%35", "%%655"),
        ("%%7a", "%z"),
        ("%2%7a", "%2z"),
        ("a%2%6A", "a%2j"),
    ],
)
def test_escapes(written: str, expected: str) -> None:
    """Unreserved characters are decoded, other escapes upper-cased, and no broken escape is ever completed."""
    assert normalize(f"http://h/{written}") == f"http://h/{expected}"
    assert normalize(f"http://h/?{written}") == f"http://h/?{expected}"


def test_length_is_bounded() -> None:
    """A normal form of exactly the bound passes, one byte more is refused, however it was written."""
    fits = "http://h/" + "a" * (URL_BYTES_MAX - 9)
    assert normalize(fits) == fits
    assert normalize(fits + "#" + "f" * 100) == fits
    assert normalize(fits + "a") is None
    assert normalize("http://h/" + "é" * (URL_BYTES_MAX // 6 + 1)) is None
    assert normalize("http://h/" + "%61" * (URL_BYTES_MAX - 9)) == fits
    assert normalize("http://h/" + "../" * HREF_CHARS_MAX) is None


def test_a_base_that_is_no_url_counts_as_none() -> None:
    """A broken base costs the relative links of its page, not the absolute ones."""
    resolver = Resolver("not a url")
    assert resolver.resolve("http://h/a") == "http://h/a"
    assert resolver.resolve("a") is None


def test_a_resolver_answers_the_same_again() -> None:
    """The memo of one page's links changes no answer, refusals included."""
    resolver = Resolver(BASE)
    first = [resolver.resolve(href) for href in ("a#x", "a#y", "mailto:x", "a")]
    assert first == ["http://example.com/dir/a"] * 2 + [None, "http://example.com/dir/a"]
    assert [resolver.resolve(href) for href in ("a#x", "a#y", "mailto:x", "a")] == first


@pytest.mark.parametrize(
    ("encoding", "written", "expected"),
    [
        ("utf-8", "é", "%C3%A9"),
        ("utf-16le", "é", "%C3%A9"),
        ("no-such-encoding", "é", "%C3%A9"),
        ("windows-1252", "é€", "%E9%80"),
        ("ISO-8859-1", "€\x81", "%80%81"),
        ("windows-1252", "\x80", "%26%23128%3B"),
        ("windows-1251", "т☃", "%F2%26%239731%3B"),
        ("gbk", "中€𝄞", "%D6%D0%80%26%23119070%3B"),
        ("gb18030", "𝄞", "%942%BE4"),
        ("big5", "中†", "%A4%A4%26%238224%3B"),
        ("shift_jis", "表¥−", "%95\\\\%81|"),
        ("shift_jis", "〜‾\x80", "%26%2312316%3B~%80"),
        ("euc-jp", "表−①髙ｱ¥", "%C9%BD%A1%DD%AD%A1%FC%E2%8E%B1\\"),
        ("x-euc-jp", "纊丂", "%F9%A1%26%2319970%3B"),
        ("euc-kr", "똠", "%8Cc"),
        ("iso-2022-jp", "a表b\x0e", "a%1B$BI=%1B(Bb%26%2365533%3B"),
        ("csiso2022jp", "~¥a~ｱﾞ☃−", "~%1B(J\\a%1B(B~%1B$B%%22!+%1B(B%26%239731%3B%1B$B!]%1B(B"),
        ("windows-1252", "a'b\"<é>", "a%27b%22%3C%E9%3E"),
    ],
)
def test_query_in_the_document_s_encoding(encoding: str, written: str, expected: str) -> None:
    """The query is encoded as the page is, the path always in UTF-8, as a browser does."""
    assert normalize(f"/é?{written}#é", BASE, encoding) == f"http://example.com/%C3%A9?{expected}"


def test_parts_of_a_normal_form() -> None:
    """host_key and path_and_query are the two halves of every normal form."""
    for url, key, rest in (
        ("http://a/", "http://a", "/"),
        ("https://a/b?c", "https://a", "/b?c"),
        ("https://www.example.org:8443/?x=/y", "https://www.example.org:8443", "/?x=/y"),
        ("http://[::1]:81//z", "http://[::1]:81", "//z"),
    ):
        assert (urls.host_key(url), urls.path_and_query(url)) == (key, rest)


def test_authorities() -> None:
    """Scheme, host and port come apart, brackets and default ports included."""
    assert urls.split_authority("http://a") == ("http", "a", 80)
    assert urls.split_authority("https://a.b:8443") == ("https", "a.b", 8443)
    assert urls.split_authority("https://[::1]") == ("https", "[::1]", 443)
    assert urls.split_authority("http://[::1]:81") == ("http", "[::1]", 81)
    assert (urls.host_name("http://a:1"), urls.port("http://a:1")) == ("a", 1)


def test_identifiers_are_stable() -> None:
    """Keys on disk were made with these digests: another one would lose every URL that is stored."""
    assert urls.url_id("http://example.org/").hex() == "3fd807b80b084d5d4cc99bc20279f6d8"
    assert urls.host_id("http://example.org").hex() == "55e8c32c2ad3936f434e"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("www.example.co.uk", "example.co.uk"),
        ("example.com", "example.com"),
        ("a.b.example.com", "example.com"),
        ("co.uk", "co.uk"),
        ("a.github.io", "a.github.io"),
        ("b.a.github.io", "a.github.io"),
        ("x.xn--fiqs8s", "x.xn--fiqs8s"),
        ("y.x.xn--fiqs8s", "x.xn--fiqs8s"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "[::1]"),
        ("localhost", "localhost"),
        ("a.b.nosuchtld", "b.nosuchtld"),
    ],
)
def test_registrable_domain(host: str, expected: str) -> None:
    """Hosts that one registrant owns are one site, and nobody else's are."""
    assert urls.registrable_domain(host) == expected


def test_what_is_remembered_of_one_page_holds_for_the_next() -> None:
    """Pages of a directory share what their links came to, but for links that a page's own path or query decides."""
    hrefs = ["x", "../x", "/x", "//other.example/", "?x", "", " ?x", "http:?x", "ht\ntp:?x", "http:x", "#x", ".", "\\x"]
    pages = ["http://h.example/d/1?a", "http://h.example/d/2?b/c", "http://h.example/d/", "http://h.example/e/1"]
    for page in pages * 2:
        found = [Resolver(page).resolve(href) for href in hrefs]
        assert found == [str(ada_url.URL(href, page).href).partition("#")[0] for href in hrefs]
