"""Two workers of one fleet, or one each of two regions, under load: partitions change hands by a plan, by kill -9 and
by a move, and the fetcher's own log and the tables show nothing of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.settings_fleet import Fleet as FleetSettings
from tests.services.conftest import Fleet
from tests.support.fleet_crawl import Crawl
from tests.support.fleet_world import until
from tests.support.scripted_fetcher import judge_address, repeats

SESSION_S = 6
ADDRESS_DELAY_MS = 100

OpenCrawl = Callable[..., Crawl]


@pytest.fixture
def open_crawl(fleet: Fleet, owners_keyspace: FleetSettings, tmp_path: Path) -> Iterator[OpenCrawl]:
    opened: list[Crawl] = []

    def made(**options: Any) -> Crawl:
        kafka = fleet.up("kafka")["kafka"]
        opened.append(Crawl(kafka, tmp_path, rows=owners_keyspace, session_s=SESSION_S, **options))
        return opened[-1]

    yield made
    for crawl in opened:
        crawl.close()


def test_a_worker_joins_leaves_and_dies_under_load(open_crawl: OpenCrawl) -> None:
    """A second worker joins, the first one leaves by SIGTERM and comes back, the second is killed with the first as
    its standby: no lease is repeated, nothing is lost, and grants go on soon after the session of the dead one."""
    crawl = open_crawl(pages=150, delay_ms=200)
    first = crawl.world.worker("a")
    crawl.start()
    crawl.goes_on()
    second = crawl.world.worker("b")
    until(second.owns, "the second to own some\n" + second.said())
    crawl.goes_on()
    first.terminate()
    assert first.ended() == 0, first.said()
    crawl.goes_on()
    again = crawl.world.worker("a2")
    until(again.owns, "the first to be back\n" + again.said())
    crawl.goes_on()
    taken_over = len([line for line in again.said(1_000).splitlines() if "owned from epoch" in line])
    killed_ms = time.time_ns() // 1_000_000
    second.kill()
    until(
        lambda: again.said(1_000).count("owned from epoch") >= crawl.world.partitions > taken_over,
        "the standby to take over\n" + again.said(),
    )
    epochs = {one.partition: one.epoch for one in crawl.fetcher.arrived if one.at_ms <= killed_ms}
    until(
        lambda: any(one.epoch > epochs[one.partition] for one in list(crawl.fetcher.arrived)),
        "a grant of the new owner\n" + again.said(),
    )
    granted_ms = next(one.at_ms for one in crawl.fetcher.arrived if one.epoch > epochs[one.partition])
    assert granted_ms - killed_ms < (SESSION_S + 5) * 1_000
    crawl.check()
    assert repeats(crawl.fetcher.log) == (0, 0)


def test_an_address_shared_over_two_workers(open_crawl: OpenCrawl) -> None:
    """Forty hosts of one address over four partitions and two workers, one of which dies: the address's owner deals the
    permits by topic, and the fetcher's log shows that the address is never asked sooner than its delay allows."""
    crawl = open_crawl(
        hosts=40,
        pages=2,
        delay_ms=10,
        address="203.0.113.7",
        address_concurrency=1,
        address_delay_ms=ADDRESS_DELAY_MS,
    )
    crawl.world.worker("a")
    second = crawl.world.worker("b")
    until(second.owns, "the second to own some\n" + second.said())
    crawl.start()
    crawl.goes_on(60)
    second.kill()
    crawl.check()
    assert judge_address(crawl.fetcher.log, ADDRESS_DELAY_MS) == []
    asked = [one for one in crawl.fetcher.log if one.permitted != ""]
    assert len(asked) >= 80


def test_a_partition_moves_to_another_region(open_crawl: OpenCrawl) -> None:
    """Two groups of workers that both have all partitions assigned: each owns those that are at home with it. A move is
    an epoch: the former owner is fenced, takes it back no more, and follows; nothing is lost, nothing asked twice."""
    crawl = open_crawl(pages=120, region="east")
    east = crawl.world.worker("east")
    crawl.start()
    crawl.goes_on()
    west = crawl.world.worker("west", region="west")
    away = "at home in another region"
    until(lambda: west.said(1_000).count(away) == crawl.world.partitions, "the other region to follow\n" + west.said())
    assert not west.owns()
    moved = {partition: crawl.world.epochs.move(partition, "west") for partition in (0, 2)}
    until(lambda: west.said(1_000).count("owned from epoch") == len(moved), "the move\n" + west.said())
    until(lambda: east.said(1_000).count(away) == len(moved), "the former owner to let go\n" + east.said())
    crawl.check()
    epochs = {
        partition: {one.epoch for one in crawl.fetcher.arrived if one.partition == partition} for partition in moved
    }
    assert all(max(epochs[partition]) == epoch + 1 for partition, epoch in moved.items()), (epochs, moved)
    assert repeats(crawl.fetcher.log) == (0, 0)
    crawl.world.epochs.move(0, "east")
    until(lambda: east.said(1_000).count("partition 0: owned from epoch") == 2, "the way back\n" + east.said())
