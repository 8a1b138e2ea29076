"""The owner's commit, cut off at every step on a real Kafka and a real Cassandra: what the fetcher's own log and the
tables show of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.settings_fleet import Fleet as FleetSettings
from streams.fleet.commit import STEPS
from streams.fleet.owner import TAKEOVER_STEPS
from tests.services.conftest import Fleet
from tests.support.fleet_crawl import Crawl
from tests.support.fleet_worker import KILLED
from tests.support.fleet_world import until


@pytest.fixture
def crawl(fleet: Fleet, owners_keyspace: FleetSettings, tmp_path: Path) -> Iterator[Crawl]:
    made = Crawl(fleet.up("kafka")["kafka"], tmp_path, rows=owners_keyspace)
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
    until(other.owns, "the other to take over\n" + other.said())
    crawl.goes_on()
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
    until(other.owns, "the other to take over\n" + other.said())
    crawl.goes_on()
    stopped.wake()
    crawl.check()
