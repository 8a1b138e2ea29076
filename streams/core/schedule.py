"""When the frontier looks at which host again: the two levels of `streams.core.frontier`.

Both are queues of buckets: hosts that share an instant lie in one list, and only the instants lie in a heap. Results
come in groups, so many hosts come up at the same millisecond, and a heap of hosts would cost three times as much.
"""

from __future__ import annotations

import heapq

from streams.core import policy as bounds
from streams.core.hosts import NEVER_MS

HANDICAP_MS_MAX = 5 * bounds.MINUTE_MS  # of the least valuable URL against the most valuable; less than COLD_MS
COLD_MS = 6 * bounds.MINUTE_MS  # handicap of a host that is not in memory, against one that is
_COLD = 0x10000  # the bit above a rank's that says so


class Schedule:
    """Hosts that wait for their instant, and hosts whose instant has come."""

    def __init__(self) -> None:
        self.scheduled: dict[bytes, tuple[int, int]] = {}  # host_id → (ready_ms, rank, with _COLD where that is so)
        self._waiting: dict[int, list[bytes]] = {}  # by ready_ms
        self._instants: list[int] = []  # heap of the keys of `_waiting`
        self._ready: dict[int, list[tuple[int, bytes]]] = {}  # (ready_ms, host_id) by ready_ms + handicap
        self._places: list[int] = []  # heap of the keys of `_ready`
        self.popped_ready_ms = 0  # of the host that `pop` gave last: since when it could have been asked
        self._ready_count = 0  # entries in `_ready`, stale ones among them

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
        entry = (ready_ms, rank)
        if before == entry:
            return
        self.scheduled[host_id_] = entry
        if before is not None and before[0] == ready_ms and (ready_ms > now_ms or rank > before[1]):
            return  # it stands there already, at no worse a place
        bucket = self._waiting.get(ready_ms)
        if bucket is None:
            self._waiting[ready_ms] = [host_id_]
            heapq.heappush(self._instants, ready_ms)
        else:
            bucket.append(host_id_)

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
        scheduled, instants = self.scheduled, self._instants
        if instants and instants[0] <= now_ms:
            self._come_up(now_ms)
        places = self._places
        while places:
            bucket = self._ready[places[0]]
            while bucket:
                ready_ms, host_id_ = bucket.pop()
                self._ready_count -= 1
                entry = scheduled.get(host_id_)
                if entry is not None and entry[0] == ready_ms:
                    del scheduled[host_id_]
                    self.popped_ready_ms = ready_ms
                    return host_id_
            del self._ready[heapq.heappop(places)]
        return None

    def _come_up(self, now_ms: int) -> None:
        scheduled, instants, ready = self.scheduled, self._instants, self._ready
        while instants and instants[0] <= now_ms:
            ready_ms = heapq.heappop(instants)
            for host_id_ in self._waiting.pop(ready_ms):
                entry = scheduled.get(host_id_)
                if entry is None or entry[0] != ready_ms:
                    continue
                rank = entry[1]
                place = ready_ms + (rank & 0xFFFF) * HANDICAP_MS_MAX // 0x10000 + (COLD_MS if rank & _COLD else 0)
                bucket = ready.get(place)
                if bucket is None:
                    ready[place] = [(ready_ms, host_id_)]
                    heapq.heappush(self._places, place)
                else:
                    bucket.append((ready_ms, host_id_))
                self._ready_count += 1

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
        ready = self._ready_count
        if self._instants and self._instants[0] <= now_ms:
            ready += 1
        return ready, max(0, len(self.scheduled) - ready)

    def next_ms(self) -> int:
        """When a host is ready at the earliest: not after any host's true instant."""
        if self._ready_count:
            while not self._ready[self._places[0]]:
                del self._ready[heapq.heappop(self._places)]
            return self._ready[self._places[0]][-1][0]
        while self._instants:
            ready_ms = self._instants[0]
            bucket = self._waiting[ready_ms]
            while bucket:
                entry = self.scheduled.get(bucket[-1])
                if entry is not None and entry[0] == ready_ms:
                    return ready_ms
                bucket.pop()
            del self._waiting[heapq.heappop(self._instants)]
        return NEVER_MS
