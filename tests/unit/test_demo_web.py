"""The demo's web and its verdict: what the sites promise, and that a rude visitor is told on."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

import msgspec
import pytest

from infra.demo_site import BOOKS, HOSTS, MIRRORED, RETRY_AFTER_S, Asked, answer
from infra.demo_verdict import judge
from infra.demo_web import DemoWeb, LogLine
from streams.core.rules.robots import parse


def get(host: str, path: str, number: int = 0, tag: str | None = None) -> tuple[int, bytes, dict[str, str]]:
    given = answer(Asked(host, path, number, 8_000, tag))
    return given.status, given.body, dict(given.headers)


def test_the_mirror_serves_the_library_s_bytes() -> None:
    """Protects the demo of duplicates: the mirrored books are identical, the others are not there."""
    for number in range(MIRRORED):
        assert get("mirror.demo.test", f"/books/{number}") == get("library.demo.test", f"/books/{number}")
    assert get("mirror.demo.test", f"/books/{MIRRORED}")[0] == 404
    assert get("library.demo.test", f"/books/{BOOKS}")[0] == 404


def test_a_page_that_is_known_is_not_sent_again() -> None:
    """Protects the demo of 304: the entity tag is honoured, a stale one is not."""
    status, _, headers = get("library.demo.test", "/books/3")
    assert (status, get("library.demo.test", "/books/3", tag=headers["ETag"])[:2]) == (200, (304, b""))
    assert get("library.demo.test", "/books/3", tag='"other"')[0] == 200


def test_the_busy_site_is_busy_once() -> None:
    """Protects the demo of Retry-After: one 503 with a span, and the page when asked again."""
    status, _, headers = get("busy.demo.test", "/tickets/1", number=3)
    assert (status, headers) == (503, {"Retry-After": str(RETRY_AFTER_S)})
    assert get("busy.demo.test", "/tickets/1", number=4)[0] == 200


def test_robots_txt_says_what_the_verdict_holds_the_crawler_to() -> None:
    """Protects the judge from judging by other rules than the site announced."""
    from infra.demo_site import crawl_delay_ms, disallowed

    for host in HOSTS:
        rules = parse(get(host, "/robots.txt")[1], "AnyBot")
        assert (rules.crawl_delay_ms or 0) == crawl_delay_ms(host)
        for path in ("/", "/private/1", "/basket?add=1", "/books/1"):
            assert rules.allows(f"http://{host}:8000{path}") is not disallowed(host, path)


@pytest.mark.parametrize("host", HOSTS)
def test_no_path_breaks_a_site(host: str) -> None:
    """Protects the demo from its own traps: odd paths are a 404, never an exception."""
    for path in (
        "/calendar/x/1",
        "/calendar/2026",
        "/calendar/99999999999/1",
        "/books/²",
        "/notes/-1",
        "//",
        "/%00",
        "*",
    ):
        assert get(host, path)[0] in (200, 404)


def test_it_serves_and_logs(tmp_path: Path) -> None:
    """Protects the log: a line a request, one name for one connection, no end before its start."""
    with DemoWeb(tmp_path / "log") as demo:
        connection = http.client.HTTPConnection("127.0.0.1", demo.port, timeout=10)
        for path in ("/robots.txt", "/"):
            connection.request("GET", path, headers={"Host": f"news.demo.test:{demo.port}"})
            assert connection.getresponse().read()
        connection.close()
        first, second = demo.log()
    assert (first.host, first.path, second.path) == ("news.demo.test", "/robots.txt", "/")
    assert first.connection == second.connection
    assert first.start_ms <= first.end_ms <= second.start_ms
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert lines == msgspec.to_builtins([first, second])


def line(
    start_ms: float, path: str, *, took_ms: float = 10, status: int = 200, retry_after_s: int | None = None
) -> LogLine:
    return LogLine(start_ms, start_ms + took_ms, 1, "quiet.demo.test", path, status, retry_after_s)


ROBOTS = line(0, "/robots.txt")


@pytest.mark.parametrize(
    ("lines", "breach"),
    [
        ([ROBOTS, line(1_009, "/")], "sooner than 1000 ms"),
        ([ROBOTS, line(1_010, "/", took_ms=50), line(1_020, "/notes/1")], "2 requests at once"),
        ([line(0, "/"), line(1_010, "/robots.txt")], "asked for / before robots.txt"),
        ([ROBOTS, line(1_010, "/private/1")], "asked for /private/1"),
        ([ROBOTS, line(1_010, "/", status=503, retry_after_s=2), line(3_000, "/")], "within the 2 s"),
    ],
)
def test_the_verdict_tells_on_a_rude_visitor(lines: list[LogLine], breach: str) -> None:
    """Protects the closing report: "no breach" is said only when there was none."""
    [verdict] = judge(lines, delay_ms=150)
    assert any(breach in told for told in verdict.breaches)


def test_the_verdict_is_clean_for_a_polite_one() -> None:
    """Protects against a false accusation, at the very bound of the delay."""
    [verdict] = judge([ROBOTS, line(1_010, "/"), line(2_020, "/notes/1", status=304)], delay_ms=150)
    assert verdict.breaches == ()
    assert (verdict.requests, verdict.pages, verdict.unchanged, verdict.gap_ms, verdict.at_once) == (3, 1, 1, 1_000, 1)
