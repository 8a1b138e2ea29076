"""Limits that cross partitions: a group's permits by messages between owners, the day's budget by shares.

Judged by the fetcher's own log: what it started, and when that ended.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from schemas.codec import decode
from schemas.records import FetchLease, Kind, OwnerMessage, OwnerMessageKind
from schemas.topics import partition_for
from streams.core.budget import share
from streams.core.policy import DAY_MS, BudgetPolicy, CrawlPolicy, Politeness
from tests.support.fleet_in_memory import FleetInMemory
from tests.support.scripted_fetcher import Answer

PARTITIONS = 4
ADDRESS = "203.0.113.1"
TAKES_MS = 700
OTHER_HOSTS = [f"http://s{number}.test" for number in range(40)]
ONE_DOMAIN = [f"http://s{number}.shared.example" for number in range(40)]


def slow_web(url: str, kind: Kind) -> Answer:
    return Answer(body=url.encode(), takes_ms=TAKES_MS, address=ADDRESS)


def crawl(
    tmp_path: Path, hosts: list[str], politeness: Politeness, *, crash_at: str | None = None, dies: str = ""
) -> FleetInMemory:
    """A page of each host, to the end. `dies`: the key whose partition's owner is gone now and then, on a new disk."""
    fleet = FleetInMemory(tmp_path, slow_web, policy=CrawlPolicy(politeness=politeness), partitions=PARTITIONS)
    fleet.in_time = True
    try:
        fleet.seed(*(host + "/" for host in hosts))
        for number in range(30) if crash_at else ():
            fleet.crash_at, fleet.crash_after = crash_at, number % 3
            for _ in range(6):
                for partition in range(PARTITIONS):
                    fleet.turn(partition)
                fleet._fetch()
                fleet.now_ms += 150
            if dies and number % 4 == 3:
                fleet.disk = fleet.new_disk
                fleet.owners.pop(partition_for(dies, PARTITIONS), None)
        fleet.crash_at = None
        fleet.run()
        assert sum(row.visit is not None for row in fleet.rows(*hosts).values()) == len(hosts)
        assert len({partition_for(host, PARTITIONS) for host in hosts}) == PARTITIONS
    finally:
        fleet.close()
    return fleet


def at_once(fleet: FleetInMemory) -> int:
    """The most requests that were open at one instant."""
    return max(sum(begin <= start < end for begin, end, _ in fleet.spans) for start, _, _ in fleet.spans)


def rest_ms(fleet: FleetInMemory) -> int:
    """The least time from the end of a request to the start of the next."""
    spans = sorted((start, end) for start, end, _ in fleet.spans)
    return min(later[0] - earlier[1] for earlier, later in itertools.pairwise(spans))


@pytest.mark.parametrize("crash_at", [None, "decided", "committed", "rows"])
def test_forty_hosts_of_one_address_over_four_partitions(tmp_path: Path, crash_at: str | None) -> None:
    """Two requests at a time and no more are open at the address, wherever owners die, the group's own among them."""
    politeness = Politeness(delay_ms=10, address_concurrency=2)
    fleet = crawl(tmp_path, OTHER_HOSTS, politeness, crash_at=crash_at, dies=f"addr:{ADDRESS}")
    assert at_once(fleet) == 2
    assert fleet.crashes > 10 or crash_at is None


@pytest.mark.parametrize("crash_at", [None, "committed"])
def test_an_address_rests_between_two_requests(tmp_path: Path, crash_at: str | None) -> None:
    """From one host's answer to another's request the address has its delay, also under an owner of the group that has
    only just taken over."""
    politeness = Politeness(delay_ms=10, address_concurrency=1, address_delay_ms=400)
    fleet = crawl(tmp_path, OTHER_HOSTS, politeness, crash_at=crash_at, dies=f"addr:{ADDRESS}")
    assert at_once(fleet) == 1
    assert rest_ms(fleet) >= 400


@pytest.mark.parametrize("crash_at", [None, "committed"])
def test_forty_hosts_of_one_domain_over_four_partitions(tmp_path: Path, crash_at: str | None) -> None:
    """A registrable domain is a group as an address is: one request at a time, and a rest between."""
    politeness = Politeness(delay_ms=10, domain_concurrency=1, domain_delay_ms=300)
    fleet = crawl(tmp_path, ONE_DOMAIN, politeness, crash_at=crash_at, dies="domain:shared.example")
    assert at_once(fleet) == 1
    assert rest_ms(fleet) >= 300


def test_permits_are_asked_of_the_partition_that_has_the_group(tmp_path: Path) -> None:
    """Three partitions of four ask a fourth; what is of one's own partition needs no topic."""
    fleet = crawl(tmp_path, OTHER_HOSTS, Politeness(delay_ms=10, address_concurrency=2))
    said = {
        partition: [
            message
            for record in fleet.broker.committed("owner-messages", partition)
            for message in decode(record.value or b"", OwnerMessage)
            if message.kind is not OwnerMessageKind.PARSED
        ]
        for partition in range(PARTITIONS)
    }
    group = partition_for(f"addr:{ADDRESS}", PARTITIONS)
    assert {message.to_key for message in said[group]} == {f"addr:{ADDRESS}"}
    asked = {message.from_key for message in said[group] if message.kind is OwnerMessageKind.PERMIT_ASKED}
    assert asked == {host for host in OTHER_HOSTS if partition_for(host, PARTITIONS) != group}
    for partition in {0, 1, 2, 3} - {group}:
        granted = {one.to_key for one in said[partition] if one.kind is OwnerMessageKind.PERMIT_GRANTED}
        assert granted == {host for host in OTHER_HOSTS if partition_for(host, PARTITIONS) == partition}


def test_each_day_has_its_budget_by_class(tmp_path: Path) -> None:
    """New URLs and revisits have a budget each, which the partitions' shares are the whole of, day by day; the owners
    that take over in mid-day know what was spent."""
    budget = BudgetPolicy(new_per_day=10, revisit_per_day=6)
    policy = CrawlPolicy(
        politeness=Politeness(delay_ms=1, respect_robots=False),
        budget=budget,
        revisit_ms_min=DAY_MS // 24,
        revisit_ms_max=DAY_MS // 24,
    )
    fleet = FleetInMemory(tmp_path, slow_web, policy=policy, partitions=PARTITIONS)
    try:
        fleet.now_ms += DAY_MS - fleet.now_ms % DAY_MS
        fleet.seed(*(f"{host}/{page}" for host in OTHER_HOSTS for page in range(5)))
        for day in range(1, 4):
            for _ in range(3):
                fleet.run()
                fleet.now_ms += DAY_MS // 24
                fleet.disk = fleet.new_disk
                fleet.owners.clear()
            new = [one for one in fleet.log if one.url_version == 1]
            assert len(new) == 10 * day
            again = [one for one in fleet.log if one.url_version > 1]
            assert len(again) == 6 * day
            for partition in range(PARTITIONS):
                dealt = share(budget, partition, PARTITIONS)
                here = [one for one in fleet.log if partition_for(one.host_key, PARTITIONS) == partition]
                assert sum(one.url_version == 1 for one in here) == day * (dealt.new_per_day or 0)
            fleet.now_ms += DAY_MS - fleet.now_ms % DAY_MS
    finally:
        fleet.close()


def test_leases_name_their_partition(tmp_path: Path) -> None:
    """A lease id has its owner's partition in front: owners of several never give one twice."""
    fleet = crawl(tmp_path, OTHER_HOSTS, Politeness(delay_ms=10))
    for partition in range(PARTITIONS):
        leases = [
            lease
            for record in fleet.broker.committed("fetch-leases", partition)
            for lease in decode(record.value or b"", FetchLease)
        ]
        assert {int.from_bytes(lease.lease_id[:2], "big") for lease in leases} == {partition}
    assert len({one.lease_id for one in fleet.log}) == len(fleet.log)
