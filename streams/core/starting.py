"""Which lease a fetcher may start, and when: its half of "a lease is started at most once", pure.

Theory of operation. Leases lie in partitions; a fetcher reads those that its group gives it. It may not know that it
was taken for gone and that another reads in its place: a machine that stood still wakes up as if nothing had been. So

- of a partition only leases from its end on are taken, as read after its latest assignment: whoever read it before may
  have started those below, so they are left to expire;
- nothing is taken or started unless the fetcher is *fresh*: its group has told it less than a session ago that it
  belongs to it. Others get its partitions only once it has been silent for a session, so whatever it started while it
  was fresh lies below where they begin;
- leases that wait when it is found not to be fresh are dropped for good, without a word: another may start them, so
  nothing may be said of them. Their owner gets the token back when they expire;
- leases taken from a partition that is then given up in good order stay: the next reader begins behind them.

| a lease                                   | becomes | when                                                          |
|-------------------------------------------|---------|---------------------------------------------------------------|
| below the partition's start, or not fresh | dropped | it is taken                                                   |
| waiting                                   | dropped | the fetcher is found not to be fresh                          |
| waiting                                   | expired | `start_by_ms` has passed: the owner is told, nobody was asked |
| waiting, from `not_before_ms` on          | started | its host has fewer requests than its concurrency, and room is |
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

import msgspec

from schemas.records import FetchLease

__all__ = ["UNOWNED", "Starter", "Step"]

UNOWNED = "unowned"  # with EXPIRED: nothing was asked, since another may have the lease by now; never told to anybody


class Step(msgspec.Struct, frozen=True):
    """What is to be done now."""

    start: tuple[FetchLease, ...] = ()
    expired: tuple[FetchLease, ...] = ()
    dropped: int = 0


class Starter:
    """The leases of one fetcher, from receipt to the end of their requests."""

    def __init__(self, *, fetches_max: int, waiting_max: int) -> None:
        assert fetches_max > 0
        assert waiting_max > 0
        self._fetches_max, self._waiting_max = fetches_max, waiting_max
        self._from: dict[int, int] = {}  # partition → the least offset that may be taken
        self._waiting: dict[bytes, FetchLease] = {}  # by lease_id; the queues below may hold ids that no longer wait
        self._later: list[tuple[int, int, bytes]] = []  # heap: (not_before_ms, number, lease_id)
        self._ends: list[tuple[int, int, bytes]] = []  # heap: (start_by_ms, number, lease_id)
        self._ready: deque[bytes] = deque()  # not_before_ms has passed
        self._held: dict[str, deque[bytes]] = {}  # by host: wait for one of its requests to end
        self._running: dict[str, int] = {}  # by host
        self._number = 0
        self.running = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def has_room(self) -> bool:
        """Whether more leases are wanted. Those that come all the same are taken."""
        return len(self._waiting) < self._waiting_max

    def assigned(self, partition: int, end: int) -> None:
        """The partition is this fetcher's. `end`: the offset of its next record, as read since it is."""
        self._from[partition] = end

    def revoked(self, partition: int) -> None:
        """It is no longer; nothing more of it is taken."""
        self._from.pop(partition, None)

    def lapse(self) -> int:
        """The fetcher may have been taken for gone: what waits is another's by now. Returns how many."""
        dropped = len(self._waiting)
        self._waiting.clear()
        self._later.clear()
        self._ends.clear()
        self._ready.clear()
        self._held.clear()
        return dropped

    def give_back(self, *, fresh: bool) -> tuple[FetchLease, ...]:
        """The fetcher ends: those that wait here and nowhere else, whose owner may grant them anew at once."""
        waiting = tuple(self._waiting.values()) if fresh else ()
        self.lapse()
        return waiting

    def take(self, partition: int, offset: int, leases: Sequence[FetchLease], *, fresh: bool) -> int:
        """One record of a partition. Returns how many of its leases are dropped."""
        least = self._from.get(partition)
        if not fresh or least is None or offset < least:
            return len(leases)
        self._from[partition] = offset + 1
        for lease in leases:
            assert lease.concurrency > 0, lease
            self._number += 1
            self._waiting[lease.lease_id] = lease
            heapq.heappush(self._later, (lease.not_before_ms, self._number, lease.lease_id))
            heapq.heappush(self._ends, (lease.start_by_ms, self._number, lease.lease_id))
        return 0

    def step(self, now_ms: int, *, fresh: bool, room: bool = True) -> Step:
        """What may be started now, is counted as running; `finished` ends it. `room`: for the bodies that would come.

        `now_ms` and the leases' instants are of one clock, or of clocks that differ by less than the largest skew.
        """
        if not fresh:
            return Step(dropped=self.lapse())
        expired = []
        while self._ends and self._ends[0][0] < now_ms:
            lease = self._waiting.pop(heapq.heappop(self._ends)[2], None)
            if lease is not None:
                expired.append(lease)
        while self._later and self._later[0][0] <= now_ms:
            self._ready.append(heapq.heappop(self._later)[2])
        start = []
        while room and self._ready and self.running < self._fetches_max:
            lease_id = self._ready.popleft()
            lease = self._waiting.get(lease_id)
            if lease is None:
                continue
            if self._running.get(lease.host_key, 0) >= lease.concurrency:
                self._held.setdefault(lease.host_key, deque()).append(lease_id)
                continue
            del self._waiting[lease_id]
            self._running[lease.host_key] = self._running.get(lease.host_key, 0) + 1
            self.running += 1
            start.append(lease)
        assert self.running <= self._fetches_max
        return Step(tuple(start), tuple(expired))

    def next_ms(self) -> int | None:
        """When `step` has something to do that no event tells of; None: never."""
        soonest = [heap[0][0] for heap in (self._later,) if heap]
        soonest += [heap[0][0] + 1 for heap in (self._ends,) if heap]
        return min(soonest, default=None)

    def finished(self, host_key: str) -> None:
        """A request to the host has ended, however."""
        left = self._running[host_key] - 1
        assert left >= 0, host_key
        self.running -= 1
        if left:
            self._running[host_key] = left
        else:
            del self._running[host_key]
        held = self._held.pop(host_key, None)
        if held:
            self._ready.extendleft(reversed(held))
