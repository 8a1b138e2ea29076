"""Robots directives of pages and headers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from streams.core.rules.directives import Directives, of_headers, of_meta, parse_date_ms

NOW_MS = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1000)
BOTH = Directives(index=True, follow=True)
NONE = Directives(index=False, follow=False)
NO_INDEX = Directives(index=False, follow=True)
NO_FOLLOW = Directives(index=True, follow=False)


def header(*lines: str) -> Directives:
    """What X-Robots-Tag lines say to ExampleBot."""
    return of_headers(lines, product_token="ExampleBot/1.0", now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("noindex", NO_INDEX),
        ("NoIndex, NOFOLLOW", NONE),
        ("none", NONE),
        ("all", BOTH),
        ("index,follow", BOTH),
        ("noindex, index", NO_INDEX),
        ("noindex;nofollow", NONE),
        ("noindex nofollow", NONE),
        ("noarchive, max-snippet:-1, nofollow", NO_FOLLOW),
        ("noindexing", BOTH),
        ("unavailable_after: 25-Aug-2007 15:00:00 EST", NO_INDEX),
        ("unavailable_after: Monday, 25-Aug-25 15:00:00 UTC", BOTH),
        ("unavailable_after: Wed, 25 Jun 2010 15:00:00 GMT, nofollow", NONE),
        ("unavailable_after: soon", BOTH),
        ("", BOTH),
    ],
)
def test_directives_of_a_value(content: str, found: Directives) -> None:
    """The stricter word wins, whatever separates the words."""
    assert of_meta("Robots", content, product_token="ExampleBot", now_ms=NOW_MS) == found


def test_a_meta_for_another_robot_says_nothing_to_us() -> None:
    """Only `robots` and our own product token, without its version, are meant for us."""
    assert of_meta("googlebot", "none", product_token="ExampleBot", now_ms=0) == BOTH
    assert of_meta("exampleBOT", "none", product_token="ExampleBot/2.1", now_ms=0) == NONE
    assert of_meta("examplebot2", "none", product_token="ExampleBot", now_ms=0) == BOTH


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (("noindex",), NO_INDEX),
        (("noarchive", "nofollow"), NO_FOLLOW),
        (("otherbot: noindex, nofollow",), BOTH),
        (("examplebot: noindex, nofollow",), NONE),
        (("otherbot: noindex, examplebot: nofollow",), NO_FOLLOW),
        (("nofollow, otherbot: noindex",), NO_FOLLOW),
        (("*: none",), NONE),
        (("unavailable_after: 25 Jun 2010 15:00:00 PST, noarchive",), NO_INDEX),
        (("otherbot: unavailable_after: 25 Jun 2010 15:00:00 PST",), BOTH),
        (("ExampleBot: unavailable_after: Fri, 25 Jun 2010 15:00:00 PST, nofollow",), NONE),
        (("unavailable_after: 25 Jun 2010 15:00:00 PST, otherbot: nofollow",), NO_INDEX),
        (("unavailable_after: 2030-06-25T15:00:00Z, otherbot: nofollow",), BOTH),
        (("max-snippet: 20, noindex",), NO_INDEX),
        ((), BOTH),
    ],
)
def test_header_lines_name_their_robot(lines: tuple[str, ...], found: Directives) -> None:
    """A robot's name rules the rest of its line; the colon of a directive's value names no robot."""
    assert header(*lines) == found


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("25 Jun 2010 15:00:00 PST", "2010-06-25T23:00:00+00:00"),
        ("25-Aug-2007 15:00:00 EST", "2007-08-25T20:00:00+00:00"),
        ("Monday, 15-Aug-05 15:52:01 UTC", "2005-08-15T15:52:01+00:00"),
        ("Mon, 15 Aug 2005 15:52:01 +0200", "2005-08-15T13:52:01+00:00"),
        ("2005-08-15T15:52:01+02:00", "2005-08-15T13:52:01+00:00"),
        ("2005-08-15T15:52:01Z", "2005-08-15T15:52:01+00:00"),
        ("2005-08-15 3:52 pm", "2005-08-15T15:52:00+00:00"),
        ("2005-08-15", "2005-08-15T23:59:59+00:00"),
        ("August 15, 2005", "2005-08-15T23:59:59+00:00"),
        ("15 Foo 2005", None),
        ("2005-13-45", None),
        ("", None),
    ],
)
def test_dates_in_the_forms_that_sites_use(text: str, iso: str | None) -> None:
    """A page that asked to be gone by a date is gone by it, in whatever form and zone it wrote the date."""
    found = parse_date_ms(text)
    assert (None if found is None else datetime.fromtimestamp(found / 1000, UTC).isoformat()) == iso
