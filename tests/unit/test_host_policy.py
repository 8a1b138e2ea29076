"""An operator's words: keys, layers, exceptions with a date, numbers and the history."""

from __future__ import annotations

import pytest

from schemas.records import HostPolicy
from streams.core.host_policy import Blocked, Change, Policies, about, history, key_of, matches, problem
from streams.core.hosts import NEVER_MS, HostState, Override
from streams.core.policy import Politeness

NOW = 1_700_000_000_000
HOST = "https://www.example.org"


def policies(*changes: HostPolicy) -> Policies:
    made = Policies()
    for change in changes:
        applied = made.change(change, NOW)
        assert applied is not None
        assert not applied.error
    return made


def said(key: str, **values: object) -> HostPolicy:
    return HostPolicy(key, 0, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("example.org", "example.org"),
        ("EXAMPLE.org", "example.org"),
        ("example.org:8080", "example.org:8080"),
        ("http://example.org:80/", "http://example.org"),
        ("https://Example.org", "https://example.org"),
        ("*.example.org", "*.example.org"),
        ("*", "*"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("127.0.0.1", "127.0.0.1"),
        ("https://example.org/path", None),
        ("*.example.org:80x", None),
        ("*.example.org:8080", None),
        ("*.https://example.org", None),
        ("a.*.org", None),
        ("", None),
        ("ftp://example.org", None),
    ],
)
def test_what_a_person_means_by_a_host(text: str, key: str | None) -> None:
    """A key is in normal form, or refused: a word on a misspelt host would hold for nobody."""
    assert key_of(text) == key


@pytest.mark.parametrize(
    ("key", "hosts"),
    [
        ("*", [HOST, "http://a.test:81"]),
        ("*.example.org", [HOST, "http://example.org", "https://a.b.example.org:8443"]),
        ("www.example.org", [HOST, "http://www.example.org", "http://www.example.org:81"]),
        ("www.example.org:81", ["http://www.example.org:81"]),
        (HOST, [HOST]),
    ],
)
def test_which_hosts_a_key_is_about(key: str, hosts: list[str]) -> None:
    """A key matches its hosts and no other."""
    others = ["http://example.org.evil.test", "http://notexample.org", "http://other.test"]
    assert all(matches(key, host) for host in hosts)
    assert [host for host in others if matches(key, host)] == ([] if key != "*" else others)


def test_the_nearer_word_wins_value_by_value_and_blocks_add_up() -> None:
    """A host's own delay stands over its domain's, what it does not say comes from the domain and from all."""
    made = policies(
        said("*", delay_ms=9, concurrency=3, block=("/x",)),
        said("*.example.org", delay_ms=8, budget_per_day=5, paused=True),
        said(HOST, delay_ms=7, paused=False, block=("/y",)),
    )
    assert made.override(HOST) == Override(7, 3, 5, ("/x", "/y"), False, False, None)
    assert made.override("http://other.test") == Override(9, 3, None, ("/x",), False, False, None)


def test_no_word_is_no_override() -> None:
    """The common host must cost the frontier nothing."""
    made = policies(said(HOST, delay_ms=7))
    assert made.override("http://other.test") is None
    assert made.override("http://other.test") is None


def test_an_exception_lies_over_what_lasts_until_its_date() -> None:
    """After the date the lasting word holds again, under a number of its own, and the history says so."""
    made = policies(said(HOST, delay_ms=500, paused=False), said(HOST, delay_ms=50, until_ms=NOW + 1_000))
    assert made.override(HOST) == Override(delay_ms=50, until_ms=NOW + 1_000)
    assert made.next_end_ms == NOW + 1_000
    assert made.end_exceptions(NOW + 999) == []
    (end,) = made.end_exceptions(NOW + 1_000)
    assert end.policy.policy_version == 3
    assert made.override(HOST) == Override(delay_ms=500)
    assert made.next_end_ms == NEVER_MS


def test_the_newest_word_on_a_value_counts() -> None:
    """--resume without a date lets a host go on that was paused with one; the rest of the exception stands."""
    made = policies(said(HOST, paused=True, delay_ms=9, until_ms=NOW + 1_000), said(HOST, paused=False))
    assert made.override(HOST) == Override(delay_ms=9, until_ms=NOW + 1_000)
    both = policies(said(HOST, paused=True, until_ms=NOW + 1_000), said(HOST, paused=False))
    assert both.override(HOST) is None
    assert both.next_end_ms == NEVER_MS


def test_a_date_that_passed_ends_the_exception() -> None:
    """An operator may call an exception off before its date."""
    made = policies(said(HOST, delay_ms=9, until_ms=NOW + 1_000), said(HOST, until_ms=NOW))
    assert made.override(HOST) is None


def test_reset_forgets_what_was_said_before() -> None:
    """The crawl's own policy holds again for all that the change itself does not say."""
    made = policies(
        said(HOST, delay_ms=9, concurrency=2),
        said(HOST, paused=True, until_ms=NOW + 5),
        said(HOST, reset=True, delay_ms=3),
    )
    assert made.override(HOST) == Override(delay_ms=3)


def test_patterns_are_added_and_taken_away() -> None:
    """Two operators who block something each must not undo one another."""
    made = policies(said(HOST, block=("/a", "/b")), said(HOST, block=("/c", "/a")), said(HOST, unblock=("/b",)))
    assert made.override(HOST) == Override(blocked_patterns=("/a", "/c"))


def test_numbers_rise_over_all_keys_and_a_host_has_the_highest_of_its_words() -> None:
    """The fetch log's number must say what held for the host: words on others do not count for it."""
    made = policies(said(HOST, delay_ms=1), said("*", concurrency=2), said("http://other.test", delay_ms=3))
    host = HostState(HOST)
    assert made.apply_to(host)
    assert (host.policy_version, made.version) == (2, 3)
    assert not made.apply_to(host)


def test_a_repeated_request_changes_nothing() -> None:
    """A crash between the commit and the removal of the request shows it twice; so may a topic."""
    made = policies(said(HOST, delay_ms=1, request_id="r1"))
    assert made.change(said(HOST, delay_ms=1, request_id="r1"), NOW) is None
    again = Policies(made.take_unwritten())
    assert again.change(said(HOST, delay_ms=1, request_id="r1"), NOW) is None
    numbered = policies(HostPolicy(HOST, 7, delay_ms=1))
    assert numbered.change(HostPolicy(HOST, 7, delay_ms=2), NOW) is None
    assert numbered.change(HostPolicy(HOST, 6, delay_ms=2), NOW) is None
    assert numbered.version == 7


def test_all_of_it_survives_and_the_history_is_whole() -> None:
    """A new owner has the same words, numbers and dates, and knows every change that led there."""
    made = policies(said(HOST, delay_ms=1), said("*", paused=True, until_ms=NOW + 9), said(HOST, block=("/x",)))
    records = made.take_unwritten()
    assert made.take_unwritten() == []
    again = Policies(dict(records).items())
    assert (again.version, again.next_end_ms) == (3, NOW + 9)
    assert again.override(HOST) == made.override(HOST)
    assert [change.policy.policy_version for change in history(records)] == [1, 2, 3]


def test_the_crawls_own_configuration_is_a_change() -> None:
    """A crawl that goes on with another delay fetches under another number; with the same one it does not."""
    made = Policies()
    assert made.configure(Politeness(delay_ms=5), NOW)
    assert not made.configure(Politeness(delay_ms=5), NOW)
    again = Policies(made.take_unwritten())
    assert not again.configure(Politeness(delay_ms=5), NOW)
    assert again.configure(Politeness(delay_ms=6), NOW)
    host = HostState(HOST)
    again.apply_to(host)
    assert host.policy_version == 2


@pytest.mark.parametrize(
    "wrong",
    [
        said("https://Example.org", delay_ms=1),
        said("", delay_ms=1),
        said(HOST, delay_ms=-1),
        said(HOST, concurrency=0),
        said(HOST, budget_per_day=-1),
        said(HOST, block=("(",)),
        said(HOST, block=("(a+)+$",)),
        said(HOST, blocked_patterns=("[",)),
    ],
)
def test_a_wrong_change_is_refused_and_kept(wrong: HostPolicy) -> None:
    """It changes nothing, and who asked finds in the history why."""
    made = Policies()
    change = made.change(wrong, NOW)
    assert isinstance(change, Change)
    assert change.error == problem(wrong) != ""
    assert made.standings == {}
    assert history(made.take_unwritten()) == [change]


def test_patterns_of_many_changes_are_bounded() -> None:
    """A pattern more at a time must not get around the limit on patterns."""
    made = policies(said(HOST, block=tuple(f"/{at}" for at in range(256))))
    change = made.change(said(HOST, block=("/more",)), NOW)
    assert change is not None
    assert "at most 256" in change.error
    assert "/more" not in (made.override(HOST) or Override()).blocked_patterns


def test_patterns_are_regular_expressions_over_the_whole_url() -> None:
    """Substrings would block /a.b for the pattern /a.b alone, and nothing by its end."""
    blocked, host = Blocked(), HostState(HOST, override=Override(blocked_patterns=(r"\.pdf$", "/cal/[0-9]+")))
    assert not blocked.allows(host, HOST + "/x.pdf")
    assert blocked.allows(host, HOST + "/x.pdf?a")
    assert not blocked.allows(host, HOST + "/cal/2024")
    assert blocked.allows(HostState(HOST), HOST + "/x.pdf")
    assert blocked.by((r"\.pdf$",), HOST + "/x.pdf") == r"\.pdf$"


@pytest.mark.parametrize(
    ("key", "other", "expected"),
    [
        ("", HOST, True),
        ("*", HOST, True),
        ("*.example.org", "www.example.org", True),
        ("*.org", "*.example.org", True),
        ("*.example.org", "*.org", False),
        ("www.example.org", "*.example.org", False),
        (HOST, "www.example.org", False),
        ("*", "*", True),
        (HOST, "*", False),
    ],
)
def test_whose_history_is_shown(key: str, other: str, expected: bool) -> None:
    """`--show HOST` tells what holds for it: its own words and those that lie further out."""
    assert about(key, other) is expected
