"""Rules broken on purpose, one at a time: what a judge must see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from schemas.records import DiscoveredUrl, FetchResult, ParseTask, RobotsAnswer, StoredResult
from streams.core import active, fetch, frontier, homes, hosts
from streams.core import policy as bounds
from streams.core.admit import Admission
from streams.core.complete import Completion
from streams.core.frontier import Frontier
from streams.core.homes import Home
from streams.core.hosts import HostState
from streams.core.index import OwnerIndex
from streams.core.oversight import Oversight
from streams.core.owner import Owner
from streams.core.robots_fetch import RobotsState
from streams.core.rules.robots import RobotsRules
from streams.core.schedule import Schedule
from streams.core.sharing import Sharing
from streams.core.tasks import parse_task
from streams.core.turn import Family, HostSlot, Turn, Write
from streams.simulation import owner_process
from streams.simulation.disk import NOWHERE, Disk
from streams.simulation.embedded_owner import EngineProcess
from streams.simulation.fetch_group import FetchGroup
from streams.simulation.fleet import Partition
from streams.simulation.fleet_owner import FleetProcess, Group
from streams.simulation.region import Takeover
from streams.simulation.store import Store

Patch = pytest.MonkeyPatch


def delay_ignored(patch: Patch) -> None:
    patch.setattr(hosts, "delay_ms", lambda host, policy: 0)


def crawl_delay_ignored(patch: Patch) -> None:
    with_robots = fetch.with_robots

    def without_delay(result: FetchResult, answer: RobotsAnswer, target: str | None) -> FetchResult:
        return with_robots(result, msgspec.structs.replace(answer, crawl_delay_ms=None), target)

    patch.setattr(fetch, "with_robots", without_delay)


def token_not_charged(patch: Patch) -> None:
    patch.setattr(hosts, "fetching", lambda host: 0)


def token_back_too_soon(patch: Patch) -> None:
    """A lease expires at `start_by`, without the time that its request may take."""

    def expires_ms(self: Frontier, now_ms: int) -> int:
        return now_ms + bounds.LEASE_START_MS_MAX + bounds.CLOCK_SKEW_MS_MAX

    patch.setattr(Frontier, "_expires_ms", expires_ms)


def other_clocks_trusted(patch: Patch) -> None:
    patch.setattr(active, "allow_for_skew", lambda host, epoch, clock_skew_ms: None)


def robots_not_asked(patch: Patch) -> None:
    patch.setattr(Frontier, "robots_word", lambda self, slot, now_ms: "allow_all")


def robots_ignored(patch: Patch) -> None:
    patch.setattr(RobotsRules, "allows", lambda self, url: True)


def robots_kept_for_ever(patch: Patch) -> None:
    def usable(state: RobotsState, now_ms: int) -> str:
        return "ask" if state.copy is None else "rules"

    patch.setattr(frontier, "usable", usable)


def retry_after_ignored(patch: Patch) -> None:
    patch.setattr(fetch, "retry_after", lambda headers, *, now_ms: None)


def backoff_ignored(patch: Patch) -> None:
    def troubled(host: HostState, result: FetchResult, now_ms: int, jitter: Callable[[], float]) -> None:
        host.trouble += 1

    patch.setattr(hosts, "troubled", troubled)


def budget_ignored(patch: Patch) -> None:
    patch.setattr(hosts, "budget_left", lambda host, now_ms, policy: 1)


def operator_ignored(patch: Patch) -> None:
    patch.setattr(Oversight, "change", lambda self, turn, policy, hosts: None)


def permits_not_needed(patch: Patch) -> None:
    patch.setattr(Sharing, "open_ms", lambda self, slot, opened_ms, now_ms: opened_ms)
    patch.setattr(Sharing, "admit", lambda self, turn, slot: True)
    patch.setattr(Sharing, "use", lambda self, slot, lease_id, now_ms: None)


def lease_started_again(patch: Patch) -> None:
    patch.setattr(FetchGroup, "may_start", lambda self, offset, repeated: True)


def leases_before_they_are_durable(patch: Patch) -> None:
    commit = EngineProcess.commit

    def hasty(self: EngineProcess, turn: Turn, events: Sequence[Any], decided_ms: int) -> None:
        leases, turn.leases = turn.leases, []
        for lease in leases:
            self._engine.fetcher.take(lease)
        commit(self, turn, events, decided_ms)

    patch.setattr(EngineProcess, "commit", hasty)


def fence_is_open(patch: Patch) -> None:
    """An owner that was replaced still writes states and leases."""
    transact = Partition.transact

    def unfenced(self: Partition, producer: int, *rest: Any) -> None:
        transact(self, self.producer, *rest)

    patch.setattr(Partition, "transact", unfenced)


def commit_is_torn(patch: Patch) -> None:
    """Now and then a commit loses its second half."""
    commit, count = Store.commit, iter(range(1, 1 << 30))

    def torn(self: Store, writes: Sequence[Write] = (), **more: Any) -> None:
        whole = len(writes) < 4 or next(count) % 50
        commit(self, writes if whole else writes[: len(writes) // 2], **more)

    patch.setattr(Store, "commit", torn)


def stale_result_accepted(patch: Patch) -> None:
    stored = Completion.stored

    def credulous(self: Completion, turn: Turn, slot: HostSlot, result: StoredResult) -> bool:
        accepted = stored(self, turn, slot, result)
        key = slot.host_id + result.url_id
        row = self._frontier.row(turn, key)
        if not accepted and row is not None and row.visit is not None:
            row.visit.visits += 1
            turn.put_row(key, row)
        return accepted

    patch.setattr(Completion, "stored", credulous)


def version_not_raised(patch: Patch) -> None:
    """Every content is sent to be parsed as the first one."""

    def first(*arguments: Any) -> ParseTask:
        return msgspec.structs.replace(parse_task(*arguments), url_version=1)

    patch.setattr("streams.core.complete.parse_task", first)


def discoveries_dropped(patch: Patch) -> None:
    admit, count = Owner._admit_host, iter(range(1 << 30))

    def forgetful(self: Owner, turn: Turn, host_key: str, batch: Sequence[DiscoveredUrl]) -> None:
        if next(count) % 40:
            admit(self, turn, host_key, batch)

    patch.setattr(Owner, "_admit_host", forgetful)


def parse_tasks_dropped(patch: Patch) -> None:
    add, count = Turn.add_task, iter(range(1, 1 << 30))

    def forgetful(self: Turn, key: bytes, task: ParseTask) -> None:
        if next(count) % 20:
            add(self, key, task)

    patch.setattr(Turn, "add_task", forgetful)


def host_forgotten(patch: Patch) -> None:
    """Some hosts are not looked at again."""
    put = Schedule.put

    def forgetful(self: Schedule, host_id: bytes, *rest: Any, **more: Any) -> None:
        if host_id[0] % 4:
            put(self, host_id, *rest, **more)

    patch.setattr(Schedule, "put", forgetful)


def clock_not_looked_at(patch: Patch) -> None:
    """Nothing wakes the owner but messages: with none under way it sleeps for ever."""
    patch.setattr(Owner, "next_ms", lambda self: hosts.NEVER_MS)


def clock_not_steady(patch: Patch) -> None:
    """A process goes by its wall clock, which jumps."""

    def clock(self: owner_process.OwnerProcess) -> int:
        if self.random.random() < 0.1:
            self._wall_offset_ms = self.random.randint(-1_000, 1_000)
        return self._wall_ms()

    patch.setattr(owner_process.OwnerProcess, "clock", clock)


def backlog_ignored(patch: Patch) -> None:
    patch.setattr(EngineProcess, "room", lambda self: 1_000)
    patch.setattr(FleetProcess, "room", lambda self: 1_000)


def queue_entry_left_behind(patch: Patch) -> None:
    commit, count = Store.commit, iter(range(1, 1 << 30))

    def untidy(self: Store, writes: Sequence[Write] = (), **more: Any) -> None:
        kept = [one for one in writes if one[0] is not Family.QUEUE or one[2] is not None or next(count) % 30]
        commit(self, kept, **more)

    patch.setattr(Store, "commit", untidy)


def old_index_kept(patch: Patch) -> None:
    """An owner keeps the index that it finds, wherever it stands."""
    patch.setattr(Disk, "stands_at", lambda self, stamp: self.index_stamp != NOWHERE)


def rows_before_the_transaction(patch: Patch) -> None:
    """The design's first order: URL rows are written, and then the transaction is tried."""
    send = FleetProcess._send

    def hasty(self: FleetProcess, group: Group) -> None:
        self._partition.write_rows(group.transaction.redo, group.transaction.stamp)
        send(self, group)

    patch.setattr(FleetProcess, "_send", hasty)


def rows_not_redone(patch: Patch) -> None:
    """A takeover does not write the rows that the last owner may not have written."""
    patch.setattr(Disk, "redo", lambda self: ())


def old_rows_redone(patch: Patch) -> None:
    """A takeover takes whatever redo lies on its disk for that of the last transaction."""
    patch.setattr(Disk, "redo", lambda self: () if self._redo is None else self._redo.redo)


def redo_overwrites(patch: Patch) -> None:
    """A takeover writes rows with its own epoch, before the transaction that records it."""

    def overwriting(self: Takeover) -> None:
        self._fleet.partition.write_rows(self._disk.redo(), self._epoch << 32)
        self._then(self._own)

    patch.setattr(Takeover, "_redo", overwriting)


def epochs_of_each_region(patch: Patch) -> None:
    """Each region counts its owners by itself."""
    counts: dict[str, int] = {}

    taken = homes.taken

    def counted(home: Home | None, region: str) -> Home | None:
        if taken(home, region) is None:
            return None
        counts[region] = counts.get(region, 0) + 1
        return Home(counts[region], region)

    patch.setattr(homes, "taken", counted)


def home_not_moved(patch: Patch) -> None:
    """A region takes the partition back that is not at home there any more."""

    def taken(home: Home | None, region: str) -> Home | None:
        return (
            None if region == "south" else Home(1 if home is None else home.epoch + 1, home.region if home else region)
        )

    patch.setattr(homes, "taken", taken)


def index_not_loaded(patch: Patch) -> None:
    """An owner without an index takes it for whole, as that of a new folder is."""
    patch.setattr(OwnerIndex, "loading", False)
    patch.setattr(OwnerIndex, "partial", lambda self, slot: False)


def seen_value_left_behind(patch: Patch) -> None:
    """What links are compared with stays as it was when the URL was admitted."""
    relax = Admission._relax

    def forgetful(self: Admission, turn: Turn, *rest: Any) -> None:
        before = len(turn.writes)
        relax(self, turn, *rest)
        turn.writes[before:] = [one for one in turn.writes[before:] if one[0] is not Family.SEEN]

    patch.setattr(Admission, "_relax", forgetful)
