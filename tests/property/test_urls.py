"""What must hold for every URL that anybody can write."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from hypothesis import given
from hypothesis import strategies as st

from streams.core.policy import URL_BYTES_MAX, TrapLimits
from streams.core.rules import urls
from streams.core.rules.scope import Scope, ScopeMode
from streams.core.rules.traps import TemplateCounts, template, url_trap
from streams.core.rules.urls import Resolver, normalize

# Pieces that mean something to a URL parser, so that most examples are near its edges.
PIECES = st.sampled_from(
    [
        *(
            "http:",
            "https:",
            "//",
            "/",
            "\\",
            "?",
            "#",
            "@",
            ":",
            ".",
            "..",
            "%2e",
            "%2E",
            "%2",
            "%",
            "%25",
            "%65",
            "%7e",
        ),
        *(
            "%2f",
            "%c3%a9",
            "e",
            "A",
            "0",
            "7",
            "f",
            "é",
            "ß",
            "例",
            "𝄞",
            "\ud800",
            " ",
            "\t",
            "\n",
            "\x00",
            "'",
            '"',
            "<",
        ),
        *(
            "[::1]",
            "[",
            "]",
            "127.1",
            "0x7f",
            "xn--",
            "example.com",
            "h",
            ":80",
            ":443",
            "user:pw@",
            ";",
            "&",
            "=",
            "|",
        ),
        *("\u00ad", "\u200d", "。", "a b", "+", "~", "-", "_", "file:", "data:,"),
    ]
)
WRITTEN = st.lists(PIECES | st.text(max_size=3), max_size=12).map("".join)
HREFS = WRITTEN | WRITTEN.map("http://h/".__add__) | WRITTEN.map("https://example.com/a?".__add__)
BASES = st.sampled_from([None, "http://example.org/a/b?c#d", "https://u:p@h:8443/x/", "no url"]) | HREFS
ENCODINGS = st.sampled_from(["utf-8", "windows-1252", "shift_jis", "gbk", "iso-2022-jp", "big5", "euc-kr", "euc-jp"])
NORMAL = st.builds(normalize, HREFS, BASES, ENCODINGS).filter(lambda url: url is not None)


@given(HREFS, BASES, ENCODINGS)
def test_the_normal_form_is_a_fixed_point(href: str, base: str | None, encoding: str) -> None:
    """Normalizing again, with whatever base and encoding, changes nothing: a URL has one identity."""
    url = normalize(href, base, encoding)
    if url is not None:
        assert normalize(url) == url
        assert normalize(url, "https://elsewhere.test/x/", "windows-1251") == url


@given(HREFS, BASES, ENCODINGS)
def test_what_a_normal_form_is_made_of(href: str, base: str | None, encoding: str) -> None:
    """Bounded visible ASCII, http or https, no fragment, no credentials, never a dot segment."""
    url = normalize(href, base, encoding)
    if url is None:
        return
    assert url.startswith(("http://", "https://"))
    assert url.isascii()
    assert url.isprintable()
    assert " " not in url
    assert "#" not in url
    assert len(url) <= URL_BYTES_MAX
    key, rest = urls.host_key(url), urls.path_and_query(url)
    assert key + rest == url
    assert "@" not in key
    assert rest.startswith("/")
    assert not {".", ".."} & {unquote_to_bytes(s).decode("latin1") for s in rest.partition("?")[0].split("/")}
    scheme, host, port = urls.split_authority(key)
    assert host == host.lower()
    assert 0 <= port <= 65_535
    assert normalize(f"{scheme}://{host}:{port}{rest}") == url


@given(st.lists(HREFS, max_size=6), BASES, ENCODINGS)
def test_a_resolver_is_normalize(hrefs: list[str], base: str | None, encoding: str) -> None:
    """The quick way for a page's links gives what each link alone gives, with and without its fragment."""
    resolver = Resolver(base, encoding)
    for href in hrefs + hrefs:
        assert resolver.resolve(href) == normalize(href, base, encoding)
        assert resolver.resolve(f"{href}#x") == normalize(f"{href}#y", base, encoding)


@given(NORMAL)
def test_traps_take_every_url(url: str) -> None:
    """No URL breaks the trap rules, and a template names no more than its URL did."""
    folded = template(url)
    assert folded.startswith(urls.host_key(url) + "/")
    assert folded.count("&") == url.partition("?")[2].count("&") + url.partition("?")[0].count("&")
    assert url_trap(url) in {None, "path_too_deep", "repeated_segments", "too_many_parameters"}
    assert TemplateCounts().count(folded, urls.url_id(url), TrapLimits()) is None


@given(NORMAL, NORMAL)
def test_scopes_nest(seed: str, url: str) -> None:
    """What is below a seed's directory is on its host, and what is on its host is in its domain."""
    verdicts = [
        Scope((seed,), mode).admits(url, urls.host_key(url), 0) is None
        for mode in (ScopeMode.PREFIX, ScopeMode.HOST, ScopeMode.DOMAIN, ScopeMode.ANY)
    ]
    assert verdicts == sorted(verdicts)
    assert Scope((seed,), ScopeMode.PREFIX).admits(seed, urls.host_key(seed), 0) is None
