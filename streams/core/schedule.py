"""When the frontier looks at which host again: the two heaps of `streams.core.frontier`."""

from __future__ import annotations

import heapq

from streams.core import policy as bounds
from streams.core.hosts import NEVER_MS

HANDICAP_MS_MAX = 10 * bounds.MINUTE_MS  # of the least valuable URL against the most valuable
COLD_MS = 3 * bounds.MINUTE_MS  # handicap of a host that is not in memory, against one that is
_COLD = 0x10000  # the bit above a rank's that says so


class Schedule:
    """The two heaps of hosts."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, bytes]] = []  # (ready_ms, host_id)
        self._ready: list[tuple[int, int, bytes]] = []  # (ready_ms + handicap, ready_ms, host_id)
        self.scheduled: dict[bytes, tuple[int, int]] = {}  # host_id → (ready_ms, rank, with _COLD where that is so)

    def put(self, host_id_: bytes, ready_ms: int, rank: int, now_ms: int, *, cold: bool = False) -> None:
        """A host that could have been asked long ago had nothing to be asked for: it queues up from now on.

        Otherwise each new host, which waits for nothing, would go before all that have been asked before.
        """
        if ready_ms >= NEVER_MS:
            self.scheduled.pop(host_id_, None)
            return
        if cold:
            rank |= _COLD
        before = self.scheduled.get(host_id_)
        if ready_ms < now_ms:
            ready_ms = before[0] if before is not None and before[0] < now_ms else now_ms
        if before != (ready_ms, rank):
            self.scheduled[host_id_] = (ready_ms, rank)
            heapq.heappush(self._waiting, (ready_ms, host_id_))

    def cool(self, host_id_: bytes) -> None:
        """The host is not in memory any more: while there are more ready hosts than can be asked, others go first.

        Loading a host costs as much as several grants, so those at hand are asked for some of their URLs before the
        next ones are fetched; the handicap is bounded, so none waits for ever (BUbING's workbench does the same).
        """
        entry = self.scheduled.get(host_id_)
        if entry is not None:
            self.scheduled[host_id_] = (entry[0], entry[1] | _COLD)

    def pop(self, now_ms: int) -> bytes | None:
        """The best host whose time has come, or None."""
        waiting, ready, scheduled = self._waiting, self._ready, self.scheduled
        while waiting and waiting[0][0] <= now_ms:
            ready_ms, host_id_ = heapq.heappop(waiting)
            entry = scheduled.get(host_id_)
            if entry is not None and entry[0] == ready_ms:
                rank = entry[1]
                behind_ms = (rank & 0xFFFF) * HANDICAP_MS_MAX // 0x10000 + (COLD_MS if rank & _COLD else 0)
                heapq.heappush(ready, (ready_ms + behind_ms, ready_ms, host_id_))
        while ready:
            _, ready_ms, host_id_ = heapq.heappop(ready)
            entry = scheduled.get(host_id_)
            if entry is not None and entry[0] == ready_ms:
                del scheduled[host_id_]
                return host_id_
        return None

    def until(self, until_ms: int) -> tuple[list[tuple[int, bytes]], int]:
        """((instant, host_id) of the hosts that come up by then, in no order; the first instant after it)."""
        soon: list[tuple[int, bytes]] = []
        later_ms = NEVER_MS
        for host_id_, (ready_ms, _) in self.scheduled.items():
            if ready_ms <= until_ms:
                soon.append((ready_ms, host_id_))
            elif ready_ms < later_ms:
                later_ms = ready_ms
        return soon, later_ms

    def sizes(self, now_ms: int) -> tuple[int, int]:
        """(hosts that could be asked now, hosts that wait for an instant)."""
        ready = len(self._ready)
        if self._waiting and self._waiting[0][0] <= now_ms:
            ready += 1
        return ready, max(0, len(self.scheduled) - ready)

    def next_ms(self) -> int:
        """When a host is ready at the earliest: not after any host's true instant."""
        if self._ready:
            return self._ready[0][1]
        while self._waiting:
            ready_ms, host_id_ = self._waiting[0]
            entry = self.scheduled.get(host_id_)
            if entry is not None and entry[0] == ready_ms:
                return ready_ms
            heapq.heappop(self._waiting)
        return NEVER_MS
