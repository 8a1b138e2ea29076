"""Dates of sitemaps and feeds, as milliseconds UTC since the epoch. What cannot be used is `None`, never a guess.

Sources: W3C note on date and time formats (sitemaps.org `lastmod`; RFC 3339 and so Atom are subsets of what is read
here); RFC 822 and RFC 2822 section 4.3 (RSS `pubDate`).
"""

from __future__ import annotations

import re
from datetime import date

_W3C = re.compile(
    r"(\d{4})(?:-(\d{2})(?:-(\d{2})"
    r"(?:[Tt ](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)? ?([Zz]|[+-]\d{2}:?\d{2})?)?)?)?",
    re.ASCII,
)
_RFC822 = re.compile(
    r"(?:[A-Za-z]{3,9}\.?,?\s+)?(\d{1,2})[\s-]+([A-Za-z]{3,9})\.?[\s-]+(\d{4}|\d{2})"
    r"(?:\s+(\d{1,2}):(\d{2})(?::(\d{2}))?(?:\s*([+-]\d{2}:?\d{2}|[A-Za-z]{1,5}))?)?(?:\s*\([^)]*\))?",
    re.ASCII,
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_ZONE_HOURS = {
    "EST": -5,
    "EDT": -4,
    "CST": -6,
    "CDT": -5,
    "MST": -7,
    "MDT": -6,
    "PST": -8,
    "PDT": -7,
    "CET": 1,
    "CEST": 2,
}
_DATE_CHARS_MAX = 64
_EPOCH_DAY = date(1970, 1, 1).toordinal()


def w3c_ms(text: str) -> int | None:
    """The instant of `YYYY[-MM[-DD[Thh:mm[:ss[.s]]TZD]]]`. A missing part is its least; a missing zone means UTC."""
    text = text.strip()
    if len(text) > _DATE_CHARS_MAX:
        return None
    match = _W3C.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    offset_min = _offset_min(zone or "Z")
    if offset_min is None:
        return None
    millis = int((fraction or "0")[:3].ljust(3, "0"))
    day_ms = _day_ms(int(year), int(month or 1), int(day or 1))
    time_ms = _time_ms(int(hour or 0), int(minute or 0), int(second or 0))
    if day_ms is None or time_ms is None:
        return None
    return day_ms + time_ms + millis - offset_min * 60_000


def rfc822_ms(text: str) -> int | None:
    """The instant of `[Day,] DD Mon YYYY [hh:mm[:ss] [zone]]`. An unknown or missing zone means UTC (RFC 2822 4.3)."""
    text = text.strip()
    if len(text) > _DATE_CHARS_MAX:
        return None
    match = _RFC822.fullmatch(text)
    if match is None:
        return None
    day, month_name, year_text, hour, minute, second, zone = match.groups()
    try:
        month = _MONTHS.index(month_name[:3].lower()) + 1
    except ValueError:
        return None
    year = int(year_text)
    if len(year_text) == 2:
        year += 2000 if year < 50 else 1900  # RFC 2822 4.3
    offset_min = _offset_min(zone or "Z")
    day_ms = _day_ms(year, month, int(day))
    time_ms = _time_ms(int(hour or 0), int(minute or 0), int(second or 0))
    if offset_min is None or day_ms is None or time_ms is None:
        return None
    return day_ms + time_ms - offset_min * 60_000


def feed_ms(text: str) -> int | None:
    """A feed's date in whichever of the two forms it is: many feeds mix them up."""
    instant_ms = rfc822_ms(text)
    return w3c_ms(text) if instant_ms is None else instant_ms


def _day_ms(year: int, month: int, day: int) -> int | None:
    try:
        return (date(year, month, day).toordinal() - _EPOCH_DAY) * 86_400_000
    except ValueError:
        return None


def _time_ms(hour: int, minute: int, second: int) -> int | None:
    if hour > 23 or minute > 59 or second > 60:  # 60: a leap second, counted as the one that follows
        return None
    return ((hour * 60 + minute) * 60 + second) * 1000


def _offset_min(zone: str) -> int | None:
    """Minutes that `zone` is ahead of UTC; `None` for an offset that no clock shows."""
    if zone[0] not in "+-":
        return _ZONE_HOURS.get(zone.upper(), 0) * 60
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    if hours > 23 or minutes > 59:
        return None
    return (hours * 60 + minutes) * (-1 if zone[0] == "-" else 1)
