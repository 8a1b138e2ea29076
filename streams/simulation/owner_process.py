"""The process around the owner: its clock, its waking, its groups. The two runners differ in how a group is committed.

`busy` from the decision to the release of its effects: a group at a time. A process has one life; what belongs to an
earlier one and comes late finds its number changed and does nothing.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence

from schemas.records import DiscoveredUrl, FetchResult, HostPolicy, ParsedPage, Source
from streams.core import policy as bounds
from streams.core.clock import SteadyClock
from streams.core.hosts import NEVER_MS
from streams.core.owner import Event, Owner
from streams.core.policy import CrawlPolicy
from streams.core.rules.scope import Scope, ScopeMode
from streams.core.rules.urls import host_key
from streams.core.turn import Turn
from streams.simulation.books_judge import BooksJudge
from streams.simulation.faults import Faults
from streams.simulation.fetchers import OFFSET_MS_MAX
from streams.simulation.flow_judge import FlowJudge
from streams.simulation.loop import Loop, Violation
from streams.simulation.politeness_judge import PolitenessJudge
from streams.simulation.store import Store
from streams.simulation.web import Web

EMPTY_GROUPS_MAX = 1_000  # in a row, without time going on much


class Judges:
    """All that watch, in one hand."""

    def __init__(self, policy: CrawlPolicy, *, leases_max: int, parses_max: int) -> None:
        self.politeness = PolitenessJudge(policy)
        self.books = BooksJudge()
        self.flow = FlowJudge(policy, self.politeness, leases_max=leases_max, parses_max=parses_max)


class Setting:
    """What is the same for every process of a run."""

    def __init__(
        self, loop: Loop, web: Web, policy: CrawlPolicy, faults: Faults, *, leases_max: int, parses_max: int
    ) -> None:
        self.loop, self.web, self.policy, self.faults = loop, web, policy, faults
        self.leases_max, self.parses_max = leases_max, parses_max
        self.judges = Judges(policy, leases_max=leases_max, parses_max=parses_max)
        self.index_rows_max = loop.random("index").choice((8, 40, 1_000))
        self.scope = Scope(seeds=tuple(web.seeds()), mode=ScopeMode.ANY)

    def seeds(self) -> list[DiscoveredUrl]:
        return [
            DiscoveredUrl(url=url, host_key=host_key(url), source=Source.SEED, discovered_ms=self.loop.now_ms)
            for url in self.web.seeds()
        ]


class OwnerProcess(abc.ABC):
    """One life of the process that owns the partition."""

    def __init__(self, setting: Setting, store: Store, epoch: int) -> None:
        self.setting, self.store = setting, store
        self.loop, self.faults, self.judges = setting.loop, setting.faults, setting.judges
        self.random = setting.loop.random(f"owner {epoch}")
        self._wall_offset_ms = self.random.randint(-OFFSET_MS_MAX, OFFSET_MS_MAX)
        self._clock = SteadyClock(self._wall_ms(), self.loop.now_ms)
        self.epoch = epoch
        self.owner = Owner(
            store,
            setting.policy,
            setting.scope,
            epoch=epoch,
            jitter=self.random.random,
            index_rows_max=setting.index_rows_max,
        )
        self.alive = True
        self.busy = False
        self._timer = 0
        self._empty = 0
        self._empty_since_ms = 0

    # --- clock -----------------------------------------------------------------------------------------------------

    def _wall_ms(self) -> int:
        return self.loop.now_ms + self._wall_offset_ms

    def clock(self) -> int:
        if self.faults.hit("owner_clock_jump"):
            self._wall_offset_ms = self.random.randint(-OFFSET_MS_MAX, OFFSET_MS_MAX)
        return self._clock.read(self._wall_ms(), self.loop.now_ms)

    # --- what a runner gives ---------------------------------------------------------------------------------------

    @abc.abstractmethod
    def pending(self) -> bool:
        """Whether there is input to be decided."""

    @abc.abstractmethod
    def take(self) -> list[Event]:
        """The input of one group, in order."""

    @abc.abstractmethod
    def commit(self, turn: Turn, events: Sequence[Event], decided_ms: int) -> None:
        """Make the turn durable and release it, in steps; ends with `released`."""

    @abc.abstractmethod
    def room(self) -> int:
        """How many leases may be granted."""

    def rightful(self) -> bool:
        """Whether what it decides can still become durable."""
        return True

    # --- waking and deciding ---------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something came in, or room came free."""
        if self.alive and not self.busy:
            self._look_in(bounds.GROUP_MS_MIN)

    def _look_in(self, wait_ms: int) -> None:
        self._timer += 1
        self.loop.after(wait_ms, self._ring, self._timer)

    def _ring(self, timer: int) -> None:
        if timer != self._timer or not self.alive or self.busy:
            return
        if self.faults.hit("wake_late_burst"):
            late_ms = self.random.randrange(1_000, 90_000)
            for _ in range(5):
                self.loop.after(late_ms, self._burst, timer)
            return
        self.group()

    def _burst(self, timer: int) -> None:
        """One of several late wake-ups of one instant."""
        if self.alive and not self.busy:
            self.group()

    def group(self) -> None:
        """Decide what has come in, grant what there is room for."""
        self._timer += 1
        self.busy = True
        events = self.take()
        turn = self.owner.decide(events, self.clock(), self.room())
        self._spin(turn, events)
        if not events and not turn.writes:
            self.released()
            return
        self.commit(turn, events, self.loop.now_ms)

    def _spin(self, turn: Turn, events: Sequence[Event]) -> None:
        """An owner that looks and looks and finds nothing to do would burn its core."""
        if events or turn.writes or self.loop.now_ms - self._empty_since_ms > bounds.MINUTE_MS:
            self._empty, self._empty_since_ms = 0, self.loop.now_ms
        self._empty += 1
        if self._empty > EMPTY_GROUPS_MAX:
            raise Violation("no livelock", f"{self._empty} groups in a row found nothing to do")

    def released(self) -> None:
        """The group is over: sleep until there is something to do."""
        self.busy = False
        if not self.alive:
            return
        room = self.room()
        if self.rightful():
            # An index of some rows a turn is loaded far slower here than any real one: that time is not the frontier's.
            self.judges.flow.capacity(room > 0 and not self.owner.index.loading, self.loop.now_ms)
        if self.pending():
            self._look_in(bounds.GROUP_MS_MIN)
            return
        next_ms = self.owner.next_ms()
        if next_ms >= NEVER_MS:
            return
        wait_ms = next_ms - self.clock()
        if wait_ms <= 0 and room <= 0:
            wait_ms = bounds.MINUTE_MS  # room that comes free wakes it
        self._look_in(max(bounds.GROUP_MS_MIN, wait_ms))

    def die(self) -> None:
        self.alive = False
        self.judges.flow.capacity(False, self.loop.now_ms)

    # --- telling the judges ----------------------------------------------------------------------------------------

    def tell(self, turn: Turn, events: Sequence[Event], decided_ms: int) -> None:
        """The turn is about to become durable: the store still shows what was before."""
        judges = self.judges
        for event in events:
            if isinstance(event, FetchResult):
                judges.politeness.taken(event.lease_id, decided_ms)
            elif isinstance(event, HostPolicy):
                judges.politeness.ordered(event, decided_ms)
            elif isinstance(event, ParsedPage):
                judges.books.parsed(event)
            elif isinstance(event, Sequence):
                for found in event:
                    judges.books.named(found.url, found.parent_id.hex() or "the seeds")
        for lease in turn.leases:
            self.loop.note(lease.host_key, f"owner {self.epoch} leases {lease.url}, attempt {lease.attempt}")
            judges.politeness.granted(lease, decided_ms, self.loop.now_ms)
            judges.flow.granted(lease, self.store, decided_ms)
        judges.books.committed(turn.writes)
        judges.books.tasks(turn.tasks)
