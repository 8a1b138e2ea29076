"""A stage without Kafka: a group of one member over a broker in memory, and outputs that are acknowledged when told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from connectors.group_reader import Input
from connectors.owner_log_memory import MemoryBroker
from connectors.ports import ParseOutput, Record
from connectors.stage_sender import Output
from schemas.records import BodyRef, ParseTask
from streams.core.policy import ParseLimits
from streams.fleet.metrics import Metrics
from streams.fleet.stage import Group, Pace, Stage, Work

NOW_MS = 1_700_000_000_000


async def turn() -> None:
    """One round of the event loop."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    loop.call_soon(over.set_result, None)
    await over


async def until(holds: Callable[[], bool], turns: int = 200_000) -> None:
    """The event loop goes round until it holds; fails when it never does."""
    for _ in range(turns):
        if holds():
            return
        await turn()
    raise AssertionError("it never came to hold")


class MemoryReader:
    """Hands on what `feed` is given; remembers what is done."""

    def __init__(self, partitions: int = 4) -> None:
        self.lag: Mapping[int, int] = {}
        self.stage: Stage | None = None
        self.next_offset = dict.fromkeys(range(partitions), 0)
        self.committed = dict.fromkeys(range(partitions), 0)
        self._terms = dict.fromkeys(range(partitions), 1)
        self.closed = False

    def start(self) -> None:
        return

    def done(self, partition: int, term: int, next_offset: int) -> None:
        if self._terms.get(partition) == term:
            self.committed[partition] = next_offset

    def terms(self) -> Mapping[int, int]:
        return dict(self._terms)

    def is_member(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True

    def feed(self, partition: int, *values: bytes) -> None:
        assert self.stage is not None
        first = self.next_offset[partition]
        self.next_offset[partition] = first + len(values)
        term = self._terms[partition]
        self.stage.take([Input(partition, first + at, value, NOW_MS, term) for at, value in enumerate(values)])

    def lose(self, partition: int) -> None:
        """Another worker has it now, from what was committed on."""
        del self._terms[partition]

    def gain(self, partition: int, term: int) -> None:
        self._terms[partition] = term
        self.next_offset[partition] = self.committed[partition]


class MemorySender:
    """Into a broker, in order. `hold`: nothing is acknowledged until `release`."""

    def __init__(self, broker: MemoryBroker | None = None) -> None:
        self.broker = broker or MemoryBroker()
        self.sent: list[Output] = []
        self.hold = False
        self._held: list[asyncio.Future[None]] = []

    async def send(self, outputs: Sequence[Output]) -> asyncio.Future[None]:
        acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sent += outputs
        with self.broker.lock:
            for one in outputs:
                place = self.broker.topics.setdefault((one.topic, one.partition), [])
                place.append(Record(one.topic, one.partition, one.key, one.value))
        if self.hold and outputs:
            self._held.append(acknowledged)
        else:
            acknowledged.set_result(None)
        return acknowledged

    def release(self) -> None:
        self.hold = False
        for one in self._held:
            one.set_result(None)
        self._held.clear()

    def close(self) -> None:
        return

    def values(self, topic: str) -> list[tuple[int, bytes | None]]:
        return [(one.partition, one.value) for one in self.sent if one.topic == topic]


class InlineParser:
    """The parser port in this process. `answer` stands for the parser where it is given."""

    def __init__(self, answer: Callable[[ParseTask, bytes], ParseOutput] | None = None) -> None:
        self.answer = answer
        self.generations: list[int] = []
        self.stalled: asyncio.Event | None = None  # until it is set, nothing is parsed

    async def parse(self, task: ParseTask, body: bytes, *, generation: int = 0) -> ParseOutput:
        from connectors.parser_worker import parse

        if self.stalled is not None:
            await self.stalled.wait()
        self.generations.append(generation)
        if self.answer is not None:
            return self.answer(task, body)
        return parse(task, body, ParseLimits(), "headrace")

    async def close(self) -> None:
        return


class MemoryTexts:
    """`keep` gives references that `read` answers; `durable` False: it waits until `settle`."""

    def __init__(self) -> None:
        self.texts: dict[BodyRef, bytes] = {}
        self.kept: list[ParseOutput] = []
        self.waits: asyncio.Event | None = None

    async def keep(self, several: Sequence[ParseOutput]) -> list[BodyRef | None]:
        refs: list[BodyRef | None] = []
        for one in several:
            self.kept.append(one)
            ref = BodyRef("parsed/memory.warc.gz", len(self.kept), max(1, len(one.text)))
            if one.text:
                self.texts[ref] = one.text
            refs.append(ref if one.text else None)
        if self.waits is not None:
            await self.waits.wait()
        return refs

    async def read(self, refs: Sequence[BodyRef]) -> list[bytes | None]:
        return [self.texts.get(ref) for ref in refs]


class RunningStage:
    """A stage over these two, carried out at once; use it with `async with`."""

    def __init__(
        self,
        work: Work,
        pace: Pace | None = None,
        *,
        topic: str = "parse-tasks",
        partitions: int = 4,
        renewed: Callable[[], None] = lambda: None,
    ) -> None:
        self.reader, self.sender, self.metrics = MemoryReader(partitions), MemorySender(), Metrics("parse")
        self.failures: list[BaseException] = []
        self.now_ms = NOW_MS
        self._work, self._pace, self._topic, self._renewed = work, pace or Pace(), topic, renewed
        self._carried: set[asyncio.Task[None]] = set()
        self.stage: Stage

    async def __aenter__(self) -> RunningStage:
        self.stage = self.reader.stage = Stage(
            "parse",
            self._topic,
            self._work,
            self.sender,
            self._pace,
            now=lambda: self.now_ms,
            metrics=self.metrics,
            carry_out=self._carry_out,
            failed=self.failures.append,
            renewed=self._renewed,
        )
        self.stage.start(self.reader)
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.stage.close()

    async def _carry_out(self, group: Group) -> None:
        task = asyncio.create_task(self.stage.carry(group))
        self._carried.add(task)
        task.add_done_callback(self._carried.discard)

    async def until(self, holds: Callable[[], bool]) -> None:
        await until(holds)

    async def come_again(self, value: bytes, go_on: asyncio.Event) -> None:
        """A message whose work stands still until `go_on`: meanwhile its partition is lost, comes back, and it, too."""
        self.reader.feed(0, value)
        await self.rest()
        self.reader.lose(0)
        self.reader.gain(0, term=2)
        self.reader.feed(0, value)
        await self.rest()
        go_on.set()
        await self.until(lambda: self.reader.committed[0] == 1)

    async def rest(self, turns: int = 50) -> None:
        """Some rounds in which whatever would happen happens."""
        for _ in range(turns):
            await turn()
