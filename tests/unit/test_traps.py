"""Traps: shapes of one URL, templates of many."""

from __future__ import annotations

import msgspec
import pytest

from streams.core.policy import (
    PATH_SEGMENT_REPEATS_MAX,
    PATH_SEGMENTS_MAX,
    QUERY_PARAMETERS_MAX,
    TEMPLATE_CHARS_MAX,
    TEMPLATES_MAX,
    URL_BYTES_MAX,
    TrapLimits,
)
from streams.core.rules.traps import TRAP_PATTERN, TemplateCounts, is_endless, template, url_trap
from streams.core.rules.urls import url_id

LIMITS = TrapLimits(template_urls_max=100, endless_template_urls_max=10, sample_every=16)


def admitted(counts: TemplateCounts, urls: list[str], limits: TrapLimits = LIMITS) -> int:
    return sum(counts.count(template(url), url_id(url), limits) is None for url in urls)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://h/", None),
        ("http://h/" + "/".join(f"s{n}" for n in range(PATH_SEGMENTS_MAX)), None),
        ("http://h/" + "/".join(f"s{n}" for n in range(PATH_SEGMENTS_MAX + 1)), "path_too_deep"),
        ("http://h/" + "a/" * PATH_SEGMENT_REPEATS_MAX + "x", None),
        ("http://h/" + "a/" * PATH_SEGMENT_REPEATS_MAX + "a", "repeated_segments"),
        ("http://h/" + "a/b/" * (PATH_SEGMENT_REPEATS_MAX + 1), "repeated_segments"),
        ("http://h/?x=" + "a/" * 100, None),
        ("http://h/?" + "&".join(f"p{n}=1" for n in range(QUERY_PARAMETERS_MAX)), None),
        ("http://h/?" + "&".join(f"p{n}=1" for n in range(QUERY_PARAMETERS_MAX + 1)), "too_many_parameters"),
        ("http://h/" + "&" * 100, None),
        ("http://h/" + "a" * URL_BYTES_MAX, "url_too_long"),
    ],
)
def test_shapes(url: str, reason: str | None) -> None:
    """A URL is a trap by its shape just beyond each bound and not at it."""
    assert url_trap(url) == reason


@pytest.mark.parametrize(
    ("url", "expected", "endless"),
    [
        ("http://h1/", "http://h1/", False),
        ("https://h/std/vec/struct.Vec.html", "https://h/std/vec/struct.Vec.html", False),
        ("http://h/docs/9.6/sql-select2.html", "http://h/docs/{n}.{n}/sql-select{n}.html", False),
        ("http://h/2024/05/12/slug", "http://h/{date}/slug", False),
        ("http://h/2024/05/12/123456", "http://h/{date}/{n}", False),
        ("http://h/2024/05/12/", "http://h/{date}/", True),
        ("http://h/a/2024-05", "http://h/a/{date}", True),
        ("http://h/a/20240512", "http://h/a/{date}", True),
        ("http://h/a/20249912", "http://h/a/{n}", False),
        ("http://h/c?date=2024-05-12", "http://h/c?date={date}", True),
        ("http://h/c?d=20240512&v=list", "http://h/c?d={date}&v={v}", True),
        ("http://h/c?year=2024&month=5", "http://h/c?year={n}&month={n}", True),
        ("http://h/calendar/week/17", "http://h/calendar/week/{n}", True),
        ("http://h/t/17?page=3", "http://h/t/{n}?page={n}", False),
        ("http://h/x;jsessionid=A1B2?q=", "http://h/x{session}?q=", True),
        ("http://h/(S(a1b2))/x", "http://h/{session}/x", True),
        ("http://h/x?a&PHPSESSID=zz", "http://h/x?a&PHPSESSID={session}", True),
        ("http://h/x/550e8400-e29b-41d4-a716-446655440000", "http://h/x/{id}", False),
        ("http://h/x/deadbeef01/y", "http://h/x/{id}/y", False),
        ("http://h/x/aB3dE5gH7jK9lM1nO3", "http://h/x/{id}", False),
        ("http://h/facade/decade/", "http://h/facade/decade/", False),
        ("http://h/a/b/a/b/a/b/x", "http://h/a/b/{repeat}/x", True),
        ("http://h/news/news/17", "http://h/news/news/{n}", False),
        ("http://h/1/1/1//", "http://h/{n}/{n}/{n}//", False),
        ("http://h/?q=rust+lang&q=7", "http://h/?q={v}&q={n}", False),
    ],
)
def test_templates(url: str, expected: str, endless: bool) -> None:
    """What enumerates is folded, what names stays, and only shapes without end count as such."""
    assert template(url) == expected
    assert is_endless(expected) == endless


def test_a_growing_template_is_paused_and_sampled() -> None:
    """Beyond its limit a template gets one URL in sample_every, the host's other URLs all theirs."""
    counts = TemplateCounts()
    assert admitted(counts, [f"http://h/n/{n}" for n in range(100)]) == 100
    assert counts.paused == {}
    further = [f"http://h/n/{n}" for n in range(100, 1_700)]
    assert 50 <= admitted(counts, further) <= 150
    assert list(counts.paused.values()) == ["http://h/n/{n}"]
    assert counts.count("http://h/other", b"1234", LIMITS) is None


def test_an_endless_template_is_paused_early() -> None:
    """A calendar has its own, lower limit."""
    counts = TemplateCounts()
    days = [f"http://h/cal?year={year}&month={month}" for year in range(1990, 2050) for month in range(1, 13)]
    assert 10 <= admitted(counts, days) < 100
    assert counts.count(template(days[0]), b"\0\0\0\1", LIMITS) == TRAP_PATTERN


def test_a_refused_url_stays_refused() -> None:
    """Found again and again, a paused URL is judged the same: links from many pages do not leak the trap in."""
    counts = TemplateCounts()
    admitted(counts, [f"http://h/n/{n}" for n in range(100)])
    verdicts = {counts.count("http://h/n/{n}", b"\0\0\0\7", LIMITS) for _ in range(1_000)}
    assert verdicts == {TRAP_PATTERN}


def test_a_documentation_site_never_trips() -> None:
    """Tens of thousands of named pages are as many templates: all are admitted, and the state stays small."""
    counts = TemplateCounts()
    names = [
        f"{a}{b}{c}"
        for a in "abcdefghijklmnopqrstuvwxyzABCDEFG"
        for b in "abcdefghijklmnopqrstuvwxyzABCDEF"
        for c in "abcdefghijklmnopqrstuvwxyzABCDE"
    ]
    urls = [f"http://h/doc/std/struct.{name}.html" for name in names[:30_000]]
    assert admitted(counts, urls, TrapLimits()) == 30_000
    assert len(counts.urls) <= TEMPLATES_MAX
    assert counts.paused == {}


def test_paused_templates_outlast_many_others() -> None:
    """A site cannot unpause its trap by showing many other templates."""
    counts = TemplateCounts()
    calendar = template("http://h/2024/05/12/")
    admitted(counts, [f"http://h/2024/05/{day:02}/" for day in range(1, 32)])
    letters = "abcdefghijklmnopqrstuvwxyz"
    admitted(counts, [f"http://h/{a}{b}/{n}" for a in letters for b in letters for n in range(50)])
    assert list(counts.paused.values()) == [calendar]
    assert counts.count(calendar, b"\0\0\0\7", LIMITS) == TRAP_PATTERN


def test_the_state_is_small_and_survives() -> None:
    """The fullest state packs into a bounded number of bytes and comes back equal."""
    counts = TemplateCounts()
    for a in range(TEMPLATES_MAX):
        name = "".join("abcdefghij"[int(digit)] for digit in str(a))
        admitted(counts, [f"http://h/{name}/{'x' * 500}/{n}" for n in range(120)])
    packed = msgspec.msgpack.encode(counts)
    assert len(packed) < TEMPLATES_MAX * (TEMPLATE_CHARS_MAX + 32)
    assert msgspec.msgpack.decode(packed, type=TemplateCounts) == counts
    assert len(counts.paused) == TEMPLATES_MAX
