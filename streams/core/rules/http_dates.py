"""HTTP-date (RFC 9110 section 5.6.7): the one form to send and the two old ones that must still be read."""

from __future__ import annotations

import datetime
import re

_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {m: n for n, m in enumerate(_NAMES, start=1)}
_TIME = r"(?P<h>[0-9]{2}):(?P<mi>[0-9]{2}):(?P<s>[0-9]{2})"
_FORMS = tuple(
    re.compile(form, re.IGNORECASE | re.ASCII)
    for form in (
        # Sun, 06 Nov 1994 08:49:37 GMT
        rf"[a-z]{{3}}, (?P<d>[0-9]{{1,2}}) (?P<mo>[a-z]{{3}}) (?P<y>[0-9]{{4}}) {_TIME} (?:GMT|UTC)",
        # Sunday, 06-Nov-94 08:49:37 GMT
        rf"[a-z]{{3,9}}, (?P<d>[0-9]{{1,2}})-(?P<mo>[a-z]{{3}})-(?P<y>[0-9]{{2}}|[0-9]{{4}}) {_TIME} (?:GMT|UTC)",
        # Sun Nov  6 08:49:37 1994
        rf"[a-z]{{3}} (?P<mo>[a-z]{{3}}) +(?P<d>[0-9]{{1,2}}) {_TIME} (?P<y>[0-9]{{4}})",
    )
)


def parse_http_date(text: str, *, now_ms: int) -> int | None:
    """The instant in ms since the epoch, or None when `text` is no HTTP-date.

    A year of two digits that seems more than 50 years in the future is in the past (RFC 9110): so `now_ms` is needed.
    """
    text = text.strip(" \t")
    for form in _FORMS:
        if found := form.fullmatch(text):
            break
    else:
        return None
    month = _MONTHS.get(found["mo"].lower())
    if month is None:
        return None
    year = int(found["y"])
    if len(found["y"]) == 2:
        this_year = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC).year
        year += this_year - this_year % 100
        if year > this_year + 50:
            year -= 100
    second = min(int(found["s"]), 59)  # 60 is a leap second
    try:
        at = datetime.datetime(year, month, int(found["d"]), int(found["h"]), int(found["mi"]), second, 0, datetime.UTC)
    except ValueError:
        return None
    return int(at.timestamp()) * 1000
