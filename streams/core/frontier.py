"""FRONTIER: who may be asked next, and for what. The only place that makes leases.

Two levels. Hosts wait in a heap by the instant at which the frontier looks at them again; those whose instant has come
stand in a second heap, by that instant plus a handicap for the rank of their best URL: the valuable go first, and since
the handicap is bounded nobody waits for ever. Each host has its back queues (`streams.core.backqueue`).

A host is looked at again after every change (`reschedule`), and `scheduled` holds the one entry that counts; other
entries of the heaps are stale and dropped when they surface. Hosts that rest are not kept in memory: their entry is.
"""

from __future__ import annotations

from collections.abc import Callable

from schemas.records import FetchLease, Kind
from streams.core import policy as bounds
from streams.core.active import Hosts
from streams.core.admit import change_status, requeue
from streams.core.ahead import ReadAhead
from streams.core.budget import Budget
from streams.core.hosts import (
    NEVER_MS,
    HostState,
    InFlight,
    all_out,
    concurrency,
    open_ms,
    take_token,
)
from streams.core.policy import CrawlPolicy
from streams.core.robots_fetch import changes_at_ms, usable
from streams.core.rows import (
    PLACE_BYTES,
    QueueClass,
    Status,
    UrlRow,
    decode_row,
    due_ms_of,
    rank_of,
)
from streams.core.rules import revisit
from streams.core.rules.robots import RobotsRules
from streams.core.rules.urls import url_id
from streams.core.schedule import Schedule
from streams.core.sharing import Sharing
from streams.core.turn import Family, HostSlot, Reads, Turn

_QUEUES = tuple(int(queue) for queue in QueueClass)
_NEW, _RETRY, _REVISIT = _QUEUES  # numbers: a member of an enum is looked up at each use


class Frontier:
    """Grants leases for the hosts of one owner."""

    def __init__(
        self,
        reads: Reads,
        hosts: Hosts,
        policy: CrawlPolicy,
        *,
        epoch: int,
        new_lease_id: Callable[[], bytes],
        allowed: Callable[[HostState, str], bool],
        leaves_out: Callable[[str, UrlRow], str | None],
        load: Callable[[Turn, HostSlot], None] = lambda turn, slot: None,
    ) -> None:
        """`new_lease_id`: 16 bytes, never twice. `allowed`: host and URL → not blocked by the operator.

        `leaves_out`: host_key and row → why it is not in scope (any more), or None. `load`: the index of a host that
        it has only in part goes on to be loaded.
        """
        self.schedule = Schedule()
        self._reads = reads
        self._hosts = hosts
        self._policy = policy
        self._epoch = epoch
        self._new_lease_id = new_lease_id
        self._allowed = allowed
        self._leaves_out = leaves_out
        self._load = load
        self.ahead = ReadAhead()
        self.budget = Budget(policy.budget)
        self.sharing: Sharing | None = None  # while addresses or domains have limits of their own

    def grant(self, turn: Turn, leases_max: int) -> int:
        """Grant up to so many leases, the best hosts first. Returns how many."""
        granted = 0
        looked_at = 0
        counts = turn.counts
        settled_max = counts.denied + counts.put_off + bounds.DENIED_PER_TURN_MAX
        while (
            granted < leases_max
            and looked_at < leases_max + bounds.GROUP_EVENTS_MAX
            and counts.denied + counts.put_off < settled_max
        ):
            host_id_ = self.schedule.pop(turn.now_ms)
            if host_id_ is None:
                break
            looked_at += 1
            ready_ms = self.schedule.popped_ready_ms
            slot = self._hosts.slot(host_id_)
            rank = slot.state.rank
            in_part = slot.loaded_to is not None
            if in_part:
                self._load(turn, slot)
            # It was ready when it was scheduled and has not changed since; time alone closes a host only by the day.
            if (
                open_ms(slot.state, turn.now_ms, self._policy) <= turn.now_ms
                # One that is loaded in part is looked at in every turn: it asks for no permit until something is due.
                and (not in_part or self.ready(slot, turn.now_ms)[0] <= turn.now_ms)
                and (self.sharing is None or self.sharing.admit(turn, slot))
                and self._grant_one(turn, slot)
            ):
                granted += 1
                turn.waits.append((rank, turn.now_ms - ready_ms))
                if all_out(slot.state, self._policy):  # as after most grants: it comes back with a result
                    slot.state.ready_ms = NEVER_MS
                    turn.changed.pop(host_id_, None)
                    continue
            self.reschedule(slot, turn.now_ms)
            turn.changed.pop(host_id_, None)
        turn.counts.granted += granted
        return granted

    def reschedule(self, slot: HostSlot, now_ms: int) -> None:
        """After any change of the host: when does the frontier look at it again?"""
        ready_ms, rank = self.ready(slot, now_ms)
        if self.sharing is not None and ready_ms < NEVER_MS:
            ready_ms = self.sharing.open_ms(slot, ready_ms, now_ms)
        slot.state.ready_ms, slot.state.rank = ready_ms, rank
        self.schedule.put(slot.host_id, ready_ms, rank, now_ms)

    def ready(self, slot: HostSlot, now_ms: int) -> tuple[int, int]:
        """(when a lease may be granted, rank of what would be granted); NEVER_MS when only an event can tell."""
        host = slot.state
        opened = open_ms(host, now_ms, self._policy)
        if opened >= NEVER_MS:
            return NEVER_MS, 0
        if host.hops:
            return opened, 0
        if not any(host.queued):
            return NEVER_MS, 0
        due_ms, rank = self._best(slot, now_ms)
        if slot.loaded_to is not None and due_ms > now_ms:
            return max(opened, now_ms + 1), 0  # what is not loaded yet may be due: look at it again in the next turn
        if due_ms >= NEVER_MS:
            return NEVER_MS, 0
        opened = max(opened, due_ms)  # robots.txt too is asked only when there is something to ask the host for
        word = self.robots_word(slot, max(now_ms, opened))
        if word in ("ask", "disallow_all"):
            if _asks_robots(host):
                return NEVER_MS, 0
            opened = max(opened, host.robots_wait_ms)
            if word == "disallow_all" and host.robots is not None:
                opened = max(opened, changes_at_ms(host.robots, max(now_ms, opened)))
        return opened, rank

    def revisit_due_ms(self, slot: HostSlot) -> int:
        """When the first known URL of the host is due again; NEVER_MS when none is."""
        tail = self._head(slot, QueueClass.REVISIT)
        return NEVER_MS if tail is None else due_ms_of(tail)

    def robots_word(self, slot: HostSlot, now_ms: int) -> str:
        if not self._policy.politeness.respect_robots:
            return "allow_all"
        robots = slot.state.robots
        return "ask" if robots is None else usable(robots, now_ms)

    def _best(self, slot: HostSlot, now_ms: int) -> tuple[int, int]:
        """(due instant, rank) of the entry that would be granted first; 0 is due now."""
        state = slot.state
        queued, head = state.queued, slot.queue.head
        reads, host_id_, rows = self._reads.queue, slot.host_id, slot.rows
        closed_until_ms = self.budget.closed_until_ms
        best_due, best_rank = NEVER_MS, 0xFFFF
        for queue in _QUEUES:
            if not queued[queue] or (queue == _REVISIT and best_due < state.revisit_ms > now_ms):
                continue
            if queue == _NEW and not rows and slot.queue.unscanned(_NEW):
                # A host that was just loaded to admit into: its queue is read when its turn comes, not before.
                pushed = slot.queue.pushed(_NEW)
                best_due = closed_until_ms[_NEW] if closed_until_ms[_NEW] > now_ms else 0
                best_rank = state.rank if pushed is None else min(state.rank, rank_of(pushed))
                continue
            tail = head(queue, reads, host_id_, rows)
            if tail is not None:
                due_ms = due_ms_of(tail) if queue else 0
                if queue == _REVISIT:
                    state.revisit_ms = due_ms
                if closed_until_ms[queue] > due_ms:
                    due_ms = closed_until_ms[queue]
                if due_ms <= now_ms:
                    due_ms = 0
                if due_ms < best_due:
                    best_due, best_rank = due_ms, rank_of(tail)
                elif due_ms == best_due:
                    best_rank = min(best_rank, rank_of(tail))
        return best_due, best_rank

    def _head(self, slot: HostSlot, queue: int) -> bytes | None:
        if not slot.state.queued[queue]:
            return None
        return slot.queue.head(queue, self._reads.queue, slot.host_id, slot.rows)

    def _choose(self, slot: HostSlot, now_ms: int) -> bytes | None:
        """The entry to be granted now: retries first, then new and due known URLs by their shares."""
        state, closed_until_ms = slot.state, self.budget.closed_until_ms
        if state.queued[_RETRY] and closed_until_ms[_RETRY] <= now_ms:
            retry = self._head(slot, _RETRY)
            if retry is not None and due_ms_of(retry) <= now_ms:
                return retry
        new = self._head(slot, _NEW) if closed_until_ms[_NEW] <= now_ms else None
        known = None
        if state.revisit_ms <= now_ms and closed_until_ms[_REVISIT] <= now_ms:
            known = self._head(slot, _REVISIT)
        if known is None or due_ms_of(known) > now_ms:
            return new
        if new is None:
            return known
        slot.revisit_credit += self._policy.revisit_share
        if slot.revisit_credit < 1.0:
            return new
        slot.revisit_credit -= 1.0
        return known

    def _grant_one(self, turn: Turn, slot: HostSlot) -> bool:
        """A hop for another host and the host's own work take turns, so that neither waits for the end of the other."""
        host = slot.state
        if host.hops and not slot.hop_was_last:
            self._lease_hop(turn, slot)
            return True
        if self._grant_own(turn, slot):
            slot.hop_was_last = False
            return True
        if host.hops:
            self._lease_hop(turn, slot)
            return True
        return False

    def _grant_own(self, turn: Turn, slot: HostSlot) -> bool:
        host = slot.state
        word = self.robots_word(slot, turn.now_ms)
        if word == "disallow_all":
            return False
        if word == "ask" and (host.robots_wait_ms > turn.now_ms or _asks_robots(host)):
            return False
        for _ in range(bounds.DENIED_PER_STEP_MAX):
            tail = self._choose(slot, turn.now_ms)
            if tail is None:
                return False
            key = slot.host_id + tail[PLACE_BYTES:]
            row = self._queued_row(turn, slot, tail[0], key)
            assert row is not None, (host.host_key, tail.hex())
            assert row.place == tail[:PLACE_BYTES], (row.url, row.place.hex(), tail.hex())
            if self._leaves_out(host.host_key, row) is not None:
                turn.counts.put_off += 1
                self._put_off(turn, slot, key, row, Status.OUT_OF_SCOPE, self._policy.revisit_ms_max)
                continue
            if word == "ask":  # only now: a host that has nothing due is not asked for its robots.txt
                self._lease_robots(turn, slot, url=host.host_key + "/robots.txt", hops=0, robots_for="")
                return True
            if (word == "rules" and not self.rules(slot).allows(row.url)) or not self._allowed(host, row.url):
                self._deny(turn, slot, key, row)
            else:
                self._lease_url(turn, slot, tail, row)
                return True
        return False

    def _deny(self, turn: Turn, slot: HostSlot, key: bytes, row: UrlRow) -> None:
        turn.counts.denied += 1
        self._put_off(turn, slot, key, row, Status.DENIED, revisit.denied_interval_ms(self._policy))

    def _put_off(self, turn: Turn, slot: HostSlot, key: bytes, row: UrlRow, status: Status, interval_ms: int) -> None:
        """Settle a URL that may not be asked, at no cost to the site: it comes up again when rules may have changed."""
        slot.queue.pop(row.place[0])
        change_status(turn, slot, key, row, status)
        requeue(turn, slot, key, row, QueueClass.REVISIT, turn.now_ms + interval_ms)

    def _lease_url(self, turn: Turn, slot: HostSlot, tail: bytes, row: UrlRow) -> None:
        slot.queue.pop(tail[0])
        if self.budget.limited:
            self.budget.spend(QueueClass(tail[0]), turn.now_ms)
        host = slot.state
        version = row.version if row.attempt else row.version + 1
        visit = row.visit
        in_flight = InFlight(
            url_id=tail[PLACE_BYTES:],
            url_version=version,
            attempt=row.attempt,
            kind=row.kind,
            granted_ms=turn.now_ms,
            expires_ms=self._expires_ms(turn.now_ms),
            place=row.place,
        )
        slot.rows[in_flight.url_id] = row
        if host.robots is not None and host.robots.copy is not None:
            turn.robots_ages_ms.append(turn.now_ms - host.robots.fetched_ms)
        conditional = visit is not None and visit.content is not None
        self._emit(
            turn,
            slot,
            in_flight,
            row.url,
            depth=row.depth,
            redirect_hops=row.redirect_hops,
            etag=visit.etag if conditional and visit is not None else None,
            last_modified=visit.last_modified if conditional and visit is not None else None,
        )
        assert host.in_flight

    def _lease_hop(self, turn: Turn, slot: HostSlot) -> None:
        host = slot.state
        hop, host.hops = host.hops[0], host.hops[1:]
        slot.hop_was_last = True
        self._lease_robots(turn, slot, url=hop.url, hops=hop.hops, robots_for=hop.asker)

    def _lease_robots(self, turn: Turn, slot: HostSlot, *, url: str, hops: int, robots_for: str) -> None:
        in_flight = InFlight(
            url_id=url_id(url),
            url_version=0,
            attempt=0,
            kind=Kind.ROBOTS,
            granted_ms=turn.now_ms,
            expires_ms=self._expires_ms(turn.now_ms),
            robots_for=robots_for,
            url=url,
            hops=hops,
        )
        self._emit(turn, slot, in_flight, url, redirect_hops=hops, robots_for=robots_for)

    def _expires_ms(self, now_ms: int) -> int:
        """start_by plus the duration limit plus the largest clock skew."""
        return now_ms + bounds.LEASE_START_MS_MAX + self._policy.duration_ms_max + bounds.CLOCK_SKEW_MS_MAX

    def _emit(
        self,
        turn: Turn,
        slot: HostSlot,
        in_flight: InFlight,
        url: str,
        *,
        depth: int = 0,
        redirect_hops: int = 0,
        etag: str | None = None,
        last_modified: str | None = None,
        robots_for: str = "",
    ) -> None:
        """Charge the host and hand out the lease: one atomic step."""
        host = slot.state
        lease_id = self._new_lease_id()
        take_token(host, lease_id, in_flight, turn.now_ms, self._policy)
        permitted = None if self.sharing is None else self.sharing.use(slot, lease_id, turn.now_ms)
        turn.touch(slot)
        turn.leases.append(
            FetchLease(
                lease_id=lease_id,
                host_key=host.host_key,
                url_id=in_flight.url_id,
                url=url,
                url_version=in_flight.url_version,
                kind=in_flight.kind,
                attempt=in_flight.attempt,
                policy_version=host.policy_version,
                owner_epoch=self._epoch,
                not_before_ms=turn.now_ms,
                start_by_ms=turn.now_ms + bounds.LEASE_START_MS_MAX,
                duration_ms_max=self._policy.duration_ms_max,
                depth=depth,
                redirect_hops=redirect_hops,
                etag=etag,
                last_modified=last_modified,
                robots_for=robots_for,
                permitted_address=permitted,
                concurrency=concurrency(host, self._policy),
                delay_ms=in_flight.delay_ms,
            )
        )

    def rules(self, slot: HostSlot) -> RobotsRules:
        """The host's rules for our user agent, read once."""
        if slot.rules is None:
            raw = self._reads.get(Family.RULES, slot.host_id)
            slot.rules = RobotsRules() if raw is None else RobotsRules.decode(raw)
        return slot.rules

    def _queued_row(self, turn: Turn, slot: HostSlot, queue: int, key: bytes) -> UrlRow | None:
        """The row of the head of a queue, as this turn sees it; those that come next are read with it."""
        row = turn.rows.get(key)
        if row is not None:
            return row
        raw = self.ahead.take(key)
        if raw is None:
            host_id_, dirty = slot.host_id, turn.dirty_rows
            keys = [host_id_ + tail[PLACE_BYTES:] for tail in slot.queue.next_in(queue, bounds.AHEAD_URLS)]
            keys = sorted(one for one in keys if one not in dirty)
            found = self._reads.rows(keys)
            self.ahead.keep(keys, found)
            raw = self.ahead.take(key)
        row = turn.rows[key] = None if raw is None else decode_row(raw)
        return row

    def row(self, turn: Turn, key: bytes) -> UrlRow | None:
        """A row as this turn sees it."""
        if key in turn.rows:
            return turn.rows[key]
        raw = self._reads.rows([key])[0]
        row = None if raw is None else decode_row(raw)
        turn.rows[key] = row
        return row


def _asks_robots(host: HostState) -> bool:
    return any(lease.kind is Kind.ROBOTS for lease in host.in_flight.values())
