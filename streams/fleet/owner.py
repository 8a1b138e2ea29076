"""One partition's owner on one worker: its takeover, its groups, and what becomes of a group that cannot be decided.

A takeover goes in this order: the fence, then the changelog to its end, then the epoch, then the redo of the last
transaction's rows (with the stamp that they had), then one transaction that records the epoch with the adopted states.
Nothing that carries the new epoch is written anywhere before that transaction stands.

All of it blocks and belongs into a thread; one call at a time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from connectors.inbox_kafka import Message
from connectors.ports import Changelog, Epochs, OwnerLog, Record, StoreClosed, UrlState
from schemas.foreign import Resolver
from streams.core import policy as bounds
from streams.core.budget import share
from streams.core.failures import CrawlError
from streams.core.hosts import NEVER_MS
from streams.core.owner import Owner
from streams.core.policy import CrawlPolicy
from streams.core.rules.scope import Scope
from streams.core.turn import Family, Reads, Turn
from streams.fleet import outputs
from streams.fleet.commit import Closed, Committer
from streams.fleet.intake import Intake, Partitioning, Taken
from streams.fleet.local import LocalStore
from streams.fleet.metrics import Metrics
from streams.fleet.reads import FleetReads

log = logging.getLogger(__name__)

LEASES_PER_GROUP_MAX = 2_000
TAKEOVER_STEPS = ("fenced", "caught up", "epoch", "redone")
_ADOPTING = threading.Lock()
"""One partition of a process adopts at a time: it is CPU alone, some 8 us a host, and of several that share the
interpreter the first would be done when the last is."""

_WITHOUT_EFFECT = frozenset({"wake-ups"})  # of these alone no position is worth a transaction


class Setting(msgspec.Struct, frozen=True):
    """What is the same for all partitions."""

    policy: CrawlPolicy
    scope: Scope
    partitions: int
    leases_max: int  # in flight, of one partition
    tasks_max: int  # bodies of one partition that wait to be parsed; beyond, nothing is granted
    changelog_topic: str
    now: Callable[[], int]  # UTC in ms, steady
    jitter: Callable[[], float]
    at: Callable[[str], None] = lambda step: None  # told each step as it is reached
    resolver: Resolver | None = None
    region: str = ""  # where the worker runs: it owns what is at home there
    announce: Callable[[int, int, int], Record] | None = None  # (partition, epoch, now) to what makes the owner known


class Ports(msgspec.Struct, frozen=True):
    """What an owner needs of the world."""

    urls: UrlState
    epochs: Epochs
    changelog: Changelog
    open_log: Callable[[int], OwnerLog]
    close: Callable[[], None] = lambda: None  # calls that wait for a service that is away end with `StoreClosed`
    away_s: Callable[[], Mapping[str, float]] = dict  # by service: how long it has not answered; 0 while it does


class Undecidable(Exception):
    """The core would not take a group; nothing of it is anywhere. The owner has begun anew."""


class PartitionOwner:
    """From its takeover until it is fenced, or let go."""

    def __init__(
        self, partition: int, store: LocalStore, setting: Setting, ports: Ports, metrics: Metrics, where: Partitioning
    ) -> None:
        self.partition = partition
        self._store, self._setting, self._ports, self._metrics = store, setting, ports, metrics
        self._partition_of = where.of
        self._intake = Intake(partition, where, setting.resolver)
        self._log: OwnerLog | None = None
        self._core: Owner | None = None
        self._committer: Committer | None = None
        self._closed = False
        self._out: dict[bytes, int] = {}  # host_id → leases in flight
        self._out_total = 0
        self._tasks: set[bytes] = set()  # host_id ‖ url_id of the bodies that wait to be parsed
        self.epoch = 0

    # --- the takeover ---------------------------------------------------------------------------------------------

    def take_over(self) -> None:
        """Raises `Fenced` when another began meanwhile, `Closed`, and what a service that is broken says."""
        at, ports, store = self._setting.at, self._ports, self._store
        self._log = ports.open_log(self.partition)
        self._log.fence()
        at("fenced")
        self._go_on()
        ports.changelog.read(self.partition, store.offset, store.follow)
        at("caught up")
        self._begin()

    def _begin(self) -> None:
        """Take an epoch and adopt what is durable."""
        at, store, setting, ports = self._setting.at, self._store, self._setting, self._ports
        self._go_on()
        assert self._log is not None
        self.epoch = ports.epochs.take(self.partition)
        at("epoch")
        mark = store.mark
        redo = store.redo()
        if redo and mark is not None:
            ports.urls.write(redo, epoch=mark.epoch, version=mark.version)
        at("redone")
        index = store.settle_index(redo)
        reads = FleetReads(store.db, ports.urls)
        policy = msgspec.structs.replace(
            setting.policy, budget=share(setting.policy.budget, self.partition, setting.partitions)
        )
        core = Owner(
            reads,
            policy,
            setting.scope,
            epoch=self.epoch,
            jitter=setting.jitter,
            partition=self.partition,
            owns=self._owns,
            index_look_rows=bounds.INDEX_LOOK_ROWS,
        )
        committer = Committer(
            self.partition,
            store,
            reads,
            self._log,
            ports.urls,
            epoch=self.epoch,
            topic=setting.changelog_topic,
            at=at,
        )
        self._core, self._committer = core, committer
        self._tasks = {key for key, _ in reads.tasks()}
        with _ADOPTING:
            self._go_on()
            turn = core.adopt(setting.now(), close_leases=False)
        made_known = [] if setting.announce is None else [setting.announce(self.partition, self.epoch, turn.now_ms)]
        self._commit(turn, Taken(onward=made_known), {})
        self._out = {slot.host_id: len(slot.state.in_flight) for slot in core.hosts.in_memory() if slot.state.in_flight}
        self._out_total = sum(self._out.values())
        log.info("partition %d: owned from epoch %d on, index %s", self.partition, self.epoch, index)

    def _owns(self, key: str) -> bool:
        return self._partition_of(key) == self.partition

    def _go_on(self) -> None:
        if self._closed:
            raise Closed(f"partition {self.partition}")

    @property
    def db(self) -> Reads:
        """Its committed state, for any thread to read, while it is owned."""
        return self._store.db

    # --- groups ---------------------------------------------------------------------------------------------------

    @property
    def positions(self) -> dict[str, int]:
        """Of each topic: the last offset that is applied."""
        assert self._committer is not None
        return self._committer.positions

    def gauges(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        """Sizes of this partition, to be added up with others'. See `streams.fleet.metrics.Gauges`."""
        core = self._core
        if core is None:
            return
        totals = core.totals
        yield "headrace_urls_known", (), totals.known
        yield "headrace_urls_queued", (), totals.queued_new + totals.queued_retry + totals.queued_revisit
        yield "headrace_pages_stored", (), totals.pages
        yield "headrace_leases_in_flight", (), self._out_total

    def next_ms(self) -> int:
        """When a group without messages may have something to do; after a while when there is no room for leases."""
        if self._core is None:
            return NEVER_MS
        next_ms = self._core.next_ms()
        if self.room() <= 0 and not self._core.index.loading:
            return max(next_ms, self._core.now_ms + bounds.HEARTBEAT_MS)
        return next_ms

    @property
    def parse_backlog(self) -> int:
        """Bodies that wait to be parsed."""
        return len(self._tasks)

    def stopped_by(self) -> str:
        """The limit at which it grants nothing: parse, leases, or "" while it grants."""
        if len(self._tasks) >= self._setting.tasks_max:
            return "parse"
        return "" if self.room() else "leases"

    def room(self) -> int:
        """How many leases may be granted: none while the parsers are behind, as on one machine."""
        if len(self._tasks) >= self._setting.tasks_max:
            return 0
        return max(0, self._setting.leases_max - self._out_total)

    def run(self, messages: Sequence[Message]) -> None:
        """A group: decide, commit. Raises `Undecidable` where nothing came of it and others may fare better."""
        self._go_on()
        assert self._core is not None
        now_ms = self._setting.now()
        taken = self._intake.take(messages, now_ms)
        try:
            turn = self._core.decide(taken.events, now_ms, min(self.room(), LEASES_PER_GROUP_MAX))
        except (CrawlError, StoreClosed):
            raise
        except Exception as error:  # a record that the core takes for impossible: whichever it is, the others go on
            self._again(error)
            raise Undecidable(f"{type(error).__name__}: {error}") from error
        positions = {message.topic: message.offset for message in messages}
        self._commit(turn, taken, positions)

    def give_up(self, message: Message, error: str) -> None:
        """The message goes to the dead letters, and the position behind it."""
        self._go_on()
        assert self._core is not None
        now_ms = self._setting.now()
        taken = Taken()
        self._intake.give_up(taken, message, error, now_ms)
        self._commit(self._core.decide((), now_ms, 0), taken, {message.topic: message.offset})

    def _again(self, error: Exception) -> None:
        """The core's state is not to be trusted after a turn that broke off: begin anew from what is durable.

        With an epoch of its own, since lease ids count from the epoch on.
        """
        log.exception("partition %d: a group could not be decided", self.partition, exc_info=error)
        assert self._committer is not None
        self._committer.close()
        self._begin()

    def _commit(self, turn: Turn, taken: Taken, positions: dict[str, int]) -> None:
        core, committer = self._core, self._committer
        assert core is not None
        assert committer is not None
        onward = [*outputs.of_turn(turn, self.partition, self._partition_of), *taken.onward]
        if turn.writes or onward or positions.keys() - _WITHOUT_EFFECT or not committer.begun:
            committer.commit(turn.writes, onward, positions, turn.now_ms)
        core.committed(turn)
        for family, key, value in turn.writes:
            if family is Family.TASK:
                (self._tasks.discard if value is None else self._tasks.add)(key)
        for host_id, slot in turn.touched.items():
            now, before = len(slot.state.in_flight), self._out.get(host_id, 0)
            self._out_total += now - before
            if now:
                self._out[host_id] = now
            else:
                self._out.pop(host_id, None)
        self._metrics.turn(self.partition, turn, taken, self._setting.now())

    def close(self) -> None:
        """Let it go: what is under way ends at its next step, and the local store is another's from now on."""
        self._closed = True
        if self._committer is not None:
            self._committer.close()

    def release(self) -> None:
        """After `close`, when no call is under way any more."""
        self._core = None
        if self._log is not None:
            self._log.close()
            self._log = None
