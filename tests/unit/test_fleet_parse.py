"""The parse stage: bodies by reference, text stored before anybody hears of it, every task answered."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

import msgspec
import pytest

from connectors.ports import ParseOutput
from schemas.codec import decode, encode, encode_batch
from schemas.records import (
    BodyRef,
    DeadLetter,
    Kind,
    Link,
    OwnerMessage,
    OwnerMessageKind,
    ParsedPage,
    ParseTask,
)
from schemas.topics import partition_for
from streams.fleet.metrics import Metrics
from streams.fleet.parse import CHUNK_BYTES, CHUNK_TASKS, MEMO_MS, ParseStage
from streams.fleet.stage import Pace
from tests.support.stages import NOW_MS, InlineParser, MemoryTexts, RunningStage, turn

HOST = "https://a.test"
BODY = b"<title>Hi</title><p>some words<a href=/b>b</a><a href=https://c.test/>c</a>"
CONTENT = BodyRef("warc/x.warc.gz", 7, 70)


def task(path: str = "/", **more: object) -> ParseTask:
    facts = {"content_type": "text/html", **more}
    return ParseTask(bytes(16), HOST, HOST + path, 3, Kind.PAGE, CONTENT, 5, 1, 1, **facts)  # type: ignore[arg-type]


class World:
    """The stage over fakes; `bodies` by reference."""

    def __init__(self, partitions: int = 4) -> None:
        self.bodies: dict[BodyRef, bytes] = {CONTENT: BODY}
        self.parser, self.texts, self.metrics = InlineParser(), MemoryTexts(), Metrics("parse")
        self.now_ms = NOW_MS
        self.reading = 0
        self.reading_most = 0
        self.bodies_read = 0
        self.stage = ParseStage(
            self.parser,
            self._read,
            self.texts,
            partition_of=lambda key: partition_for(key, partitions),
            chunks_max=2,
            now=lambda: self.now_ms,
            metrics=self.metrics,
        )

    async def _read(self, refs: Sequence[BodyRef]) -> list[bytes | None]:
        self.reading += len(refs)
        self.bodies_read += len(refs)
        self.reading_most = max(self.reading_most, self.reading)
        await turn()
        self.reading -= len(refs)
        return [self.bodies.get(ref) for ref in refs]

    def work(self, *tasks: ParseTask) -> RunningStage:
        return self.work_value(encode_batch(tasks))

    def work_value(self, value: bytes) -> RunningStage:
        return asyncio.run(self._work(value))

    async def _work(self, value: bytes) -> RunningStage:
        async with RunningStage(self.stage.work) as running:
            running.reader.feed(0, value)
            await running.until(lambda: running.reader.committed[0] == 1)
            return running


def pages(running: RunningStage) -> list[ParsedPage]:
    return [page for _, value in running.sender.values("parsed-pages") for page in decode(value or b"", ParsedPage)]


def told(running: RunningStage) -> list[OwnerMessage]:
    return [one for _, value in running.sender.values("owner-messages") for one in decode(value or b"", OwnerMessage)]


def letters(running: RunningStage) -> list[DeadLetter]:
    return [one for _, value in running.sender.values("dead-letters") for one in decode(value or b"", DeadLetter)]


def test_a_task_becomes_a_page_and_a_word_to_its_owner() -> None:
    """Protects the whole way of a page through the stage: links, text's place, content hash, partition."""
    world = World()
    running = world.work(task())
    (page,) = pages(running)
    assert [link.url for link in page.links] == [HOST + "/b", "https://c.test/"]
    assert page.content_hash == hashlib.sha256(BODY).digest()
    assert page.text is not None
    assert world.texts.texts[page.text].startswith(b"some words")
    (message,) = told(running)
    assert (message.kind, message.to_key) == (OwnerMessageKind.PARSED, HOST)
    assert message.page is not None
    assert (message.page.text, message.page.links, message.page.links_omitted) == (page.text, (), 2)
    assert {one.partition for one in running.sender.sent} == {partition_for(HOST, 4)}
    assert letters(running) == []


def test_nobody_hears_of_a_page_before_its_text_is_durable() -> None:
    """Protects the index stage from references to segments that a killed parser never finished."""

    async def run() -> None:
        world = World()
        world.texts.waits = asyncio.Event()
        async with RunningStage(world.stage.work) as running:
            running.reader.feed(0, encode(task()))
            await running.until(lambda: len(world.texts.kept) == 1)
            await running.rest()
            assert running.sender.sent == []
            world.texts.waits.set()
            await running.until(lambda: running.reader.committed[0] == 1)

    asyncio.run(run())


def test_a_body_that_is_gone_is_a_page_with_an_error_and_a_dead_letter() -> None:
    """Protects the owner's backlog from a task that is never answered, and the operator's chance to repeat it."""
    world = World()
    lost = BodyRef("warc/lost.warc.gz", 1, 1)
    running = world.work(task(), msgspec.structs.replace(task("/lost"), content=lost))
    assert [page.error for page in pages(running)] == ["", "body_unreadable"]
    assert len(told(running)) == 2
    (letter,) = letters(running)
    assert (letter.stage, letter.error, letter.url) == ("parse", "body_unreadable", HOST + "/lost")
    assert decode(letter.record, ParseTask)[0].content == lost


@pytest.mark.parametrize("error", ["parser_died", "parse_timeout", "parse_memory"])
def test_a_page_that_ended_its_parser_costs_itself_alone(error: str) -> None:
    """Protects the other tasks of a message from a bomb among them."""
    world = World()

    def answer(one: ParseTask, body: bytes) -> ParseOutput:
        page = ParsedPage(one.url_id, one.host_key, one.url, one.url_version, one.kind, one.depth, 5, 1)
        return ParseOutput(msgspec.structs.replace(page, error=error if one.url.endswith("bomb") else ""))

    world.parser.answer = answer
    running = world.work(task("/1"), task("/bomb"), task("/2"))
    assert [page.error for page in pages(running)] == ["", error, ""]
    assert [letter.url for letter in letters(running)] == [HOST + "/bomb"]


def test_a_page_of_very_many_links_goes_in_parts_and_its_owner_hears_of_it_once() -> None:
    """Protects messages from the broker's limit, and the owner from counting a page once a part."""
    world = World()
    links = tuple(Link(f"{HOST}/{n:02000}", "a") for n in range(1_000))
    world.parser.answer = lambda one, body: ParseOutput(
        ParsedPage(one.url_id, one.host_key, one.url, one.url_version, one.kind, one.depth, 5, 1, links=links)
    )
    running = world.work(task())
    parts = pages(running)
    assert (len(parts), sum(len(part.links) for part in parts)) == (3, 1_000)
    assert all(len(value or b"") <= 900 * 1024 for _, value in running.sender.values("parsed-pages"))
    (message,) = told(running)
    assert message.page is not None
    assert (message.page.links_omitted, message.page.parts) == (1_000, 1)


def test_a_title_with_half_a_character_loses_no_page() -> None:
    """Protects a page from being given up for what its author typed."""
    world = World()
    world.parser.answer = lambda one, body: ParseOutput(
        ParsedPage(one.url_id, one.host_key, one.url, one.url_version, one.kind, one.depth, 5, 1, title="\ud800x")
    )
    running = world.work(task())
    assert [page.title for page in pages(running)] == ["?x"]
    assert letters(running) == []


def test_a_body_read_again_for_its_links_is_not_stored_again() -> None:
    """Protects the store from a second copy of every text when a scope grows."""
    world = World()
    running = world.work(msgspec.structs.replace(task(), kept=True))
    (page,) = pages(running)
    assert (world.texts.kept, page.text, len(page.links)) == ([], None, 2)


def test_few_bodies_are_in_memory_at_once() -> None:
    """Protects memory from a message of a hundred large bodies."""
    world = World()
    world.work(*[task(f"/{n}") for n in range(90)])
    assert world.reading_most == 2 * CHUNK_TASKS
    large = BodyRef("warc/large.warc.gz", 1, CHUNK_BYTES - 1)
    world.bodies[large] = BODY
    world.reading_most = 0
    world.work(*[msgspec.structs.replace(task(f"/{n}"), content=large) for n in range(9)])
    assert world.reading_most == 2


def test_a_stalled_parser_stops_the_reading_and_all_goes_on_after() -> None:
    """Protects memory while parsers stand still: what waits stays in its topic, and owners stop granting."""

    async def run() -> None:
        world = World()
        world.parser.stalled = asyncio.Event()
        pace = Pace(groups_max=2, open_messages_max=3, open_of_partition_max=3)
        async with RunningStage(world.stage.work, pace) as running:
            sent = 0
            for _ in range(50):
                if running.stage.room(0):  # as the reader asks before it reads on
                    running.reader.feed(0, encode_batch([task(f"/{sent}-{n}") for n in range(10)]))
                    sent += 1
                await running.rest()
            assert (sent, running.stage.open_messages(), world.stage.waiting) == (3, 3, 20)
            assert world.bodies_read == 20, "bodies wait in the store, not in memory"
            assert running.sender.sent == []
            world.parser.stalled.set()
            await running.until(lambda: running.reader.committed[0] == sent)
            assert len(pages(running)) == 30
            assert running.stage.room(0)

    asyncio.run(run())


def test_what_is_no_task_goes_to_the_dead_letters() -> None:
    """Protects the stage from strangers' messages, and those from being forgotten."""
    running = asyncio.run(World()._work(b"{}"))
    assert [letter.record for letter in letters(running)] == [b"{}"]
    assert pages(running) == []


def test_parsers_forget_now_and_then_what_they_named() -> None:
    """Protects URLs that an operator lets in later from being left out for ever: a parser's memo has an end."""
    world = World()
    for _ in range(2):
        world.work(task())
        world.work(task())
        world.now_ms += MEMO_MS
    first, second = world.parser.generations[::2]
    assert world.parser.generations == [first, first, second, second]
    assert second == first + 1


def test_parsers_name_links_again_whose_pages_may_never_have_gone_out() -> None:
    """Protects links from being lost: a parser took those of a group that was dropped for links that were on their way.

    A group whose bodies come only after its assignment has ended must not fill the memo that the next one meets.
    """

    async def run() -> list[int]:
        world, go_on = World(), asyncio.Event()

        async def slow(refs: Sequence[BodyRef]) -> list[bytes | None]:
            await go_on.wait()
            return [BODY for _ in refs]

        world.stage._read_bodies = slow
        async with RunningStage(world.stage.work, renewed=world.stage.forget) as running:
            await running.come_again(encode_batch([task()]), go_on)
        return world.parser.generations

    first, second = asyncio.run(run())
    assert second == first + 1


def test_parsers_name_links_again_after_a_group_that_failed() -> None:
    """Protects the links of a page that is worked alone after its group failed."""

    async def run() -> list[int]:
        world = World()
        keep = world.texts.keep
        failures = [OSError("away")]

        async def sometimes(several: Sequence[ParseOutput]) -> list[BodyRef | None]:
            if failures:
                raise failures.pop()
            return await keep(several)

        world.stage._texts.keep = sometimes  # type: ignore[method-assign]
        async with RunningStage(world.stage.work, Pace(group_messages_max=2)) as running:
            running.reader.feed(0, encode_batch([task("/a")]), encode_batch([task("/b")]))
            await running.until(lambda: running.reader.committed[0] == 2)
        return world.parser.generations

    before = asyncio.run(run())
    assert before[-1] == before[0] + 1
