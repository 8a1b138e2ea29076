"""The outside judge finds each kind of breach when it is planted, and none in a polite log."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.support import judge_web
from tests.support.judge import HostPolicy, Line, Policies, judge, main, read_lines

PRIVATE = ("/private/",)
RULES = {"open": (), "private": PRIVATE, "closed": (*PRIVATE, "/p/1")}
POLICIES = Policies(
    hosts={
        "a.test": HostPolicy(address="127.0.0.2", delay_ms=100, rules=RULES, robots_lifetime_ms=5_000),
        "b.test": HostPolicy(address="127.0.0.2", delay_ms=100, rules=RULES, robots_via=(("a.test", "/robots-b.txt"),)),
    },
    lease_ms=0,
)


def line(start: float, path: str, host: str = "a.test", status: int = 200, rules: str = "", **more: float) -> Line:
    return Line(start, more.pop("end", start + 10), 1, host, path, status, more.pop("retry_after_s", None), rules)


POLITE = [
    line(0, "/robots.txt", rules="private"),
    line(110, "/p/1"),
    line(220, "/p/2", status=503, retry_after_s=1),
    line(1_230, "/p/2"),
    line(4_000, "/robots.txt", rules="closed"),
    line(9_000, "/p/2"),
    line(0, "/robots.txt", "b.test", 301),
    line(1_340, "/robots-b.txt", rules="private"),
    line(1_350, "/p/1", "b.test"),
]


def kinds(lines: list[Line], policies: Policies = POLICIES) -> list[str]:
    return [breach.kind for breach in judge(lines, policies)]


def test_a_polite_log_is_clean() -> None:
    """Protects an honest crawl from a false verdict, at the very bounds of each rule."""
    assert kinds(POLITE) == []


@pytest.mark.parametrize(
    ("planted", "kind"),
    [
        (line(1_339, "/p/3"), "too_early"),
        (line(1_235, "/p/3"), "too_many_connections"),
        (line(1_229, "/p/3"), "retry_after_ignored"),
        (line(2_000, "/private/3"), "disallowed"),
        (line(4_110, "/p/1"), "disallowed"),
        (line(9_011, "/p/2"), "robots_expired"),
        (line(1_349, "/p/2", "b.test"), "robots_not_first"),
        (line(500, "/p/2", "c.test"), "robots_not_first"),
    ],
)
def test_each_planted_breach_is_found(planted: Line, kind: str) -> None:
    """Protects the verdict: a breach that nobody sees is worse than none looked for."""
    assert kind in kinds([*POLITE, planted])


@pytest.mark.parametrize("status", [429, 500, 503])
def test_nothing_may_be_asked_while_robots_are_unreachable(status: int) -> None:
    """Protects RFC 9309 section 2.3.1.4: an error is no leave, other than a 404."""
    pages = [line(110, "/p/1")]
    assert kinds([line(0, "/robots.txt", status=status), *pages]) == ["robots_unreachable"]
    assert kinds([line(0, "/robots.txt", status=404), *pages]) == []
    broken = msgspec.structs.replace(line(0, "/robots.txt"), end_ms=None)
    assert kinds([broken, *pages]) == ["robots_unreachable"]


def test_an_older_copy_serves_while_robots_are_unreachable() -> None:
    """Protects sites that fail for a while: what they said last holds, for a day at most."""
    failed = [line(0, "/robots.txt", rules="private"), line(6_000, "/robots.txt", status=500)]
    assert kinds([*failed, line(7_000, "/p/1")]) == []
    assert kinds([*failed, line(7_000, "/private/1")]) == ["disallowed"]
    assert kinds([*failed, line(11 + 24 * 3_600_000, "/p/1")]) == ["robots_expired"]


def test_a_redirect_to_robots_that_fail_is_no_leave() -> None:
    """Protects hosts whose robots.txt lies elsewhere: the answer that counts is the last hop's."""
    hop = [line(0, "/robots.txt", "b.test", 301), line(100, "/robots-b.txt", status=500)]
    assert kinds([*hop, line(200, "/p/1", "b.test")]) == ["robots_unreachable"]
    earlier = [line(0, "/robots-b.txt"), line(100, "/robots.txt", "b.test", 301), line(250, "/p/1", "b.test")]
    assert kinds(earlier) == ["robots_not_first"], "what was answered before the redirect answers nothing"


def test_hosts_of_one_address_are_judged_as_one_where_the_policies_say_so() -> None:
    """Protects a limit by address: two hosts of it asked at once or too soon are seen, and only then."""
    asked = [
        *(line(0, "/robots.txt", rules="open"), line(500, "/robots.txt", "b.test", 404)),
        *(line(1_000, "/p/1"), line(1_050, "/p/1", "b.test"), line(2_000, "/p/2"), line(2_005, "/p/2", "b.test")),
    ]
    shared = msgspec.structs.replace(POLICIES, address_delay_ms={"127.0.0.2": 100.0})
    assert kinds(asked) == []
    assert kinds(asked, shared) == ["address_too_early", "address_at_once"]


def test_the_script_reads_files_and_says_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Protects the verdict as a command: a torn last line is left out, the exit code says whether it is clean."""
    log, policies = tmp_path / "access.log", tmp_path / "policies.json"
    policies.write_bytes(msgspec.json.encode(POLICIES))
    monkeypatch.setattr("sys.argv", ["judge", str(log), str(policies)])
    log.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in POLITE) + b'{"start_ms": 1')
    assert read_lines(log) == POLITE
    assert main() == 0
    assert "no breach" in capsys.readouterr().out
    with log.open("ab") as stream:
        stream.write(b"\n" + msgspec.json.encode(line(1_339, "/p/3")) + b"\n")
    log.write_bytes(log.read_bytes().replace(b'{"start_ms": 1\n', b""))
    assert main() == 1
    assert "1 too_early" in capsys.readouterr().out


def test_the_judged_web_is_as_mixed_as_it_should_be() -> None:
    """Protects what a clean verdict is worth: 50 hosts of ten kinds, ten on one address, every kind of answer given."""
    web = judge_web.Web(80, started_ms=0)
    hosts = range(judge_web.HOSTS)
    assert len(hosts) == 50
    assert sum(judge_web.address(index) == "127.0.0.2" for index in hosts) == 10
    robots = {judge_web.kind(index): web.answer(judge_web.host(index), "/robots.txt", 0) for index in hosts}
    assert {answer.status for answer in robots.values()} == {200, 301, 404, 500}
    later = web.answer(judge_web.host(4), "/robots.txt", judge_web.BROKEN_MS)
    assert (later.status, later.rules) == (200, "private")
    assert b"Crawl-delay" in robots["crawl_delay"].body
    again = web.answer(judge_web.host(6), "/robots.txt", 0)
    assert ("Cache-Control", "max-age=60") in again.headers
    assert again.rules == "closed"
    seconds, date = web.answer("h07.test", "/busy/4", 0), web.answer("h08.test", "/limited/4", 500)
    assert seconds.headers[0][1] == "3"
    assert date.headers[0][1] == "Thu, 01 Jan 1970 00:00:04 GMT"
    assert date.retry_after_ms == 4_000
    assert web.answer("h07.test", "/busy/4", 0).status == 200
