"""Texts in segments: several pages share a round, and nobody goes on before the round that has his page is over."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from connectors.files import StoreFailed
from connectors.ports import ParseOutput, Response, StoredContent
from schemas.records import BodyRef, Kind, ParsedPage
from streams.core.failures import CrawlError
from streams.fleet.texts import SegmentTexts
from tests.support.stages import until


class Segments:
    """The port, with rounds that the test lets go on."""

    def __init__(self) -> None:
        self.appended: list[str] = []
        self.rounds: list[list[str]] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.full = False
        self.began = 0

    def append_response(
        self, url: str, response: Response, content_hash: bytes, duplicate_of: StoredContent | None
    ) -> BodyRef:
        raise AssertionError("no bodies here")

    def append_parsed(self, output: ParseOutput) -> BodyRef | None:
        if self.full:
            raise StoreFailed("spool: needed room, the disk is full")
        self.appended.append(output.page.url)
        return BodyRef("parsed/x", len(self.appended), 1) if output.text else None

    def sync(self) -> None:
        had = list(self.appended)
        self.began += 1
        assert self.go_on.wait(10)
        self.rounds.append(had)

    def read(self, ref: BodyRef) -> bytes:
        raise AssertionError("not read")


def outputs(*names: str) -> list[ParseOutput]:
    return [
        ParseOutput(ParsedPage(bytes(16), "http://a.test", name, 1, Kind.PAGE, 0, 1, 1), name.encode())
        for name in names
    ]


async def both(*waiting: asyncio.Task[list[BodyRef | None]]) -> Sequence[list[BodyRef | None]]:
    return await asyncio.wait_for(asyncio.gather(*waiting), 10)


def test_pages_that_come_together_share_a_round() -> None:
    """Protects the object store from an object a page, and the order of references."""

    async def run() -> None:
        segments = Segments()
        texts = SegmentTexts(segments, hold_ms=20)
        first, second = await both(
            asyncio.create_task(texts.keep(outputs("a", "b"))), asyncio.create_task(texts.keep(outputs("c")))
        )
        assert [ref.offset_bytes for ref in (*first, *second) if ref is not None] == [1, 2, 3]
        assert segments.rounds == [["a", "b", "c"]]

    asyncio.run(run())


def test_a_page_that_comes_during_a_round_waits_for_the_next() -> None:
    """Protects against word of a page whose segment was taken for upload before it was appended."""

    async def run() -> None:
        segments = Segments()
        texts = SegmentTexts(segments, hold_ms=0)
        segments.go_on.clear()
        first = asyncio.create_task(texts.keep(outputs("a")))
        await until(lambda: segments.began == 1)
        second = asyncio.create_task(texts.keep(outputs("b")))
        await until(lambda: len(segments.appended) == 2)
        assert not first.done()
        segments.go_on.set()
        await both(first, second)
        assert sorted(segments.rounds, key=len) == [["a"], ["a", "b"]]

    asyncio.run(run())


def test_a_disk_that_is_full_ends_the_worker_and_no_page() -> None:
    """Protects pages from the dead letters for what is the machine's fault."""

    async def run() -> None:
        segments = Segments()
        segments.full = True
        with pytest.raises(CrawlError, match="the disk is full"):
            await SegmentTexts(segments, hold_ms=0).keep(outputs("a"))

    asyncio.run(run())
