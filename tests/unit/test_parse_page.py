"""One page in, links, directives, text out: HTML standard, as a crawler reads it."""

from __future__ import annotations

import json

import msgspec
import pytest

from schemas.records import HeadLink, Refresh
from streams.core.parse import describe
from streams.core.policy import ParseLimits
from tests.support.pages import PAGE_URL, parse, urls

SITE = "http://www.example.com"


def kinds(markup: str) -> dict[str, str]:
    """Path and kind of each link."""
    return {link.url.removeprefix(SITE): link.kind for link in parse(markup).page.links}


def test_every_kind_of_link_is_taken() -> None:
    """A site may be linked by any element that leads a reader on; what only loads is no link."""
    found = kinds(
        "<a href=/a>x</a><map><area href=/area></map><iframe src=/iframe></iframe><svg><a xlink:href=/x /><a href=/s "
        "xlink:href=/no /><foreignObject><a href=/f>x</a></foreignObject></svg><math><a href=/m>x</a></math>"
        "<noscript><a href=/ns>x</a><iframe src=/nf></iframe></noscript><template><a href=/t>x</a></template>"
        "<img src=/i><form action=/form></form><a>x</a><iframe src=''></iframe><!-- <a href=/c> -->"
    )
    assert found == {
        "/a": "a",
        "/area": "area",
        "/iframe": "iframe",
        "/x": "svg-a",
        "/s": "svg-a",
        "/f": "a",
        "/m": "a",
        "/ns": "a",
        "/nf": "iframe",
    }
    assert kinds("<frameset><frame src=/1><frame src=/2></frameset>") == {"/1": "frame", "/2": "frame"}


def test_only_http_is_a_link() -> None:
    """Mail, scripts and broken hosts are no pages."""
    assert urls(parse("<a href=mailto:a@b>x</a><a href=javascript:x>x</a><a href=http://[>x</a><a href=data:,x>")) == []


def test_a_url_stands_once_and_may_be_followed_if_one_link_may() -> None:
    """nofollow on one link of a page takes back nothing that another link of it says."""
    page = parse(
        "<a href=x#1 rel=nofollow>1</a><a href=x#2 rel=author>2</a><a href=x rel='NOFOLLOW ugc'>3</a><a href=y>4</a>"
        "<area href=y rel=nofollow><a href=z rel=nofollow>5</a><a href=z rel='nofollow x'>6</a>"
    ).page
    assert [(link.url[len(SITE) :], link.rel, link.nofollow) for link in page.links] == [
        ("/dir/x", ("author",), False),
        ("/dir/y", (), False),
        ("/dir/z", ("nofollow",), True),
    ]


@pytest.mark.parametrize(
    ("markup", "base"),
    [
        ("<base href=/b/>", "http://www.example.com/b/"),
        ("<base target=x><base href=/b/><base href=/c/>", "http://www.example.com/b/"),
        ("<p><base href=//other.example/x?y>", "http://other.example/x?y"),
        ("<!-- <base href=/b/> --><script>'<base href=/b/>'</script><template><base href=/b/></template>", PAGE_URL),
        ("<noscript><base href=/b/></noscript><svg><base href=/b/></svg>", PAGE_URL),
        ("<base href=http://[><base href=/c/>", PAGE_URL),
        ("<base href=javascript:x>", PAGE_URL),
        ("<base href=''>", PAGE_URL),
        ("<base href=' /b/ '>", "http://www.example.com/b/"),
    ],
)
def test_the_first_base_with_a_href_counts(markup: str, base: str) -> None:
    """A wrong base sends every relative link of a page to the wrong place."""
    page = parse(f"<a href=first>x</a>{markup}<a href=last>x</a>").page
    assert page.base_url == base
    prefix = base.rsplit("/", 1)[0]
    assert [link.url for link in page.links] == [f"{prefix}/first", f"{prefix}/last"]


@pytest.mark.parametrize(
    ("markup", "headers", "canonical"),
    [
        ("<link rel='x CANONICAL' href=/c>", (), "/c"),
        ("<link rel=canonical href=/c><link rel=canonical href=/c#x>", (), "/c"),
        ("<link rel=canonical href=/c><link rel=canonical href=/d>", (), None),
        ("<link rel=canonical href=''><link rel=canonical href=mailto:x>", (), None),
        ("<body><link rel=canonical href=/c>", (), None),
        ("<noscript><img src=x></noscript><link rel=canonical href=/c>", (), "/c"),
        ("", ("</h>; rel=canonical",), "/h"),
        ("<base href=/b/>", ("<h>; rel=canonical",), "/dir/h"),
        ("", ("</h>; rel=canonical, </i>; rel=canonical",), None),
        ("<link rel=canonical href=/c>", ("</h>; rel=canonical",), None),
        ("<link rel=canonical href=/c>", ("</c>; rel=canonical",), "/c"),
    ],
)
def test_a_canonical_counts_when_it_is_one(markup: str, headers: tuple[str, ...], canonical: str | None) -> None:
    """Head and header may name one URL; contradicting ones name none, and the body's may be a visitor's."""
    page = parse(f"<head>{markup}", link_headers=headers).page
    assert page.canonical == (canonical and SITE + canonical)


def test_head_links_feeds_and_translations() -> None:
    """What a head names for reading on, apart from what it loads."""
    page = parse(
        "<link rel=next href=2><link rel=prev href=0><link rel=alternate hreflang=de href=/de>"
        "<link rel=alternate type='application/RSS+xml; x=y' href=/rss><link rel=alternate type=application/atom+xml "
        "href=/atom><link rel='alternate stylesheet' href=/css><link rel=icon href=/i><link rel=stylesheet href=/s>"
        "<link rel=preload href=/p><link rel=alternate media=print href=/print><link href=/norel><link rel=next>"
    ).page
    assert page.head_links == (
        HeadLink(f"{SITE}/dir/2", ("next",)),
        HeadLink(f"{SITE}/dir/0", ("prev",)),
        HeadLink(f"{SITE}/de", ("alternate",), hreflang="de"),
        HeadLink(f"{SITE}/print", ("alternate",), media="print"),
    )
    assert page.feeds == (f"{SITE}/rss", f"{SITE}/atom")
    assert page.links == ()


@pytest.mark.parametrize(
    ("markup", "refresh"),
    [
        ("<meta http-equiv=' Refresh ' content='0;url=/r'>", Refresh(0, f"{SITE}/r")),
        ("<base href=/b/><meta http-equiv=refresh content='3;r'>", Refresh(3, f"{SITE}/b/r")),
        (
            "<meta http-equiv=refresh content='url=/no'><meta http-equiv=refresh content='1;/r'>",
            Refresh(1, f"{SITE}/r"),
        ),
        ("<meta http-equiv=refresh content='0;javascript:x'>", None),
        ("<meta http-equiv=refresh content=30>", Refresh(30, PAGE_URL)),
        ("<noscript><meta http-equiv=refresh content='0;/r'></noscript>", None),
        ("<meta name=refresh content='0;/r'>", None),
    ],
)
def test_the_first_valid_refresh_counts(markup: str, refresh: Refresh | None) -> None:
    """A refresh is a redirect in the page's words; it is also a link, unless it reloads the page."""
    page = parse(markup).page
    assert page.refresh == refresh
    assert [link.kind for link in page.links] == (["refresh"] if refresh and refresh.url != PAGE_URL else [])
    linked = parse(
        f"{markup}<a rel=author href={PAGE_URL}>x</a><a rel=author href=/r>x</a><a rel=author href=/b/r>x</a>"
    )
    assert {link.kind for link in linked.page.links} == {"a"}


def test_directives_of_page_and_header_add_up() -> None:
    """Whoever says no is heard: the page, the header, the word for all robots and the word for ours."""
    page = parse(
        "<p><meta name=headrace content=nofollow><a href=x>x</a>", robots_tags=("otherbot: none", "noindex")
    ).page
    assert (page.index, page.follow) == (False, False)
    assert len(page.links) == 1
    quiet = parse("<meta name=otherbot content=none><meta name=robots>").page
    assert (quiet.index, quiet.follow) == (True, True)
    unscripted = parse("<noscript><meta name=robots content=noindex></noscript>").page
    assert (unscripted.index, unscripted.follow) == (False, True)
    image = parse(b"\x89PNG", content_type="image/png", robots_tags=("none",)).page
    assert (image.index, image.follow) == (False, False)


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>one</p><p>two</p>", "one two"),
        ("<b>o</b>ne <i>two</i>", "one two"),
        ("<div>one</div>two<div>three</div>", "one two three"),
        ("<span><div>one</div></span>two", "one two"),
        ("<div>one</div><b>two</b>", "one two"),
        ("one<br>two<hr>three", "one two three"),
        ("<table><tr><td>one<td>two<tr><td>three</table>", "one two three"),
        ("<script>no</script>one<style>no</style><noscript>no</noscript><template>no</template>", "one"),
        ("<script></script>one<script src=x></script>two", "onetwo"),
        ("<title>no</title><p>one &amp; &lt;two&gt;\n\t\u00a0three", "one & <two> three"),
        ("<textarea>one</textarea><select><option>two<option>three</select>", "one two three"),
        ("<svg><title>no</title><text>one</text></svg>", "one"),
        ("one<!-- no -->two", "onetwo"),
        ("", ""),
    ],
)
def test_text_is_what_a_reader_sees(markup: str, text: str) -> None:
    """Words of two blocks run together are found by nobody, and so are words that markup cut in two."""
    assert parse(markup).text == text


def test_title_and_language() -> None:
    """The page's title, not a picture's; white space folded and bounded."""
    page = parse(
        "<html lang=' de-AT '><svg><title>no</title></svg><title>\n A  &amp;\tB </title><title>no</title>"
    ).page
    assert (page.title, page.language) == ("A & B", "de-AT")
    assert len(parse("<title>" + "x" * 5000).page.title) == ParseLimits().title_chars_max


def test_resources_are_read_only_when_asked() -> None:
    """Images and scripts are most of a page's URLs; a crawl of pages does not pay for them."""
    markup = (
        "<img src=i.png srcset='j.png 2x'><video poster=p.jpg><source src=v.mp4></video><script src=s.js></script>"
        "<link rel=stylesheet href=c.css><object data=o.pdf></object><embed src=e.swf><input type=image src=b.png>"
    )
    assert parse(markup).page.resources == ()
    found = {url.rpartition("/")[2] for url in parse(markup, with_resources=True).page.resources}
    assert found == {"i.png", "j.png", "p.jpg", "v.mp4", "s.js", "c.css", "o.pdf", "e.swf", "b.png"}


def test_types_that_are_no_pages() -> None:
    """text/plain has words and no links; everything else is stored and left alone."""
    text = parse("<a href=/no>word</a>", content_type="text/plain")
    assert (text.text, text.page.links, text.page.error) == ("<a href=/no>word</a>", (), "")
    assert text.page.simhash
    for content_type in ("application/octet-stream", "application/json", "text/xml", "image/svg+xml"):
        other = parse("<!doctype html><a href=/no>word</a>", content_type=content_type)
        assert (other.text, other.page.links, other.page.error) == ("", (), "")
    assert urls(parse("<!doctype html><a href=/yes>x</a>", content_type=None)) == [f"{SITE}/yes"]


def test_xhtml_closes_what_it_says_it_closes() -> None:
    """An HTML parser would take everything after `<script/>` for the script."""
    page = parse(
        "<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><head><title/><script src='s.js'/></head>"
        "<body><p/><a title='a/b' href='x1'/>1<br/><a href='x2'>2</a></body></html>",
        content_type="application/xhtml+xml",
    )
    assert urls(parse("<a href=x />y")) == [f"{SITE}/dir/x"]
    assert [link.url for link in page.page.links] == [f"{SITE}/dir/x1", f"{SITE}/dir/x2"]
    assert page.text == "1 2"


def test_the_encoding_of_the_page_reaches_its_queries() -> None:
    """Servers of old pages expect queries in the page's encoding, paths in UTF-8 (URL standard)."""
    page = parse("<meta charset=windows-1251><a href='/Я?Я'>x</a>".encode("cp1251"), content_type="text/html").page
    assert page.charset == "windows-1251"
    assert page.links[0].url == f"{SITE}/%D0%AF?%DF"


def test_limits_cut_and_say_so() -> None:
    """A cap loses the rest of a page, never the page, and never silently."""
    limits = msgspec.structs.replace(ParseLimits(), links_max=2, text_bytes_max=10, body_bytes_max=400)
    many = parse("".join(f"<a href={n}>x</a>" for n in range(5)), limits=limits).page
    assert (len(many.links), many.error) == (2, "too_many_links")
    long = parse("<a href=1>x</a>" + " " * 400 + "<a href=2>x</a>", limits=limits).page
    assert (len(long.links), long.error) == (1, "body_cut")
    wide = parse("<p>" + "日本" * 20, limits=limits)
    assert (wide.text, wide.page.text_bytes) == ("日本日", 9)


def test_a_description_is_plain_data() -> None:
    """`headrace check page` prints it as JSON."""
    described = describe(parse("<title>t</title><link rel=next href=2><a href=x rel=nofollow>x</a>"))
    assert json.loads(json.dumps(described)) == described
    assert described["links"] == [{"url": f"{SITE}/dir/x", "kind": "a", "rel": ["nofollow"], "nofollow": True}]
    assert described["robots"] == {"index": True, "follow": True}
