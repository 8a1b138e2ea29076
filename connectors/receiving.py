"""One limit for all bodies that are being received at once, however many connections there are.

Theory of operation. Each answer says how much of its body it holds, as it grows. While all together hold more than the
limit, an answer that grows is held back: its connection is not read, and the site waits as for a slow reader. Two kinds
are never held back: small ones, so that a few large bodies do not stop ordinary pages, and the one that has been
received for longest of the larger ones, so that there is always one that comes to its end and makes room.

So at most `bytes_max`, one body and `RECEIVING_SMALL_BYTES` a connection are held, and what one read of each makes.
"""

from __future__ import annotations

from typing import Protocol

from streams.core.policy import RECEIVING_BYTES_MAX, RECEIVING_SMALL_BYTES

__all__ = ["Receiving", "Source"]


class Source(Protocol):
    """A connection whose answer grows."""

    def hold_back(self) -> None: ...

    def go_on(self) -> None: ...


class Receiving:
    """Of one fetcher, for one event loop."""

    def __init__(self, bytes_max: int = RECEIVING_BYTES_MAX, small_bytes: int = RECEIVING_SMALL_BYTES) -> None:
        self._bytes_max, self._small_bytes = bytes_max, small_bytes
        self._held: dict[Source, int] = {}
        self._large: dict[Source, bool] = {}  # those beyond small, the first that became so first: whether held back
        self.bytes = 0

    def grew(self, source: Source, held_bytes: int) -> None:
        """What the source's answer holds now."""
        self.bytes += held_bytes - self._held.get(source, 0)
        self._held[source] = held_bytes
        if held_bytes <= self._small_bytes:
            return
        is_back = self._large.setdefault(source, False)
        if self.bytes > self._bytes_max and not is_back and source is not next(iter(self._large)):
            self._large[source] = True
            source.hold_back()

    def ended(self, source: Source) -> None:
        """Its body is somebody else's now, or is given up."""
        self.bytes -= self._held.pop(source, 0)
        assert self.bytes >= 0, self.bytes
        self._let_go(source, was_back=self._large.pop(source, False))
        if self.bytes <= self._bytes_max:
            for other in [one for one, is_back in self._large.items() if is_back]:
                self._let_go(other, was_back=True)
        elif self._large:
            first = next(iter(self._large))
            self._let_go(first, was_back=self._large[first])

    def _let_go(self, source: Source, *, was_back: bool) -> None:
        if source in self._large:
            self._large[source] = False
        if was_back:
            source.go_on()
