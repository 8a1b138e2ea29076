"""What an operator set, what a host shares and what a budget leaves, in words."""

from __future__ import annotations

from schemas.records import HostPolicy
from streams.core.budget import Budget
from streams.core.explain_policy import (
    describe_change,
    explain_block,
    explain_budget,
    explain_groups,
    explain_words,
    instant,
    values,
)
from streams.core.host_policy import Change, Policies, Word
from streams.core.hosts import HostState, Override
from streams.core.permits import HostPermits, Permit, Phase
from streams.core.policy import BudgetPolicy
from streams.core.rows import QueueClass

NOW = 1_796_000_000_000
HOST = "http://a.test"


def test_words_name_their_key_version_and_date() -> None:
    """`explain` says which override holds, by which change, and until when; the nearest first."""
    policies = Policies()
    policies.change(HostPolicy("*.test", 0, delay_ms=9), NOW)
    policies.change(HostPolicy(HOST, 0, paused=True, until_ms=NOW + 60_000), NOW)
    said = explain_words(policies.matching(HOST), 2)
    assert said == [
        ("exception", f"version 2 for {HOST}, until {instant(NOW + 60_000)}: paused"),
        ("operator", "version 1 for *.test: delay 9 ms"),
        ("policy", "version 2"),
    ]
    assert explain_words([], 1) == []


def test_a_url_that_an_operator_keeps_back() -> None:
    """The pattern is named; a paused or deleted host is told of its URLs, too."""
    assert explain_block(None, HOST + "/x") == []
    assert explain_block(HostState(HOST, override=Override(delay_ms=1)), HOST + "/x") == []
    blocked = HostState(HOST, override=Override(blocked_patterns=("/y", "/x$")))
    assert explain_block(blocked, HOST + "/x") == [("operator", "blocked by the pattern /x$")]
    assert "paused" in explain_block(HostState(HOST, override=Override(paused=True)), HOST + "/x")[0][1]
    assert "deleted" in explain_block(HostState(HOST, override=Override(deleted=True)), HOST + "/x")[0][1]


def test_a_host_that_waits_for_its_group() -> None:
    """Who is not fetched because others of the address are being fetched is told so."""
    permits = HostPermits(HOST, address="192.0.2.1", address_until_ms=NOW + 5)
    permits.permits["addr:192.0.2.1"] = Permit(1, Phase.ASKED, NOW)
    labels = dict(explain_groups(permits, NOW))
    assert "waits for its turn" in labels["addr"]
    assert labels["address"].startswith("192.0.2.1, believed until ")
    assert "believed no longer" in dict(explain_groups(permits, NOW + 5))["address"]
    assert explain_groups(None, NOW) == []


def test_a_budget_that_is_used_up() -> None:
    """The class that waits for midnight is named; without limits there is nothing to say."""
    budget = Budget(BudgetPolicy(new_per_day=1, retry_per_day=2))
    budget.spend(QueueClass.NEW, NOW)
    ((_, said),) = explain_budget(budget, NOW)
    assert "none for new URLs until the next day" in said
    assert "2 requests for retries" in said
    assert explain_budget(Budget(), NOW) == []


def test_values_and_changes_in_words() -> None:
    """Every value that can be set is told, and a refused change with its reason."""
    word = Word(5, 2, 7, ("/x",), True, False)
    assert values(word) == "delay 5 ms, 2 at once, 7 requests a day, blocked /x, paused, not deleted"
    assert values(Word(blocked_patterns=())) == "nothing blocked"
    told = describe_change(Change(HostPolicy(HOST, 4, block=("/x",), unblock=("/y",), reset=True), NOW))
    assert told == f"version 4, {instant(NOW)}, {HOST}: earlier words forgotten, block /x, unblock /y"
    assert "the exception ends" in describe_change(Change(HostPolicy(HOST, 4, until_ms=NOW), NOW))
    assert describe_change(Change(HostPolicy(HOST, 4), NOW, "no")).endswith("refused: no")
