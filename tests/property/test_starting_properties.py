"""Two fetchers of one group, either of which stands still and wakes at any moment: no lease is ever started twice."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import FetchLease
from streams.core.starting import Starter
from tests.unit.test_starting import lease

SESSION_MS = 10_000
START_MS = 30_000
HOSTS = 3


class Member:
    """A fetcher with what it believes. Its group may know better."""

    def __init__(self, world: Group) -> None:
        self.world = world
        self.starter = Starter(fetches_max=4, waiting_max=1_000)
        self.position: int | None = None  # None: it believes that it has no partition
        self.good_ms = -SESSION_MS
        self.generation = -1
        self.stopped = False
        self.running: list[FetchLease] = []

    def fresh(self) -> bool:
        return self.world.now_ms - self.good_ms < SESSION_MS

    def beat(self) -> None:
        """A heartbeat: good, or the news that it is out, whereupon it joins again."""
        if self.world.holder is self and self.generation == self.world.generation:
            self.good_ms = self.world.heard_ms = self.world.now_ms
        elif self.position is not None:
            self.position = None
            self.starter.revoked(0)
            self.starter.lapse()

    def read(self) -> None:
        if self.position is not None and self.position < len(self.world.log):
            self.starter.take(0, self.position, [self.world.log[self.position]], fresh=self.fresh())
            self.position += 1

    def start(self) -> None:
        now_ms = self.world.now_ms
        for one in self.starter.step(now_ms, fresh=self.fresh()).start:
            assert one.not_before_ms <= now_ms <= one.start_by_ms
            self.world.started[one.lease_id] += 1
            self.running.append(one)
        for host, requests in Counter(one.host_key for one in self.running).items():
            assert requests <= 1, host

    def finish(self) -> None:
        if self.running:
            self.starter.finished(self.running.pop(0).host_key)

    def let_go(self) -> None:
        """In good order, before the other gets the partition."""
        self.position = None
        self.starter.revoked(0)


class Group:
    """One partition and its coordinator."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.log: list[FetchLease] = []
        self.started = Counter[bytes]()
        self.members = [Member(self), Member(self)]
        self.holder: Member | None = None
        self.generation = 0
        self.heard_ms = 0

    def append(self, wait_ms: int) -> None:
        number = len(self.log)
        first_ms = self.now_ms + wait_ms
        host = f"http://h{number % HOSTS}.example"
        self.log.append(lease(number, host=host, not_before_ms=first_ms, start_by_ms=first_ms + START_MS))

    def assign(self, to: int) -> None:
        """The partition goes to this member, once the one who has it let it go or was silent for a session."""
        member = self.members[to]
        if member.stopped or member is self.holder:
            return
        if self.holder is not None:
            if not self.holder.stopped and self.holder.generation == self.generation:
                self.holder.let_go()
            elif self.now_ms - self.heard_ms <= SESSION_MS:
                return
        self.holder, self.generation, self.heard_ms = member, self.generation + 1, self.now_ms
        member.generation, member.position = self.generation, len(self.log)
        member.starter.assigned(0, member.position)


ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 5_000)),
    st.tuples(st.just("tick"), st.sampled_from([1, 1_000, 4_000, 11_000])),
    st.tuples(st.sampled_from(["assign", "read", "start", "beat", "finish", "stop", "wake"]), st.integers(0, 1)),
)


@settings(max_examples=400)
@given(st.lists(ACTIONS, max_size=80))
def test_no_lease_is_started_twice(actions: list[tuple[str, int]]) -> None:
    """Whatever is read, stopped, woken, taken over and given back in whatever order."""
    group = Group()
    for action, number in actions:
        if action == "append":
            group.append(number)
        elif action == "tick":
            group.now_ms += number
        elif action == "assign":
            group.assign(number)
        else:
            member = group.members[number]
            if action in ("stop", "wake"):
                member.stopped = action == "stop"
            elif not member.stopped:
                getattr(member, action)()
    assert [one for one, times in group.started.items() if times > 1] == []
