"""When each host's leases are to be looked at because the first of them expires.

Nearly every lease is closed before it expires, so the entry goes with it: memory follows the hosts that have leases
out. The leases of a turn mostly share an instant, so hosts lie together by the instant, and only instants in a heap.
"""

from __future__ import annotations

import heapq

from streams.core.hosts import NEVER_MS

_STALE_INSTANTS_MAX = 1_000


class Expiries:
    """For each host that is watched one instant, not after the first expiry of its leases."""

    def __init__(self) -> None:
        self._watched: dict[bytes, int] = {}  # host_id → its instant
        self._hosts: dict[int, dict[bytes, None]] = {}  # by instant, in the order in which they were watched
        self._instants: list[int] = []  # heap of the keys of `_hosts`, and of some that were there

    def __len__(self) -> int:
        """Hosts that are watched."""
        return len(self._watched)

    def watch(self, host_id_: bytes, expires_ms: int) -> None:
        """The host is looked at then; not later than was said before."""
        before = self._watched.get(host_id_)
        if before is not None:
            if before <= expires_ms:
                return
            self.forget(host_id_)
        self._watched[host_id_] = expires_ms
        bucket = self._hosts.get(expires_ms)
        if bucket is None:
            self._hosts[expires_ms] = {host_id_: None}
            heapq.heappush(self._instants, expires_ms)
        else:
            bucket[host_id_] = None

    def forget(self, host_id_: bytes) -> None:
        """The host has no lease that could expire."""
        expires_ms = self._watched.pop(host_id_, None)
        if expires_ms is None:
            return
        bucket = self._hosts[expires_ms]
        del bucket[host_id_]
        if not bucket:
            del self._hosts[expires_ms]
            if len(self._instants) > 2 * len(self._hosts) + _STALE_INSTANTS_MAX:
                self._instants = sorted(self._hosts)  # a sorted list is a heap

    def pop(self, now_ms: int) -> list[bytes]:
        """The hosts whose instant has come, each once, earliest first; they are watched no more."""
        due: list[bytes] = []
        while self._instants and self._instants[0] <= now_ms:
            due += self._hosts.pop(heapq.heappop(self._instants), ())
        for host_id_ in due:
            del self._watched[host_id_]
        return due

    def next_ms(self) -> int:
        """The first instant of all; NEVER_MS when no host is watched."""
        while self._instants and self._instants[0] not in self._hosts:
            heapq.heappop(self._instants)
        return self._instants[0] if self._instants else NEVER_MS
