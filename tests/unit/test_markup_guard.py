"""Hostile markup costs a bounded time and loses only what follows it."""

from __future__ import annotations

import time

import pytest

from streams.core.rules.markup_guard import TAGS_MAX, safe_length
from tests.support.pages import parse, urls

FIRST = b"<a href=/first>x</a>"
CPU_S_MAX = 4.0  # the worst of them takes under 1 s on an idle core
BOMBS: dict[str, bytes] = {
    "attributes": b"<p " + b" ".join(b"a%d=1" % n for n in range(100_000)) + b">",
    "attributes by slashes": b"<p" + b"".join(b"/a%d" % n for n in range(100_000)) + b">",
    "attributes with quoted ends": b"<p " + b"".join(b'a%d=">"' % n for n in range(100_000)) + b">",
    "attributes after a stray quote": b'<p x=a"b " ' + b" ".join(b"a%d" % n for n in range(100_000)) + b'><p q="">',
    "attributes never closed": b"<p " + b" ".join(b"a%d=1" % n for n in range(100_000)),
    "attributes just below the bound": (b"<p " + b" ".join(b"a%d=1" % n for n in range(999)) + b">") * 3_000,
    "attributes of the root": b"".join(b"<body a%d=1>" % n for n in range(40_000)),
    "depth": b"<div>" * 100_000,
    "depth with junk ends": b"<div></x>" * 100_000,
    "depth by closed divs": b"<div/>" * 100_000,
    "depth of lists": b"<ul><li>" * 20_000,
    "depth of pictures": b"<svg>" * 100_000,
    "depth behind a style in a picture": b"<svg><style>" + b"<div>" * 100_000,
    "depth behind a comment": b"<!-->" + b"<div>" * 100_000 + b"-->",
    "depth behind a quote": b'<p ">' + b"<div>" * 100_000 + b'">',
    "ends far from their starts": b"<div>" * 11_000 + b"</p>" * 200_000,
    "formatting": b"".join(b"<p><font a=%d>x" % n for n in range(3_000)),
    "depth of cells in pictures": b"<table><td>" + b"<svg><td>" * 30_000,
    "depth of cells without a table": b"<td><div>" * 60_000,
    "depth of items in sections": b"<li><section>" * 60_000,
    "formatting with an open quote": b"".join(b'<p><font a=">x</font>' + b'" b=%d>' % n for n in range(3_000)),
    "formatting with commented ends": b"".join(b"<p><font a=%d>x<!--</font>-->" % n for n in range(3_000)),
    "formatting around cells": b"<table>" + b"".join(b"<font a=%d>x<td>x</td><p>" % n for n in range(3_000)),
    "formatting before paragraphs": b"".join(b"<B a=%d>" % n for n in range(1_000)) + b"<p>x" * 50_000,
    "links never closed": b"".join(b"<a href=u%d><div>x" % n for n in range(20_000)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_cut_off_and_the_links_before_it_kept(name: str) -> None:
    """Each of these takes a parser from seconds to minutes, or gigabytes, for under a megabyte of page."""
    started = time.process_time()
    parsed = parse(FIRST + BOMBS[name])
    assert time.process_time() - started < CPU_S_MAX
    assert "http://www.example.com/first" in urls(parsed)
    assert parsed.page.error in ("too_many_attributes", "too_deep")


@pytest.mark.parametrize(
    "body",
    [
        FIRST + b"<p a='" + b"x " * 500_000 + b"'>",
        FIRST + b"<a rel='" + b"x " * 500_000 + b"' href=/second>",
        FIRST + b"<script>" + b"<p " + b" ".join(b"a%d" % n for n in range(100_000)) + b"></script>",
        FIRST + b"<title>" + b"<div>" * 100_000,
        FIRST + b"<p>x" * 20_000,
        FIRST + b"<ul>" + b"<li><code class=x>y</code>" * 20_000,
        FIRST + b"<table>" + b"<tr><td><font color=red>x" * 15_000,
        FIRST + b"<svg>" + b"<path d='M 0'/>" * 15_000,
        FIRST + b"<" * 500_000,
        FIRST + b"<!--" * 100_000,
        FIRST + b"<b>x" * 10_000,
        FIRST + b'<p title="a > b">x</p>' * 5_000,
    ],
    ids=lambda body: body[20:40].decode(),
)
def test_large_but_harmless_markup_is_kept_whole(body: bytes) -> None:
    """The guard cuts by what markup costs, not by how strange it looks."""
    assert safe_length(body, attributes_per_tag_max=1_000) == (len(body), "")
    assert "http://www.example.com/first" in urls(parse(body))


def test_a_page_of_too_many_elements_is_cut() -> None:
    """Thirty megabytes of short paragraphs would be a gigabyte of tree."""
    body = FIRST + b"<p>word word word</p>\n" * 1_400_000
    started = time.process_time()
    parsed = parse(body)
    assert time.process_time() - started < 2 * CPU_S_MAX
    assert urls(parsed) == ["http://www.example.com/first"]
    assert parsed.page.error == "too_many_elements"
    assert body[: safe_length(body, attributes_per_tag_max=1_000)[0]].count(b"<") == TAGS_MAX


def test_an_ordinary_page_is_not_read_tag_by_tag() -> None:
    """The guard stands on the hot path: for a usual page it may cost a tenth of the parser, in counts alone."""
    body = b"<!doctype html><title>t</title>" + b"<p class=x>one <code class=y>two</code> <a href=z>three</a>\n" * 700
    started = time.process_time()
    for _ in range(20):
        assert safe_length(body, attributes_per_tag_max=1_000) == (len(body), "")
    assert time.process_time() - started < 20 * 0.002


@pytest.mark.parametrize(
    "names",
    [
        b"".join(b" a%d='=\"\">'" % n for n in range(20_000)),
        b"".join(b' a%d="x>" b%d=\'=""> \'' % (n, n) for n in range(20_000)),
        b"".join(b" a%d" % n + (b" c%d= \n'=\"x\">'" % n if n % 50 == 0 else b"") for n in range(40_000)),
    ],
    ids=["in single quotes", "in both", "with a blank before"],
)
def test_what_looks_like_an_end_of_a_tag_inside_a_value_is_none(names: bytes) -> None:
    """Values in single quotes may hold all that proves an end elsewhere."""
    body = FIRST + b"<p>x</p>" * 3_000
    assert safe_length(body + b"<p" + names + b">", attributes_per_tag_max=1_000) == (len(body), "too_many_attributes")
