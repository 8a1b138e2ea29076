"""Does the crawl flow? Nobody starves, no queue grows beyond its bound, nothing stands still while there is work.

Only time with capacity counts: while an owner was there and had room for leases. `open` and `shut` tell of it.
"""

from __future__ import annotations

from schemas.records import FetchLease, Kind
from streams.core import policy as bounds
from streams.core.policy import CrawlPolicy
from streams.core.rows import HOST_ID_BYTES, QueueClass, decode_row, due_ms_of
from streams.core.rules.urls import host_id
from streams.core.turn import Family
from streams.simulation.loop import START_MS, Violation
from streams.simulation.politeness_judge import PolitenessJudge
from streams.simulation.store import Store

HIGH_PRIORITY = 200  # seeds and sitemaps
SLOWEST = 64  # a host in trouble goes at no less than a sixty-fourth of its pace
IDLE_MS_MAX = 20 * bounds.MINUTE_MS


class FlowJudge:
    """Raises `Violation`; keeps the lags of the high-priority URLs for the report."""

    def __init__(self, policy: CrawlPolicy, politeness: PolitenessJudge, *, leases_max: int, parses_max: int) -> None:
        self._policy, self._politeness = policy, politeness
        self._leases_max, self._parses_max = leases_max, parses_max
        self._shut: list[tuple[int, int]] = []  # (from, to) of times without capacity
        self._shut_ms: int | None = START_MS  # since when there is none
        self._asked: dict[str, int] = {}  # host → when its last lease was granted
        self.lags_ms: list[int] = []
        self.slowed = 0  # high-priority leases of hosts that go at a fraction of their pace, after trouble

    # --- capacity --------------------------------------------------------------------------------------------------

    def capacity(self, there: bool, now_ms: int) -> None:
        """Whether a lease could be granted from now on."""
        if there and self._shut_ms is not None:
            if now_ms > self._shut_ms:
                self._shut.append((self._shut_ms, now_ms))
            self._shut_ms = None
        elif not there and self._shut_ms is None:
            self._shut_ms = now_ms

    def _open_ms(self, since_ms: int, now_ms: int) -> int:
        """Time with capacity between two instants."""
        open_ms = now_ms - since_ms
        if self._shut_ms is not None:
            open_ms -= now_ms - max(since_ms, self._shut_ms)
        for from_ms, to_ms in reversed(self._shut):
            if to_ms <= since_ms:
                break
            open_ms -= to_ms - max(since_ms, from_ms)
        return open_ms

    # --- what is told ----------------------------------------------------------------------------------------------

    def granted(self, lease: FetchLease, store: Store, now_ms: int) -> None:
        """Before the commit of the grant: how long had the URL been due, and its host open for it?"""
        self._asked[lease.host_key] = now_ms
        if lease.kind is Kind.ROBOTS:
            return
        key = host_id(lease.host_key)
        raw = store.get(Family.URL, key + lease.url_id)
        if raw is None:
            return
        row = decode_row(raw)
        if row.priority < HIGH_PRIORITY or not row.place:
            return
        at_its_pace, *waits_ms = store.waits(key)
        if not at_its_pace:
            self.slowed += 1
            return
        since_ms = max(row.discovered_ms, due_ms_of(row.place), *waits_ms)
        self.lags_ms.append(max(0, self._open_ms(min(since_ms, now_ms), now_ms)))

    def bounded(self, leases: int, parses: int) -> None:
        """What is out and what waits: leases to be fetched, bodies to be parsed."""
        if leases > self._leases_max:
            raise Violation("bounded queues", f"{leases} leases are out, not {self._leases_max}")
        if parses > self._parses_max + self._leases_max:  # those that were out when the bound was reached
            raise Violation("bounded queues", f"{parses} bodies wait to be parsed")

    def look(self, store: Store, now_ms: int) -> None:
        """Whether any host has work that could be done and is not."""
        for key, state in store.host_states():
            if state.in_flight or (state.override is not None and (state.override.paused or state.override.deleted)):
                continue
            since_ms = self._work_since(store, key, now_ms)
            if since_ms is None:
                continue
            seen = self._politeness.host(state.host_key)
            day, day_ms = now_ms // bounds.DAY_MS, now_ms % bounds.DAY_MS
            if seen.granted[day] >= self._policy.politeness.budget_per_day - 2:
                continue
            since_ms = max(since_ms, self._asked.get(state.host_key, 0), seen.quiet_until_ms)
            idle_ms = self._open_ms(since_ms, now_ms) if since_ms < now_ms else 0
            if seen.granted[day - 1] >= self._policy.politeness.budget_per_day - 2:
                idle_ms = min(idle_ms, day_ms)
            if idle_ms > self._idle_ms_max(state.host_key):
                raise Violation("starvation", f"work and leave to do it for {idle_ms // 1_000} s", state.host_key)

    def _work_since(self, store: Store, key: bytes, now_ms: int) -> int | None:
        """Since when the first of the host's queues has had something due; None when nothing is."""
        due = []
        for queue in QueueClass:
            for tail in store.queue(key, queue, b"", 1):
                raw = store.get(Family.URL, key[:HOST_ID_BYTES] + tail[-16:])
                found_ms = 0 if raw is None else decode_row(raw).discovered_ms
                due.append(max(due_ms_of(tail), found_ms))
        return min(due) if due and min(due) <= now_ms else None

    def _idle_ms_max(self, host_key: str) -> int:
        """By the host's own policy, and the longest backoff: robots.txt that cannot be had is tried once an hour."""
        seen = self._politeness.host(host_key)
        copies = seen.copies
        delay_ms = max(self._politeness.delay_ms(seen, 1 << 62), copies[-1].rules.crawl_delay_ms if copies else 0)
        longest_ms = IDLE_MS_MAX + delay_ms * SLOWEST + max(bounds.ROBOTS_RETRY_MS, bounds.BACKOFF_MS_MAX)
        if self._politeness.limits:  # others of its group may be slow
            longest_ms += bounds.HOUR_MS
        if seen.hopped:  # its robots.txt is another host's, and waits for that one's leave, and so on
            longest_ms *= bounds.ROBOTS_HOPS_MAX
        return longest_ms
