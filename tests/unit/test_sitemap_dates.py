"""Dates of sitemaps and feeds: every form that is used, and nothing for what is none."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from streams.core.rules.sitemap_dates import feed_ms, rfc822_ms, w3c_ms


def ms(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, micro: int = 0) -> int:
    return round(datetime(year, month, day, hour, minute, second, micro, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2004", ms(2004, 1, 1)),
        ("2004-10", ms(2004, 10, 1)),
        (" 2004-10-02\n", ms(2004, 10, 2)),
        ("2004-10-02T18:23Z", ms(2004, 10, 2, 18, 23)),
        ("2004-10-02T18:23:17+00:00", ms(2004, 10, 2, 18, 23, 17)),
        ("2004-10-02t18:23:17.5-08:00", ms(2004, 10, 3, 2, 23, 17, 500_000)),
        ("2004-10-02 18:23:17.123456789 +0530", ms(2004, 10, 2, 12, 53, 17, 123_000)),
        ("2004-10-02T18:23:17", ms(2004, 10, 2, 18, 23, 17)),
        ("2016-12-31T23:59:60Z", ms(2017, 1, 1)),
    ],
)
def test_w3c_dates(text: str, expected: int) -> None:
    """All precisions of the W3C note, RFC 3339's variations, and a missing zone as UTC."""
    assert w3c_ms(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "2004-13-01", "2004-02-30", "0000-01-01", "2004-10-02T24:00Z", "2004-10-02T18:60Z"),
        *("2004-10-02T18:23:17+25:00", "2004-10-02T18", "20041002", "04-10-02", "٢٠٠٤-10-02", "0", "9" * 100),
    ],
)
def test_what_is_no_date_is_none(text: str) -> None:
    """An unusable date is as good as none: it must not make a page look new, nor raise."""
    assert w3c_ms(text) is None
    assert feed_ms(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sun, 06 Sep 2009 16:20:00 +0000", ms(2009, 9, 6, 16, 20)),
        ("6 Sep 09 16:20 EST", ms(2009, 9, 6, 21, 20)),
        ("Sunday, 06-Sep-99 16:20:00 GMT", ms(1999, 9, 6, 16, 20)),
        ("Sun, 06 September 2009 16:20:00 -07:30 (PDT)", ms(2009, 9, 6, 23, 50)),
        ("06 Sep 2009", ms(2009, 9, 6)),
        ("2009-09-06T16:20:00Z", ms(2009, 9, 6, 16, 20)),
    ],
)
def test_feed_dates(text: str, expected: int) -> None:
    """RFC 822 with the liberties that feeds take, and the other form where a feed uses that."""
    assert feed_ms(text) == expected


def test_a_day_that_is_none_is_no_date() -> None:
    """31 June, an unknown month and an impossible hour are none in a feed either."""
    for text in ("31 Jun 2009 10:00:00 GMT", "06 Foo 2009 10:00:00 GMT", "06 Sep 2009 25:00:00 GMT"):
        assert rfc822_ms(text) is None
