"""The three runners over a scenario: the embedded engine, the fleet in memory, the simulator."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from connectors.crawldb_rocksdb import CrawlDb
from connectors.group_reader import Input
from connectors.ports import Record
from connectors.segments_local import PARSED, LocalSegments
from connectors.segments_scan import scan
from connectors.stage_sender import Output
from infra.folder import DATABASE
from infra.settings import Crawl, Scope, Settings
from infra.wiring import open_engine
from schemas.codec import encode_batch
from schemas.records import (
    BodyRef,
    DiscoveredUrl,
    FetchLease,
    FetchResult,
    Kind,
    Outcome,
    ParsedPage,
    ParseTask,
    Source,
    StoredResult,
)
from schemas.topics import partition_for
from streams.core import policy as bounds
from streams.core.facts import PageFacts
from streams.core.indexing import is_document, row_version
from streams.core.progress import EndReason
from streams.core.rows import UrlRow, decode_row
from streams.core.rules.urls import host_key
from streams.core.turn import Family
from streams.fleet.metrics import Metrics
from streams.fleet.parse import ParseStage
from streams.fleet.route import RouteStage
from streams.fleet.texts import SegmentTexts
from streams.simulation import backstage, embedded_owner, fleet_owner
from streams.simulation.faults import Faults
from streams.simulation.loop import START_MS, Loop
from streams.simulation.owner_process import Setting
from streams.simulation.web import Reply, Rules
from tests.scenarios.web import POLICY, ROUND_MS, Answer, Document, Findings, Scenario, ScenarioWeb, lines
from tests.support.fleet_in_memory import FleetInMemory
from tests.support.stages import InlineParser

_FACTS = msgspec.json.Decoder(PageFacts)
PARTITIONS = 3
INDEX_PARTITIONS = 2


def state_of(row: UrlRow) -> tuple[object, ...]:
    """What of a row does not depend on when things happened."""
    visit = row.visit
    seen: tuple[object, ...] = ()
    if visit is not None:
        seen = (visit.status, visit.error, visit.redirect_target, visit.content_hash.hex(), visit.content_version)
        seen += (visit.index, visit.follow, visit.title, visit.canonical, visit.links, visit.parse_error)
    return row.status.name, row.kind.value, row.source.value, row.depth, row.version, *seen


def document_of(row: UrlRow, text: str) -> Document:
    visit = row.visit
    assert visit is not None
    return Document(
        row.url,
        row_version(visit),
        visit.title,
        text,
        visit.canonical,
        f"{visit.simhash:016x}",
        visit.content_hash.hex(),
    )


def links_of_folder(root: Path) -> dict[tuple[str, int], frozenset[str]]:
    """By page and version, from the records of parsed pages."""
    found: dict[tuple[str, int], frozenset[str]] = {}
    for _, record in scan(root, PARSED, None):
        if record.type == "metadata":
            facts = _FACTS.decode(record.payload)
            named = frozenset([link.url for link in facts.links] + [entry.url for entry in facts.entries])
            key = facts.url, facts.url_version
            found[key] = found.get(key, frozenset()) | named
    return found


# --- embedded -----------------------------------------------------------------------------------------------------


def embedded(scenario: Scenario, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Findings:
    """A crawl of a folder, refreshed once a round."""
    web: ScenarioWeb | None = None

    def opened(settings: Settings, now: object) -> ScenarioWeb:
        nonlocal web
        before = web
        web = ScenarioWeb(scenario, now)  # type: ignore[arg-type]
        web.round = 0 if before is None else before.round + 1
        return web

    monkeypatch.setattr("infra.web.open_web", opened)
    settings = Settings(crawl=Crawl(workers=1, scope=Scope.ANY, wait_max_s=20), politeness=POLICY.politeness)
    for round_ in range(len(scenario.rounds)):
        seeds = _seeds(scenario, 1) if not round_ else []
        summary = asyncio.run(open_engine(settings, seeds, folder, refresh=round_ > 0).run())
        assert summary.reason is EndReason.COMPLETE, (summary.reason, summary.reason_detail)
    db = CrawlDb(folder / DATABASE)
    rows = [decode_row(raw) for _, raw in db.scan(Family.URL)]
    db.close()
    segments = LocalSegments(folder, crawl_id="look", epoch=9)
    documents = {}
    for row in rows:
        if is_document(row):
            assert row.visit is not None
            text = b"" if row.visit.text is None else segments.read(row.visit.text)
            documents[row.url] = document_of(row, text.decode())
    segments.close()
    return Findings({row.url: state_of(row) for row in rows}, links_of_folder(folder), documents)


def _seeds(scenario: Scenario, now_ms: int) -> list[DiscoveredUrl]:
    return [DiscoveredUrl(url, host_key(url), Source.SEED, now_ms) for url in scenario.seeds]


# --- the fleet in memory ------------------------------------------------------------------------------------------


class ScenarioFleet(FleetInMemory):
    """Owners as they are, with real parse and route stages over the same broker."""

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        super().__init__(
            folder / "disks", lambda url, kind: pytest.fail("not asked"), policy=POLICY, partitions=PARTITIONS
        )
        self.web = ScenarioWeb(scenario, lambda: self.now_ms)
        self.root = folder / "store"
        self.segments = LocalSegments(self.root, crawl_id="fleet", epoch=1)
        self.loop = asyncio.new_event_loop()
        metrics = Metrics("parse")
        self.parse = ParseStage(
            InlineParser(),
            self._read,
            SegmentTexts(self.segments, hold_ms=0),
            partition_of=self._partition_of,
            chunks_max=2,
            now=lambda: self.now_ms,
            metrics=metrics,
        )
        self.route = RouteStage(
            self._read,
            partition_of=self._partition_of,
            index_partitions=INDEX_PARTITIONS,
            follow_nofollow=False,
            now=lambda: self.now_ms,
            metrics=metrics,
        )
        self.events: list[Output] = []
        self._next: dict[tuple[str, int], int] = {}

    def _partition_of(self, key: str) -> int:
        return partition_for(key, PARTITIONS)

    async def _read(self, refs: Sequence[BodyRef]) -> list[bytes | None]:
        return [self.segments.read(ref) for ref in refs]

    def _parse(self) -> bool:
        """Parse what was stored, route what was parsed."""
        found = self._stage("parse-tasks", self.parse.work)
        return self._stage("parsed-pages", self.route.work) or found

    def _stage(self, topic: str, work: object) -> bool:
        found = False
        for partition in range(PARTITIONS):
            place = topic, partition
            start = self._next.get(place, 0)
            records = self.broker.committed(topic, partition)[start:]
            if records:
                found = True
                self._next[place] = start + len(records)
                inputs = [Input(partition, start + at, one.value, self.now_ms) for at, one in enumerate(records)]
                self._release(self.loop.run_until_complete(work(inputs)))  # type: ignore[operator]
        return found

    def _release(self, outputs: Iterable[Output]) -> None:
        for one in outputs:
            assert one.topic != "dead-letters", one
            if one.topic == "index-events":
                self.events.append(one)
            with self.broker.lock:
                place = self.broker.topics.setdefault((one.topic, one.partition), [])
                place.append(Record(one.topic, one.partition, one.key, one.value))

    def _answer(self, partition: int, lease: FetchLease) -> None:
        fetched = self.web.answer(lease)
        self.send("fetch-results", partition, encode_batch([fetched.result]))
        response = fetched.response
        if response is None or lease.kind is Kind.ROBOTS:
            return
        content_hash = hashlib.sha256(response.body).digest()
        ref = self.segments.append_response(lease.url, response, content_hash)
        said = self.web.scenario.answer(lease.url, self.web.round)
        self.send("stored-results", partition, encode_batch([_stored(lease, fetched.result, said, ref)]))

    def end(self) -> None:
        self.loop.close()
        self.segments.close()
        self.close()


def _stored(lease: FetchLease, result: FetchResult, said: Answer, ref: BodyRef) -> StoredResult:
    return StoredResult(
        lease_id=lease.lease_id,
        host_key=lease.host_key,
        url_id=lease.url_id,
        url_version=lease.url_version,
        content_hash=hashlib.sha256(said.body).digest(),
        body=ref,
        content=ref,
        content_type=result.content_type,
        robots_tags=lines(said, b"x-robots-tag"),
        link_headers=lines(said, b"link"),
    )


def fleet(scenario: Scenario, folder: Path) -> Findings:
    """Owners of several partitions, parse and route stages; the clock is moved on by a round."""
    world = ScenarioFleet(folder, scenario)
    world.seed(*scenario.seeds)
    start_ms = world.now_ms
    for round_ in range(len(scenario.rounds)):
        world.web.round = round_
        world.now_ms = max(world.now_ms, start_ms + round_ * (ROUND_MS + bounds.HOUR_MS))
        world.run()
    rows = [row for _, row in _rows_of(world)]
    found = Findings({row.url: state_of(row) for row in rows}, {}, _index_of(world.events))
    world.end()
    found.links = links_of_folder(world.root)
    return found


def _rows_of(world: ScenarioFleet) -> Iterator[tuple[str, UrlRow]]:
    hosts = {url.rsplit("/", 1)[0] if url.count("/") < 3 else host_key(url) for url in world.web.asked}
    named = {host_key(url) for answers in world.web.scenario.rounds for url in answers}
    for host in sorted(hosts | named):
        yield from world.rows(host).items()


def _index_of(events: Iterable[Output]) -> dict[str, Document]:
    """What the sink makes of the events: of each id the highest version stands."""
    newest: dict[bytes, tuple[int, bytes | None]] = {}
    for one in events:
        version = int(dict(one.headers)["doc_version"])
        key = one.key or b""
        if key not in newest or newest[key][0] < version:
            newest[key] = version, one.value
    found = {}
    for version, value in newest.values():
        if value is not None:
            fields = json.loads(value)
            assert fields["doc_version"] == version
            found[fields["url"]] = Document(
                fields["url"],
                version,
                fields["title"],
                fields["text"],
                fields["canonical"],
                fields["simhash"],
                fields["content_hash"],
            )
    return found


# --- the simulator ------------------------------------------------------------------------------------------------


class SimulatedWeb:
    """A scenario as the simulator asks its web."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.round = scenario, 0
        self.hosts = {host_key(url): None for answers in scenario.rounds for url in answers}
        self.bodies: dict[BodyRef, bytes] = {}
        self.texts: dict[BodyRef, bytes] = {}
        self.links: dict[tuple[str, int], frozenset[str]] = {}

    def seeds(self) -> list[str]:
        return list(self.scenario.seeds)

    def address(self, host_key: str, now_ms: int) -> str:
        return "203.0.113.1"

    def answer(self, lease: FetchLease, now_ms: int) -> Reply:
        said = self.scenario.answer(lease.url, self.round)
        disallow = tuple(
            line.partition(":")[2].strip()
            for line in said.body.decode("latin-1").splitlines()
            if line.startswith("Disallow:")
        )
        rules = Rules(disallow) if lease.kind is Kind.ROBOTS else None
        return Reply(20, said.status, said.head().headers, said.body, rules=rules)

    def stored(self, lease: FetchLease, result: FetchResult, reply: Reply) -> StoredResult:
        ref = BodyRef("warc/simulated", len(self.bodies), 1)
        self.bodies[ref] = reply.body
        return _stored(lease, result, self.scenario.answer(lease.url, self.round), ref)

    def parsed(self, web: object, task: ParseTask, error: str) -> ParsedPage:
        from connectors.parser_worker import parse

        assert not error
        output = parse(task, self.bodies[task.content], bounds.ParseLimits(), "headrace")
        page = output.page
        key = page.url, page.url_version
        named = frozenset([link.url for link in page.links] + [entry.url for entry in page.entries])
        self.links[key] = self.links.get(key, frozenset()) | named
        if not output.text:
            return page
        ref = BodyRef("parsed/simulated", len(self.texts), 1)
        self.texts[ref] = output.text
        return msgspec.structs.replace(page, text=ref)


def simulated(scenario: Scenario, monkeypatch: pytest.MonkeyPatch, *, seed: int, kind: str) -> Findings:
    """One of the simulator's two crawlers in its virtual time, with the races of its seed and without faults."""
    web, loop = SimulatedWeb(scenario), Loop(seed)
    monkeypatch.setattr(backstage, "parsed_page", web.parsed)
    for module in (embedded_owner, fleet_owner):
        monkeypatch.setattr(module, "stored_result", web.stored)
    faults = Faults(loop.random("faults"))
    faults.calm = True
    setting = Setting(loop, web, POLICY, faults, leases_max=16, parses_max=16)  # type: ignore[arg-type]
    end_ms = START_MS + len(scenario.rounds) * (ROUND_MS + bounds.HOUR_MS)
    runner = fleet_owner.Fleet(setting, end_ms) if kind == "fleet" else embedded_owner.Engine(setting)
    loop.at(START_MS, runner.start)
    for round_ in range(len(scenario.rounds)):
        web.round = round_
        loop.run(START_MS + round_ * (ROUND_MS + bounds.HOUR_MS) + ROUND_MS // 2)
    rows = [decode_row(raw) for _, raw in runner.store.scan(Family.URL)]
    documents = {}
    for row in rows:
        if is_document(row):
            assert row.visit is not None
            text = b"" if row.visit.text is None else web.texts[row.visit.text]
            documents[row.url] = document_of(row, text.decode())
    return Findings({row.url: state_of(row) for row in rows}, web.links, documents)


__all__ = ["Outcome", "embedded", "fleet", "simulated"]
