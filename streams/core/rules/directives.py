"""What a page or its headers ask of robots: `<meta name=robots>`, `<meta name=BOT>`, X-Robots-Tag.

No standard fixes them (REP extensions as the large engines document them), so the reading is tolerant in form and
cautious in sense: of contradicting directives the stricter wins, those for all robots and those for ours add up, and
separators other than the comma are taken for one.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterable

import msgspec

_VALUED = ("unavailable_after", "max-snippet", "max-image-preview", "max-video-preview")
_WORD = re.compile(r"[^\s,;|]+")
_PREFIX = re.compile(r"\s*([A-Za-z0-9_*][A-Za-z0-9_.\-/]*)\s*:")
_UNAVAILABLE = re.compile(r"unavailable_after\s*:?\s*(.*)", re.IGNORECASE | re.DOTALL)
_DIRECTIVE_AFTER_DATE = re.compile(
    r"[,;]\s*(?=(?:all|none|(?:no)?index|(?:no)?follow|no[a-z]+|indexifembedded|max-[a-z-]+|[a-z*][\w*.-]*\s*:\s*[a-z])(?![\w]))",
    re.IGNORECASE,
)

_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_ZONE_HOURS = {
    "utc": 0, "gmt": 0, "ut": 0, "z": 0, "est": -5, "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6, "pst": -8,
    "pdt": -7, "cet": 1, "cest": 2, "bst": 1, "msk": 3, "jst": 9,
}  # fmt: skip
_TIME = re.compile(r"(?<![0-9])([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]+)?)?(?:\s*([AaPp])\.?[Mm]\b)?")
_OFFSET = re.compile(r"(?:(?<=[0-9])|\s|UTC|GMT)([+-])([0-9]{2}):?([0-9]{2})\b")
_ISO_DATE = re.compile(r"\b([0-9]{4})[-/]([0-9]{1,2})[-/]([0-9]{1,2})(?:\b|T)")
_DAY_MONTH_YEAR = re.compile(r"\b([0-9]{1,2})[\s-]+([A-Za-z]{3})[a-z]*\.?[\s,-]+([0-9]{4}|[0-9]{2})\b")
_MONTH_DAY_YEAR = re.compile(r"\b([A-Za-z]{3})[a-z]*\.?\s+([0-9]{1,2})(?:st|nd|rd|th)?,?\s+(?:.*\s)?([0-9]{4})\b")


class Directives(msgspec.Struct, frozen=True):
    """May the page be indexed, may its links be followed."""

    index: bool = True
    follow: bool = True

    def __and__(self, other: Directives) -> Directives:
        """Both together: the stricter word of each."""
        return Directives(self.index and other.index, self.follow and other.follow)


ALLOWED = Directives()


def of_meta(name: str, content: str, *, product_token: str, now_ms: int) -> Directives:
    """Directives of one meta element; those that name another robot say nothing."""
    name = name.strip().lower()
    return _of_value(content, now_ms) if name == "robots" or name == _token(product_token) else ALLOWED


def of_headers(lines: Iterable[str], *, product_token: str, now_ms: int) -> Directives:
    """Directives of all X-Robots-Tag lines. A robot's name and a colon rule what follows them on their line."""
    found = ALLOWED
    for line in lines:
        for robot, value in _by_robot(line):
            if robot in ("", "*", "robots", "all") or _token(robot) == _token(product_token):
                found &= _of_value(value, now_ms)
    return found


def parse_date_ms(text: str) -> int | None:
    """An instant of unavailable_after: RFC 822, RFC 850 and ISO 8601 forms, zone names such as PST; None if unreadable.

    Without a zone it is UTC; without a time the day's end, so that a page is kept for the whole day it names.
    """
    date = _date(text)
    if date is None:
        return None
    year, month, day = date
    time = _TIME.search(text)
    hour, minute, second = 23, 59, 59
    offset_minutes = 0
    if time is not None:
        hour, minute, second = int(time[1]), int(time[2]), int(time[3] or 0)
        if time[4]:
            hour = hour % 12 + (12 if time[4] in "pP" else 0)
        offset_minutes = _offset_minutes(text[time.end() :])
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour <= 24 and minute <= 59 and second <= 60 and year <= 9999):
        return None
    return (timegm((year, month, day, hour, minute, second)) - offset_minutes * 60) * 1000


def _date(text: str) -> tuple[int, int, int] | None:
    """Year, month, day of the first form that fits."""
    if (iso := _ISO_DATE.search(text)) is not None:
        return int(iso[1]), int(iso[2]), int(iso[3])
    if (found := _DAY_MONTH_YEAR.search(text)) is not None and found[2].lower() in _MONTHS:
        year = int(found[3])
        if len(found[3]) == 2:
            year += 2000 if year < 70 else 1900  # RFC 2822 section 4.3, with the usual pivot of 1970
        return year, _MONTHS[found[2].lower()], int(found[1])
    if (found := _MONTH_DAY_YEAR.search(text)) is not None and found[1].lower() in _MONTHS:
        return int(found[3]), _MONTHS[found[1].lower()], int(found[2])
    return None


def _offset_minutes(after_time: str) -> int:
    """Minutes east of UTC that a zone after the time names; 0 when it names none that is known."""
    if (offset := _OFFSET.search(after_time if after_time[:1] in " UG" else f" {after_time}")) is not None:
        minutes = int(offset[2]) * 60 + int(offset[3])
        return -minutes if offset[1] == "-" else minutes
    for name in re.findall(r"[A-Za-z]+", after_time):
        if name.lower() in _ZONE_HOURS:
            return _ZONE_HOURS[name.lower()] * 60
    return 0


def _by_robot(line: str) -> list[tuple[str, str]]:
    """Splits a field's line into (robot in lower case or "", directives)."""
    parts: list[tuple[str, str]] = []
    robot, value = "", ""
    for piece in _pieces(line):
        prefix = _PREFIX.match(piece)
        if prefix is not None and prefix[1].lower() not in _VALUED:
            if value:
                parts.append((robot, value))
            robot, value = prefix[1].lower(), piece[prefix.end() :]
        else:
            value = f"{value},{piece}" if value else piece
    parts.append((robot, value))
    return parts


def _pieces(line: str) -> list[str]:
    """The comma-separated directives of a line; a date keeps its own comma."""
    pieces: list[str] = []
    while line:
        start = re.search(r"unavailable_after", line, re.IGNORECASE)
        if start is None:
            return [*pieces, *line.split(",")]
        before = line[: start.start()]
        cut = before.rfind(",") + 1
        pieces += before[:cut].split(",") if cut else []
        rest = line[cut:]
        end = _DIRECTIVE_AFTER_DATE.search(rest, start.end() - cut)
        pieces.append(rest if end is None else rest[: end.start()])
        line = "" if end is None else rest[end.end() :]
    return pieces


def _of_value(value: str, now_ms: int) -> Directives:
    """Directives of a value without a robot's name."""
    index = follow = True
    for piece in _pieces(value):
        dated = _UNAVAILABLE.search(piece)
        if dated is not None:
            until_ms = parse_date_ms(dated[1])
            index = index and (until_ms is None or now_ms <= until_ms)
            piece = piece[: dated.start()]
        for word in _WORD.findall(piece.lower()):
            if word in ("noindex", "none"):
                index = False
            if word in ("nofollow", "none"):
                follow = False
    return Directives(index, follow)


def _token(name: str) -> str:
    """The product token of a user agent's name: without version and what follows."""
    return re.split(r"[/\s]", name.strip().lower(), maxsplit=1)[0]
