"""The committed state as the checkers read it."""

from __future__ import annotations

from collections.abc import Iterator

from connectors.crawldb_memory import MemoryCrawlDb
from streams.core.hosts import ALLOTMENT_FULL, HostState, decode_host
from streams.core.turn import Family


class Store(MemoryCrawlDb):
    """What an owner has committed, with the readings that only checkers need."""

    def host_states(self) -> Iterator[tuple[bytes, HostState]]:
        for key, raw in self.hosts():
            yield key, decode_host(raw)

    def tasks_waiting(self) -> int:
        """Bodies that wait to be parsed."""
        return len(self._families[Family.TASK])

    def waits(self, host_id: bytes) -> tuple[bool, int, int]:
        """Whether the host goes at its whole pace, its backoff's end, and when its rules came."""
        raw = self.get(Family.HOST, host_id)
        if raw is None:
            return True, 0, 0
        state = decode_host(raw)
        robots = state.robots
        return state.allotment == ALLOTMENT_FULL, state.backoff_until_ms, 0 if robots is None else robots.fetched_ms
