"""A stage that does its work at least once: messages in, outputs acknowledged, and only then the input is done.

Theory of operation. The reader hands messages on; they are gathered into groups, and a group goes through these steps:

1. work: whatever the stage does of its messages, several groups at once. A service that is away is waited for in here;
2. order: until every group before it that shares a partition with it has sent its outputs;
3. send: its outputs, behind theirs;
4. acknowledged: all of them lie with the brokers;
5. done: the reader commits, for each partition, up to the first message that is not done.

So a crash at any point repeats messages and loses none, the outputs of a partition stand in the order of its input, and
a committed offset means that everything before it is out. A group whose work fails is worked again message by message;
the message that fails alone goes to the dead letters, whole. Messages of a partition that went to another worker are
dropped at steps 1 and 3, since the other one has them.

Memory is bounded by what may be open: `Pace` has the bounds, and the reader stops at them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from connectors.group_reader import Input, Reading
from connectors.stage_sender import Output, Sender
from streams.core.failures import CrawlError
from streams.fleet import outputs
from streams.fleet.metrics import Labels, Metrics

__all__ = ["Pace", "Stage", "Work"]

log = logging.getLogger(__name__)

Work = Callable[[Sequence[Input]], Awaitable[Sequence[Output]]]
"""What a stage makes of messages, in their order. Raises CrawlError when it cannot go on, for no record's sake."""


class Pace(msgspec.Struct, frozen=True):
    """How groups are made, and how much may be open."""

    group_ms: int = 0  # how long a group gathers while there is much to do
    group_messages_max: int = 1
    groups_max: int = 16  # at work at once
    open_messages_max: int = 64  # of all partitions, handed on and not done
    open_bytes_max: int = 32 << 20  # their values
    open_of_partition_max: int = 16


class Group:
    """Messages, in the order in which they came. Whoever carries it out calls `Stage.carry`."""

    def __init__(self, messages: Sequence[Input], before: Sequence[asyncio.Future[None]]) -> None:
        self.messages = messages
        self.before = before
        self.sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Stage:
    """Of one worker. All but `take` and `room`, which the reader's thread calls, belong to one event loop."""

    def __init__(
        self,
        name: str,
        topic: str,
        work: Work,
        sender: Sender,
        pace: Pace,
        *,
        now: Callable[[], int],
        metrics: Metrics,
        carry_out: Callable[[Group], Awaitable[None]],
        failed: Callable[[BaseException], None],
        renewed: Callable[[], None] = lambda: None,
    ) -> None:
        """`name`: of the dead letters. `now`: UTC in ms. `carry_out`: hands a group to whoever calls `carry`, and may
        wait. `failed`: the worker cannot go on. `renewed`: before messages come under a new assignment; what was made
        of earlier ones may never have gone out, and some of it is worked again.
        """
        self.name, self.topic = name, topic
        self._work, self._sender, self._pace, self._now, self._metrics = work, sender, pace, now, metrics
        self._carry_out, self._failed, self._renewed = carry_out, failed, renewed
        self._loop = asyncio.get_running_loop()
        self._reader: Reading | None = None
        self._waiting: deque[Input] = deque()
        self._wake = asyncio.Event()
        self._free = asyncio.Semaphore(pace.groups_max)
        self._last_sent: dict[int, asyncio.Future[None]] = {}  # of each partition's last group
        self._progress: dict[int, _Progress] = {}
        self._lock = threading.Lock()  # over what is open
        self._open_messages = self._open_bytes = 0
        self._open_of: dict[int, int] = {}
        self._gathering: asyncio.Task[None] | None = None
        self._carrying: set[asyncio.Task[None]] = set()

    def start(self, reader: Reading) -> None:
        self._reader = reader
        self._gathering = asyncio.create_task(self._gather())
        self._gathering.add_done_callback(self._ended)
        reader.start()

    async def close(self) -> None:
        """Nothing begins any more; what is under way is given up and will be done again. The reader leaves first."""
        tasks = [*self._carrying] if self._gathering is None else [self._gathering, *self._carrying]
        if self._reader is not None:
            await self._loop.run_in_executor(None, self._reader.close)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- the reader's thread --------------------------------------------------------------------------------------

    def take(self, messages: Sequence[Input]) -> None:
        with self._lock:
            for one in messages:
                self._open_messages += 1
                self._open_bytes += len(one.value or b"")
                self._open_of[one.partition] = self._open_of.get(one.partition, 0) + 1
        self._loop.call_soon_threadsafe(self._arrived, messages)

    def room(self, partition: int) -> bool:
        pace = self._pace
        return (
            self._open_messages < pace.open_messages_max
            and self._open_bytes < pace.open_bytes_max
            and self._open_of.get(partition, 0) < pace.open_of_partition_max
        )

    # --- gathering ------------------------------------------------------------------------------------------------

    def _arrived(self, messages: Sequence[Input]) -> None:
        for one in messages:
            progress = self._progress.get(one.partition)
            if progress is None or progress.term != one.term:
                if progress is not None:
                    self._renewed()
                progress = self._progress[one.partition] = _Progress(one.term, self._now())
            progress.came(one.offset, self._now())
        self._waiting.extend(messages)
        self._wake.set()

    async def _gather(self) -> None:
        """Groups, one after another, as long as there is room for more at work."""
        pace = self._pace
        while True:
            while not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            if pace.group_ms and len(self._waiting) < pace.group_messages_max:
                await asyncio.sleep(pace.group_ms / 1_000)
            await self._free.acquire()
            messages = [self._waiting.popleft() for _ in range(min(pace.group_messages_max, len(self._waiting)))]
            partitions = {one.partition for one in messages}
            before = {self._last_sent[one] for one in partitions if one in self._last_sent}
            group = Group(messages, [one for one in before if not one.done()])
            for partition in partitions:
                self._last_sent[partition] = group.sent
            await self._carry_out(group)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            assert error is not None
            self._failed(error)

    # --- a group --------------------------------------------------------------------------------------------------

    async def carry(self, group: Group) -> None:
        """Returns at the group's end, whatever it was; a cancelled caller does not end the group."""
        task = asyncio.create_task(self._carry(group))
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)
        task.add_done_callback(self._ended)
        await asyncio.wait([task])

    async def _carry(self, group: Group) -> None:
        try:
            made = await self._outputs([one for one in group.messages if self._is_ours(one)])
            for before in group.before:
                await before
            acknowledged = await self._sender.send(made if any(map(self._is_ours, group.messages)) else ())
            group.sent.set_result(None)
            await acknowledged
            self._settle(group.messages)
        finally:
            if not group.sent.done():
                group.sent.cancel()
            self._free.release()
            self._close(group.messages)

    async def _outputs(self, messages: Sequence[Input]) -> Sequence[Output]:
        if not messages:
            return ()
        try:
            return await self._work(messages)
        except CrawlError:
            raise
        except Exception as error:  # whatever one record has done to the work: the others go on
            if len(messages) == 1:
                return (self._give_up(messages[0], error),)
            log.warning("%s: %d messages are worked one by one: %s", self.name, len(messages), error)
        return [one for message in messages for one in await self._outputs([message])]

    def _give_up(self, message: Input, error: Exception) -> Output:
        said = str(error) or type(error).__name__
        log.error("%s: %s %d/%d is given up: %s", self.name, self.topic, message.partition, message.offset, said)
        self._metrics.count("headrace_dead_letters_total", 1, ("bad_record",))
        letter = outputs.dead_letter(
            message.partition,
            stage=self.name,
            error=said,
            value=message.value or b"",
            now_ms=self._now(),
            topic=self.topic,
        )
        return Output(*letter)

    def _is_ours(self, message: Input) -> bool:
        assert self._reader is not None
        return self._reader.terms().get(message.partition) == message.term

    def _settle(self, messages: Iterable[Input]) -> None:
        """These are done: tell the reader how far each partition is."""
        assert self._reader is not None
        moved: dict[int, int] = {}
        for one in messages:
            progress = self._progress.get(one.partition)
            if progress is None or progress.term != one.term:
                continue
            next_offset = progress.settle(one.offset, self._now())
            if next_offset is not None:
                moved[one.partition] = next_offset
        for partition, next_offset in moved.items():
            self._reader.done(partition, self._progress[partition].term, next_offset)

    def _close(self, messages: Iterable[Input]) -> None:
        with self._lock:
            for one in messages:
                self._open_messages -= 1
                self._open_bytes -= len(one.value or b"")
                self._open_of[one.partition] -= 1

    # --- what people see ------------------------------------------------------------------------------------------

    def open_messages(self) -> int:
        """Handed on and not done."""
        return self._open_messages

    def gauges(self) -> Iterable[tuple[str, Labels, float]]:
        if self._reader is None:
            return
        now_ms, terms = self._now(), self._reader.terms()
        for partition, lag in sorted(self._reader.lag.items()):
            yield "headrace_consumer_lag_records", (self.topic, str(partition)), lag + self._open_of.get(partition, 0)
        for partition, progress in sorted(self._progress.items()):
            if terms.get(partition) == progress.term:
                yield "headrace_commit_age_seconds", (str(partition),), progress.age_ms(now_ms) / 1_000


class _Progress:
    """Of one partition under one assignment: which messages are open, in the order of their offsets."""

    def __init__(self, term: int, now_ms: int) -> None:
        self.term = term
        self._open: deque[int] = deque()
        self._settled: set[int] = set()
        self._moved_ms = now_ms

    def came(self, offset: int, now_ms: int) -> None:
        assert not self._open or offset > self._open[-1], f"offset {offset} came after {self._open[-1]}"
        if not self._open:
            self._moved_ms = now_ms
        self._open.append(offset)

    def settle(self, offset: int, now_ms: int) -> int | None:
        """The offset to be read next after a crash, where that moved."""
        self._settled.add(offset)
        next_offset = None
        while self._open and self._open[0] in self._settled:
            next_offset = self._open.popleft() + 1
            self._settled.discard(next_offset - 1)
        if next_offset is not None:
            self._moved_ms = now_ms
        return next_offset

    def age_ms(self, now_ms: int) -> int:
        """Since the last message was done, while others wait."""
        return now_ms - self._moved_ms if self._open else 0
