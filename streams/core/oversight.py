"""What the operator's words do to the owner's hosts: at once to those in memory, in bounded steps to all others.

A host's override is derived, not remembered: whenever a host is loaded, it is made anew from the words that hold then,
so that a word on a million hosts is one write. What remains to be done after a word goes on in steps, a bounded number
of hosts or URLs a turn:

- sweep: after a word on several hosts, those at rest are looked at again, for one of them may be open now;
- drop: of a deleted host, URLs that were never fetched are forgotten, and those that were become tombstones, whose
  documents the index is told to forget. Bodies stay stored; nothing is granted unless the operator resumes the host,
  and what is found back then is read anew;
- lift: where a pattern blocks no longer, the URLs that were denied come up again at once.

None of it needs a record of its own: a new start finds the words, and with them what is still to be dropped.
"""

from __future__ import annotations

from collections.abc import Callable

from schemas.records import HostPolicy
from streams.core import hosts as host_rules
from streams.core import policy as bounds
from streams.core.active import Hosts
from streams.core.admit import AT_ONCE_MS, dequeue, requeue
from streams.core.complete import bury
from streams.core.frontier import Frontier
from streams.core.host_policy import Blocked, Change, Policies, is_host, matches
from streams.core.hosts import HostState, Override, decode_host
from streams.core.indexing import WITHDRAWING
from streams.core.memo import Memo
from streams.core.policy import CrawlPolicy
from streams.core.rows import HOST_ID_BYTES, PLACE_BYTES, QueueClass, Status
from streams.core.rules import revisit
from streams.core.rules.urls import host_id
from streams.core.turn import Family, HostSlot, Reads, Turn, bump

_Place = tuple[QueueClass, bytes]
"""Where a walk through a host's queues stands: (class, the last tail that was looked at)."""

_DROP_FROM: _Place = (QueueClass.NEW, b"")
_LIFT_FROM: _Place = (QueueClass.REVISIT, b"")
_REVISIT = bytes((QueueClass.REVISIT,))


class Oversight:
    """The operator's side of one owner."""

    def __init__(self, reads: Reads, policy: CrawlPolicy, memo: Memo) -> None:
        self.policies = Policies(reads.scan(Family.POLICY))
        self.blocked = Blocked()
        self._reads = reads
        self._policy = policy
        self._memo = memo
        self.on_partial: Callable[[HostSlot], None] = lambda slot: None  # a host is waited for until it is loaded
        self._sweeps: list[tuple[str, int]] = []  # (key, first byte of the host_ids that are looked at next)
        self._drops: dict[bytes, _Place] = {}
        self._lifts: dict[bytes, _Place] = {}

    def configure(self, now_ms: int) -> None:
        """The crawl's own configuration is a change, too, where it is another than in the run before."""
        self.policies.configure(self._policy.politeness, now_ms)

    # --- hosts as they come into memory ---------------------------------------------------------------------------

    def loaded(self, host_id_: bytes, host: HostState) -> None:
        """A host was read from what is durable, or is new: the words that hold now are laid over it."""
        before, delay_before_ms = host.override, host_rules.delay_ms(host, self._policy)
        if not self.policies.apply_to(host):
            return
        # It was set as an instant plus the delay of then.
        longer_ms = host_rules.delay_ms(host, self._policy) - delay_before_ms
        if host.next_allowed_ms:
            host.next_allowed_ms = max(0, host.next_allowed_ms + longer_ms)
        self._note(host_id_, host, before)

    def adopted(self, host_id_: bytes, host: HostState) -> None:
        """As `loaded`, at the start: a drop that was cut short goes on."""
        self.loaded(host_id_, host)
        if _is_deleted(host) and _is_to_drop(host):
            self._drops.setdefault(host_id_, _DROP_FROM)

    def refuses(self, turn: Turn, host_key: str, urls: int) -> bool:
        """Whether so many URLs of the host are not admitted, since it is deleted."""
        override = self.policies.override(host_key)
        if override is None or not override.deleted:
            return False
        turn.counts.refused["deleted"] = turn.counts.refused.get("deleted", 0) + urls
        return True

    def pauses(self) -> bool:
        """Whether some host waits for the operator, who may let it go on at any time."""
        return any(standing.word().paused for standing in self.policies.standings.values())

    # --- changes --------------------------------------------------------------------------------------------------

    def change(self, turn: Turn, policy: HostPolicy, hosts: Hosts) -> None:
        """An operator's change, at once for all hosts in memory. A repeated one changes nothing."""
        change = self.policies.change(policy, turn.now_ms)
        if change is None:
            return
        if change.error:
            bump(turn.counts.errors, "bad_policy")
        else:
            self._carry_out(turn, change, hosts)

    def step(self, turn: Turn, hosts: Hosts, frontier: Frontier) -> None:
        """Exceptions whose date has passed end; what is left to be done after earlier words goes on a step."""
        for change in self.policies.end_exceptions(turn.now_ms):
            self._carry_out(turn, change, hosts)
        if self._sweeps:
            self._sweep(turn, hosts, frontier)
        for slot in list(turn.touched.values()):
            if _is_deleted(slot.state):
                self._bury_results(turn, slot)
                if any(slot.state.queued[: QueueClass.REVISIT]):
                    self._drops.setdefault(slot.host_id, _DROP_FROM)  # a result put it back after the drop went by
        if self._drops:
            self._walk(turn, hosts, frontier, self._drops)
            self._memo.forget()
        if self._lifts:
            self._walk(turn, hosts, frontier, self._lifts)

    def next_ms(self) -> int:
        """When `step` has something to do; 0: at once."""
        return 0 if self.busy() else self.policies.next_end_ms

    def busy(self) -> bool:
        return bool(self._sweeps or self._drops or self._lifts)

    def record(self, turn: Turn) -> None:
        """What changed becomes durable with what was decided from it."""
        turn.writes += [(Family.POLICY, key, value) for key, value in self.policies.take_unwritten()]

    def _carry_out(self, turn: Turn, change: Change, hosts: Hosts) -> None:
        key = change.policy.host_key
        if is_host(key):
            slot = hosts.known(host_id(key))
            if slot is not None:
                self._refresh(turn, slot)
            return
        for slot in list(hosts.in_memory()):
            if matches(key, slot.state.host_key):
                self._refresh(turn, slot)
        self._sweeps.append((key, 0))

    def _refresh(self, turn: Turn, slot: HostSlot) -> None:
        """A host in memory, of which a word was said: other delays count from now on."""
        host = slot.state
        before, delay_before_ms = host.override, host_rules.delay_ms(host, self._policy)
        self.policies.apply_to(host)
        delay_ms = host_rules.delay_ms(host, self._policy)
        if delay_ms > delay_before_ms and host.fetches:
            host.next_allowed_ms = max(host.next_allowed_ms, turn.now_ms + delay_ms)
        elif delay_ms < delay_before_ms:
            host.next_allowed_ms = min(host.next_allowed_ms, turn.now_ms + delay_ms)
        self._note(slot.host_id, host, before)
        turn.touch(slot)

    def _note(self, host_id_: bytes, host: HostState, before: Override | None) -> None:
        """What is to be done in steps because a host's override is another than before."""
        override = host.override or Override()
        if override.deleted:
            if _is_to_drop(host):
                self._drops.setdefault(host_id_, _DROP_FROM)
        else:
            self._drops.pop(host_id_, None)
        if before is not None and set(before.blocked_patterns) - set(override.blocked_patterns):
            self._lifts[host_id_] = _LIFT_FROM

    # --- in steps -------------------------------------------------------------------------------------------------

    def _sweep(self, turn: Turn, hosts: Hosts, frontier: Frontier) -> None:
        """A 256th of all hosts at a time, or more while that is few."""
        key, first = self._sweeps[0]
        looked_at = 0
        while first < 256 and looked_at < bounds.SWEEP_HOSTS_MAX:
            for host_id_, raw in self._reads.scan(Family.HOST, bytes((first,))):
                looked_at += 1
                host = decode_host(raw)
                if host_id_ in hosts or not matches(key, host.host_key):
                    continue
                self.loaded(host_id_, host)
                if any(host.queued) or host.hops:
                    frontier.schedule.put(host_id_, turn.now_ms, 0, turn.now_ms)
            first += 1
        if first < 256:
            self._sweeps[0] = (key, first)
        else:
            del self._sweeps[0]

    def _walk(self, turn: Turn, hosts: Hosts, frontier: Frontier, walks: dict[bytes, _Place]) -> None:
        """A bounded number of URLs of the host that waits longest."""
        host_id_, (queue, after) = next(iter(walks.items()))
        slot = hosts.slot(host_id_)
        if host_id_ not in walks:
            return  # loading it showed that nothing is to be done any more
        if slot.loaded_to is not None:
            walks[host_id_] = walks.pop(host_id_)  # its queues are not all there yet: others first
            self.on_partial(slot)
            return
        tails = self._reads.queue(host_id_, queue, after, bounds.WALK_URLS_MAX)
        for tail in tails:
            if walks is self._drops:
                self._drop(turn, slot, frontier, tail)
            else:
                self._lift(turn, slot, frontier, tail)
        if len(tails) == bounds.WALK_URLS_MAX:
            walks[host_id_] = (queue, tails[-1])
        elif queue is not QueueClass.REVISIT:
            walks[host_id_] = (QueueClass(queue + 1), b"")
        else:
            del walks[host_id_]
            turn.touch(slot)

    def _drop(self, turn: Turn, slot: HostSlot, frontier: Frontier, tail: bytes) -> None:
        key = slot.host_id + tail[PLACE_BYTES:]
        row = frontier.row(turn, key)
        if row is None or row.place != tail[:PLACE_BYTES] or tail[PLACE_BYTES:] in slot.rows:
            return  # it moved in this turn, or its result is still to come
        if row.visit is None:
            dequeue(turn, slot, key, row)
            turn.rows[key] = None
            turn.dirty_rows.pop(key, None)
            turn.writes += [(Family.URL, key, None), (Family.SEEN, key, None)]
            slot.state.known -= 1
            turn.known -= 1
            slot.state.statuses[row.status] -= 1
            turn.touch(slot)
            return
        if tail[0] == QueueClass.RETRY:
            row.failures = row.troubles = row.attempt = 0
            due_ms = turn.now_ms + revisit.denied_interval_ms(self._policy)
            requeue(turn, slot, key, row, QueueClass.REVISIT, due_ms)
        bury(turn, slot, key, row)

    def _bury_results(self, turn: Turn, slot: HostSlot) -> None:
        """What was out as the host was deleted came back: the walk may be past its place."""
        for key, row in list(turn.dirty_rows.items()):
            is_leased = key[HOST_ID_BYTES:] in slot.rows
            if key.startswith(slot.host_id) and row.place[:1] == _REVISIT and row.visit is not None and not is_leased:
                bury(turn, slot, key, row)

    def _lift(self, turn: Turn, slot: HostSlot, frontier: Frontier, tail: bytes) -> None:
        key = slot.host_id + tail[PLACE_BYTES:]
        row = frontier.row(turn, key)
        if row is None or row.place != tail[:PLACE_BYTES] or tail[PLACE_BYTES:] in slot.rows:
            return
        if row.status is Status.DENIED:
            requeue(turn, slot, key, row, QueueClass.REVISIT, AT_ONCE_MS)


def _is_deleted(host: HostState) -> bool:
    return host.override is not None and host.override.deleted


def _is_to_drop(host: HostState) -> bool:
    """Whether a deleted host has URLs that are neither forgotten nor tombstones."""
    return any(host.queued[: QueueClass.REVISIT]) or any(
        number for status, number in enumerate(host.statuses) if status not in WITHDRAWING
    )
