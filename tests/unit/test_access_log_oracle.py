"""The judge finds each kind of breach when it is planted, and none in a polite log."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.access_log_oracle import Expected, Request, judge, read_log

HOST = "a.test"
EXPECTED = Expected(delay_ms=100, concurrency=1, allowed=lambda path: not path.startswith("/private/"))


def line(
    start: float, end: float | None, path: str, *, connection: int = 1, status: int = 200, **more: float
) -> Request:
    return Request(start, end, connection, HOST, path, status, **more)


POLITE = [
    line(0, 10, "/robots.txt"),
    line(110, 130, "/"),
    line(230, 240, "/a"),
    line(340, 350, "/b", status=503, retry_after_s=1),
    line(1_350, 1_360, "/b"),
]


def kinds(*planted: Request, expected: Expected = EXPECTED) -> list[str]:
    return [breach.kind for breach in judge([*POLITE, *planted], lambda host: expected)]


def test_a_polite_log_is_clean() -> None:
    """Protects an honest crawl from a false verdict, at the very bounds: delay and Retry-After are met to the ms."""
    assert kinds() == []


@pytest.mark.parametrize(
    ("planted", "kind"),
    [
        (line(1_459, 1_470, "/c"), "too_early"),
        (line(1_355, 1_370, "/c", connection=2), "too_many_connections"),
        (line(1_355, 1_370, "/c", connection=1), "too_many_connections"),
        (line(1_460, 1_470, "/private/x"), "disallowed"),
        (line(1_249, 1_250, "/c"), "retry_after_ignored"),
    ],
)
def test_each_planted_breach_is_found(planted: Request, kind: str) -> None:
    """Protects the verdict: a breach that nobody sees is worse than none looked for."""
    assert kind in kinds(planted)


def test_a_page_before_robots_is_found() -> None:
    """Protects RFC 9309: robots.txt must have been answered, not merely asked, before anything else."""
    first_page = line(5, 8, "/")
    found = judge([line(0, 10, "/robots.txt"), first_page], lambda host: Expected(delay_ms=0, concurrency=2))
    assert [breach.kind for breach in found] == ["robots_not_first"]
    late = [line(0, 10, "/"), line(200, 210, "/robots.txt")]
    assert [breach.kind for breach in judge(late, lambda host: EXPECTED)] == ["robots_not_first"]


def test_robots_of_yesterday_do_not_serve() -> None:
    """Protects RFC 9309 section 2.4: a copy older than 24 hours is none."""
    day_ms = 24 * 3_600 * 1_000
    assert kinds(line(10 + day_ms, 20 + day_ms, "/c")) == []
    assert kinds(line(11 + day_ms, 20 + day_ms, "/c")) == ["robots_not_first"]


def test_hosts_are_judged_apart() -> None:
    """Protects parallel crawling of many hosts: what one host sees is no matter of another's."""
    other = [msgspec.structs.replace(request, host="b.test") for request in POLITE]
    assert judge([*POLITE, *other], lambda host: EXPECTED) == []


def test_concurrency_is_what_the_policy_says() -> None:
    """Protects hosts with a negotiated exception: two at once are fine where two are allowed, three are not."""
    two = Expected(delay_ms=0, concurrency=2)
    pair = [line(0, 10, "/robots.txt"), line(20, 30, "/a"), line(25, 35, "/b")]
    assert judge(pair, lambda host: two) == []
    assert [breach.kind for breach in judge([*pair, line(26, 31, "/c")], lambda host: two)] == ["too_many_connections"]


def test_a_second_connection_is_seen_between_the_requests_of_the_first() -> None:
    """Protects "one connection": two that take turns are both open, though never two requests are."""
    turns = [line(0, 10, "/robots.txt"), line(200, 210, "/a", connection=2), line(400, 410, "/b", connection=1)]
    assert [breach.kind for breach in judge(turns, lambda host: EXPECTED)] == ["too_many_connections"]
    reopened = [*turns[:2], line(400, 410, "/b", connection=3)]
    assert judge(reopened, lambda host: EXPECTED) == []


def test_a_torn_log_is_read() -> None:
    """Protects verdicts on servers that were killed: the last, half-written line is left out."""
    data = b"".join(msgspec.json.encode(request) + b"\n" for request in POLITE)
    assert read_log(data + b'{"start_ms": 1') == POLITE
