"""The crawl's daily budget by class: how many new URLs, revisits and retries may be granted in a UTC day.

The budget is global and dealt to the shards as data (`share`): each owner spends its own share. What was spent is
written in the same commit as the leases that spent it, so a crash at any point neither forgets a grant nor counts one
twice. A class that is used up waits for the next UTC day; the others go on. robots.txt is asked for a page that has its
own place in the budget, so it takes none.

| class   | event             | becomes                                                        |
|---------|-------------------|----------------------------------------------------------------|
| open    | spend, some left  | open, spent + 1                                                |
| open    | spend, the last   | closed until the next UTC day                                  |
| closed  | the day is over   | open, spent 0                                                  |
| any     | other limits      | open or closed as what was spent today stands to the new limit |
"""

from __future__ import annotations

import msgspec

from streams.core.policy import DAY_MS, NO_BUDGET, BudgetPolicy
from streams.core.rows import QueueClass

BUDGET_KEY = b"budget"  # of the owner's own records
_NEVER_MS = 1 << 62


class Spent(msgspec.Struct, array_like=True):
    """Grants of a UTC day, by QueueClass; `day` counts days since the epoch."""

    day: int = 0
    grants: list[int] = msgspec.field(default_factory=lambda: [0] * len(QueueClass))


encode_spent = msgspec.msgpack.Encoder().encode
decode_spent = msgspec.msgpack.Decoder(Spent).decode


class Budget:
    """One owner's share. `closed_until_ms[class]` is all that the frontier looks at: 0 while the class is open."""

    __slots__ = ("_limits", "_spent", "closed_until_ms", "dirty", "limited")

    def __init__(self, policy: BudgetPolicy = NO_BUDGET, spent: Spent | None = None) -> None:
        self._spent = spent or Spent()
        self._limits = _limits(policy)
        self.limited = policy != NO_BUDGET
        self.dirty = False  # spent since the last `record`
        self.closed_until_ms = [0] * len(QueueClass)
        self._look()

    def spend(self, queue: QueueClass, now_ms: int) -> None:
        """A lease is granted to an entry of that class. Asserts that there was one left."""
        if not self.limited:
            return
        spent, day = self._spent, now_ms // DAY_MS
        if day > spent.day:  # never back: a clock that was set back must not open the day anew
            spent.day, spent.grants = day, [0] * len(QueueClass)
            self._look()
        limit = self._limits[queue]
        assert limit is None or spent.grants[queue] < limit, (queue, spent.grants[queue], limit)
        spent.grants[queue] += 1
        self.dirty = True
        if spent.grants[queue] == limit:
            self.closed_until_ms[queue] = (spent.day + 1) * DAY_MS

    def left(self, queue: QueueClass, now_ms: int) -> int | None:
        """Grants left in the day of `now_ms`; None: no limit."""
        limit = self._limits[queue]
        if limit is None:
            return None
        used = self._spent.grants[queue] if now_ms // DAY_MS <= self._spent.day else 0
        return max(0, limit - used)

    def set_policy(self, policy: BudgetPolicy) -> None:
        """Another share from now on; what was spent today counts."""
        self._limits = _limits(policy)
        self.limited = policy != NO_BUDGET
        self._look()

    def record(self) -> bytes:
        """What is to be written with this turn's leases."""
        self.dirty = False
        return encode_spent(self._spent)

    def _look(self) -> None:
        next_day_ms = (self._spent.day + 1) * DAY_MS
        for queue, limit in enumerate(self._limits):
            if limit == 0:
                self.closed_until_ms[queue] = _NEVER_MS
            else:
                used_up = limit is not None and self._spent.grants[queue] >= limit
                self.closed_until_ms[queue] = next_day_ms if used_up else 0


def share(policy: BudgetPolicy, shard: int, shards: int) -> BudgetPolicy:
    """What one of `shards` may spend; together exactly the whole."""
    assert 0 <= shard < shards

    def part(limit: int | None) -> int | None:
        return None if limit is None else limit // shards + (shard < limit % shards)

    return BudgetPolicy(part(policy.new_per_day), part(policy.revisit_per_day), part(policy.retry_per_day))


def _limits(policy: BudgetPolicy) -> tuple[int | None, int | None, int | None]:
    """By QueueClass."""
    return policy.new_per_day, policy.retry_per_day, policy.revisit_per_day
