"""Parse and route on a real Kafka and a real store: nothing lost, whoever is killed, joins, leaves or is away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.records import BodyRef, DiscoveredUrl, Kind, OwnerMessage, ParsedPage, Source
from streams.core.indexing import doc_version, revision, withdrawal
from streams.core.rows import UrlRow
from streams.core.rules.urls import host_key, url_id
from tests.services.conftest import Fleet
from tests.support.fleet_world import until
from tests.support.sink_world import Connector, Index
from tests.support.stage_world import StageWorld, now_and_then, repeats, task_of

HOSTS = 12
PAGES = 50  # of a host


@pytest.fixture
def world(fleet: Fleet, tmp_path: Path) -> Iterator[StageWorld]:
    made = StageWorld(fleet.up("kafka", "s3"), tmp_path)
    yield made
    made.close()


def url_of(host: int, page: int) -> str:
    return f"http://h{host}.test/{page}"


def pages(hosts: int = HOSTS, count: int = PAGES) -> dict[str, bytes]:
    """Each links to the next of its host and to one of the next host; every tenth wants no document."""
    made = {}
    for host in range(hosts):
        for page in range(count):
            robots = "<meta name=robots content=noindex>" if page % 10 == 3 else ""
            links = f"<a href={url_of(host, page + 1)}>a</a><a href={url_of((host + 1) % hosts, page)}>b</a>"
            body = f"<title>Page {page} of {host}</title>{robots}<p>Words of page {page}.{links}"
            made[url_of(host, page)] = body.encode()
    return made


def check(world: StageWorld, bodies: dict[str, bytes]) -> dict[str, int]:
    """Every task became a page, a word to its owner, its links and its document. How much came more than once."""
    parsed: list[ParsedPage] = world.read("parsed-pages")
    assert {page.url for page in parsed} == bodies.keys()
    for page in parsed:
        assert (page.error, len(page.links) + page.links_omitted) == ("", 2)
        assert page.text is not None
    told: list[OwnerMessage] = world.read("owner-messages")
    assert {one.page.url for one in told if one.page is not None} == bodies.keys()
    found: list[DiscoveredUrl] = world.read("discovered-urls")
    named = {link for url in bodies for link in _links(bodies[url])}
    assert {one.url for one in found} == named
    events = world.read("index-events")
    assert {one.key for one in events} == {url_id(url).hex() for url in bodies}
    documents = {one.key: json.loads(one.value) for one in events if one.value is not None}
    assert {one["url"] for one in documents.values()} == {url for url in bodies if b"noindex" not in bodies[url]}
    for one in documents.values():
        page_number, host = one["url"].rpartition("/")[2], one["url"][8:].partition(".")[0]
        assert (one["title"], one["text"][:15]) == (
            f"Page {page_number} of {host}",
            f"Words of page {page_number}"[:15],
        )
    assert world.read("dead-letters") == []
    return {
        "parsed-pages": repeats([page.url for page in parsed]),
        "owner-messages": repeats([one.page.url for one in told if one.page is not None]),
        "index-events": repeats([one.key for one in events]),
    }


def _links(body: bytes) -> list[str]:
    return [part.partition(b">")[0].decode() for part in body.split(b"href=")[1:]]


def settled(world: StageWorld) -> bool:
    return (
        world.lag("headrace-parse", "parse-tasks") == 0
        and world.lag("headrace-route", "parsed-pages") == 0
        and len(world.read("parsed-pages")) > 0
    )


def said(world: StageWorld) -> str:
    return "\n".join(worker.said() for worker in world.workers)


def test_workers_come_go_and_are_killed(world: StageWorld) -> None:
    """Protects every page, link and document from a worker's end, and counts what is done twice for it."""
    bodies = pages()
    tasks = world.store(bodies)
    half = len(tasks) // 2
    first, router = world.worker("parse", "parse-a"), world.worker("route", "route-a")
    world.send(tasks[:half], batch=5)
    until(lambda: len(world.read("parsed-pages")) > 20, "pages\n" + first.said())
    world.worker("parse", "parse-b")
    first.kill()
    world.send(tasks[half:], batch=5)
    until(lambda: len(world.read("index-events")) > half // 2, "documents\n" + router.said())
    second = world.worker("route", "route-b")
    router.kill()
    third = world.worker("parse", "parse-c")
    until(now_and_then(lambda: settled(world)), "all of it\n" + said(world), 120)
    twice = check(world, bodies)
    print(f"done twice, of {len(bodies)} pages: {twice}")
    assert twice["parsed-pages"] < len(bodies) / 2, "a killed worker costs what was open, not everything"
    assert (second.ended(), third.ended()) == (0, 0)


def test_services_that_are_away_are_waited_for(world: StageWorld, fleet: Fleet) -> None:
    """Protects pages from the dead letters, and from being lost, while the store or the brokers are away."""
    bodies = pages(hosts=4)
    tasks = world.store(bodies)
    parser, router = world.worker("parse", "parse-a"), world.worker("route", "route-a")
    world.send(tasks[:50], batch=5)
    until(lambda: len(world.read("index-events")) > 10, "documents\n" + said(world))
    fleet.down("s3")
    world.send(tasks[50:120], batch=5)
    until(lambda: "s3: waits to" in parser.said(400), "the parser to wait\n" + said(world))
    fleet.up("s3")
    until(now_and_then(lambda: settled(world)), "all up to here\n" + said(world), 120)
    fleet.down("kafka")
    fleet.up("kafka")
    world.send(tasks[120:], batch=5)
    until(now_and_then(lambda: settled(world) and len(_urls(world)) == len(bodies)), "the rest\n" + said(world), 120)
    check(world, bodies)
    assert (parser.process.poll(), router.process.poll()) == (None, None), said(world)


def test_a_search_finds_what_was_parsed_and_a_replay_raises_it(world: StageWorld, fleet: Fleet) -> None:
    """Protects the way from a body to a search: through sink and index, replayed, and withdrawn by its owner."""
    at = fleet.up("connect", "opensearch")
    index = Index(at["opensearch"], "stages-test")
    index.make()
    connector = Connector(at["connect"], at["opensearch"], "stages-test", topic="index-events", index=index.name)
    connector.start()
    bodies = pages(hosts=3, count=20)
    wanted = {url_id(url).hex() for url in bodies if b"noindex" not in bodies[url]}
    tasks = world.store(bodies)
    world.worker("parse", "parse-a")
    world.worker("route", "route-a")
    world.send(tasks)
    until(now_and_then(lambda: index.documents().keys() == wanted), "all documents\n" + said(world), 120)
    found = index.documents()
    assert {one.version for one in found.values()} == {doc_version(1, revision(1, well=True))}
    assert {one.source["url"] for one in found.values()} == {url for url in bodies if b"noindex" not in bodies[url]}

    fetched = len(world.read("owner-messages"))
    world.send([msgspec.structs.replace(task, extractor_version=2) for task in tasks])
    raised = doc_version(1, revision(2, well=True))
    until(now_and_then(lambda: {one.version for one in index.documents().values()} == {raised}), "newer documents", 120)
    assert index.documents().keys() == wanted
    assert len(world.read("owner-messages")) == fetched + len(tasks), "owners hear of a replay, too"

    gone = url_of(1, 1)
    row = UrlRow(gone, Source.LINK, Kind.PAGE, 0, 0, b"", 128, 1)
    world.publish("parsed-pages", [withdrawal(row, url_id(gone), host_key(gone), 2, 9)])
    until(now_and_then(lambda: index.documents().keys() == wanted - {url_id(gone).hex()}), "one document fewer", 120)
    world.send(tasks)  # late readings of what was there before
    until(now_and_then(lambda: settled(world)), "the repeats\n" + said(world), 120)
    connector.stop()
    assert index.documents().keys() == wanted - {url_id(gone).hex()}
    assert {one.version for one in index.documents().values()} == {raised}
    connector.delete()
    index.drop()


def _urls(world: StageWorld) -> set[str]:
    found: list[Any] = world.read("parsed-pages")
    return {page.url for page in found}


def test_a_lost_body_and_a_bomb_cost_themselves_alone(world: StageWorld) -> None:
    """Protects the other pages of a message, and the operator's view of what could not be read."""
    bodies = {
        url_of(1, 1): b"<title>Good</title><p>words",
        url_of(1, 2): b"<title>x</title><p>" + b"<b " + b"a=1 " * 200_000,
    }
    tasks = world.store(bodies)
    lost = task_of(url_of(1, 3), BodyRef("warc/nowhere.warc.gz", 0, 100))
    world.worker("parse", "parse-a")
    world.send([*tasks, lost], batch=3)
    until(lambda: len(world.read("owner-messages")) == 3, "three pages\n" + said(world))
    errors = {one.page.url: one.page.error for one in world.read("owner-messages")}
    assert errors[url_of(1, 1)] == ""
    assert errors[url_of(1, 3)] == "body_unreadable"
    assert [(one.url, one.stage) for one in world.read("dead-letters")] == [(url_of(1, 3), "parse")]
