"""The fetchers' group: one partition of leases, one member at work on it, and the handing over between them."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.records import FetchLease
from streams.core import policy as bounds
from streams.simulation.fetchers import SESSION_MS, Fetcher, Finished
from streams.simulation.owner_process import Setting

MEMBERS = 3
_REDELIVERED_MAX = 5  # offsets whose acknowledgement was not kept, at a handing over


class FetchGroup:
    """Delivers the topic of leases to whoever has the partition."""

    def __init__(self, setting: Setting, region: str, leases: Sequence[FetchLease], finished: Finished) -> None:
        """`leases`: the topic, which grows."""
        self._loop, self._faults = setting.loop, setting.faults
        self._leases = leases
        self._random = setting.loop.random(f"fetch group {region}")
        make = setting.judges.politeness
        self.members = [
            Fetcher(f"{region} fetcher {n}", setting.loop, setting.web, make, setting.faults, finished)
            for n in range(MEMBERS)
        ]
        self._assigned: int | None = 0
        self._generation = 0
        self._end = 0  # the log's end as the assigned member read it after its latest assignment
        self._next = 0  # the next offset to be delivered

    def deliver(self) -> None:
        """Whatever is new in the topic, to the member at work."""
        while self._assigned is not None and self._next < len(self._leases):
            offset, self._next = self._next, self._next + 1
            self._loop.after(self._random.randrange(1, 20), self._receive, self._generation, self._assigned, offset)
            if self._faults.hit("lease_repeated"):
                again_ms = self._random.choice((30, 5_000, 90_000))
                self._loop.after(again_ms, self._receive, self._generation, self._assigned, offset, True)
            if self._faults.hit("fetcher_crash"):
                self._crash(self._assigned)
            elif self._faults.hit("fetcher_stopped"):
                self._stop(self._assigned)

    def _receive(self, generation: int, member: int, offset: int, repeated: bool = False) -> None:
        if generation != self._generation:
            return  # the connection that it came by is gone
        # Acknowledged on receipt: a member knows how far it has read, and a repeated offset lies below that.
        if self.may_start(offset, repeated):
            self.members[member].take(self._leases[offset])

    def may_start(self, offset: int, repeated: bool) -> bool:
        """The rule of at most once, as a member keeps it."""
        return offset >= self._end and not repeated

    # --- handing over ----------------------------------------------------------------------------------------------

    def _crash(self, member: int) -> None:
        self._loop.note("", f"fetcher {member} crashes")
        self.members[member].crash()
        self._leave()
        self._loop.after(SESSION_MS, self._assign, member)

    def _stop(self, member: int) -> None:
        for_ms = self._random.choice((2, 8, 15, 120)) * bounds.SECOND_MS
        self._loop.note("", f"fetcher {member} is stopped for {for_ms} ms")
        given_away_ms = self.members[member].stop(for_ms)
        if given_away_ms < self._loop.now_ms + for_ms:
            self._loop.at(given_away_ms, self._given_away, self._generation, member)

    def _given_away(self, generation: int, member: int) -> None:
        if generation == self._generation:
            self._leave()
            self._assign(member)

    def _leave(self) -> None:
        self._assigned = None
        self._generation += 1

    def _assign(self, last: int) -> None:
        """The next member reads the log's end, and gets some of what lies before it once more."""
        if self._assigned is not None:
            return
        member = (last + 1) % MEMBERS
        self._assigned = member
        self._end = len(self._leases)
        self._next = max(0, self._end - self._random.randint(0, _REDELIVERED_MAX))
        self.members[member].rejoin()
        for _ in range(self._end - self._next):
            self._faults.count("lease_redelivered")
        self._loop.note("", f"fetcher {member} has the leases from {self._end}")
        self.deliver()

    def taken(self) -> int:
        return sum(member.taken for member in self.members)
