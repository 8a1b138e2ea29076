"""The daily budget by class: what may be granted over all hosts, and what a crash leaves of it."""

from __future__ import annotations

import pytest

from schemas.records import Outcome
from streams.core.budget import Budget, decode_spent, share
from streams.core.policy import DAY_MS, BudgetPolicy, CrawlPolicy, Politeness
from streams.core.rows import QueueClass
from tests.support.core_world import World, answer, complete

DAY = 20_000 * DAY_MS
NEW, RETRY, REVISIT = QueueClass.NEW, QueueClass.RETRY, QueueClass.REVISIT


def policy(**budget: int) -> CrawlPolicy:
    return CrawlPolicy(
        politeness=Politeness(delay_ms=0, concurrency=8, respect_robots=False), budget=BudgetPolicy(**budget)
    )


def test_a_class_closes_with_its_last_grant_until_the_next_utc_day() -> None:
    """The table of the module, row by row: the last grant closes, midnight opens."""
    budget = Budget(BudgetPolicy(new_per_day=2))
    assert budget.closed_until_ms == [0, 0, 0]
    budget.spend(NEW, DAY + 5)
    assert (budget.left(NEW, DAY + 6), budget.closed_until_ms[NEW]) == (1, 0)
    budget.spend(NEW, DAY + 7)
    assert (budget.left(NEW, DAY + 8), budget.closed_until_ms[NEW]) == (0, DAY + DAY_MS)
    assert budget.left(REVISIT, DAY + 8) is None
    budget.spend(NEW, DAY + DAY_MS)
    assert (budget.left(NEW, DAY + DAY_MS), budget.closed_until_ms[NEW]) == (1, 0)


def test_a_budget_of_nothing_is_never_open() -> None:
    """0 is a limit, not the absence of one."""
    budget = Budget(BudgetPolicy(retry_per_day=0))
    assert budget.closed_until_ms[RETRY] > DAY * 1_000
    with pytest.raises(AssertionError):
        budget.spend(RETRY, DAY)


def test_a_clock_that_was_set_back_does_not_open_the_day_anew() -> None:
    """Otherwise each correction of the clock around midnight would give a second budget."""
    budget = Budget(BudgetPolicy(new_per_day=1))
    budget.spend(NEW, DAY + DAY_MS)
    assert budget.closed_until_ms[NEW] > DAY + DAY_MS - 1
    assert budget.left(NEW, DAY + DAY_MS - 1) == 0


def test_another_share_counts_what_was_spent_today() -> None:
    """A share is data and may change in mid-day: less closes at once, more opens."""
    budget = Budget(BudgetPolicy(new_per_day=5))
    for _ in range(3):
        budget.spend(NEW, DAY)
    budget.set_policy(BudgetPolicy(new_per_day=3))
    assert budget.closed_until_ms[NEW] == DAY + DAY_MS
    budget.set_policy(BudgetPolicy(new_per_day=4))
    assert (budget.closed_until_ms[NEW], budget.left(NEW, DAY)) == (0, 1)


def test_an_exhausted_class_waits_and_the_others_go_on() -> None:
    """New URLs stop at their budget while retries are still granted, and go on the next day."""
    world = World(policy(new_per_day=2))
    world.now_ms = DAY
    world.seed(*(f"http://{name}.test/" for name in "abcd"))
    leases = world.turn().leases
    assert len(leases) == 2
    failed = leases[0]
    world.turn(answer(failed, world.now_ms, Outcome.RETRY, 0, error="timeout"), leases_max=0)
    complete(world, leases[1:])
    assert not world.turn().leases
    world.now_ms += 60_000
    (again,) = world.turn().leases
    assert (again.url, again.attempt) == (failed.url, 1)
    complete(world, [again])
    assert not world.turn().leases
    assert world.owner.frontier.schedule.next_ms() == DAY + DAY_MS
    world.now_ms = DAY + DAY_MS
    assert sum(lease.url_version == 1 for lease in world.turn().leases) == 2, "the others are visited again"


def test_a_crash_never_overspends() -> None:
    """The counters lie in the commit that holds the leases: what was committed counts, what was not does not."""
    world = World(policy(new_per_day=3))
    world.now_ms = DAY
    world.seed(*(f"http://{name}.test/" for name in "abcdef"))
    assert len(world.turn(leases_max=2, commit=False).leases) == 2
    world.restart()
    assert len(world.turn(leases_max=2).leases) == 2
    world.restart()
    granted = world.turn().leases
    assert sum(lease.attempt == 0 for lease in granted) == 1
    assert world.owner.frontier.budget.left(NEW, world.now_ms) == 0


def test_shares_add_up() -> None:
    """No grant of the whole is lost or doubled by dealing it to shards, and none for no limit."""
    whole = BudgetPolicy(new_per_day=10, revisit_per_day=2)
    parts = [share(whole, shard, 4) for shard in range(4)]
    assert sum(part.new_per_day or 0 for part in parts) == 10
    assert sum(part.revisit_per_day or 0 for part in parts) == 2
    assert {part.retry_per_day for part in parts} == {None}


def test_what_is_written_is_read_back() -> None:
    """A new owner goes on with the day where the last one stood."""
    limits = BudgetPolicy(new_per_day=2)
    budget = Budget(limits)
    budget.spend(NEW, DAY)
    assert budget.dirty
    again = Budget(limits, decode_spent(budget.record()))
    assert (again.left(NEW, DAY), budget.dirty) == (1, False)
