"""Numbers as people read them: sizes, spans, counts, instants."""

from __future__ import annotations

import datetime


def size(count: float) -> str:
    """Bytes in powers of 1,000, three digits at least: `812 B`, `3.4 kB`, `56 MB`."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 9.95 else f"{value:.1f} {unit}"
        value /= 1_000
    return f"{value:,.0f} TB" if value >= 9.95 else f"{value:.1f} TB"


def count(number: int, noun: str = "") -> str:
    """`3,201` or, with a noun, `1 page`, `3,201 pages`."""
    if not noun:
        return f"{number:,}"
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {_plural(noun)}"


def _plural(noun: str) -> str:
    if noun.endswith(("s", "x", "ch")):
        return noun + "es"
    return noun[:-1] + "ies" if noun.endswith("y") and noun[-2:-1] not in "aeou" else noun + "s"


def rate(per_s: float) -> str:
    return f"{per_s:.0f}/s" if per_s >= 9.95 else f"{per_s:.1f}/s"


def span(ms: int) -> str:
    """`40 ms`, `1.2 s`, `2 min 11 s`, `3 h 05 min`, `4 d 2 h`."""
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 59_950:
        return f"{ms / 1_000:.1f} s"
    seconds = round(ms / 1_000)
    if seconds < 3_600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    minutes = seconds // 60
    if minutes < 2_880:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 1_440} d {minutes % 1_440 // 60} h"


def clock(ms: int) -> str:
    """A stopwatch: `0:02:11`."""
    seconds = ms // 1_000
    return f"{seconds // 3_600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def instant(ms: int) -> str:
    """An instant in UTC: `2026-11-30 15:07:41Z`."""
    return datetime.datetime.fromtimestamp(ms / 1_000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def upcoming(ms: int, now_ms: int) -> str:
    """An instant to come: `14:02:11Z` within half a day, with its date beyond."""
    return instant(ms)[11:] if ms - now_ms < 43_200_000 else instant(ms)


def shorten(text: str, width: int) -> str:
    """`text` in at most `width` characters, its middle left out: the end of a URL tells more than its middle."""
    text = printable(text)
    if len(text) <= width:
        return text
    if width <= 1:
        return text[: max(width, 0)]
    tail = (width - 1) // 2
    return text[: width - 1 - tail] + "…" + text[len(text) - tail :]


def printable(text: str) -> str:
    """What a site sent, without the characters that would steer a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
