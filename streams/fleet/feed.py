"""From a partition's input to groups, one at a time, and what follows when a group fails.

The first message of a quiet time is decided at once; while there is much to do, a group gathers for `group_ms`. Topics
are taken in the order of `streams.fleet.intake.TOPICS`, so that links do not hold up results. Without messages a group
is made when the owner has something to do by its clock.

A group that cannot be decided is halved until the message is found that is to blame, which goes to the dead letters.
A group that fails without any message blames no message: then the owner's state is damaged, and people must look.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from connectors.inbox_kafka import Message, Reader
from streams.core import policy as bounds
from streams.core.failures import EXIT_FAILED, CrawlError
from streams.fleet.intake import TOPICS
from streams.fleet.owner import PartitionOwner, Undecidable

log = logging.getLogger(__name__)

_BUFFERED_MAX = 2 * bounds.GROUP_EVENTS_MAX  # messages of one topic
_EMPTY_FAILURES_MAX = 3


class Pace(msgspec.Struct, frozen=True):
    """How groups are made."""

    group_ms: int = bounds.GROUP_MS_MAX
    messages_max: int = bounds.GROUP_EVENTS_MAX


class Group:
    """Messages of one partition, in the order to be decided. Whoever carries it out settles it."""

    def __init__(self, owner: PartitionOwner, messages: Sequence[Message]) -> None:
        self.owner, self.messages = owner, messages
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, error: BaseException | None = None) -> None:
        """Over, well or not."""
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


class Feed:
    """Of one partition, as long as it is owned here."""

    def __init__(
        self,
        owner: PartitionOwner,
        pace: Pace,
        *,
        now: Callable[[], int],
        carry_out: Callable[[Group], Awaitable[None]],
        in_thread: Callable[..., Awaitable[None]],
        applied: Callable[[dict[str, int]], None],
    ) -> None:
        """`carry_out`: hands a group on and waits for its end. `applied`: told the positions that are durable."""
        self._owner, self._pace, self._now = owner, pace, now
        self._carry_out, self._in_thread, self._applied = carry_out, in_thread, applied
        self._loop = asyncio.get_running_loop()
        self._buffers: dict[str, deque[Message]] = {topic: deque() for topic in TOPICS}
        self._wake = asyncio.Event()
        self._last_group_s = 0.0
        self._stopping = False
        self._limit = pace.messages_max
        self.oldest_wait_ms: int | None = None  # since when input waits that no commit has taken up

    def reader(self) -> Reader:
        """For the inbox: it calls from a thread of its own."""

        def take(messages: Sequence[Message]) -> None:
            for message in messages:
                self._buffers[message.topic].append(message)
            self._loop.call_soon_threadsafe(self._wake.set)

        return Reader(self._owner.positions, take, lambda topic: len(self._buffers[topic]) < _BUFFERED_MAX)

    def stop(self) -> None:
        """No group begins any more."""
        self._stopping = True
        self._wake.set()

    def waiting(self) -> int:
        return sum(map(len, self._buffers.values()))

    async def run(self) -> None:
        """Until stopped. Raises what ends an owner: `Fenced`, `LogUncertain`, `Closed`, StoreFailed, CrawlError."""
        empty_failures = 0
        while await self._work():
            messages = self._gather()
            try:
                await self._carry_out(Group(self._owner, messages))
            except Undecidable as error:
                if messages:
                    await self._find(messages, error)
                    continue
                empty_failures += 1
                if empty_failures >= _EMPTY_FAILURES_MAX:
                    raise CrawlError(
                        f"partition {self._owner.partition}: needed the owner to go on, it cannot: {error}; its state"
                        " is damaged: keep the worker's log, and report it",
                        EXIT_FAILED,
                    ) from error
            else:
                empty_failures = 0
                self._limit = min(self._pace.messages_max, self._limit * 2)
                self._applied(self._owner.positions)

    async def _work(self) -> bool:
        """Wait until there is something to do; False when it is to end."""
        while not self._stopping and not self.waiting():
            self.oldest_wait_ms = None
            wait_ms = self._owner.next_ms() - self._now()
            if wait_ms <= 0:
                break
            self._wake.clear()
            if self.waiting() or self._stopping:
                break
            timer = self._loop.call_later(min(wait_ms, bounds.HEARTBEAT_MS) / 1_000, self._wake.set)
            await self._wake.wait()
            timer.cancel()
        if self.waiting() and self.oldest_wait_ms is None:
            self.oldest_wait_ms = self._now()
        pause_s = self._last_group_s + self._pace.group_ms / 1_000 - self._loop.time()
        if pause_s > 0 and self.waiting() < self._limit and not self._stopping:
            await asyncio.sleep(pause_s)
        self._last_group_s = self._loop.time()
        return not self._stopping

    def _gather(self) -> list[Message]:
        messages: list[Message] = []
        size = 0
        for buffer in self._buffers.values():
            while buffer and len(messages) < self._limit and size < bounds.GROUP_BYTES_MAX:
                messages.append(buffer.popleft())
                size += len(messages[-1].value or b"")
        self.oldest_wait_ms = self._now() if self.waiting() else None
        return messages

    async def _find(self, messages: Sequence[Message], error: Undecidable) -> None:
        """Nothing came of these: take half of them, or give the last one up."""
        if len(messages) > 1:
            log.warning("partition %d: %d messages are halved: %s", self._owner.partition, len(messages), error)
            self._limit = max(1, len(messages) // 2)
            for message in reversed(messages):
                self._buffers[message.topic].appendleft(message)
            return
        message = messages[0]
        log.error("partition %d: %s %d is given up: %s", self._owner.partition, message.topic, message.offset, error)
        await self._in_thread(self._owner.give_up, message, str(error))
