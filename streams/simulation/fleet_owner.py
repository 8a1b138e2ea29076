"""The fleet: its owner, step by step as `streams.fleet.commit` numbers them, and what stands around it.

Fetchers, store, parsers and the router are processes of their own and go on when an owner dies. A stopped owner may
wake after another has taken over: its transaction is refused, and the rows of an earlier one lose by their stamps. With
two regions an operator moves the partition's home in mid-crawl; the old region's owner goes on until it is fenced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from schemas.records import (
    FetchLease,
    FetchResult,
    Kind,
    Outcome,
    OwnerMessage,
    OwnerMessageKind,
    ParsedPage,
    StoredResult,
)
from streams.core import homes
from streams.core import policy as bounds
from streams.core.owner import Event
from streams.core.route import route
from streams.core.rules.urls import host_id
from streams.core.tasks import parsed_message
from streams.core.turn import Family, Turn
from streams.simulation.backstage import Parsers, stored_result
from streams.simulation.disk import Disk, Transaction
from streams.simulation.fetchers import SESSION_MS
from streams.simulation.fleet import STATES, Fenced, Partition
from streams.simulation.loop import START_MS, Violation
from streams.simulation.owner_process import OwnerProcess, Setting
from streams.simulation.region import LOOK_MS, REGIONS, Region, other
from streams.simulation.store import Store
from streams.simulation.web import Reply

MOVES = 6  # of the home, that an operator may make in a run
_MOVE_MS_MAX = 10 * bounds.MINUTE_MS
_MOVED_BACK_MS = (1_000, 15_000, 600_000)


class Fleet:
    """All machines."""

    def __init__(self, setting: Setting, end_ms: int) -> None:
        """`end_ms`: no move after it."""
        self._setting = setting
        self._loop, self._faults = setting.loop, setting.faults
        self._random = setting.loop.random("fleet")
        self.partition = Partition()
        self.parsers = Parsers(setting.loop, setting.web, setting.faults, self._parsed)
        self._parse_next = 0
        self._told: Counter[bytes] = Counter()  # what parsers have said and is not in the inbox yet
        self._owner: FleetProcess | None = None  # whose transaction was the last
        self.partition.inbox.append(setting.seeds())
        self._moved_ms = 0
        names = REGIONS[: 1 + (self._random.random() < 0.7)]
        self.regions = [Region(name, self, setting) for name in names]
        if len(names) > 1:
            for _ in range(MOVES):
                self._loop.at(self._random.randrange(START_MS, end_ms), self._may_move)

    def start(self) -> None:
        for region in self.regions:
            region.start()

    @property
    def owner(self) -> FleetProcess | None:
        """The one that may commit; None while there is none, or a takeover is under way."""
        owner = self._owner
        return owner if owner is not None and owner.alive and owner.rightful() else None

    @property
    def store(self) -> Store:
        """As the last owner sees it."""
        return self.owner.store if self.owner is not None else self.partition.look()

    def quiet(self) -> bool:
        """An owner is there, its index whole, with no group between its decision and its durability."""
        return self.owner is not None and not self.owner.busy and not self.owner.owner.index.loading

    # --- owners come and go ----------------------------------------------------------------------------------------

    def fence(self, region: str) -> int:
        """A producer begins; whoever owned the partition before has lost it."""
        producer = self.partition.init_transactions()
        self._loop.note("", f"{region}: producer {producer} begins")
        self._setting.judges.flow.capacity(False, self._loop.now_ms)
        return producer

    def process(self, region: Region, disk: Disk, epoch: int, producer: int) -> FleetProcess:
        return FleetProcess(self, region, self._setting, disk, epoch, producer)

    def recorded(self, process: FleetProcess) -> None:
        """Its first transaction stands."""
        self._owner = process

    def _may_move(self) -> None:
        if self._faults.hit("region_moved"):
            self.move()
            if self._random.random() < 0.5:
                self._loop.after(self._random.choice(_MOVED_BACK_MS), self.move)

    def move(self) -> None:
        """An operator says that the partition is at home in the other region from now on."""
        before = self.partition.home
        self._moved_ms = self._loop.now_ms
        self.partition.home = home = homes.moved(before, other(REGIONS[1] if before is None else before.region))
        self._loop.note("", f"the home is {home.region}, from epoch {home.epoch} on")

    def check_home(self) -> None:
        """Whatever goes wrong, some time after a move the owner is one of the home's region. Raises `Violation`."""
        home, owner = self.partition.home, self.owner
        if owner is None or home is None or self._loop.now_ms < self._moved_ms + _MOVE_MS_MAX:
            return
        if owner.region.name != home.region:
            raise Violation("home", f"owned in {owner.region.name}, at home in {home.region}")

    def check_rows(self) -> None:
        """In a quiet moment: the table has what was committed, and the owner's disk the same. Raises `Violation`."""
        partition, owner = self.partition, self.owner
        assert owner is not None
        partition.check_rows()
        if owner.disk.rows() != {key: raw for key, (_, raw) in partition.rows.items()}:
            raise Violation("local rows", "the owner's disk and the URL table differ")

    # --- messages --------------------------------------------------------------------------------------------------

    def send(self, event: Event) -> None:
        """Into the owner's inbox; it is durable there."""
        self.partition.inbox.append(event)
        if self.owner is not None:
            self.owner.wake()

    def _send_later(self, wait_ms: int, event: Event) -> None:
        self._loop.after(wait_ms, self.send, event)

    def released(self) -> None:
        """There may be new leases and tasks."""
        for region in self.regions:
            region.fetchers.deliver()
        tasks = self.partition.tasks
        while self._parse_next < len(tasks):
            self.parsers.add(tasks[self._parse_next])
            self._parse_next += 1

    def finished(self, lease: FetchLease, result: FetchResult, reply: Reply | None) -> None:
        """Of a fetcher, in whatever region."""
        faults, random = self._faults, self._random
        wait_ms = random.randrange(1, 40)
        if faults.hit("result_lost"):
            return
        if faults.hit("result_after_expiry"):
            wait_ms = random.randrange(190_000, 900_000)
        stored = None
        if result.outcome is Outcome.FETCHED and lease.kind is not Kind.ROBOTS and reply is not None:
            stored = stored_result(lease, result, reply)
        if stored is not None and faults.hit("stored_before_result"):
            self._seal(stored, 0)
            wait_ms += 5_000
        elif stored is not None:
            self._seal(stored, wait_ms)
        self._send_later(wait_ms, result)
        if faults.hit("result_repeated"):
            self._send_later(wait_ms + random.choice((1, 3_000, 200_000)), result)

    def _seal(self, stored: StoredResult, after_ms: int) -> None:
        faults, random = self._faults, self._random
        if faults.hit("seal_never"):
            return
        wait_ms = after_ms + random.randrange(1_000, 10_000)
        if faults.hit("seal_late"):
            wait_ms += random.choice((60_000, bounds.STORE_DEADLINE_MS, 2 * bounds.STORE_DEADLINE_MS))
        self._send_later(wait_ms, stored)
        if faults.hit("stored_repeated"):
            self._send_later(wait_ms + random.choice((1, 60_000)), stored)

    def _parsed(self, page: ParsedPage) -> None:
        """The owner is told what was found out; the page's links go by the router."""
        found = [one for batch in route(page, now_ms=self._loop.now_ms).values() for one in batch]
        if found:
            self._send_later(self._random.randrange(1, 2_000), found)
        self._told[host_id(page.host_key) + page.url_id] += 1
        self._loop.after(self._random.randrange(1, 200), self._tell, parsed_message(page))

    def _tell(self, message: OwnerMessage) -> None:
        assert message.page is not None
        self._told[host_id(message.to_key) + message.page.url_id] -= 1
        self.send(message)

    def waiting_tasks(self) -> set[bytes]:
        """host_id ‖ url_id of all that a parser is still to read, or has read and the owner has not heard of."""
        partition = self.partition
        tasks = [*partition.tasks[self._parse_next :], *self.parsers.tasks()]
        waiting = {host_id(task.host_key) + task.url_id for task in tasks} | set(+self._told)
        position = partition.log[-1].position if partition.log else 0
        for event in partition.inbox[position:]:
            if isinstance(event, OwnerMessage) and event.kind is OwnerMessageKind.PARSED and event.page is not None:
                waiting.add(host_id(event.to_key) + event.page.url_id)
        return waiting


class Group(NamedTuple):
    """What one commit carries."""

    turn: Turn
    events: Sequence[Event]
    decided_ms: int
    transaction: Transaction


class FleetProcess(OwnerProcess):
    """One owner of the partition."""

    def __init__(self, fleet: Fleet, region: Region, setting: Setting, disk: Disk, epoch: int, producer: int) -> None:
        super().__init__(setting, disk.store(fleet.partition.rows), epoch)
        self.region = region
        self.disk = disk
        self._fleet, self._partition = fleet, fleet.partition
        self._producer = producer
        self._version = 0
        self._before = disk.stamp
        self._position = 0 if disk.mark is None else disk.mark.position
        self._read = self._partition.offset

    def start(self) -> None:
        """Record the epoch with the adopted states in one transaction; fails when another began meanwhile."""
        self._partition.check_rows()
        turn = self.owner.adopt(self.clock(), close_leases=False)
        if self._partition.offset and self.faults.hit("offsets_lost"):
            self._read = 0
        self.busy = True
        self.loop.note("", f"{self.region.name}: epoch {self.epoch} starts")
        self._send(Group(turn, (), self.loop.now_ms, self._transaction(turn, self._position)))

    def rightful(self) -> bool:
        """Whether nobody has begun to take over from it."""
        return self._producer == self._partition.producer

    def overtaken(self) -> bool:
        """As an owner that has nothing under way sees it when it looks at its partition's home."""
        return not self.busy and homes.overtaken(self._partition.home, self.region.name, self.epoch)

    def let_go(self) -> None:
        if self.rightful():
            self.die()
        self.alive = False

    def pending(self) -> bool:
        return self._read < len(self._partition.inbox)

    def room(self) -> int:
        if self.store.tasks_waiting() >= self.setting.parses_max:
            return 0
        return max(0, self.setting.leases_max - self._out())

    def _out(self) -> int:
        """Leases in flight, by the owner's own state."""
        return sum(len(slot.state.in_flight) for slot in self.owner.hosts.in_memory())

    def take(self) -> list[Event]:
        """Input from the group's offset on; what the recovered position covers is skipped."""
        inbox, end = self._partition.inbox, min(len(self._partition.inbox), self._read + bounds.GROUP_EVENTS_MAX)
        start = max(self._read, self._position)
        self._read = max(end, start)
        return inbox[start:end]

    # --- the commit ------------------------------------------------------------------------------------------------

    def commit(self, turn: Turn, events: Sequence[Event], decided_ms: int) -> None:
        if self.faults.hit("fleet_crash_after_decide"):
            self._crash("crash after decide")
            return
        self._version += 1
        self._later(self._send, Group(turn, events, decided_ms, self._transaction(turn, self._read)))

    def _transaction(self, turn: Turn, position: int) -> Transaction:
        last = {key: value for family, key, value in turn.writes if family is Family.URL}
        return Transaction(
            stamp=self.epoch << 32 | self._version,
            before=self._before,
            states=tuple(one for one in turn.writes if one[0] in STATES),
            redo=tuple((Family.URL, key, value) for key, value in last.items()),
            position=position,
        )

    def _later(self, step: Callable[[Group], None], group: Group) -> None:
        """The next step, soon, or late, or after another owner has taken over."""
        wait_ms = self.random.randrange(1, 10)
        if self.faults.hit("commit_slow"):
            wait_ms = self.random.randrange(1_000, 60_000)
        if self.faults.hit("two_owners"):
            # It stands still for longer than a session; another takes over, and then it goes on where it was.
            self.region.lost(self, "its owner stands still")
            if self.rightful():
                self.judges.flow.capacity(False, self.loop.now_ms)
            wait_ms = SESSION_MS + LOOK_MS + self.random.randrange(4_000, 30_000)
        self.loop.after(wait_ms, self._step, step, group)

    def _step(self, step: Callable[[Group], None], group: Group) -> None:
        if self.alive:
            step(group)

    def _send(self, group: Group) -> None:
        """The transaction's records lie there, and nobody sees them yet."""
        if self.faults.hit("fleet_crash_when_sent"):
            self._crash("crash before its transaction stands")
        else:
            self._later(self._transact, group)

    def _transact(self, group: Group) -> None:
        turn = group.turn
        if self.rightful():
            self.tell(turn, group.events, group.decided_ms)
        try:
            self._partition.transact(self._producer, group.transaction, turn.leases, self.region.name, turn.tasks)
        except Fenced:
            self.faults.count("owner_fenced")
            self._crash("its owner is fenced")
            return
        if not self._version:
            self._fleet.recorded(self)
        self._fleet.released()
        if self.faults.hit("transaction_ack_lost"):  # whether it is there is not known here: only recovery can tell
            self._crash("lost an acknowledgement")
        elif self.faults.hit("fleet_crash_after_transaction"):
            self._crash("crash after transaction")
        else:
            self._later(self._rows, group)

    def _rows(self, group: Group) -> None:
        partition, one = self._partition, group.transaction
        if self.faults.hit("fleet_crash_in_rows"):
            partition.write_rows(one.redo[: len(one.redo) // 2], one.stamp)
            self._crash("crash in rows")
            return
        partition.write_rows(one.redo, one.stamp)
        if self.faults.hit("row_write_repeated"):
            partition.write_rows(one.redo, one.stamp)
        if self.faults.hit("fleet_crash_after_rows"):
            self._crash("crash after rows")
        else:
            self._apply(group)

    def _apply(self, group: Group) -> None:
        one = group.transaction
        self.store.commit(group.turn.writes)
        self.disk.apply(group.turn.writes, self.store, one, self._applied(one))
        self.owner.committed(group.turn)
        self._before, self._position = one.stamp, one.position
        if self.faults.hit("fleet_crash_after_apply"):
            self._crash("crash after apply")
            return
        self._partition.offset = one.position
        if self.faults.hit("fleet_crash_after_offsets"):
            self._crash("crash after offsets")
            return
        if self.rightful():
            self.judges.flow.bounded(self._out(), self.store.tasks_waiting())
        self.released()

    def _applied(self, one: Transaction) -> int:
        """How far its disk has the log: to this transaction, though another's may have come since."""
        log = self._partition.log
        at = len(log)
        while log[at - 1] is not one:
            at -= 1
        return at

    def _crash(self, why: str) -> None:
        self.let_go()
        self.region.lost(self, why)
