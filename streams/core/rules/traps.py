"""Spider traps: URLs without end by their shape, and templates that grow without end.

Two rules. `url_trap` looks at one URL alone. `TemplateCounts` counts a host's admitted URLs by template, the URL with
its numbers, dates and identifiers taken out: when one template has had its share it is *paused*, its further URLs are
refused but for a sample, and the host goes on. A documentation site of tens of thousands of named pages has as many
templates, each with few URLs, so it never comes near a limit.
"""

from __future__ import annotations

import re

import msgspec
from xxhash import xxh3_64_intdigest

from streams.core.policy import (
    PATH_SEGMENT_REPEATS_MAX,
    PATH_SEGMENTS_MAX,
    QUERY_PARAMETERS_MAX,
    TEMPLATE_CHARS_MAX,
    TEMPLATES_MAX,
    URL_BYTES_MAX,
    TrapLimits,
)

TRAP_PATTERN = "trap_pattern"

# Placeholders. A template that holds one of the last three has no end by its shape alone.
NUMBER, IDENTIFIER, WORD = "{n}", "{id}", "{v}"
DATE, SESSION, REPEAT = "{date}", "{session}", "{repeat}"


def url_trap(url: str) -> str | None:
    """Why the shape of one normal form alone says that it is a trap; None when it does not.

    Reasons: url_too_long, path_too_deep, repeated_segments, too_many_parameters.
    """
    if len(url) > URL_BYTES_MAX:
        return "url_too_long"
    mark = url.find("?")
    path = url if mark < 0 else url[:mark]
    slashes = path.count("/") - 2
    if slashes > PATH_SEGMENTS_MAX:
        return "path_too_deep"
    # A segment can only be there too often when there are that many, so most URLs end here.
    if slashes > PATH_SEGMENT_REPEATS_MAX:
        segments = path.split("/")[3:]
        distinct = set(segments)
        if len(segments) - len(distinct) >= PATH_SEGMENT_REPEATS_MAX and any(
            segments.count(segment) > PATH_SEGMENT_REPEATS_MAX for segment in distinct
        ):
            return "repeated_segments"
    if mark >= 0 and url.count("&", mark) >= QUERY_PARAMETERS_MAX:
        return "too_many_parameters"
    return None


def template(url: str) -> str:
    """The URL (a normal form) with all that enumerates taken out; path words and parameter names stay.

    Runs of digits become {n}, dates {date}, hexadecimal and random identifiers and UUIDs {id}, session ids {session};
    path segments of a loop become {repeat}, once for the whole run. Of the query the names stay, in order,
    with {n}, {date}, {id}, {session} or {v} for a value, and nothing for an empty one.
    """
    path, mark, query = url.partition("?")
    folded = _fold_path(path)
    if not mark:
        return folded
    return f"{folded}?{'&'.join([_fold_parameter(parameter) for parameter in query.split('&')])}"


def is_endless(template: str) -> bool:
    """Whether a template's shape is one that servers make without end: calendars, sessions, loops of links."""
    if SESSION in template or REPEAT in template:
        return True
    path, _, query = template.partition("?")
    # A page below a date is an article; a page that *is* a date is a leaf of a calendar.
    if path.rstrip("/").endswith(DATE) or DATE in query:
        return True
    names = {parameter.partition("=")[0].lower() for parameter in query.split("&") if parameter.endswith(f"={NUMBER}")}
    return not names.isdisjoint(_CALENDAR_NAMES) or ("/calendar" in path and NUMBER in template)


class TemplateCounts(msgspec.Struct):
    """How many URLs of each template a host has had admitted. Its owner keeps it and is the only one to change it.

    At most TEMPLATES_MAX templates by a 64-bit digest, about 5 KiB when packed; when there are more, the half with the
    fewest URLs is forgotten, paused ones last, so a count may be too low but never too high: doubt is for the site.
    `paused` shows the templates that are over their limit (digest -> template, cut), for people.
    """

    urls: dict[int, int] = {}
    paused: dict[int, str] = {}

    def count(self, template: str, url_id: bytes, limits: TrapLimits) -> str | None:
        """Count one newly found URL; None when it is admitted, "trap_pattern" when its template is paused.

        Whether a URL is in the sample is a matter of its `url_id` alone: found again, it is judged the same.
        """
        key = xxh3_64_intdigest(template.encode())  # a site that makes two of its templates collide harms only itself
        seen = self.urls.get(key, 0)
        if seen >= limits.endless_template_urls_max or seen >= limits.template_urls_max:
            endless = is_endless(template)
            if seen >= (limits.endless_template_urls_max if endless else limits.template_urls_max):
                if key not in self.paused:
                    self.paused[key] = template[:TEMPLATE_CHARS_MAX]
                if int.from_bytes(url_id[-4:]) % limits.sample_every:
                    return TRAP_PATTERN
        if not seen and len(self.urls) >= TEMPLATES_MAX:
            self._forget_half()
        self.urls[key] = seen + 1
        return None

    def told(self, template: str, limits: TrapLimits) -> tuple[int, int]:
        """(URLs of this template so far, its limit), for people."""
        limit = limits.endless_template_urls_max if is_endless(template) else limits.template_urls_max
        return self.urls.get(xxh3_64_intdigest(template.encode()), 0), limit

    def _forget_half(self) -> None:
        kept = sorted(self.urls, key=lambda key: (key in self.paused, self.urls[key]))[TEMPLATES_MAX // 2 :]
        self.urls = {key: self.urls[key] for key in kept}
        self.paused = {key: text for key, text in self.paused.items() if key in self.urls}
        assert len(self.urls) <= TEMPLATES_MAX // 2


# --- folding ------------------------------------------------------------------------------------------------------

_YEAR, _MONTH, _DAY = r"(?:19|20|21)\d\d", r"(?:0?[1-9]|1[0-2])", r"(?:0?[1-9]|[12]\d|3[01])"
_CALENDAR_NAMES = frozenset({"year", "month", "week", "day", "date", "yr", "mon", "cal", "caldate", "ical"})
_SESSION_NAMES = frozenset(
    {"jsessionid", "phpsessid", "sessionid", "session_id", "session", "sid", "cfid", "cftoken", "sessid", "oscsid"}
)
_ENUMERATED = re.compile(
    rf"(?P<date>(?<!\d){_YEAR}(?:[-/._]{_MONTH}(?:[-/._]{_DAY})?|(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01]))(?!\d))"
    r"|(?P<id>(?<![0-9A-Za-z])(?:[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"
    r"|(?=\d*[A-Fa-f])(?=[A-Fa-f]*\d)[0-9A-Fa-f]{8,})(?![0-9A-Za-z])"
    r"|(?<!\w)(?=[A-Za-z_]*\d[A-Za-z_]*\d)(?=[0-9A-Z_]*[a-z])(?=[0-9a-z_]*[A-Z])\w{16,}(?!\w))"
    r"|(?P<session>;jsessionid=[^/?;]*|\(S\(\w+\)\))"
    r"|(?P<n>\d+)"
)
_LOOP_REPEATS_MIN = 2
_PLACEHOLDERS = {"date": DATE, "id": IDENTIFIER, "session": SESSION, "n": NUMBER}
_MAY_ENUMERATE = re.compile(r"\d|;jsessionid=|\(S\(")


def _fold_path(path: str) -> str:
    """Scheme and authority stay as they are: counts are kept by host anyway, and a host is not enumerated by links."""
    start = path.index("/", 8)
    inner = path[start:]
    if _MAY_ENUMERATE.search(inner):
        inner = _ENUMERATED.sub(_placeholder, inner)
    if inner.count("/") > 2:
        segments = inner.split("/")
        if len(set(segments)) < len(segments):
            inner = "/".join(_fold_repeats(segments))
    return path[:start] + inner


def _placeholder(match: re.Match[str]) -> str:
    return _PLACEHOLDERS[match.lastgroup or "n"]


def _fold_repeats(segments: list[str]) -> list[str]:
    """Named segments that were there before become {repeat}, one for a run of them; `//` and {n} may recur.

    One repeated name is common on honest sites (/news/news/17), two are the beginning of a loop.
    """
    folded: list[str] = []
    before: set[str] = set()
    repeats = 0
    for segment in segments:
        if not segment or segment.startswith("{") or segment not in before:
            folded.append(segment)
            before.add(segment)
            continue
        repeats += 1
        if folded[-1] != REPEAT:
            folded.append(REPEAT)
    return folded if repeats >= _LOOP_REPEATS_MIN else segments


def _fold_parameter(parameter: str) -> str:
    name, equals, value = parameter.partition("=")
    if name.isdigit():
        name = NUMBER
    if not value:
        return name + equals
    if name.lower() in _SESSION_NAMES:
        return f"{name}={SESSION}"
    if value.isdigit() and len(value) != 8:
        return f"{name}={NUMBER}"
    match = _ENUMERATED.fullmatch(value)
    return f"{name}={WORD if match is None else _placeholder(match)}"
