"""Fetchers: they start a lease at most once, and never when it might have been started by another.

A fetcher acknowledges on receipt and starts only what lies at or above the log's end as read after its latest
assignment; it drops a lease past `start_by`, starts none before `not_before`, aborts at the duration limit, and once
its last good heartbeat is older than a session it starts nothing. What became of the lease goes through the crawl's own
rules (`streams.core.fetch`, `streams.core.robots_fetch`), header by header.
"""

from __future__ import annotations

from collections.abc import Callable

from schemas.records import FetchLease, FetchResult, Kind
from streams.core import fetch, robots_fetch
from streams.core import policy as bounds
from streams.core.http1 import Head
from streams.simulation.faults import Faults
from streams.simulation.loop import Loop
from streams.simulation.politeness_judge import PolitenessJudge
from streams.simulation.web import AGENT, Reply, Web

SESSION_MS = 10 * bounds.SECOND_MS
OFFSET_MS_MAX = bounds.CLOCK_SKEW_MS_MAX // 2  # from true time: so two workers differ by the bound at most

Finished = Callable[[FetchLease, FetchResult, Reply | None], None]


class Fetcher:
    """One process."""

    def __init__(
        self, name: str, loop: Loop, web: Web, judge: PolitenessJudge, faults: Faults, finished: Finished
    ) -> None:
        self.name = name
        self._loop, self._web, self._judge, self._faults = loop, web, judge, faults
        self._finished = finished
        self._random = loop.random(name)
        self._offset_ms = self._random.randint(-OFFSET_MS_MAX, OFFSET_MS_MAX)
        self._life = 0
        self._running: dict[bytes, FetchLease] = {}
        self._heartbeat_ms: int | None = None  # the last good one, while there are no others
        self._stopped_until_ms = 0
        self.taken = 0  # leases received and not finished

    def clock(self) -> int:
        return self._loop.now_ms + self._offset_ms

    # --- a process's life ------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Its connections are cut; nothing of it goes on."""
        self._life += 1
        for lease in self._running.values():
            self._judge.ended(lease, self._loop.now_ms, None)
        self._running.clear()
        self._stopped_until_ms, self._heartbeat_ms, self.taken = 0, None, 0
        self._offset_ms = self._random.randint(-OFFSET_MS_MAX, OFFSET_MS_MAX)

    def stop(self, for_ms: int) -> int:
        """As by SIGSTOP. Returns when the coordinator will give its work to another, unless it is back before."""
        self._heartbeat_ms = self._loop.now_ms - self._random.randrange(3_000)
        self._stopped_until_ms = self._loop.now_ms + for_ms
        self._loop.at(self._stopped_until_ms, self._woken, self._life)
        return self._heartbeat_ms + SESSION_MS

    def _woken(self, life: int) -> None:
        if life == self._life and self._loop.now_ms - (self._heartbeat_ms or 0) < SESSION_MS:
            self._heartbeat_ms = None  # it is still a member: heartbeats go on

    def rejoin(self) -> None:
        """A member again, by an assignment of now."""
        self._heartbeat_ms = None

    # --- a lease ---------------------------------------------------------------------------------------------------

    def take(self, lease: FetchLease) -> None:
        self.taken += 1
        wait_ms = self._random.randrange(10)
        if self._faults.hit("lease_late"):
            wait_ms = self._random.randrange(40_000, 75_000)
        if self._faults.hit("fetcher_clock_jump"):
            self._offset_ms = self._random.randint(-OFFSET_MS_MAX, OFFSET_MS_MAX)
        self._loop.after(wait_ms, self._start, self._life, lease)

    def _start(self, life: int, lease: FetchLease) -> None:
        loop = self._loop
        if life != self._life:
            return
        if loop.now_ms < self._stopped_until_ms:
            loop.at(self._stopped_until_ms, self._start, life, lease)
            return
        if self._heartbeat_ms is not None and loop.now_ms - self._heartbeat_ms >= SESSION_MS:
            self.taken -= 1
            return
        now_ms = self.clock()
        if now_ms > lease.start_by_ms:
            self._finish(lease, fetch.expired(lease, now_ms=now_ms), None)
            return
        if now_ms < lease.not_before_ms:
            loop.after(lease.not_before_ms - now_ms, self._start, life, lease)
            return
        address = self._web.address(lease.host_key, loop.now_ms)
        if lease.permitted_address is not None and address != lease.permitted_address:
            self._faults.count("address_changed")
            self._finish(lease, fetch.address_changed(lease, address, now_ms=now_ms), None)
            return
        reply = self._web.answer(lease, loop.now_ms)
        if reply.reached:
            self._judge.started(lease, address, loop.now_ms)
            self._running[lease.lease_id] = lease
        loop.note(lease.host_key, f"{self.name} asks {lease.url} ({lease.kind.value})")
        took_ms = min(reply.takes_ms, lease.duration_ms_max)
        loop.after(took_ms, self._end, life, lease, reply, now_ms)

    def _end(self, life: int, lease: FetchLease, reply: Reply, started_ms: int) -> None:
        if life != self._life:
            return
        cut = reply.takes_ms > lease.duration_ms_max
        if self._running.pop(lease.lease_id, None) is not None:
            self._judge.ended(lease, self._loop.now_ms, None if cut or reply.failure else reply)
        if cut:
            reply = Reply(lease.duration_ms_max, status=0, failure="timeout")
        self._report(life, lease, reply, started_ms)

    def _report(self, life: int, lease: FetchLease, reply: Reply, started_ms: int) -> None:
        if life != self._life:
            return
        if self._loop.now_ms < self._stopped_until_ms:
            self._loop.at(self._stopped_until_ms, self._report, life, lease, reply, started_ms)
            return
        self._finish(lease, self._result(lease, reply, started_ms), reply)

    def _finish(self, lease: FetchLease, result: FetchResult, reply: Reply | None) -> None:
        self.taken -= 1
        self._loop.note(lease.host_key, f"{self.name} has {result.outcome.value} {result.status} of {lease.url}")
        self._finished(lease, result, reply)

    def _result(self, lease: FetchLease, reply: Reply, started_ms: int) -> FetchResult:
        head = None if reply.failure else Head(reply.status, "", "1.1", reply.headers)
        exchange = fetch.Exchange(
            started_ms=started_ms,
            finished_ms=max(started_ms, self.clock()),
            failure=reply.failure,
            address=self._web.address(lease.host_key, self._loop.now_ms) if reply.reached else "",
            head=head,
            body=reply.body,
            wire_bytes=len(reply.body),
        )
        result = fetch.outcome(lease, exchange, conditional=bool(lease.etag))
        if lease.kind is not Kind.ROBOTS:
            return result
        answer, target = robots_fetch.decide(
            0 if head is None else head.status,
            reply.failure,
            reply.headers,
            reply.body,
            request_url=lease.url,
            hops_so_far=lease.redirect_hops,
            product_token=AGENT,
        )
        return fetch.with_robots(result, answer, target)
