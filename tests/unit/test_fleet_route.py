"""The route stage: every link to its owner, known ones left out, every page to the index in its version."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from connectors.stage_sender import Output
from schemas.codec import decode, encode, encode_batch
from schemas.records import BodyRef, DeadLetter, DiscoveredUrl, Kind, Link, ParsedPage, SitemapEntry, Source
from schemas.topics import partition_for
from streams.core.indexing import WITHDRAWN
from streams.fleet.metrics import Metrics
from streams.fleet.parse import MEMO_MS
from streams.fleet.route import RouteStage
from streams.fleet.stage import Pace
from tests.support.stages import NOW_MS, MemoryTexts, RunningStage

HOST = "https://a.test"
TEXT = BodyRef("parsed/x.warc.gz", 9, 9)
INDEX_PARTITIONS = 3


def page(*links: str, **more: Any) -> ParsedPage:
    facts = {"title": "T", "text_bytes": 4, "text": TEXT, **more}
    named = tuple(Link(url, "a") for url in links)
    return ParsedPage(b"\2" * 16, HOST, HOST + "/x", 3, Kind.PAGE, 1, 5, 1, links=named, **facts)


class World:
    """The stage over fakes."""

    def __init__(self) -> None:
        self.texts, self.metrics = MemoryTexts(), Metrics("route")
        self.texts.texts[TEXT] = "wörd".encode()
        self.now_ms = NOW_MS
        self.stage = RouteStage(
            self.texts.read,
            partition_of=lambda key: partition_for(key, 4),
            index_partitions=INDEX_PARTITIONS,
            follow_nofollow=False,
            now=lambda: self.now_ms,
            metrics=self.metrics,
        )

    def route(self, *values: bytes) -> list[Output]:
        return asyncio.run(self._route(values))

    async def _route(self, values: tuple[bytes, ...]) -> list[Output]:
        pace = Pace(group_messages_max=8)
        async with RunningStage(self.stage.work, pace, topic="parsed-pages") as running:
            running.reader.feed(0, *values)
            await running.until(lambda: running.reader.committed[0] == len(values))
            return running.sender.sent


def found(outputs: list[Output]) -> list[DiscoveredUrl]:
    return [url for one in outputs if one.topic == "discovered-urls" for url in decode(one.value or b"", DiscoveredUrl)]


def events(outputs: list[Output]) -> list[Output]:
    return [one for one in outputs if one.topic == "index-events"]


def test_links_go_in_batches_to_the_owners_of_their_hosts() -> None:
    """Protects hosts from URLs at the wrong owner, and owners from a message a link."""
    hosts = [f"https://h{n}.test" for n in range(9)]
    outputs = World().route(
        encode(page(*[f"{host}/{n}" for n in range(20) for host in hosts], HOST + "/x")),
        encode(page(*[f"{host}/more" for host in hosts])),
    )
    batches = [one for one in outputs if one.topic == "discovered-urls"]
    assert len(batches) <= 4 + 9 * 21 // 100
    for one in batches:
        assert {partition_for(url.host_key, 4) for url in decode(one.value or b"", DiscoveredUrl)} == {one.partition}
    urls = found(outputs)
    assert {url.url for url in urls} == {f"{host}/{n}" for n in [*range(20), "more"] for host in hosts}
    assert {(url.source, url.depth, url.parent_id, url.discovered_ms) for url in urls} == {
        (Source.LINK, 2, b"\2" * 16, NOW_MS)
    }


def test_links_named_lately_are_left_out_for_a_while() -> None:
    """Protects owners from the many known links of real pages, and operators' changes from being slept through."""
    world = World()
    message = encode(page(HOST + "/a", HOST + "/b"))
    assert len(found(world.route(message))) == 2
    assert found(world.route(message)) == []
    nearer = msgspec.structs.replace(page(HOST + "/a"), depth=0)
    assert [url.depth for url in found(world.route(encode(nearer)))] == [1]
    world.now_ms += MEMO_MS
    assert len(found(world.route(message))) == 2


def test_a_group_that_failed_leaves_nothing_in_the_memo() -> None:
    """Protects links from being left out because of messages that were never sent."""
    world = World()

    async def away(refs: Sequence[BodyRef]) -> list[bytes | None]:
        raise OSError("away")

    world.stage._read_texts = away
    outputs = world.route(encode(page(HOST + "/a")))
    assert found(outputs) == []
    world.stage._read_texts = world.texts.read
    assert len(found(world.route(encode(page(HOST + "/a"))))) == 1


def test_links_of_a_partition_that_went_and_came_back_are_named_again() -> None:
    """Protects links from being lost: those of a group that was never sent stood in the memo as if they had gone out.

    Found as two URLs of two hundred that were missing after the brokers had been away.
    """

    async def run() -> list[Output]:
        world, go_on = World(), asyncio.Event()

        async def slow(refs: Sequence[BodyRef]) -> list[bytes | None]:
            await go_on.wait()
            return await world.texts.read(refs)

        world.stage._read_texts = slow
        async with RunningStage(world.stage.work, topic="parsed-pages", renewed=world.stage.forget) as running:
            await running.come_again(encode(page(HOST + "/a")), go_on)
            return running.sender.sent

    assert len(found(asyncio.run(run()))) == 1


def test_a_sitemaps_entries_are_routed_with_their_dates_and_are_no_document() -> None:
    """Protects lastmod and the index when a sitemap comes through."""
    sitemap = ParsedPage(
        b"\3" * 16, HOST, HOST + "/sitemap.xml", 1, Kind.SITEMAP, 0, 5, 1, entries=(SitemapEntry(HOST + "/s", 77),)
    )
    outputs = World().route(encode(sitemap))
    assert [(url.url, url.source, url.lastmod_ms) for url in found(outputs)] == [(HOST + "/s", Source.SITEMAP, 77)]
    assert events(outputs) == []


def test_a_page_becomes_a_document_with_its_text_and_version() -> None:
    """Protects the contract with the sink: key, partition, header, JSON."""
    world = World()
    (event,) = events(world.route(encode(page())))
    key = "02" * 16
    assert (event.key, event.partition) == (key.encode(), partition_for(key, INDEX_PARTITIONS))
    version = 3 << 20 | 3
    assert event.headers == (("doc_version", str(version).encode()),)
    fields = json.loads(event.value or b"")
    assert (fields["text"], fields["doc_version"], fields["title"]) == ("wörd", version, "T")
    assert 'headrace_documents_total{stage="route",kind="upsert"} 1' in world.metrics.page()


def test_noindex_and_withdrawn_pages_are_deletes() -> None:
    """Protects searches from what is gone or unwanted: null values, with a version like any other."""
    gone = msgspec.structs.replace(page(), url_version=4, error=WITHDRAWN, index=False, title="", text=None)
    outputs = events(World().route(encode_batch([page(index=False), gone])))
    assert [one.value for one in outputs] == [None, None]
    versions = [int(one.headers[0][1]) for one in outputs]
    assert versions == sorted(versions)


def test_the_versions_of_a_url_keep_their_order() -> None:
    """Protects the sink from a document and its delete turned round, where one text takes longer to read."""

    async def run() -> None:
        world = World()
        later = asyncio.Event()

        async def slow(refs: Sequence[BodyRef]) -> list[bytes | None]:
            await later.wait()
            return [b"text"] * len(refs)

        world.stage._read_texts = slow
        async with RunningStage(world.stage.work, topic="parsed-pages") as running:
            running.reader.feed(0, encode(page()), encode(page(index=False)))
            await running.rest()
            assert running.sender.sent == []
            later.set()
            await running.until(lambda: running.reader.committed[0] == 2)
            assert [one.value is None for one in events(running.sender.sent)] == [False, True]

    asyncio.run(run())


def test_a_text_that_is_gone_costs_the_document_and_not_the_links() -> None:
    """Protects a page's links from a lost segment, and the page's document from standing empty."""
    lost = BodyRef("parsed/lost.warc.gz", 1, 1)
    outputs = World().route(encode(page(HOST + "/a", text=lost)))
    assert [url.url for url in found(outputs)] == [HOST + "/a"]
    assert events(outputs) == []
    (letter,) = [one for out in outputs if out.topic == "dead-letters" for one in decode(out.value or b"", DeadLetter)]
    assert (letter.stage, letter.error) == ("route", "text_unreadable")
    assert decode(letter.record, ParsedPage)[0].text == lost
