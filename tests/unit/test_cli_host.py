"""The verb `host`: what an operator writes becomes one change, and what came of it is said."""

from __future__ import annotations

import json

import pytest

from schemas.records import HostPolicy
from streams.cli import main
from streams.cli.host import until
from streams.core.failures import EXIT_FAILED, UsageError
from streams.core.host_policy import Change, Policies
from streams.core.policy import Politeness
from streams.core.progress import Counts
from tests.support.fake_engine import NOW_MS, Captured, FakeBackend, FakeReader

DAY_MS = 86_400_000


def ask(*words: str, code: int = 0, deaf: bool = False) -> Captured:
    shell = Captured()
    shell.fake.deaf = deaf
    assert main(["host", *words], shell) == code
    return shell


@pytest.mark.parametrize(
    ("words", "policy"),
    [
        (["--pause"], HostPolicy("a.test", 0, paused=True)),
        (["--resume"], HostPolicy("a.test", 0, paused=False, deleted=False)),
        (["--delete"], HostPolicy("a.test", 0, deleted=True)),
        (["--delay", "2"], HostPolicy("a.test", 0, delay_ms=2_000)),
        (["--delay", "500ms", "--concurrency", "3"], HostPolicy("a.test", 0, delay_ms=500, concurrency=3)),
        (["--budget", "0"], HostPolicy("a.test", 0, budget_per_day=0)),
        (["--block", "/x", "--block", "/y"], HostPolicy("a.test", 0, block=("/x", "/y"))),
        (["--unblock", "/x"], HostPolicy("a.test", 0, unblock=("/x",))),
        (["--reset"], HostPolicy("a.test", 0, reset=True)),
        (["--delay", "1", "--until", "3d"], HostPolicy("a.test", 0, delay_ms=1_000, until_ms=NOW_MS + 3 * DAY_MS)),
        (["--until", "now"], HostPolicy("a.test", 0, until_ms=NOW_MS)),
    ],
)
def test_what_is_asked_for(words: list[str], policy: HostPolicy) -> None:
    """Each option is the value that its help promises, and nothing that was not said is changed."""
    shell = ask("news", "A.test", *words)
    assert [change for _, change in shell.fake.changed] == [policy]
    assert "version 1" in shell.printed


@pytest.mark.parametrize(
    "words",
    [
        ["news"],
        ["news", "https://a.test/path", "--pause"],
        ["news", "a.test", "--pause", "--resume"],
        ["news", "a.test", "--delay", "soon"],
        ["news", "a.test", "--budget", "-1"],
        ["news", "a.test", "--block", "("],
        ["news", "a.test", "--until", "2999-01-01"],
        ["news", "a.test", "--delay", "1", "--until", "2001-01-01"],
        ["news", "a.test", "--delay", "1", "--until", "someday"],
        ["news", "a.test", "--delete", "--until", "3d"],
        ["news", "a.test", "--pause", "--show"],
    ],
)
def test_what_cannot_be_is_one_line(words: list[str]) -> None:
    """A mistake is told before anything reaches the crawl."""
    shell = ask(*words, code=2)
    assert shell.said.count("\n") == 1
    assert shell.fake.changed == []


def test_dates_are_utc() -> None:
    """A date is its first instant in UTC wherever the operator sits, unless an offset is written."""
    assert until("2100-01-01", NOW_MS) == 4_102_444_800_000
    assert until("2100-01-01T01:00+01:00", NOW_MS) == 4_102_444_800_000
    assert until("90min", NOW_MS) == NOW_MS + 5_400_000
    with pytest.raises(UsageError):
        until("20", NOW_MS)


def test_a_crawl_that_does_not_answer() -> None:
    """The operator is told that the change is kept but does not hold yet, and a script sees it by the code."""
    shell = ask("news", "a.test", "--pause", code=EXIT_FAILED, deaf=True)
    assert "news/control" in shell.said


def test_a_deletion_says_what_stays() -> None:
    """Nobody should believe that stored pages are gone."""
    assert "stored pages stay" in ask("news", "a.test", "--delete").printed


def shown(*words: str) -> Captured:
    policies = Policies()
    policies.configure(Politeness(), NOW_MS)
    changes = [
        Change(HostPolicy("", 1), NOW_MS, politeness=Politeness()),
        policies.change(HostPolicy("*.test", 0, delay_ms=9), NOW_MS),
        policies.change(HostPolicy("a.test", 0, paused=True, until_ms=NOW_MS + 5_000), NOW_MS),
        policies.change(HostPolicy("b.other", 0, paused=True), NOW_MS),
    ]
    reader = FakeReader(Counts(), policies=policies, changes=[change for change in changes if change is not None])
    shell = Captured(FakeBackend(reader=reader))
    assert main(["host", "news", *words], shell) == 0
    assert reader.closed == 1
    return shell


def test_what_holds_and_how_it_came_to_that() -> None:
    """`--show` tells the words on a host, with dates, and every change that was about it; `--show` is the default."""
    printed = shown("a.test", "--show").printed
    assert printed == shown("a.test").printed
    assert "version 3 for a.test, until " in printed
    assert "version 2 for *.test: delay 9 ms" in printed
    assert "version 1, " in printed
    assert "b.other" not in printed


def test_a_host_without_words() -> None:
    """It is said that the crawl's own policy holds, not nothing."""
    assert "the crawl's own policy holds" in shown("c.third").printed


def test_the_list() -> None:
    """All keys that have words, for people and for scripts."""
    assert "b.other" in shown("--list").printed
    lines = [json.loads(line) for line in shown("--list", "--json").printed.splitlines()]
    assert [line["key"] for line in lines] == ["*.test", "a.test", "b.other"]
    assert lines[1]["exception"]["paused"] is True
    history = [json.loads(line) for line in shown("a.test", "--json").printed.splitlines()]
    assert [line["policy_version"] for line in history] == [1, 2, 3]
