"""The owner of a partition: one inbox, in order, one writer of all that concerns its hosts.

`decide` takes a group of events and gives one `Turn`: the writes that must become durable together, and the effects
that may be carried out once they are. Admitting and completing never wait for grants; grants come last, under the room
that the shell has for leases. After a turn whose commit failed, the owner is thrown away.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Iterable, Sequence

import msgspec

from schemas.records import (
    DiscoveredUrl,
    FetchResult,
    HostPolicy,
    Kind,
    OwnerMessage,
    OwnerMessageKind,
    ParsedPage,
    StoredResult,
)
from streams.core import hosts as host_rules
from streams.core import policy as bounds
from streams.core.active import Hosts
from streams.core.admit import AT_ONCE_MS, Admission, requeue, write_templates
from streams.core.budget import BUDGET_KEY, Budget, decode_spent
from streams.core.complete import Completion
from streams.core.expiries import Expiries
from streams.core.frontier import Frontier
from streams.core.hosts import NEVER_MS, HostState, decode_host, encode_host
from streams.core.index import OwnerIndex
from streams.core.memo import Memo
from streams.core.oversight import Oversight
from streams.core.policy import CrawlPolicy
from streams.core.reread import Rereading
from streams.core.robots_desk import RobotsDesk
from streams.core.route import route
from streams.core.rows import HOST_ID_BYTES, URL_ID_BYTES, QueueClass, Status, encode_row
from streams.core.rules.scope import Scope
from streams.core.rules.urls import host_id, url_id
from streams.core.sharing import PERMIT_MESSAGES, sharing_of
from streams.core.turn import Family, HostSlot, Reads, Turn, bump

Event = Sequence[DiscoveredUrl] | FetchResult | StoredResult | ParsedPage | OwnerMessage | HostPolicy
"""A sequence is a batch of discovered URLs, of any hosts."""

_LEASE_ID = struct.Struct(">HQHI")


class Totals(msgspec.Struct):
    """Over all hosts of the owner."""

    known: int = 0
    queued_new: int = 0
    queued_retry: int = 0
    queued_revisit: int = 0
    hosts: int = 0
    pages: int = 0


class Owner:
    """The core's state for one partition, between turns."""

    def __init__(
        self,
        reads: Reads,
        policy: CrawlPolicy,
        scope: Scope,
        *,
        epoch: int,
        jitter: Callable[[], float],
        partition: int = 0,
        clock_skew_ms: int = bounds.CLOCK_SKEW_MS_MAX,
        index_rows_max: int = bounds.INDEX_ROWS_PER_TURN_MAX,
        index_look_rows: int = 1,
        owns: Callable[[str], bool] | None = None,
    ) -> None:
        """`epoch` rises with every start; `jitter` gives numbers in [0, 1).

        `clock_skew_ms`: how far the clocks of the owners before may have been behind this one's. `index_rows_max`: read
        in a turn to load an index that is not whole; to ask for a host's at all costs as much as `index_look_rows` of
        them. `owns`: whether a host_key or a group is of this partition; what is meant for others is left in the turn,
        to be sent. None: there is no other.
        """
        self.policy = policy
        self.totals = Totals()
        self.now_ms = 0
        self._reads = reads
        self._partition = partition
        self._owns = owns
        self.epoch = epoch
        self._sequence = 0
        self.memo = Memo(bounds.OWNER_MEMO_URLS_MAX)
        self.hosts = Hosts(reads, epoch=epoch, clock_skew_ms=clock_skew_ms)
        self.admission = Admission(reads, policy, scope, self.memo)
        self.oversight = Oversight(reads, policy, self.memo)
        self.hosts.on_load = self.oversight.loaded
        self.index = OwnerIndex(reads, self.hosts, index_rows_max, index_look_rows)
        self.admission.on_partial = self.oversight.on_partial = self.index.want
        self.frontier = Frontier(
            reads,
            self.hosts,
            policy,
            epoch=epoch,
            new_lease_id=self._new_lease_id,
            allowed=self.oversight.blocked.allows,
            leaves_out=self.admission.leaves_out,
            load=self.index.load,
        )
        self.hosts.on_drop = self.frontier.schedule.cool
        spent = reads.get(Family.OWNER, BUDGET_KEY)
        self.frontier.budget = Budget(policy.budget, None if spent is None else decode_spent(spent))
        self.sharing = self.frontier.sharing = sharing_of(reads, policy, clock_skew_ms=clock_skew_ms)
        self.completion = Completion(self.frontier, policy, jitter)
        self.robots = RobotsDesk(self.frontier, self.completion, policy, jitter)
        self.rereading = Rereading(reads, policy)
        self._expiries = Expiries()

    # --- start ----------------------------------------------------------------------------------------------------

    def adopt(self, now_ms: int, *, close_leases: bool) -> Turn:
        """Take over what is durable. `close_leases`: no fetcher of before is alive, so no result will ever come.

        Then every lease is closed, its URL is leased again, and its host waits one delay. The policy and the clock may
        be others than when the states were written: no host waits longer than it would after a result received just
        now, and one with URLs is looked at as soon as today's policy allows.
        """
        turn = self._begin(now_ms)
        self.oversight.configure(turn.now_ms)
        self.rereading.meet(self.admission.scope)
        for host_id_, raw in self._reads.hosts():
            state = decode_host(raw)
            self.oversight.adopted(host_id_, state)
            self._add_totals(state.known, state.queued, state.pages)
            self.totals.hosts += 1
            in_time = host_rules.within_reach(state, turn.now_ms, self.policy)
            if in_time and not state.in_flight:
                self.frontier.schedule.put(
                    host_id_, self._look_ms(state, turn.now_ms), state.rank, turn.now_ms, cold=True
                )
                continue
            slot = self.hosts.slot(host_id_)
            if not in_time:
                host_rules.bring_within_reach(slot.state, turn.now_ms, self.policy)
                turn.touch(slot)
            if close_leases:
                for lease_id in list(slot.state.in_flight):
                    self._lost(turn, slot, lease_id)
            else:
                self._watch(slot)
                self.frontier.reschedule(slot, turn.now_ms)
        self._end(turn)
        return turn

    def _look_ms(self, state: HostState, now_ms: int) -> int:
        """When to look at a host that is only known by its durable state; looking too early costs little."""
        if state.queued[QueueClass.NEW] or state.queued[QueueClass.RETRY] or state.hops:
            return min(state.ready_ms, host_rules.open_ms(state, now_ms, self.policy))
        return state.ready_ms

    # --- a turn ---------------------------------------------------------------------------------------------------

    def decide(self, events: Iterable[Event], now_ms: int, leases_max: int) -> Turn:
        """Decide a group of events, then grant up to so many leases. Time never runs backwards in here."""
        turn = self._begin(now_ms)
        for event in events:
            self._handle(turn, event)
        self._expire(turn)
        self._settle_found(turn)
        self.oversight.step(turn, self.hosts, self.frontier)
        for slot in turn.changed.values():
            self.frontier.reschedule(slot, turn.now_ms)
        turn.changed.clear()
        if leases_max > 0:
            self.frontier.grant(turn, leases_max)
            if self.sharing is not None:
                self.sharing.release_unused(turn, self.hosts.slot, self.frontier)
        if self.index.loading:
            self.index.step(turn)
        self._end(turn)
        return turn

    def committed(self, turn: Turn) -> None:
        """The turn is durable."""
        for slot in turn.touched.values():
            slot.queue.committed()
            slot.dirty = False
        self.hosts.drop_resting()
        if self.sharing is not None:
            self.sharing.drop_resting()

    def next_ms(self) -> int:
        """When a turn without events may have something to do."""
        if self.index.loading:
            return 0
        permits = NEVER_MS if self.sharing is None else self.sharing.next_ms()
        return min(self._expiries.next_ms(), permits, self.oversight.next_ms(), self.frontier.schedule.next_ms())

    def next_pending_ms(self, due_by_ms: int, until_ms: int) -> int:
        """When the next URL may be granted that is new, to be retried, or was due by `due_by_ms`; scans idle hosts.

        Looks no further than `until_ms`: later instants are told only as the next look of any host.
        """
        soon, later_ms = self.frontier.schedule.until(until_ms)
        heapq.heapify(soon)
        while soon:
            ready_ms, host_id_ = heapq.heappop(soon)
            slot = self.hosts.slot(host_id_)
            new, retry, _ = slot.state.queued
            if (
                new
                or retry
                or slot.state.hops
                or self.index.partial(slot)
                or self.frontier.revisit_due_ms(slot) <= due_by_ms
            ):
                return ready_ms
        return later_ms

    def refresh(self, queue_keys: Sequence[bytes], now_ms: int) -> Turn:
        """These entries (host_id ‖ tail) of resting URLs are due now."""
        turn = self._begin(now_ms)
        for entry in queue_keys:
            slot = self.hosts.slot(entry[:HOST_ID_BYTES])
            key = slot.host_id + entry[-URL_ID_BYTES:]
            row = self.frontier.row(turn, key)
            if (
                row is not None
                and key[HOST_ID_BYTES:] not in slot.rows
                and slot.host_id + row.place == entry[:-URL_ID_BYTES]
            ):
                requeue(turn, slot, key, row, QueueClass.REVISIT, AT_ONCE_MS)
        self._end(turn)
        return turn

    def allow_addresses(self, host_id_: bytes, keys: Sequence[bytes], now_ms: int) -> Turn:
        """Networks are allowed that were not: of these URLs (host_id ‖ url_id) those refused for it are due now."""
        turn = self._begin(now_ms)
        slot = self.hosts.slot(host_id_)
        if host_rules.forget_refusals(slot.state):
            turn.touch(slot)
        for key in keys:
            row = self.frontier.row(turn, key)
            if row is None or row.status is not Status.REFUSED or key[HOST_ID_BYTES:] in slot.rows:
                continue
            if row.visit is not None and row.visit.error == host_rules.PRIVATE_ADDRESS:
                requeue(turn, slot, key, row, QueueClass.REVISIT, AT_ONCE_MS)
        self._end(turn)
        return turn

    def load_index(self, now_ms: int) -> Turn:
        """Go on with loading the index, and do nothing else."""
        turn = self._begin(now_ms)
        self.index.step(turn)
        self._end(turn)
        return turn

    def reread(self, rows: Sequence[tuple[bytes, bytes]], now_ms: int, *, at_end: bool, tasks_max: int) -> Turn:
        """Go on with `rereading`, at rows (key, value) as they were committed; see `Rereading.step`."""
        turn = self._begin(now_ms)
        self.rereading.step(turn, rows, self.hosts, self.admission, at_end=at_end, tasks_max=tasks_max)
        self._end(turn)
        return turn

    def requeue_dead(self, keys: Sequence[bytes], now_ms: int) -> Turn:
        """These URLs (host_id ‖ url_id), given up before, are to be tried anew as new visits; their letters go."""
        turn = self._begin(now_ms)
        for key in keys:
            self._requeue_dead(turn, key)
        self._end(turn)
        return turn

    def set_scope(self, scope: Scope) -> None:
        """The scope grew: what was refused before may be admitted now, and is looked for in what lies stored."""
        self.admission.scope = scope
        self.memo.forget()
        self.rereading.meet(scope)

    # --- events ---------------------------------------------------------------------------------------------------

    def _handle(self, turn: Turn, event: Event) -> None:
        if isinstance(event, FetchResult):
            slot = self.hosts.named(event.host_key)
            if event.kind is Kind.ROBOTS:
                self.robots.result(turn, slot, event)
            else:
                self.completion.fetched(turn, slot, event)
            if self.sharing is not None:
                self.sharing.learn(turn, slot, event)
        elif isinstance(event, StoredResult):
            self.completion.stored(turn, self.hosts.named(event.host_key), event)
        elif isinstance(event, ParsedPage):
            self.completion.parsed(turn, self.hosts.named(event.host_key), event)
            for host_key_, batch in route(
                event, now_ms=turn.now_ms, follow_nofollow=self.policy.follow_nofollow
            ).items():
                self._admit_host(turn, host_key_, batch)
        elif isinstance(event, OwnerMessage):
            self._message(turn, event)
        elif isinstance(event, HostPolicy):
            self.oversight.change(turn, event, self.hosts)
        else:
            self._admit(turn, event)

    def _admit(self, turn: Turn, batch: Sequence[DiscoveredUrl]) -> None:
        by_host: dict[str, list[DiscoveredUrl]] = {}
        for found in batch:
            by_host.setdefault(found.host_key, []).append(found)
        for host_key_, urls in by_host.items():
            self._admit_host(turn, host_key_, urls)

    def _admit_host(self, turn: Turn, host_key_: str, batch: Sequence[DiscoveredUrl]) -> None:
        """URLs of one host; a host of which nothing is admitted is not made."""
        if self.oversight.policies.standings and self.oversight.refuses(turn, host_key_, len(batch)):
            return
        host_id_ = host_id(host_key_)
        slot = self.hosts.known(host_id_)
        if slot is None:
            passed = []
            for found in batch:
                reason = self.admission.refusal(found)
                if reason is None:
                    passed.append(found)
                else:
                    bump(turn.counts.refused, reason)
            if not passed:
                return
            batch = passed
            slot = self.hosts.slot(host_id_, host_key_)
        self.admission.admit(turn, slot, batch)

    def _settle_found(self, turn: Turn) -> None:
        """What deciding itself found: redirect targets and sitemaps. Chains end: a known target finds nothing more."""
        while turn.found or turn.messages:
            found, turn.found = turn.found, []
            messages, turn.messages = turn.messages, []
            if self._owns is not None:
                turn.found_elsewhere += [one for one in found if not self._owns(one.host_key)]
                turn.messages_elsewhere += [one for one in messages if not self._owns(one.to_key)]
                found = [one for one in found if self._owns(one.host_key)]
                messages = [one for one in messages if self._owns(one.to_key)]
            self._admit(turn, found)
            for message in messages:
                self._message(turn, message)

    def _watch(self, slot: HostSlot) -> None:
        """See to it that the host's leases are looked at when the first of them expires.

        A body that waits for the store expires late, a lease granted after it sooner: the entry moves up then.
        """
        earliest_ms = NEVER_MS
        for lease in slot.state.in_flight.values():
            if lease.expires_ms < earliest_ms:
                earliest_ms = lease.expires_ms
        if earliest_ms < NEVER_MS:
            self._expiries.watch(slot.host_id, earliest_ms)

    def _expire(self, turn: Turn) -> None:
        for host_id_ in self._expiries.pop(turn.now_ms):
            slot = self.hosts.slot(host_id_)
            for lease_id, lease in list(slot.state.in_flight.items()):
                if lease.expires_ms <= turn.now_ms:
                    self._lost(turn, slot, lease_id)
            self._watch(slot)

    def _lost(self, turn: Turn, slot: HostSlot, lease_id: bytes) -> None:
        lease = slot.state.in_flight[lease_id]
        turn.counts.lost += 1
        if lease.kind is Kind.ROBOTS:
            host_rules.return_token(slot.state, lease_id, turn.now_ms, self.policy)
            self.robots.lost(turn, slot, lease.robots_for)
            turn.touch(slot)
        else:
            self.completion.lost(turn, slot, lease_id)

    def _requeue_dead(self, turn: Turn, key: bytes) -> None:
        slot = self.hosts.known(key[:HOST_ID_BYTES])
        row = None if slot is None else self.frontier.row(turn, key)
        if slot is not None and row is not None and key[HOST_ID_BYTES:] not in slot.rows:
            row.failures = row.troubles = row.lost = 0
            requeue(turn, slot, key, row, QueueClass.RETRY, turn.now_ms)
        turn.writes.append((Family.DEAD, key, None))

    def _message(self, turn: Turn, message: OwnerMessage) -> None:
        if message.kind is OwnerMessageKind.REQUEUE:
            key = host_id(message.to_key) + url_id(message.url)
            if self._reads.get(Family.DEAD, key) is not None:  # else it was requeued already, or goes on by itself
                self._requeue_dead(turn, key)
            return
        if message.kind in PERMIT_MESSAGES:
            if self.sharing is not None:
                self.sharing.message(turn, message, self.hosts.named)
            return
        if message.kind is OwnerMessageKind.PARSED:
            self._parsed_elsewhere(turn, message)
            return
        self.robots.message(turn, self.hosts.named(message.to_key), message)

    def _parsed_elsewhere(self, turn: Turn, message: OwnerMessage) -> None:
        """A page whose links are routed elsewhere; one of a host that nobody knows says nothing."""
        page, slot = message.page, self.hosts.known(host_id(message.to_key))
        if page is None or slot is None:
            turn.counts.stale += 1
        else:
            self.completion.parsed(turn, slot, page)

    # --- the frame of a turn --------------------------------------------------------------------------------------

    def _begin(self, now_ms: int) -> Turn:
        self.now_ms = max(self.now_ms, now_ms)
        self.index.begin_turn()
        return Turn(self.now_ms)

    def _end(self, turn: Turn) -> None:
        """Gather the writes: each row and each host once, however often it changed."""
        if self.sharing is not None:
            self.sharing.settle(turn, turn.touched.values())
        self._settle_found(turn)
        writes = turn.writes
        self.oversight.record(turn)
        self.rereading.record(turn)
        self.index.record(turn)
        for slot in self.hosts.unwritten_templates():
            if slot.templates_unsaved:
                write_templates(turn, slot)
        if self.sharing is not None:
            self.sharing.record(turn)
        if self.frontier.budget.dirty:
            writes.append((Family.OWNER, BUDGET_KEY, self.frontier.budget.record()))
        for key, row in turn.dirty_rows.items():
            writes.append((Family.URL, key, encode_row(row)))
        self.frontier.ahead.changed(turn.dirty_rows)
        for slot in turn.changed.values():
            self.frontier.reschedule(slot, turn.now_ms)
        epoch = self.epoch
        for host_id_, slot in turn.touched.items():
            state = slot.state
            state.epoch = epoch
            if slot.new:
                slot.new = False
                self.totals.hosts += 1
            writes.append((Family.HOST, host_id_, encode_host(state)))
            if state.in_flight:
                self._watch(slot)
            else:  # nothing to expire: a look for it would load a host that rests
                self._expiries.forget(host_id_)
        self._add_totals(turn.known, turn.queued, turn.pages)

    def _add_totals(self, known: int, queued: Sequence[int], pages: int) -> None:
        totals = self.totals
        totals.known += known
        totals.queued_new += queued[0]
        totals.queued_retry += queued[1]
        totals.queued_revisit += queued[2]
        totals.pages += pages

    def _new_lease_id(self) -> bytes:
        self._sequence += 1
        return _LEASE_ID.pack(self._partition, self.epoch, self._sequence >> 32, self._sequence & 0xFFFFFFFF)
