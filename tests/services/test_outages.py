"""Kafka and Cassandra stand still under load, in turn: the fleet waits, says so, and goes on by itself."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from infra.settings_fleet import Fleet as FleetSettings
from tests.services.conftest import Fleet
from tests.support.fleet_crawl import Crawl
from tests.support.fleet_world import Worker, until

# What a worker says once it waits, which takes longer than its session. tests.benchmarks.fleet_outages: half a minute.
WAITS = {"kafka": "waits for the brokers", "cassandra": "waiting for it, nothing is lost"}


@pytest.fixture
def crawl(fleet: Fleet, owners_keyspace: FleetSettings, tmp_path: Path) -> Iterator[Crawl]:
    made = Crawl(fleet.up("kafka")["kafka"], tmp_path, rows=owners_keyspace, pages=150, delay_ms=200)
    try:
        yield made
    finally:
        made.close()


def one_says(workers: Sequence[Worker], words: str) -> bool:
    return any(words in worker.said(1_000) for worker in workers)


def test_both_services_are_away_for_a_while(crawl: Crawl, fleet: Fleet) -> None:
    """Two workers under load; the broker stands still, then Cassandra: nothing is lost, nothing is repeated, nothing
    goes to the dead letters, no worker ends, and nobody had to do anything."""
    workers = [crawl.world.worker(name) for name in ("a", "b")]
    until(lambda: all(worker.owns() for worker in workers), "both to own some\n" + crawl.said())
    crawl.start()
    for service, words in WAITS.items():
        crawl.goes_on()
        with fleet.stopped(service):
            until(functools.partial(one_says, workers, words), f"a worker to wait\n{crawl.said()}")
        crawl.goes_on(within_s=90)
    crawl.check()
    assert [worker.process.poll() for worker in workers] == [None, None], crawl.said()
