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
    """One host's three windows. The durable entries change in the same commit as what is said here.

    There may be a hundred thousand of these, and most of a new host's are empty: what is not needed is not there.
    """

    __slots__ = ("_fresh", "_gone", "_scanned_to", "_windows")

    def __init__(self, *, empty: bool = False) -> None:
        """`empty`: the host is new, nothing durable is there to be scanned."""
        self._windows: list[list[bytes] | None] = [None, None, None]
        start = _TO_THE_END if empty else b""
        self._scanned_to = [start, start, start]
        self._fresh: set[bytes] | None = None  # put in this turn past what was scanned: no scan sees them yet
        self._gone: set[bytes] | None = None  # removed in this turn: still durable, so seen by a scan

    def push(self, tail: bytes) -> None:
        queue = tail[0]
        if self._gone is not None:
            self._gone.discard(tail)
        if tail > self._scanned_to[queue]:
            if self._fresh is None:
                self._fresh = {tail}
            else:
                self._fresh.add(tail)
            return
        window = self._windows[queue]
        if window is None:
            self._windows[queue] = [tail]
            return
        insort(window, tail)
        if len(window) > 2 * WINDOW_URLS_MAX:
            self._cut(queue, window)

    def load(self, tail: bytes) -> None:
        """An entry that may have been missing until this turn: it takes its place unless it stands there already."""
        window = self._windows[tail[0]] or ()
        at = bisect_left(window, tail)
        if at == len(window) or window[at] != tail:
            self.push(tail)

    def remove(self, tail: bytes) -> None:
        window = self._windows[tail[0]]
        if window:
            at = bisect_left(window, tail)
            if at < len(window) and window[at] == tail:
                del window[at]
        if self._fresh is not None:
            self._fresh.discard(tail)
        if self._gone is None:
            self._gone = {tail}
        else:
            self._gone.add(tail)

    def head(self, queue: int, scan: Scan, host_id: bytes, in_flight: Collection[bytes]) -> bytes | None:
        """The first entry of a class that is not in flight, or None when there is none."""
        window = self._windows[queue]
        while not window:
            after = self._scanned_to[queue]
            if after == _TO_THE_END:
                return None
            window = self._refill(queue, scan(host_id, queue, after, WINDOW_URLS_MAX), in_flight)
        return window[0]

    def unscanned(self, queue: int) -> bool:
        """Nothing of the class was read yet: what is durable there is not known here."""
        return not self._scanned_to[queue]

    def pushed(self, queue: int) -> bytes | None:
        """The first of the entries that this turn put past what was scanned."""
        return min((tail for tail in self._fresh or () if tail[0] == queue), default=None)

    def pop(self, queue: int) -> bytes:
        """Take the head, which `head` returned, for a lease. Its durable entry stays until the result."""
        window = self._windows[queue]
        assert window
        return window.pop(0)

    def next_in(self, queue: int, entries_max: int) -> list[bytes]:
        """Entries of the window that come next, for their rows to be read together."""
        window = self._windows[queue]
        return [] if window is None else window[:entries_max]

    def committed(self) -> None:
        """The turn's changes are durable: scans see them from now on."""
        self._fresh = self._gone = None

    def _refill(self, queue: int, found: list[bytes], in_flight: Collection[bytes]) -> list[bytes]:
        complete = len(found) < WINDOW_URLS_MAX
        end = _TO_THE_END if complete else found[-1]
        gone = self._gone or ()
        come_up = [tail for tail in found if tail not in gone and tail[PLACE_BYTES:] not in in_flight]
        if self._fresh is not None:
            fresh = {tail for tail in self._fresh if tail[0] == queue and tail <= end}
            if fresh:
                self._fresh -= fresh
                come_up = sorted(fresh.union(come_up))
        self._windows[queue] = come_up
        self._scanned_to[queue] = end
        if len(come_up) > 2 * WINDOW_URLS_MAX:
            self._cut(queue, come_up)
        return come_up

    def _cut(self, queue: int, window: list[bytes]) -> None:
        """Keep the window small, however much one turn brings."""
        # What falls out was durable before this turn or is fresh: a later scan must find it either way.
        self._fresh = set(window[WINDOW_URLS_MAX:]).union(self._fresh or ())
        del window[WINDOW_URLS_MAX:]
        self._scanned_to[queue] = window[-1]
