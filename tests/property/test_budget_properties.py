"""The daily budget under any sequence of grants, restarts, other shares and passing time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.core.budget import Budget, decode_spent, share
from streams.core.policy import DAY_MS, BudgetPolicy
from streams.core.rows import QueueClass

STEP = st.tuples(st.sampled_from(list(QueueClass)), st.integers(0, DAY_MS), st.booleans())


@given(st.lists(STEP, max_size=60), st.integers(0, 4), st.none() | st.integers(0, 3), st.none() | st.integers(0, 3))
def test_no_day_has_more_grants_than_its_limit(
    steps: list[tuple[QueueClass, int, bool]], new: int, revisit: int | None, retry: int | None
) -> None:
    """Whoever grants only while a class is open spends no more than the limit, and always all of it if it is wanted."""
    limits = {QueueClass.NEW: new, QueueClass.REVISIT: revisit, QueueClass.RETRY: retry}
    policy = BudgetPolicy(new, revisit, retry)
    budget, now_ms = Budget(policy), 20_000 * DAY_MS
    granted: dict[tuple[int, QueueClass], int] = {}
    for queue, wait_ms, crash in steps:
        now_ms += wait_ms // 4
        used = granted.get((now_ms // DAY_MS, queue), 0)
        limit = limits[queue]
        is_open = budget.closed_until_ms[queue] <= now_ms
        assert is_open == (limit is None or used < limit)
        if is_open:
            budget.spend(queue, now_ms)
            granted[now_ms // DAY_MS, queue] = used + 1
        if crash:
            budget = Budget(policy, decode_spent(budget.record()))


@given(st.integers(0, 1_000_000), st.integers(1, 1_024))
def test_shares_are_fair_and_whole(whole: int, shards: int) -> None:
    """Shards differ by one grant at most, and together have exactly the whole."""
    parts = [share(BudgetPolicy(new_per_day=whole), shard, shards).new_per_day or 0 for shard in range(shards)]
    assert sum(parts) == whole
    assert max(parts) - min(parts) <= 1
