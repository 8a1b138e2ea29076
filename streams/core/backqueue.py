"""A host's back queues with only a window in memory.

Entries are *tails*: class ‖ due ‖ rank ‖ url_id (see `streams.core.rows`), so that comparing bytes compares order.

The invariant, for each class: every durable entry at or before `scanned_to` is in the window, in flight, or gone; all
others come after it. So a new entry belongs in the window exactly if it is not after `scanned_to`, and a refill may
start there: it never walks again over what was granted before (a hot host's deleted entries would make that slow).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection

from streams.core.policy import WINDOW_URLS_MAX
from streams.core.rows import PLACE_BYTES

Scan = Callable[[bytes, int, bytes, int], list[bytes]]
"""(host_id, class, after this tail, at most so many) → the durable tails that follow, in order."""

_TO_THE_END = b"\xff" * 32  # after every tail


class BackQueue:
    """One host's three windows. The durable entries change in the same commit as what is said here."""

    __slots__ = ("_fresh", "_gone", "_scanned_to", "_windows")

    def __init__(self, *, empty: bool = False) -> None:
        """`empty`: the host is new, nothing durable is there to be scanned."""
        self._windows: tuple[list[bytes], list[bytes], list[bytes]] = ([], [], [])
        start = _TO_THE_END if empty else b""
        self._scanned_to = [start, start, start]
        # By class, put in this turn past what was scanned: not yet durable, so not seen by a scan.
        self._fresh: tuple[set[bytes], set[bytes], set[bytes]] = (set(), set(), set())
        self._gone: set[bytes] = set()  # removed in this turn: still durable, so seen by a scan

    def push(self, tail: bytes) -> None:
        queue = tail[0]
        self._gone.discard(tail)
        if tail > self._scanned_to[queue]:
            self._fresh[queue].add(tail)
            return
        window = self._windows[queue]
        insort(window, tail)
        self._cut(queue)

    def load(self, tail: bytes) -> None:
        """An entry that may have been missing until this turn: it takes its place unless it stands there already."""
        window = self._windows[tail[0]]
        at = bisect_left(window, tail)
        if at == len(window) or window[at] != tail:
            self.push(tail)

    def remove(self, tail: bytes) -> None:
        window = self._windows[tail[0]]
        at = bisect_left(window, tail)
        if at < len(window) and window[at] == tail:
            del window[at]
        else:
            self._fresh[tail[0]].discard(tail)
        self._gone.add(tail)

    def head(self, queue: int, scan: Scan, host_id: bytes, in_flight: Collection[bytes]) -> bytes | None:
        """The first entry of a class that is not in flight, or None when there is none."""
        window = self._windows[queue]
        while not window:
            after = self._scanned_to[queue]
            if after == _TO_THE_END:
                return None
            self._refill(queue, scan(host_id, queue, after, WINDOW_URLS_MAX), in_flight)
        return window[0]

    def pop(self, queue: int) -> bytes:
        """Take the head, which `head` returned, for a lease. Its durable entry stays until the result."""
        return self._windows[queue].pop(0)

    def committed(self) -> None:
        """The turn's changes are durable: scans see them from now on."""
        for fresh in self._fresh:
            fresh.clear()
        self._gone.clear()

    def _refill(self, queue: int, found: list[bytes], in_flight: Collection[bytes]) -> None:
        complete = len(found) < WINDOW_URLS_MAX
        end = _TO_THE_END if complete else found[-1]
        fresh = self._fresh[queue]
        come_up = {tail for tail in fresh if tail <= end}
        fresh -= come_up
        come_up.update(tail for tail in found if tail not in self._gone and tail[PLACE_BYTES:] not in in_flight)
        self._windows[queue][:] = sorted(come_up)
        self._scanned_to[queue] = end
        self._cut(queue)

    def _cut(self, queue: int) -> None:
        """Keep the window small, however much one turn brings."""
        window = self._windows[queue]
        if len(window) > 2 * WINDOW_URLS_MAX:
            # What falls out was durable before this turn or is fresh: a later scan must find it either way.
            self._fresh[queue].update(window[WINDOW_URLS_MAX:])
            del window[WINDOW_URLS_MAX:]
            self._scanned_to[queue] = window[-1]
