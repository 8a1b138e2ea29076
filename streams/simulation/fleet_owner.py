"""The fleet's owner, step by step: decide; transaction; rows; local apply; offsets.

Fetchers, store and parsers are processes of their own and go on when it dies. A stopped owner may wake after another
has taken over: its transaction is refused, and the rows of an earlier one lose by their stamps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from schemas.records import FetchLease, FetchResult, Kind, Outcome, ParseTask, StoredResult
from streams.core import policy as bounds
from streams.core.owner import Event
from streams.core.turn import Turn
from streams.simulation.backstage import Parsers, stored_result
from streams.simulation.fetch_group import FetchGroup
from streams.simulation.fetchers import SESSION_MS
from streams.simulation.fleet import NOWHERE, Disk, Fenced, Partition
from streams.simulation.owner_process import OwnerProcess, Setting
from streams.simulation.store import Store
from streams.simulation.web import Reply

_WORKERS = 4


class Fleet:
    """All machines."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._loop, self._faults = setting.loop, setting.faults
        self._random = setting.loop.random("fleet")
        self.partition = Partition()
        self.group = FetchGroup(setting, self.partition, self._finished)
        self.parsers = Parsers(setting.loop, setting.web, setting.faults, self.send)
        self._parse_next = 0
        self._process: FleetProcess | None = None
        self._takeover = 0
        self.partition.inbox.append(setting.seeds())
        self._disks = [Disk() for _ in range(_WORKERS)]
        self._disk = self._disks[0]

    @property
    def store(self) -> Store:
        """As the last owner sees it."""
        return self._process.store if self._process is not None else self.partition.look()

    def quiet(self) -> bool:
        """An owner is there, its index whole, with no group between its decision and its durability."""
        return self._process is not None and not self._process.busy and not self._process.owner.index.loading

    def waiting_tasks(self) -> list[ParseTask]:
        return [*self.partition.tasks[self._parse_next :], *self.parsers.tasks()]

    # --- owners come and go ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """A takeover, step by step: the fence, then the epoch, then its record, then the first row."""
        partition = self.partition
        self._takeover += 1
        producer = partition.init_transactions()
        self._loop.note("", f"producer {producer} begins")
        if self._faults.hit("fleet_crash_in_takeover"):
            self._loop.after(SESSION_MS, self.start)
            return
        partition.epoch += 1
        epoch = partition.epoch
        if self._faults.hit("fleet_crash_in_takeover"):
            self._loop.after(SESSION_MS, self.start)
            return
        self._disk = disk = self._next_disk()
        if disk.position != NOWHERE:
            self._faults.count("index_kept" if disk.stands_at(partition.stamp) else "index_behind")
        self._process = process = FleetProcess(self, self._setting, disk, epoch, producer)
        process.start()

    def _next_disk(self) -> Disk:
        """Of the worker on which the next owner runs: the last one again if that is gone, or another."""
        free = [disk for disk in self._disks if disk.process is None or not disk.process.alive]
        if self._disk in free and not self._faults.hit("index_elsewhere"):
            return self._disk
        return self._random.choice([disk for disk in free if disk is not self._disk])

    def rightful(self, process: FleetProcess) -> bool:
        """Whether nobody has taken over from it."""
        return process is self._process

    def lost(self, process: FleetProcess, why: str, down_ms: int = SESSION_MS) -> None:
        """The process is gone, or taken for gone; another one takes over."""
        self._loop.note("", f"owner {process.epoch}: {why}")
        if process is self._process:
            self._process = None
            self._loop.after(down_ms + self._random.randrange(3_000), self.start)

    # --- messages --------------------------------------------------------------------------------------------------

    def send(self, event: Event) -> None:
        """Into the owner's inbox; it is durable there."""
        self.partition.inbox.append(event)
        if self._process is not None:
            self._process.wake()

    def _send_later(self, wait_ms: int, event: Event) -> None:
        self._loop.after(wait_ms, self.send, event)

    def released(self) -> None:
        """There may be new leases and tasks."""
        self.group.deliver()
        tasks = self.partition.tasks
        while self._parse_next < len(tasks):
            self.parsers.add(tasks[self._parse_next])
            self._parse_next += 1

    def _finished(self, lease: FetchLease, result: FetchResult, reply: Reply | None) -> None:
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


class Group(NamedTuple):
    """What one commit carries."""

    turn: Turn
    events: Sequence[Event]
    decided_ms: int
    position: int  # of the input, with this group
    stamp: int  # of its rows: owner_epoch << 32 | state_version


class FleetProcess(OwnerProcess):
    """One owner of the partition."""

    def __init__(self, fleet: Fleet, setting: Setting, disk: Disk, epoch: int, producer: int) -> None:
        super().__init__(setting, fleet.partition.recover(disk), epoch)
        self._disk = disk
        disk.process = self
        self._fleet = fleet
        self._partition = fleet.partition
        self._producer = producer
        self._version = 0
        self._read = self._partition.offset

    def start(self) -> None:
        """Record the epoch with the adopted states in one transaction; fails when another began meanwhile."""
        turn = self.owner.adopt(self.clock(), close_leases=False)
        if self._partition.offset and self.faults.hit("offsets_lost"):
            self._read = 0
        self.busy = True
        self.loop.note("", f"epoch {self.epoch} starts")
        stamp = self.epoch << 32 | self._version
        self._transact(Group(turn, (), self.loop.now_ms, self._partition.position, stamp))

    def pending(self) -> bool:
        return self._read < len(self._partition.inbox)

    def room(self) -> int:
        if self._fleet.parsers.backlog() >= self.setting.parses_max:
            return 0
        return max(0, self.setting.leases_max - self._out())

    def _out(self) -> int:
        """Leases in flight, by the owner's own state."""
        return sum(len(slot.state.in_flight) for slot in self.owner.hosts.in_memory())

    def take(self) -> list[Event]:
        """Input from the group's offset on; what the recovered position covers is skipped."""
        inbox, end = self._partition.inbox, min(len(self._partition.inbox), self._read + bounds.GROUP_EVENTS_MAX)
        start = max(self._read, self._partition.position)
        self._read = max(end, start)
        return inbox[start:end]

    # --- the commit ------------------------------------------------------------------------------------------------

    def commit(self, turn: Turn, events: Sequence[Event], decided_ms: int) -> None:
        if self.faults.hit("fleet_crash_after_decide"):
            self._crash("crash after decide")
            return
        self._version += 1
        group = Group(turn, events, decided_ms, self._read, self.epoch << 32 | self._version)
        self._later(self._transact, group)

    def _later(self, step: Callable[[Group], None], group: Group) -> None:
        """The next step, soon, or late, or after another owner has taken over."""
        wait_ms = self.random.randrange(1, 10)
        if self.faults.hit("commit_slow"):
            wait_ms = self.random.randrange(1_000, 60_000)
        if self.faults.hit("two_owners") and self._fleet.rightful(self):
            # It stands still for longer than a session; another takes over, and then it goes on where it was.
            self._fleet.lost(self, "stands still")
            self.judges.flow.capacity(False, self.loop.now_ms)
            wait_ms = SESSION_MS + self.random.randrange(4_000, 30_000)
        self.loop.after(wait_ms, self._step, step, group)

    def _step(self, step: Callable[[Group], None], group: Group) -> None:
        if self.alive:
            step(group)

    def _transact(self, group: Group) -> None:
        turn = group.turn
        if self._producer == self._partition.producer:
            self.tell(turn, group.events, group.decided_ms)
        try:
            self._partition.transact(self._producer, turn.writes, turn.leases, turn.tasks, group.position, group.stamp)
        except Fenced:
            self.faults.count("owner_fenced")
            self._crash("is fenced")
            return
        self._fleet.released()
        if self.faults.hit("transaction_ack_lost"):  # whether it is there is not known here: only recovery can tell
            self._crash("lost an acknowledgement")
        elif self.faults.hit("fleet_crash_after_transaction"):
            self._crash("crash after transaction")
        else:
            self._later(self._rows, group)

    def _rows(self, group: Group) -> None:
        partition, writes = self._partition, group.turn.writes
        if self.faults.hit("fleet_crash_in_rows"):
            partition.write_rows(writes[: len(writes) // 2], group.stamp)
            self._crash("crash in rows")
            return
        partition.write_rows(writes, group.stamp)
        if self.faults.hit("row_write_repeated"):
            partition.write_rows(writes, group.stamp)
        if self.faults.hit("fleet_crash_after_rows"):
            self._crash("crash after rows")
        else:
            self._apply(group)

    def _apply(self, group: Group) -> None:
        self.store.commit(group.turn.writes)
        self._disk.apply(group.turn.writes, group.stamp)
        self.owner.committed(group.turn)
        if self.faults.hit("fleet_crash_after_apply"):
            self._crash("crash after apply")
            return
        if not self._fleet.rightful(self):
            self._crash("finds another in its place")
            return
        self._partition.rows_are_written(group.stamp)
        self._partition.offset = group.position
        self.judges.flow.bounded(self._out(), self._fleet.parsers.backlog())
        self.released()

    def _crash(self, why: str) -> None:
        if self._fleet.rightful(self):
            self.die()
        self.alive = False
        self._fleet.lost(self, why)
