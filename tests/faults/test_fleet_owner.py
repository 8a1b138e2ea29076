"""The fleet's owner over twins in memory: crashes at every step, several partitions, foreign and broken records."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import pytest

from connectors.ports import Elsewhere, Fenced
from connectors.url_state_memory import MemoryEpochs
from schemas.codec import decode, encode
from schemas.records import DeadLetter, DiscoveredUrl, FetchLease, HostPolicy, Kind, OwnerMessage, Source
from schemas.topics import partition_for
from streams.core.owner import Event, Owner
from streams.core.policy import BudgetPolicy, CrawlPolicy, Politeness
from streams.core.rows import decode_row
from streams.core.rules.urls import host_id, url_id
from streams.core.seen import seen_value
from streams.core.turn import Family, Turn
from streams.fleet.commit import STEPS
from streams.fleet.intake import Partitioning
from streams.fleet.owner import TAKEOVER_STEPS, PartitionOwner, Undecidable
from tests.conformance.url_state_suite import visited
from tests.support.fleet_in_memory import FleetInMemory
from tests.support.scripted_fetcher import Answer, judge

HOSTS = [f"http://h{number}.test" for number in range(6)]
PAGES = 8
DELAY_MS = 1_000
IN_OWNER = tuple(step for step in STEPS if step != "noted")  # the last is the worker's


def web(url: str, kind: Kind) -> Answer:
    """One page a host is gone, one leads to the next host, whose robots.txt for all lies at the first host."""
    if kind is Kind.ROBOTS:
        return Answer() if url.startswith(HOSTS[0]) else Answer(robots_hop_to=HOSTS[0] + "/robots.txt")
    page = int(url.rpartition("/")[2])
    if page == 3:
        return Answer(status=404)
    if page == 5:
        number = int(url.partition("//h")[2].partition(".")[0])
        return Answer(status=302, redirect_to=f"{HOSTS[(number + 1) % len(HOSTS)]}/100")
    return Answer(body=url.encode())


def seeds() -> list[str]:
    return [f"{host}/{page}" for page in range(PAGES) for host in HOSTS]


def tables(fleet: FleetInMemory) -> dict[str, tuple[int, bytes, int, int]]:
    """URL → status, content hash, version, visits."""
    return {
        url: (row.visit.status, row.visit.content_hash, row.version, row.visit.visits)
        for url, row in fleet.rows(*HOSTS).items()
        if row.visit is not None
    }


def reference() -> dict[str, tuple[int, bytes, int, int]]:
    found = {}
    for url in [*seeds(), *(f"{host}/100" for host in HOSTS)]:
        answer = web(url, Kind.PAGE)
        found[url] = answer.status, hashlib.sha256(answer.body).digest() if answer.body else b"", 1, 1
    return found


def crawl(tmp_path: Path, prepare: Callable[[FleetInMemory], None] = lambda fleet: None) -> FleetInMemory:
    """A whole crawl; checked against the judge and the reference."""
    fleet = FleetInMemory(tmp_path, web, policy=CrawlPolicy(politeness=Politeness(delay_ms=DELAY_MS)))
    try:
        fleet.seed(*seeds())
        prepare(fleet)
        fleet.run()
        assert judge([one for one in fleet.log if one.kind is not Kind.ROBOTS], DELAY_MS) == []
        assert tables(fleet) == reference()
        check_stores(fleet)
        check_parsed(fleet)
    finally:
        fleet.close()
    return fleet


def check_stores(fleet: FleetInMemory) -> None:
    """The local rows are the shared ones, and the index is what it would be if it were made from them."""
    for partition, store in fleet.stores.items():
        hosts = [host for host in HOSTS if partition_for(host, fleet.partitions) == partition]
        shared = {host_id(host) + key: row for host in hosts for key, row in fleet.urls.scan(host, b"", 1_000)}
        places = {key[:10] + decode_row(row).place + key[10:] for key, row in shared.items()}
        assert dict(store.db.scan(Family.URL)) == shared
        assert dict(store.db.scan(Family.SEEN)) == {key: seen_value(decode_row(row)) for key, row in shared.items()}
        assert {key for key, _ in store.db.scan(Family.QUEUE)} == places


def check_parsed(fleet: FleetInMemory) -> None:
    """Every stored page has what was found out of it, no task is left, and no link of a page was taken from that."""
    for url, row in fleet.rows(*HOSTS).items():
        assert row.visit is not None
        if row.visit.content is not None:
            assert (row.visit.extractor_version, row.visit.title, row.visit.links) == (1, url, 1)
            assert row.visit.simhash == int.from_bytes(url_id(url)[:8], "big")
    assert [list(store.db.tasks()) for store in fleet.stores.values()] == [[]] * len(fleet.stores)


def test_a_crawl_over_two_partitions(tmp_path: Path) -> None:
    """Redirects and robots hops to hosts of the other partition arrive there by topic, once."""
    fleet = crawl(tmp_path)
    assert fleet.broker.committed("owner-messages", 0) or fleet.broker.committed("owner-messages", 1)


@pytest.mark.parametrize("step", [*IN_OWNER, *TAKEOVER_STEPS])
@pytest.mark.parametrize("same_disk", [True, False])
def test_a_crash_at_any_step(tmp_path: Path, step: str, same_disk: bool) -> None:
    """Whatever step a process ends at, the next owner asks nobody twice, repeats no lease and loses no URL."""

    def prepare(fleet: FleetInMemory) -> None:
        if not same_disk:
            fleet.disk = fleet.new_disk
        fleet.crash_at = step
        fleet.crash_after = 0 if step in TAKEOVER_STEPS else 25

    assert crawl(tmp_path, prepare).crashes == 1


def test_half_a_row_in_the_store_costs_itself(tmp_path: Path) -> None:
    """A row that somebody else left in the URL store ended its owner, and whoever took over from it, for ever; found
    again, its URL is admitted and the row made whole."""
    fleet = FleetInMemory(tmp_path, web, policy=CrawlPolicy(politeness=Politeness(delay_ms=DELAY_MS)))
    host, half = HOSTS[0], visited(HOSTS[0], 7, "x")
    try:
        fleet.seed(*(f"{host}/{page}" for page in range(3)))
        fleet.run()
        fleet.urls.write([half], epoch=1, version=1)  # a later write of what was never admitted
        for owner in fleet.owners.values():
            owner.close()
            owner.release()
        fleet.owners.clear()
        fleet.disk = fleet.new_disk
        fleet.run()
        assert fleet.urls.refused > 0
        assert f"{host}/7" not in fleet.rows(host)
        fleet.seed(f"{host}/7")
        fleet.run()
        assert [one.url for one in fleet.log].count(f"{host}/7") == 1
        row = fleet.rows(host)[f"{host}/7"]
        assert row.visit is not None
        assert row.visit.status == 200
        assert not fleet.broker.committed("dead-letters", 0) + fleet.broker.committed("dead-letters", 1)
    finally:
        fleet.close()


@pytest.mark.parametrize("disks", [1, 2, 100])
def test_crashes_all_along(tmp_path: Path, disks: int) -> None:
    """Crashes at one step after another, also of owners that have only just taken over: on one disk, on two in turn
    (whose index is of an earlier ownership), and on a new one each time."""
    fleet = FleetInMemory(tmp_path, web, policy=CrawlPolicy(politeness=Politeness(delay_ms=DELAY_MS)))
    try:
        turns = itertools.count()
        fleet.disk = lambda partition: f"disk-{partition}-{next(turns) % disks}"
        fleet.seed(*seeds())
        for number in range(40):
            steps = (*IN_OWNER, *TAKEOVER_STEPS)
            step = steps[number % len(steps)]
            fleet.crash_at, fleet.crash_after = step, 0 if step in TAKEOVER_STEPS else number % 3
            if step in TAKEOVER_STEPS:
                fleet.owners.pop(number % 2, None)  # it died by itself
            for _ in range(4):
                for partition in range(fleet.partitions):
                    fleet.turn(partition)
                fleet._fetch()
                fleet.now_ms += 300
        fleet.crash_at = None
        fleet.run()
        assert judge([one for one in fleet.log if one.kind is not Kind.ROBOTS], DELAY_MS) == []
        assert tables(fleet) == reference()
        check_stores(fleet)
        assert fleet.crashes > 20
    finally:
        fleet.close()


@pytest.mark.parametrize("disk", ["same", "new"])
def test_bodies_that_wait_for_parsers_hold_grants_back(tmp_path: Path, disk: str) -> None:
    """With the parsers standing still no more bodies gather than the bound and the leases that were out, whoever owns
    the partition meanwhile; and all goes on by itself once they parse again."""
    policy = CrawlPolicy(politeness=Politeness(delay_ms=10))
    fleet = FleetInMemory(tmp_path, web, policy=policy, partitions=1, leases_max=2, tasks_max=5)
    try:
        if disk == "new":
            fleet.disk = fleet.new_disk
        fleet.parsing = False
        fleet.seed(*seeds())
        fleet.run()
        assert 5 <= fleet.owners[0].parse_backlog <= 6
        fetched = len(fleet.log)
        fleet.crash_at = "committed"
        fleet.seed(HOSTS[0] + "/7000")
        fleet.run()
        assert fleet.crashes == 1
        assert fleet.owners[0].parse_backlog == len(list(fleet.stores[0].db.tasks())) >= 5
        assert len(fleet.log) == fetched
        fleet.parsing = True
        fleet.run()
        assert fleet.owners[0].parse_backlog == 0
        del (found := tables(fleet))[HOSTS[0] + "/7000"]
        assert found == reference()
        check_parsed(fleet)
    finally:
        fleet.close()


def test_what_was_parsed_is_told_late_twice_or_of_nobody(tmp_path: Path) -> None:
    """Owner-messages come at least once: a repeated one changes nothing, and one of a host or a page that is not known,
    or with no page in it, is no news."""
    fleet = FleetInMemory(tmp_path, web, partitions=1)
    try:
        fleet.seed(HOSTS[0] + "/0")
        fleet.run()
        rows, (said,) = fleet.rows(HOSTS[0]), fleet.broker.committed("owner-messages", 0)
        (message,) = decode(said.value or b"", OwnerMessage)
        assert message.page is not None
        for told in (
            message,
            msgspec.structs.replace(message, page=None),
            msgspec.structs.replace(message, to_key=HOSTS[1]),
            msgspec.structs.replace(message, page=msgspec.structs.replace(message.page, url_id=bytes(16))),
        ):
            fleet.send("owner-messages", 0, encode(told))
        fleet.run()
        assert fleet.rows(*HOSTS) == rows
        assert list(fleet.stores[0].db.tasks()) == []
        assert [len(list(fleet.stores[0].db.hosts())), fleet.broker.committed("dead-letters", 0)] == [1, []]
    finally:
        fleet.close()


def test_a_fenced_owner_changes_nothing(tmp_path: Path) -> None:
    """What an owner decides after another has begun appears nowhere: no lease, no state, no row."""
    fleet = FleetInMemory(tmp_path, web, partitions=1)
    try:
        fleet.take_over(0)
        old = fleet.owners.pop(0)
        fleet.disk = fleet.new_disk
        fleet.stores.pop(0)
        fleet.take_over(0)
        fleet.seed(*seeds())
        with pytest.raises(Fenced):
            old.run(fleet.waiting(0))
        assert fleet.rows(*HOSTS) == {}
        assert fleet.broker.committed("fetch-leases", 0) == []
    finally:
        fleet.close()


def test_a_move_to_another_region_is_an_epoch(tmp_path: Path) -> None:
    """Moved while its owner is at work: the former region's owner is fenced by the new one's, takes it back no more,
    and the crawl goes on there from where it stood, nothing lost and nothing asked twice."""
    home = MemoryEpochs("east")
    fleet = FleetInMemory(tmp_path, web, policy=CrawlPolicy(politeness=Politeness(delay_ms=DELAY_MS)))
    east, west = (msgspec.structs.replace(fleet.ports, epochs=MemoryEpochs(name, of=home)) for name in ("east", "west"))
    try:
        fleet.seed(*seeds())
        fleet.ports = east
        for _ in range(20):
            fleet.turn(1)
            fleet.turn(0)
            fleet._fetch()
            fleet.now_ms += 300
        old, disk = fleet.owners.pop(1), fleet.stores.pop(1)
        home.move(1, "west")
        fleet.ports, fleet.disk = west, fleet.new_disk
        fleet.take_over(1)
        assert fleet.owners[1].epoch == old.epoch + 2
        with pytest.raises(Fenced):
            old.run(fleet.waiting(1))
        again = PartitionOwner(1, disk, fleet.setting, east, fleet.metrics, Partitioning(2))
        with pytest.raises(Elsewhere):
            again.take_over()
        del fleet.owners[1]  # which that attempt fenced, and which takes it back
        fleet.run()
        assert judge([one for one in fleet.log if one.kind is not Kind.ROBOTS], DELAY_MS) == []
        assert tables(fleet) == reference()
    finally:
        fleet.close()


def test_records_in_the_wrong_partition_go_on(tmp_path: Path) -> None:
    """Somebody's producer may disagree with ours on the partition: the owner sends the record where it belongs."""
    fleet = FleetInMemory(tmp_path, web)
    try:
        url = HOSTS[1] + "/0"
        right = partition_for(HOSTS[1], 2)
        found = DiscoveredUrl(url=url, host_key=HOSTS[1], source=Source.SEED, discovered_ms=fleet.now_ms)
        fleet.send("discovered-urls", 1 - right, encode(found))
        fleet.send("host-policies", 1 - right, encode(HostPolicy(host_key=HOSTS[1], policy_version=0, delay_ms=7)))
        fleet.run()
        assert list(fleet.rows(HOSTS[1])) == [url]
        assert len(fleet.broker.committed("host-policies", right)) == 1
    finally:
        fleet.close()


def test_strangers_json_is_taken(tmp_path: Path) -> None:
    """A list of plain JSON objects, in whatever partition and without a host_key: the good ones are admitted, each bad
    one is a dead letter by itself."""
    fleet = FleetInMemory(tmp_path, web)
    try:
        said = [{"url": "HTTP://H1.test:80/a/../0"}, {"url": "mailto:a@b.test"}, {"url": HOSTS[2] + "/1"}]
        fleet.send("discovered-urls", 0, msgspec.json.encode(said))
        fleet.send("discovered-urls", 0, b'{"url": "http://h3.test/2", "priority_hnt": 9}')
        fleet.send("fetch-results", 0, b"no record at all")
        fleet.run()
        assert set(fleet.rows(*HOSTS)) == {HOSTS[1] + "/0", HOSTS[2] + "/1"}
        letters = [
            one
            for record in fleet.broker.committed("dead-letters", 0)
            for one in decode(record.value or b"", DeadLetter)
        ]
        assert sorted(one.stage for one in letters) == ["admit", "admit", "complete"]
        assert {one.record for one in letters} >= {b"no record at all"}
    finally:
        fleet.close()


def test_the_budget_of_a_day_is_dealt(tmp_path: Path) -> None:
    """The global budget is the sum of what the partitions' owners grant, also over crashes."""
    fleet = FleetInMemory(
        tmp_path, web, policy=CrawlPolicy(politeness=Politeness(delay_ms=1), budget=BudgetPolicy(new_per_day=9))
    )
    try:
        fleet.disk = fleet.new_disk
        fleet.seed(*seeds())
        fleet.crash_at, fleet.crash_after = "committed", 9
        fleet.run()
        pages = [
            lease
            for partition in (0, 1)
            for record in fleet.broker.committed("fetch-leases", partition)
            for lease in decode(record.value or b"", FetchLease)
            if lease.kind is Kind.PAGE
        ]
        assert len(pages) == 9
    finally:
        fleet.close()


def test_an_address_shared_by_hosts_of_several_partitions(tmp_path: Path) -> None:
    """Forty hosts of one address over four partitions: its owner deals the permits by topic, also over crashes, and
    the address is never asked by two leases sooner than its delay allows."""
    hosts = [f"http://s{number}.test" for number in range(40)]
    policy = CrawlPolicy(politeness=Politeness(delay_ms=10, address_concurrency=1, address_delay_ms=200))
    fleet = FleetInMemory(tmp_path, lambda url, kind: Answer(body=url.encode()), policy=policy, partitions=4)
    try:
        fleet.seed(*(f"{host}/{page}" for host in hosts for page in range(2)))
        fleet.crash_at, fleet.crash_after = "committed", 150
        fleet.run()
        assert fleet.crashes == 1
        assert sum(row.visit is not None for row in fleet.rows(*hosts).values()) == 80
        asked = sorted(one.at_ms for one in fleet.log if one.permitted != "")
        assert len(asked) >= 80
        assert min(later - earlier for earlier, later in itertools.pairwise(asked)) >= 200
        assert {record.partition for p in range(4) for record in fleet.broker.committed("owner-messages", p)} >= {0, 1}
    finally:
        fleet.close()


def test_a_poisonous_group_leaves_nothing_and_the_owner_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that the core takes for impossible: nothing of its group is anywhere, and the owner goes on under an
    epoch of its own, so that no lease id comes twice."""
    fleet = FleetInMemory(tmp_path, web, partitions=1)
    try:
        fleet.seed(HOSTS[0] + "/0")
        fleet.run()
        owner, before = fleet.owners[0], fleet.owners[0].epoch
        fleet.seed(HOSTS[1] + "/0", HOSTS[2] + "/0")
        messages = fleet.waiting(0)
        decide = Owner.decide

        def impossible(core: Owner, events: Iterable[Event], now_ms: int, leases_max: int) -> Turn:
            turn = decide(core, events, now_ms, leases_max)
            assert not turn.counts.admitted, "impossible"
            return turn

        monkeypatch.setattr(Owner, "decide", impossible)
        with pytest.raises(Undecidable, match="impossible"):
            owner.run(messages)
        monkeypatch.undo()
        assert fleet.rows(HOSTS[1], HOSTS[2]) == {}
        owner.give_up(messages[0], "impossible")
        fleet.run()
        assert fleet.owners[0] is owner
        assert owner.epoch == before + 1
        assert set(fleet.rows(HOSTS[1], HOSTS[2])) == {HOSTS[2] + "/0"}
        assert len(fleet.broker.committed("dead-letters", 0)) == 1
        assert len({one.lease_id for one in fleet.log}) == len(fleet.log)
    finally:
        fleet.close()
