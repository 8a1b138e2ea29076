"""The parse stage of a fleet: a task to a page, its text stored, its links on their way, its owner told.

For each message of parse-tasks: bodies are read by reference and parsed, some at once; what parsing gave is appended to
a segment; when that segment is whole in the store, and only then, parsed-pages (in parts where it is long) and the word
to the page's owner go out. A body that is not there any more, and a page that ended its parser, is a page with an error
like on one machine, and a dead letter beside it, so that somebody can have it parsed again.

Nothing is fetched in here. Parsers leave out links that they named lately; that memory begins anew every
MEMO_MS, since an operator may have let in meanwhile what an owner refused, whenever a group fails, and when a partition
is assigned anew: what it holds must be on its way.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from connectors.group_reader import Input
from connectors.parser_frames import failed_page
from connectors.ports import ParseOutput, Parser
from connectors.stage_sender import Output
from schemas.codec import BadRecord, decode, encode
from schemas.records import BodyRef, DeadLetter, OwnerMessage, ParsedPage, ParseTask
from streams.core import policy as bounds
from streams.core.parts import encodable, parts_of
from streams.core.tasks import parsed_message
from streams.fleet import outputs
from streams.fleet.metrics import Metrics

__all__ = ["BODY_UNREADABLE", "MEMO_MS", "ParseStage", "Texts"]

BODY_UNREADABLE = "body_unreadable"
MEMO_MS = 10 * bounds.MINUTE_MS
_LETTERS = frozenset({BODY_UNREADABLE, "parse_timeout", "parser_died", "parse_memory"})
"""Errors that another parser, more memory or a mended store may not give: such pages are worth an operator's look."""

CHUNK_TASKS = 16  # read together, if they are small
CHUNK_BYTES = 4 << 20  # of their records as they lie in the store

ReadBodies = Callable[[Sequence[BodyRef]], Awaitable[Sequence[bytes | None]]]
"""The decoded bodies in the order asked; None for one that cannot be had, ever. Waits while the store is away."""


T = TypeVar("T")


class Texts(Protocol):
    """Where text and facts of parsed pages are kept."""

    async def keep(self, several: Sequence[ParseOutput]) -> list[BodyRef | None]:
        """Of each the reference to its text, None for one without. Returns when all of them are durable."""
        ...


class ParseStage:
    """`work` is a `streams.fleet.stage.Work`."""

    def __init__(
        self,
        parser: Parser,
        read_bodies: ReadBodies,
        texts: Texts,
        *,
        partition_of: Callable[[str], int],
        chunks_max: int,
        now: Callable[[], int],
        metrics: Metrics,
    ) -> None:
        """`chunks_max`: of CHUNK_TASKS bodies in memory at once. `partition_of`: of a host_key."""
        self._parser, self._read_bodies, self._texts = parser, read_bodies, texts
        self._partition_of, self._now, self._metrics = partition_of, now, metrics
        self._room = asyncio.Semaphore(chunks_max)
        self.waiting = 0  # tasks taken and not parsed yet
        self._forgotten = 0  # times

    def forget(self) -> None:
        """Links that parsers named may not have gone out: they are named again."""
        self._forgotten += 1

    async def work(self, messages: Sequence[Input]) -> Sequence[Output]:
        """Raises BadRecord for a message that holds no tasks, CrawlError when no parser starts."""
        tasks = [task for one in messages for task in decode(one.value or b"", ParseTask)]
        try:
            return await self._work(tasks)
        except BaseException:
            self.forget()
            raise

    async def _work(self, tasks: Sequence[ParseTask]) -> Sequence[Output]:
        # Of the group, not of the moment: what waits for its bodies while the assignment ends names no link to a parser
        # as one that went out since.
        generation = self._now() // MEMO_MS + self._forgotten
        self.waiting += len(tasks)
        try:
            several = await _all_of([self._chunk(chunk, generation) for chunk in _chunks(tasks)])
        finally:
            self.waiting -= len(tasks)
        parsed = [output for chunk in several for output in chunk]
        kept = [output for output in parsed if not output.kept]
        refs = iter(await self._texts.keep(kept)) if kept else iter(())
        pages = [
            output.page if output.kept else msgspec.structs.replace(output.page, text=next(refs)) for output in parsed
        ]
        return self._outputs(tasks, pages)

    async def _chunk(self, tasks: Sequence[ParseTask], generation: int) -> list[ParseOutput]:
        """Read together, parsed side by side."""
        async with self._room:
            bodies = await self._read_bodies([task.content for task in tasks])
            several = zip(tasks, bodies, strict=True)
            return await _all_of([self._parse(task, body, generation) for task, body in several])

    async def _parse(self, task: ParseTask, body: bytes | None, generation: int) -> ParseOutput:
        began_ms = self._now()
        if body is None:
            output = ParseOutput(failed_page(task, BODY_UNREADABLE))
        else:
            output = await self._parser.parse(task, body, generation=generation)
            self._metrics.observe("headrace_parse_seconds", max(0, self._now() - began_ms) / 1_000)
            page = msgspec.structs.replace(output.page, content_hash=hashlib.sha256(body).digest())
            output = msgspec.structs.replace(output, page=page)
        return msgspec.structs.replace(output, kept=task.kept)

    def _outputs(self, tasks: Sequence[ParseTask], pages: Sequence[ParsedPage]) -> list[Output]:
        made: list[Output] = []
        messages: list[OwnerMessage] = []
        letters: list[DeadLetter] = []
        for task, page in zip(tasks, pages, strict=True):
            try:
                made += self._parts(page)
            except BadRecord:
                page = encodable(page)
                made += self._parts(page)
            messages.append(parsed_message(page))
            if page.error in _LETTERS:
                letters.append(self._letter(task, page))
        records = outputs.spread("owner-messages", messages, lambda one: one.to_key, self._partition_of)
        records += outputs.spread("dead-letters", letters, lambda one: one.host_key, self._partition_of)
        return made + [Output(*one) for one in records]

    def _parts(self, page: ParsedPage) -> list[Output]:
        """Each in a message of its own: some hundred links are a small batch already."""
        partition, key = self._partition_of(page.host_key), page.host_key.encode()
        return [
            Output("parsed-pages", partition, key, encode(part)) for part in parts_of(page, bounds.MESSAGE_BYTES_MAX)
        ]

    def _letter(self, task: ParseTask, page: ParsedPage) -> DeadLetter:
        self._metrics.count("headrace_dead_letters_total", 1, (page.error,))
        return DeadLetter(
            stage="parse",
            host_key=page.host_key,
            url=page.url,
            error=page.error,
            attempts=1,
            failed_ms=self._now(),
            record=encode(task),
            url_id=page.url_id,
        )


def _chunks(tasks: Sequence[ParseTask]) -> Iterator[Sequence[ParseTask]]:
    """In their order, none of more tasks or bytes than a chunk has, but for a body that is longer by itself."""
    start = size = 0
    for at, task in enumerate(tasks):
        if at > start and (at - start == CHUNK_TASKS or size + task.content.record_bytes > CHUNK_BYTES):
            yield tasks[start:at]
            start, size = at, 0
        size += task.content.record_bytes
    if tasks:
        yield tasks[start:]


async def _all_of(several: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """As gather; when one fails or all are cancelled, none of the others is left running."""
    tasks = [asyncio.create_task(one) for one in several]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
