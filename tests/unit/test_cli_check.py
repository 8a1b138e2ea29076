"""`headrace check`: one input, from a file, stdin or a URL, for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.demo_web import DemoWeb
from streams.cli import main
from tests.support.fake_engine import Captured

ROBOTS = b"User-agent: mybot\nDisallow: /private/\nAllow: /private/x\nCrawl-delay: 2\nSitemap: /s.xml\n"
PAGE = b'<title>Hi</title><base href="/d/"><a href=a rel=nofollow>x</a><meta name=robots content=noindex>'
SITEMAP = b"<urlset><url><loc>https://a.example/1</loc><lastmod>2026-01-02</lastmod></url></urlset>"


def check(*words: str, stdin: bytes = b"") -> tuple[int, Captured]:
    shell = Captured(stdin=stdin)
    return main(["check", *words], shell), shell


def as_json(*words: str, stdin: bytes = b"", expected: int = 0) -> dict[str, Any]:
    code, shell = check(*words, "--json", stdin=stdin)
    assert code == expected, shell.said
    found: dict[str, Any] = json.loads(shell.printed)
    return found


def test_robots_of_stdin_for_a_named_crawler() -> None:
    """Protects the question that operators ask: may this crawler fetch this URL, and by which line?"""
    words = ("robots", "-", "--url", "https://a.example/private/a", "--url", "/private/x", "--url", "/")
    found = as_json(*words, "--user-agent", "MyBot/2", stdin=ROBOTS)
    assert [(row["url"], row["allowed"]) for row in found["urls"]] == [
        ("https://a.example/private/a", False),
        ("https://a.example/private/x", True),
        ("https://a.example/", True),
    ]
    assert "line 2" in found["urls"][0]["rule"]
    assert (found["crawl_delay_s"], found["sitemaps"]) == (2.0, ["https://a.example/s.xml"])
    assert all(row["allowed"] for row in as_json(*words, "--user-agent", "Other", stdin=ROBOTS)["urls"])
    _, shell = check(*words, "--user-agent", "MyBot", stdin=ROBOTS)
    assert "  disallowed  https://a.example/private/a  Disallow: /private/ (line 2)\n" in shell.printed


@pytest.mark.parametrize(
    ("href", "base", "normalized"),
    [
        ("../a?x=%7e#top", "https://Example.org:443/b/c", "https://example.org/a?x=~"),
        ("HTTP://A.example", None, "http://a.example/"),
        ("a", None, None),
        ("javascript:1", "https://a.example/", None),
    ],
)
def test_a_url_is_normalized_or_refused(href: str, base: str | None, normalized: str | None) -> None:
    """Protects the view of a URL's identity: what the crawl would store, or that it would not."""
    found = as_json("url", href, *(("--base", base) if base else ()), expected=0 if normalized else 1)
    assert found["normalized"] == normalized
    assert ("refused" in found) is (normalized is None)


def test_a_url_says_what_other_layers_make_of_it() -> None:
    """Protects explanations: traps and addresses that must not be asked are named."""
    assert as_json("url", "http://127.0.0.1/")["address"] == "loopback"
    assert as_json("url", "http://a.example/" + "x/y/" * 9)["trap"] == "repeated_segments"


def test_a_page_of_a_file(tmp_path: Path) -> None:
    """Protects the view of a page: links resolved against its base, directives, title."""
    (tmp_path / "p.html").write_bytes(PAGE)
    found = as_json("page", str(tmp_path / "p.html"), "--url", "https://a.example/x/")
    assert found["links"] == [{"url": "https://a.example/d/a", "kind": "a", "rel": ["nofollow"], "nofollow": True}]
    assert (found["title"], found["robots"]["index"]) == ("Hi", False)
    _, shell = check("page", str(tmp_path / "p.html"), "--url", "https://a.example/x/")
    assert "  https://a.example/d/a  kind a, rel nofollow, nofollow\n" in shell.printed


def test_a_content_type_is_believed() -> None:
    """Protects --content-type: a page that was sent as plain text has no links."""
    assert (
        as_json("page", "-", "--url", "https://a.example/", "--content-type", "text/plain", stdin=PAGE)["links"] == []
    )


def test_a_sitemap_of_stdin() -> None:
    """Protects the view of a sitemap: type, entries, dates, errors."""
    found = as_json("sitemap", "-", "--url", "https://a.example/s.xml", stdin=SITEMAP)
    assert found["type"] == "urlset"
    assert found["urls"] == [{"url": "https://a.example/1", "lastmod": "2026-01-02 00:00:00Z"}]


@pytest.mark.parametrize(
    ("href", "base", "why"),
    [
        ("http://a.example:99999/", None, "its host or port is not one"),
        ("ftp://a.example/", None, "the scheme ftp:"),
        ("../a", None, "it is relative and has no --base"),
        ("a.example/x", None, "as a seed it would be https://a.example/x"),
        ("a.example:80/x", None, "as a seed it would be https://a.example:80/x"),
        ("x" * 3_000, "https://a.example/", "longer than 2,083 bytes"),
    ],
)
def test_a_refused_url_gives_the_exact_reason(href: str, base: str | None, why: str) -> None:
    """Protects whoever asks why a URL is none: the reason that a seed would be given, and exit code 1."""
    assert why in as_json("url", href, *(("--base", base) if base else ()), expected=1)["refused"]


def test_a_sitemap_names_what_it_does_not_take() -> None:
    """Protects whoever has to mend a sitemap: each location that is none, or is another host's, by its error."""
    locs = b"".join(
        b"<url><loc>%s</loc></url>" % loc for loc in (b"https://a.example/1", b"/x", b"https://b.example/2")
    )
    words = ("sitemap", "-", "--url", "https://a.example/s.xml")
    found = as_json(*words, stdin=b"<urlset>" + locs + b"</urlset>")
    assert found["not_taken"] == [
        {"url": "/x", "error": "bad_loc"},
        {"url": "https://b.example/2", "error": "cross_host"},
    ]
    _, shell = check(*words, stdin=b"<urlset>" + locs + b"</urlset>")
    assert "  https://b.example/2  error cross_host\n" in shell.printed


def test_long_lists_are_cut_for_people_only() -> None:
    """Protects the screen; JSON holds everything."""
    page = b"".join(b"<a href=%d>x</a>" % n for n in range(100))
    _, shell = check("page", "-", "--url", "https://a.example/", stdin=page)
    assert "and 60 more; --json shows all" in shell.printed
    assert len(as_json("page", "-", "--url", "https://a.example/", stdin=page)["links"]) == 100


@pytest.fixture(scope="module")
def web() -> Iterator[DemoWeb]:
    with DemoWeb() as demo:
        yield demo


def asked(web: DemoWeb, kind: str, host: str, path: str, *words: str, allow: bool = True) -> tuple[int, Captured]:
    resolve = [word for name in web.hosts for word in ("--resolve", f"{name}=127.0.0.1")]
    allowed = ["--allow-address", "127.0.0.0/8"] if allow else []
    return check(kind, web.url(host, path), *words, *resolve, *allowed)


def test_a_url_is_asked_by_the_crawl_s_own_fetcher(web: DemoWeb) -> None:
    """Protects the promise that a check sees what the crawl would: same fetcher, one request for robots and sitemap."""
    code, shell = asked(web, "robots", "quiet.demo.test", "/any/page", "--url", "/private/1", "--json")
    assert code == 0
    found = json.loads(shell.printed)
    assert (found["urls"][0]["allowed"], found["crawl_delay_s"]) == (False, 1.0)
    code, shell = asked(web, "sitemap", "news.demo.test", "/sitemap.xml", "--json")
    assert len(json.loads(shell.printed)["urls"]) == 24
    assert [(line.host, line.path) for line in web.log()[-2:]] == [
        ("quiet.demo.test", "/robots.txt"),
        ("news.demo.test", "/sitemap.xml"),
    ]


def test_an_address_that_may_not_be_asked_is_not_asked(web: DemoWeb) -> None:
    """Protects one's own network: a check obeys the address rules, says which flag allows it, and asks nothing."""
    before = len(web.log())
    code, shell = asked(web, "page", "library.demo.test", "/", allow=False)
    assert code == 1
    assert "--allow-address 127.0.0.1" in shell.said
    code, shell = asked(web, "robots", "library.demo.test", "/", "--url", "/", "--json", allow=False)
    assert json.loads(shell.printed)["urls"][0]["allowed"] is False
    assert len(web.log()) == before


def test_an_answer_without_a_page_says_its_status(web: DemoWeb) -> None:
    """Protects from an empty result that looks like an empty page."""
    code, shell = asked(web, "page", "old.demo.test", "/gone")
    assert code == 1
    assert "410 gone" in shell.said


def test_a_redirect_is_followed_under_its_own_name(web: DemoWeb) -> None:
    """Protects relative links of a page that moved: they are resolved against where it was found in the end."""
    shell = Captured(environ={"HEADRACE_POLITENESS__DELAY": "0"})
    network = ["--allow-address", "127.0.0.0/8"]
    network += [word for name in web.hosts for word in ("--resolve", f"{name}=127.0.0.1")]
    assert main(["check", "page", web.url("old.demo.test", "/moved/1"), "--json", *network], shell) == 0
    assert json.loads(shell.printed)["url"] == web.url("library.demo.test", "/books/1")
    assert main(["check", "page", web.url("old.demo.test", "/circle/1"), *network], shell) == 1
    assert "redirects" in shell.said


def test_a_file_that_is_not_there_is_told_before_what_else_is_missing(tmp_path: Path) -> None:
    """Protects people from adding --url to a mistyped name."""
    code, shell = check("page", str(tmp_path / "nope.html"))
    assert code == 2
    assert "nope.html: cannot be read (No such file or directory)" in shell.said
