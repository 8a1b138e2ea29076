"""The embedded engine's order, as `streams.embedded` has it: store, decide, make durable, release; one process, which
takes its fetchers, its parsers and all that is in memory with it when it dies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from schemas.records import FetchLease, FetchResult, Kind, Outcome
from streams.core import policy as bounds
from streams.core.owner import Event
from streams.core.tasks import decode_task
from streams.core.turn import Turn
from streams.simulation.backstage import Parsers, stored_result
from streams.simulation.fetchers import Fetcher
from streams.simulation.owner_process import OwnerProcess, Setting
from streams.simulation.store import Store
from streams.simulation.web import Reply

_DOWN_MS = (500, 5_000, 90_000, 600_000)


class Engine:
    """The machine: its disk stays, its processes come and go."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._loop, self._faults = setting.loop, setting.faults
        self._random = setting.loop.random("engine")
        self.store = Store()
        self._epoch = 0
        self.parsers = Parsers(setting.loop, setting.web, setting.faults, self.send)
        self.fetcher = Fetcher(
            "fetcher", setting.loop, setting.web, setting.judges.politeness, setting.faults, self._finished
        )
        self._process: EngineProcess | None = None

    def start(self) -> None:
        self._epoch += 1
        if self._faults.hit("index_cleared"):
            self.store.clear_index()
        self._process = process = EngineProcess(self, self._setting, self.store, self._epoch)
        self._loop.note("", f"epoch {self._epoch} starts")
        turn = process.owner.adopt(process.clock(), close_leases=True)
        process.tell(turn, (), self._loop.now_ms)
        self.store.commit(turn.writes)
        process.owner.committed(turn)
        for _, raw in self.store.tasks():
            self.parsers.add(decode_task(raw))
        process.inbox.append([self._setting.seeds()])  # the command reads its file at each start
        process.released()

    def crash(self, step: str) -> None:
        """Whatever was not durable is gone; the process is started again after a while."""
        assert self._process is not None
        self._loop.note("", step)
        self._process.die()
        self._process = None
        self.fetcher.crash()
        self.parsers.crash()
        self._loop.after(self._random.choice(_DOWN_MS) + self._random.randrange(500), self.start)

    def waiting_tasks(self) -> None:
        """The store holds the bodies to be parsed itself."""
        return

    def quiet(self) -> bool:
        """No group is between its decision and its durability, and the index is whole."""
        return self._process is None or not (self._process.busy or self._process.owner.index.loading)

    def _finished(self, lease: FetchLease, result: FetchResult, reply: Reply | None) -> None:
        process = self._process
        assert process is not None
        events: list[Event] = [result]
        if result.outcome is Outcome.FETCHED and lease.kind is not Kind.ROBOTS and reply is not None:
            events.append(stored_result(lease, result, reply))
        process.inbox.append(events)
        process.wake()

    def send(self, event: Event) -> None:
        """Into the inbox, which is memory."""
        if self._process is not None:
            self._process.inbox.append([event])
            self._process.wake()


class EngineProcess(OwnerProcess):
    """One life of it."""

    def __init__(self, engine: Engine, setting: Setting, store: Store, epoch: int) -> None:
        super().__init__(setting, store, epoch)
        self._engine = engine
        self.inbox: deque[list[Event]] = deque()

    def pending(self) -> bool:
        return bool(self.inbox)

    def room(self) -> int:
        if self._engine.parsers.backlog() >= self.setting.parses_max:
            return 0
        return max(0, self.setting.leases_max - self._engine.fetcher.taken)

    def take(self) -> list[Event]:
        events: list[Event] = []
        while self.inbox and len(events) < bounds.GROUP_EVENTS_MAX:
            events += self.inbox.popleft()
        return events

    def commit(self, turn: Turn, events: Sequence[Event], decided_ms: int) -> None:
        if self.faults.hit("crash_after_store"):  # the segments hold records that no commit names
            self._engine.crash("crash after store")
            return
        if self.faults.hit("crash_after_decide"):
            self._engine.crash("crash after decide")
            return
        took_ms = self.random.randrange(2, 12)
        if self.faults.hit("commit_slow"):
            took_ms = self.random.randrange(1_000, 60_000)
        self.loop.after(took_ms, self._durable, turn, events, decided_ms)

    def _durable(self, turn: Turn, events: Sequence[Event], decided_ms: int) -> None:
        if not self.alive:
            return
        self.tell(turn, events, decided_ms)
        self.store.commit(turn.writes)
        self.owner.committed(turn)
        if self.faults.hit("crash_after_durable"):
            self._engine.crash("crash after durable")
            return
        for lease in turn.leases:
            self._engine.fetcher.take(lease)
            if self.faults.hit("crash_in_release"):
                self._engine.crash("crash in release")
                return
        for task in turn.tasks:
            self._engine.parsers.add(task)
        self.judges.flow.bounded(self._engine.fetcher.taken, self._engine.parsers.backlog())
        self.released()
