"""The owner's commit, cut off at every step on a real Kafka: what the fetcher's own log and the tables show of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.records import Kind
from streams.core.rows import Status
from streams.fleet.commit import STEPS
from streams.fleet.owner import TAKEOVER_STEPS
from tests.services.conftest import Fleet
from tests.support.fleet_worker import KILLED
from tests.support.fleet_world import FleetWorld, until
from tests.support.scripted_fetcher import Answer, ScriptedFetcher, judge

DELAY_MS = 100
HOSTS = 24
URLS = 40  # of a host: at one delay each, and one for robots.txt, the crawl goes on while workers come and go


def url_of(host: int, page: int) -> str:
    return f"http://h{host}.test/{page}"


def web(url: str, kind: Kind) -> Answer:
    """Every tenth page is gone, every tenth leads to another host, all others have a body."""
    if kind is Kind.ROBOTS:
        return Answer()
    page = int(url.rpartition("/")[2])
    if page % 10 == 3:
        return Answer(status=404)
    if page % 10 == 7 and page < 1_000:
        return Answer(status=302, redirect_to=f"http://h{(page * 7) % HOSTS}.test/{1_000 + page}")
    return Answer(body=url.encode())


def reference() -> dict[str, tuple[int, bytes]]:
    """URL → status and content hash of a crawl that nothing disturbs: what the web says of all that is found."""
    found: dict[str, tuple[int, bytes]] = {}
    left = [url_of(host, page) for host in range(HOSTS) for page in range(URLS)]
    while left:
        url = left.pop()
        if url in found:
            continue
        answer = web(url, Kind.PAGE)
        found[url] = answer.status, hashlib.sha256(answer.body).digest() if answer.body else b""
        if answer.redirect_to:
            left.append(answer.redirect_to)
    return found


class Crawl:
    """A world with its fetcher, and the questions that every test asks at its end."""

    def __init__(self, kafka: str, folder: Path) -> None:
        self.world = FleetWorld(kafka, folder, delay_ms=DELAY_MS)
        self.fetcher = ScriptedFetcher(kafka, self.world.partitions, web)

    def start(self) -> None:
        self.world.seed(url_of(host, page) for host in range(HOSTS) for page in range(URLS))
        self.fetcher.start()

    def complete(self) -> bool:
        rows = self.world.rows()
        return rows.keys() == reference().keys() and all(row.visit is not None for row in rows.values())

    def check(self) -> None:
        """The judge found nothing, and the tables are the reference's."""
        until(self.complete, "the crawl to be complete\n" + self.said(), 90)
        assert judge(self.fetcher.log, DELAY_MS) == []
        rows = self.world.rows()
        visits = {url: row.visit for url, row in rows.items()}
        assert {
            url: (visit.status, visit.content_hash) for url, visit in visits.items() if visit is not None
        } == reference()
        assert {url: visit.visits for url, visit in visits.items() if visit is not None and visit.visits != 1} == {}
        assert {url: row.version for url, row in rows.items() if row.version != 1} == {}
        assert {row.status for row in rows.values()} == {Status.FETCHED, Status.FAILED, Status.REDIRECT}

    def said(self) -> str:
        return "\n".join(worker.said() for worker in self.world.workers[-2:])

    def close(self) -> None:
        self.world.close()
        self.fetcher.stop()


@pytest.fixture
def crawl(fleet: Fleet, tmp_path: Path) -> Iterator[Crawl]:
    made = Crawl(fleet.up("kafka")["kafka"], tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_killed_at_every_step(crawl: Crawl) -> None:
    """A kill between any two steps of the commit, in the transaction, after it, and in a takeover loses nothing,
    asks nobody too soon and repeats no lease: one worker after another, on the disk of the one before or on none."""
    crawl.start()
    for number, step in enumerate((*STEPS, *TAKEOVER_STEPS)):
        after = 0 if step in TAKEOVER_STEPS else 9
        # Every third finds no disk, so its index is loaded from the shared rows.
        worker = crawl.world.worker(f"w{number}" if number % 3 == 2 else "a", end_at=step, after=after)
        assert worker.ended(90) == KILLED, (step, worker.said())
    crawl.world.worker("a")
    crawl.check()


def test_a_stopped_owner_that_wakes_is_fenced(crawl: Crawl) -> None:
    """An owner that stands still past its session, with its transaction sent and not committed, wakes when another
    has taken over: nothing of it appears, and what it tries is refused."""
    stopped = crawl.world.worker("a", stop_at="sent", after=40)
    crawl.start()
    until(stopped.stopped, "the first owner to stand still")
    other = crawl.world.worker("b")
    until(lambda: "owned from epoch 2" in other.said(400), "the other to take over\n" + other.said())
    before = len(crawl.fetcher.log)
    until(lambda: len(crawl.fetcher.log) > before + HOSTS, "the other to go on")
    stopped.wake()
    until(lambda: "lost" in stopped.said(400) or stopped.process.poll() is not None, "the first to learn of it")
    crawl.check()


def test_a_stopped_owner_with_rows_to_write_changes_nothing(crawl: Crawl) -> None:
    """One that stands still between its transaction and its rows wakes after another has written newer ones: the late
    rows lose by their stamps."""
    stopped = crawl.world.worker("a", stop_at="committed", after=40)
    crawl.start()
    until(stopped.stopped, "the first owner to stand still")
    other = crawl.world.worker("b")
    until(lambda: "owned from epoch 2" in other.said(400), "the other to take over\n" + other.said())
    before = len(crawl.fetcher.log)
    until(lambda: len(crawl.fetcher.log) > before + HOSTS, "the other to go on")
    stopped.wake()
    crawl.check()
