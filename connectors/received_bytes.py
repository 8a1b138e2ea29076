"""The bodies that a worker is receiving, together: one limit in bytes for all connections.

Each body has a limit of its own, and so has the number of connections; their product is more than any machine has.
While all bodies together are at the limit, only the one that began first goes on; the others are not read, so that TCP
holds their sites up, and no new request is sent. So memory is the limit, one body, and one read of each connection.
Nobody waits for ever: each request has its duration.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

__all__ = ["ReceivedBytes", "Receiving"]


class Receiving(Protocol):
    """A connection in the midst of an answer."""

    def go_on(self) -> None:
        """Read again, and ask for leave again."""
        ...


class ReceivedBytes:
    """Of one event loop."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: dict[Receiving, int] = {}  # whoever began first, first
        self._held_back: dict[Receiving, None] = {}
        self._room = asyncio.Event()
        self._room.set()
        self.total = 0

    async def room(self) -> None:
        """Returns when another answer may begin."""
        await self._room.wait()

    def may_go_on(self, who: Receiving) -> bool:
        """Whether more of its answer may be taken. If not, it is told to go on later."""
        self._held.setdefault(who, 0)
        if self.total < self._bytes_max or next(iter(self._held)) is who:
            return True
        self._held_back[who] = None
        return False

    def holds(self, who: Receiving, size: int) -> None:
        """So much of its answer lies in memory now."""
        self.total += size - self._held[who]
        self._held[who] = size
        if self.total >= self._bytes_max:
            self._room.clear()

    def released(self, who: Receiving) -> None:
        """It has ended, however; what it held is somebody else's."""
        self.total -= self._held.pop(who, 0)
        self._held_back.pop(who, None)
        if self.total < self._bytes_max:
            self._room.set()
        again = self._held_back
        self._held_back = {}
        for one in again:
            one.go_on()
