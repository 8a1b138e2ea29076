"""Fetchers on a real Kafka and a real S3 store, killed, stopped, joined and left: judged by the site's own log."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.records import Outcome
from streams.core.rows import Status
from streams.core.rules.urls import url_id
from tests.services.conftest import Fleet
from tests.support.fetch_world import (
    HOSTS,
    SESSION_S,
    FetcherProcess,
    FetchWorld,
    Lending,
    holds_within,
    number_of,
    numbers,
)
from tests.support.fleet_world import until


@pytest.fixture
def world(fleet: Fleet, tmp_path: Path) -> Iterator[FetchWorld]:
    at = fleet.up("kafka", "s3")
    made = FetchWorld(at["kafka"], at["s3"], tmp_path)
    try:
        yield made
    finally:
        made.close()


def ready(world: FetchWorld, one: FetcherProcess, partitions: int = 4) -> FetcherProcess:
    holds_within(lambda: one.owned() >= partitions, f"{one.name} to have its partitions", [one])
    return one


def asked_twice(world: FetchWorld) -> list[int]:
    return [number for number, times in Counter(numbers(world.site_lines())).items() if times > 1]


def test_leases_become_results_and_bodies(world: FetchWorld) -> None:
    """Each lease is one request, one result and one body that is read by its reference; older ones are left alone."""
    world.lend(20)
    one = ready(world, world.fetcher("A", seal_s=1))
    leases = world.lend(200)
    holds_within(lambda: len(world.stored()) >= 200, "200 stored bodies", [one])
    assert numbers(world.site_lines()) == [number_of(lease.lease_id) for lease in leases]
    assert world.fetched() == {lease.lease_id for lease in leases}
    for stored in world.stored():
        body = world.bodies.read(stored.content)
        page = number_of(stored.lease_id) % 50
        assert body.startswith(b"<p>page %d " % page)
    one.terminate()
    assert one.ended() == 0
    assert len(world.results()) == 200


def test_a_killed_fetcher_costs_a_refetch_and_no_url(world: FetchWorld) -> None:
    """kill -9 with bodies that were fetched and not brought: their URLs are leased again and stored by the next one."""
    owner = world.fleet.worker("owner", app="tests.support.fetch_owner", delay_ms=50, duration_ms=2_000)
    first = ready(world, world.fetcher("A", seal_s=300))
    urls = [world.url(number) for number in range(1, 1 + 4 * HOSTS)]
    world.fleet.seed(urls)
    holds_within(lambda: len(first.lines()) > HOSTS, "many pages to be fetched", [first])
    first.kill()
    assert world.stored() == []
    lost = set(numbers(first.lines()))
    second = ready(world, world.fetcher("A", seal_s=1))

    def complete() -> bool:
        rows = world.fleet.rows()
        return {url for url, row in rows.items() if row.status is Status.FETCHED} >= set(urls)

    holds_within(complete, "every URL to be complete\n" + owner.said(20), [second], 90)
    again = Counter(numbers(world.site_lines()))
    assert {number for number, times in again.items() if times > 1} <= lost
    assert len(lost & {number for number, times in again.items() if times > 1}) >= len(lost) - 1
    stored = world.stored()
    assert {one.url_id for one in stored} == {url_id(url) for url in urls}
    assert all(world.bodies.read(one.content) for one in stored)


def test_a_fetcher_that_stood_still_and_wakes_starts_nothing(world: FetchWorld) -> None:
    """SIGSTOP past the session: another has its partitions; woken, it asks for nothing that it had, though it is due by
    then, nor for what the other has, and goes on when the group has taken it back."""
    first = ready(world, world.fetcher("A", seal_s=1))
    with Lending(world, 60) as lending:
        waiting = {number_of(lease.lease_id) for lease in world.lend(2 * HOSTS, start_in_ms=4_000)}
        holds_within(lambda: len(first.lines()) > 50, "the first to fetch", [first])
        first.stop()
        stopped = lending.count()
        second = ready(world, world.fetcher("B", seal_s=1))
        holds_within(lambda: len(second.lines()) > 60, "the second to fetch", [second])
        asked = len(first.lines())
        woken = lending.count()
        first.wake()
        holds_within(lambda: len(first.lines()) > asked + 20, "the first to fetch again", [first, second])
    late = {number_of(lease.lease_id) for _, lease in lending.made[stopped:woken]}
    assert late & set(numbers(first.lines()[asked:])) == set()
    assert waiting & set(numbers(world.site_lines())) == set()
    assert asked_twice(world) == []
    until(lambda: len(world.site_lines()) >= 150, "the last requests to be seen", SESSION_S)


def test_a_store_that_is_away_loses_nothing(world: FetchWorld, fleet: Fleet) -> None:
    """kill -9 of S3 under load, back after 20 s: hosts go on being asked, and every page that came is stored."""
    one = ready(world, world.fetcher("A", seal_s=1))
    with Lending(world, 50) as lending:
        holds_within(lambda: len(world.stored()) > 20, "the first bodies to be stored", [one])
        os.kill(fleet.status()["s3"].pid, signal.SIGKILL)
        away = lending.count()
        until(lambda: lending.count() >= away + 50 * 20, "20 seconds of leases")
        assert len(world.fetched()) > away + 800
        fleet.up("s3")
    made = {lease.lease_id for _, lease in lending.made}
    holds_within(lambda: {stored.lease_id for stored in world.stored()} == world.fetched() == made, "all bodies", [one])
    assert asked_twice(world) == []
    assert all(world.bodies.read(stored.body) or stored.body != stored.content for stored in world.stored()[::20])
    one.terminate()
    assert one.ended() == 0


def test_brokers_that_are_away_lose_nothing(world: FetchWorld, fleet: Fleet) -> None:
    """kill -9 of the broker under load, and back after more than a session: nothing is asked twice, nothing is started
    by a fetcher that its group cannot know of, every result and every body comes, and the crawl goes on by itself."""
    one = ready(world, world.fetcher("A", seal_s=1))
    world.lend(400, start_in_ms=1_000)
    world.lend(2 * HOSTS, start_in_ms=(SESSION_S + 6) * 1_000)
    holds_within(lambda: len(one.lines()) > 100, "the first pages", [one])
    os.kill(fleet.status()["kafka"].pid, signal.SIGKILL)
    began_s = time.monotonic()
    until(lambda: time.monotonic() - began_s > SESSION_S + 8, "more than a session to pass")
    before = len(one.lines())
    fleet.up("kafka")
    holds_within(lambda: one.owned() >= 8, "the partitions to be assigned again", [one])
    assert len(one.lines()) == before <= 400
    leases = world.lend(100)
    holds_within(lambda: world.fetched() >= {lease.lease_id for lease in leases}, "the crawl to go on", [one])
    holds_within(
        lambda: (
            {stored.lease_id for stored in world.stored()} == world.fetched() and len(world.fetched()) == before + 100
        ),
        "every result and every body",
        [one],
    )
    assert asked_twice(world) == []


def test_joining_and_leaving_in_good_order_costs_next_to_nothing(world: FetchWorld) -> None:
    """A second fetcher joins and leaves under load: no lease is started twice, those that wait are given back, and
    what is left to expire is what lay on the topic as partitions changed hands."""
    first = ready(world, world.fetcher("A", seal_s=1))
    with Lending(world, 60) as lending:
        holds_within(lambda: len(first.lines()) > 50, "the first to fetch", [first])
        second = ready(world, world.fetcher("B", seal_s=1), partitions=1)
        holds_within(lambda: len(second.lines()) > 50, "the second to fetch", [second])
        second.terminate()
        assert second.ended() == 0
        left = len(first.lines())
        holds_within(lambda: len(first.lines()) > left + 100, "the first to go on", [first])
    made = {lease.lease_id for _, lease in lending.made}
    told = {one.lease_id: one.outcome for one in world.results()}
    first.terminate()
    assert first.ended() == 0
    told = {one.lease_id: one.outcome for one in world.results()}
    assert asked_twice(world) == []
    silent = len(made - told.keys())
    print(
        f"of {len(made)} leases {silent} were left to expire, {list(told.values()).count(Outcome.EXPIRED)} given back"
    )
    assert silent < len(made) / 5
    assert {stored.lease_id for stored in world.stored()} == world.fetched()
