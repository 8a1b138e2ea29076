"""The fetcher and its store, in memory: what is started, what is told, and what is left after each bad end."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from connectors.bodies_s3 import S3Bodies
from connectors.fetchlog import read_segments
from connectors.lease_reader import Received
from schemas.codec import decode, encode_batch
from schemas.records import DeadLetter, FetchLease, FetchLogRow, Kind, Outcome
from schemas.topics import partition_for
from streams.fleet.fetch import Pace
from streams.fleet.fetch_store import Keeping
from tests.support.fetcher_world import PARTITIONS, FetcherWorld, fetched, lease
from tests.support.warc_samples import read_all


@pytest.fixture
def world(tmp_path: Path) -> FetcherWorld:
    return FetcherWorld(tmp_path)


def run(act: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(act(), 60))


def log_rows(world: FetcherWorld, folder: Path) -> list[FetchLogRow]:
    copies = folder / "copies"
    copies.mkdir(exist_ok=True)
    for name, data in world.s3.objects.items():
        if name.startswith("fetchlog/"):
            (copies / name.rpartition("/")[2]).write_bytes(data)
    return list(read_segments(copies))


def test_a_lease_becomes_a_result_then_a_stored_body(world: FetcherWorld, tmp_path: Path) -> None:
    """The result goes out at once, the body is announced when it can be read by its reference, the log has the row."""

    async def act() -> None:
        world.open()
        leases = [lease(number) for number in range(5)]
        world.take(*leases)
        await world.until(lambda: len(world.stored()) == 5, "five stored bodies")
        assert fetched(world.results()) == list(range(5))
        for one in world.stored():
            body = leases[int.from_bytes(one.lease_id, "big")].url.encode()
            assert S3Bodies(world.objects).read(one.body) == body
            assert one.content_hash == hashlib.sha256(body).digest()
            assert (one.body, one.content_type, one.robots_tags) == (one.content, "text/html", ("noarchive",))
        await world.close()
        rows = log_rows(world, tmp_path)
        assert {(row.url, row.policy_version, row.delay_ms) for row in rows} == {(one.url, 3, 1_500) for one in leases}
        assert {row.body for row in rows} == {one.body for one in world.stored()}

    run(act)


def test_a_full_segment_goes_at_once(world: FetcherWorld) -> None:
    """A fast crawl fills segments long before their time: each is brought when it is full."""

    async def act() -> None:
        world.open(keeping=Keeping(seal_ms=60_000), segment_bytes_max=1_500)
        world.take(*(lease(number) for number in range(12)))
        await world.until(lambda: len(world.stored()) >= 9, "full segments to be announced")
        assert len({one.body.segment for one in world.stored()}) >= 3
        await world.close()
        assert len(world.stored()) == 12

    run(act)


def test_uploads_are_bounded_and_none_is_forgotten(world: FetcherWorld) -> None:
    """While as many uploads wait as may, further segments wait for one of them to end, and then go."""

    async def act() -> None:
        world.open(keeping=Keeping(seal_ms=5, uploads_max=1))
        world.s3.away = True
        for number in range(5):
            world.take(lease(number))
            await world.until(lambda: len(world.results()) == number + 1, "the next result")  # noqa: B023
        world.s3.away = False
        await world.until(lambda: len(world.stored()) == 5, "all to be announced")
        await world.close()

    run(act)


def test_a_store_that_is_away_holds_up_announcements_alone(world: FetcherWorld) -> None:
    """Results go on, so hosts are not held up; the bodies wait, and all of them are announced once S3 is back."""

    async def act() -> None:
        world.open()
        world.s3.away = True
        world.take(*(lease(number) for number in range(10)))
        await world.until(lambda: len(world.results()) == 10, "ten results")
        await world.until(lambda: world.objects.away_s() > 0.1, "the store to be found away")
        world.take(*(lease(number) for number in range(10, 15)))
        await world.until(lambda: len(world.results()) == 15, "fifteen results")
        assert world.stored() == []
        assert world.store.backlog_bytes() > 0
        world.s3.away = False
        await world.until(lambda: len(world.stored()) == 15, "all stored bodies")
        assert [S3Bodies(world.objects).read(one.body) for one in world.stored()]
        assert world.store.backlog_bytes() == 0
        await world.close()

    run(act)


def test_a_full_spool_starts_nothing_and_says_so_to_the_owners(world: FetcherWorld) -> None:
    """While S3 is away and the spool is full leases wait, run out and are told expired: they come again."""

    async def act() -> None:
        world.open(keeping=Keeping(seal_ms=20, spool_bytes_max=500))
        world.s3.away = True
        world.take(lease(1))
        await world.until(lambda: len(world.results()) == 1, "the first result")
        assert world.store.backlog_bytes() > 500
        world.take(lease(2, start_within_ms=300), lease(3))
        await world.until(lambda: len(world.results()) == 2, "the second to expire")
        assert (world.results()[1].outcome, len(world.web.asked)) == (Outcome.EXPIRED, 1)
        world.s3.away = False
        await world.until(lambda: len(world.stored()) == 2, "the first and the third to be stored")
        await world.close()

    run(act)


def test_killed_before_the_seal_nothing_is_announced(world: FetcherWorld, tmp_path: Path) -> None:
    """A body that only the spool had is gone with its process, and its result stands alone: the owner's store deadline
    leases the URL again. The next start removes the remains; the audit keeps the request, and names no body."""

    async def act() -> None:
        world.open(keeping=Keeping(seal_ms=60_000))
        world.take(lease(1))
        await world.until(lambda: len(world.results()) == 1, "the result")
        world.kill()

    async def start_again() -> None:
        assert world.stored() == []
        world.open()
        assert len(world.remains) == 1
        assert world.log.recover(frozenset(world.remains)) == 1
        assert world.segments.recover() == 1
        world.take(lease(2))
        await world.until(lambda: len(world.stored()) == 1, "the next fetcher to store")
        await world.close()
        assert world.spool.remains() == []
        assert sum(name.startswith("warc/") for name in world.s3.objects) == 1
        bodies = {row.url: row.body is not None for row in log_rows(world, tmp_path)}
        assert bodies == {"http://h1.example/1": False, "http://h2.example/2": True}

    run(act)
    run(start_again)


def test_a_woken_zombie_starts_nothing_and_says_nothing(world: FetcherWorld) -> None:
    """Leases that waited through a silence longer than a session are another's by now: an EXPIRED of ours would hand
    their host's token out twice. What runs to its end is told."""

    async def act() -> None:
        world.open()
        world.web.open.clear()
        world.take(lease(1), lease(2, host="http://h1.example"), lease(3, start_in_ms=200))
        await world.until(lambda: len(world.web.running) == 1, "the first request to run")
        world.reader.good = False
        world.take(lease(4))
        world.web.open.set()
        await world.until(lambda: len(world.results()) == 1, "the result of the first")
        world.reader.good = True
        world.take(lease(5))
        await world.until(lambda: len(world.results()) == 2, "a later lease to be fetched")
        assert fetched(world.results()) == [1, 5]
        assert [int.from_bytes(one.lease_id, "big") for one in world.web.asked] == [1, 5]
        await world.close()
        assert len(world.results()) == 2

    run(act)


@pytest.mark.parametrize("how", ["lost", "revoked"])
def test_hosts_that_are_anothers_keep_no_connection(world: FetcherWorld, how: str) -> None:
    """A site has one connection over all fetchers: who gives a partition up closes those of its hosts, and may open
    them again when it comes back."""

    async def act() -> None:
        world.open()
        hosts = [f"http://h{number}.example" for number in range(40)]
        at = {host: partition_for(host, PARTITIONS) for host in hosts}
        assert set(at.values()) == set(range(PARTITIONS))
        getattr(world.fetcher, how)([1, 2])
        assert {host for host in hosts if not world.web.ours(host)} == {host for host in hosts if at[host] in (1, 2)}
        world.fetcher.assigned({2: 500})
        assert {host for host in hosts if not world.web.ours(host)} == {host for host in hosts if at[host] == 1}
        await world.close()

    run(act)


def test_lost_partitions_take_their_waiting_leases_along(world: FetcherWorld) -> None:
    """Another has the partition: what waited is dropped, and what lies below its next start is not taken."""

    async def act() -> None:
        world.open()
        world.take(lease(1, start_in_ms=100))
        world.fetcher.lost(range(4))
        world.take(lease(2))
        world.fetcher.assigned(dict.fromkeys(range(4), 103))
        world.take(lease(3), lease(4))
        await world.until(lambda: len(world.results()) == 1, "the only lease that is ours")
        await world.close()
        assert fetched(world.results()) == [4]
        assert len(world.results()) == 1

    run(act)


def test_an_unowned_lease_has_no_result(world: FetcherWorld) -> None:
    """The web found that the group was lost as it was about to ask: nothing is said, and nothing is stored."""

    async def act() -> None:
        world.open()
        world.web.unowned.add(lease(1).lease_id)
        world.take(lease(1), lease(2))
        await world.until(lambda: len(world.results()) == 1, "the other's result")
        await world.close()
        assert fetched(world.results()) == [2]
        assert len(world.results()) == 1

    run(act)


def test_an_orderly_end_finishes_seals_and_gives_back(world: FetcherWorld) -> None:
    """SIGTERM: running requests end, their bodies are announced, waiting leases are told expired, all acknowledged."""

    async def act() -> None:
        world.open(pace=Pace(gather_ms=1, fetches_max=2), keeping=Keeping(seal_ms=60_000))
        world.web.open.clear()
        world.take(*(lease(number) for number in range(4)))
        await world.until(lambda: len(world.web.running) == 2, "two requests to run")
        world.sender.away = True
        closing = asyncio.ensure_future(world.close())
        await world.until(lambda: len(world.results()) == 2, "the waiting leases to be given back")
        assert [one.outcome for one in world.results()] == [Outcome.EXPIRED] * 2
        world.web.open.set()
        await world.until(lambda: len(world.stored()) == 2, "the bodies to be announced")
        assert not closing.done()
        world.sender.come_back()
        await closing
        assert world.reader.closed
        assert fetched(world.results()) == [0, 1]
        assert len(world.web.asked) == 2
        assert any(name.startswith("fetchlog/") for name in world.s3.objects)

    run(act)


def test_an_end_without_a_store_is_an_end_all_the_same(world: FetcherWorld) -> None:
    """S3 away at SIGTERM: the fetcher ends in its time, and what was not brought was not announced."""

    async def act() -> None:
        world.open(pace=Pace(gather_ms=1, stop_ms=300), keeping=Keeping(seal_ms=60_000))
        world.s3.away = True
        world.take(lease(1))
        await world.until(lambda: len(world.results()) == 1, "the result")
        await world.close()
        assert world.stored() == []
        assert len(world.spool.remains()) == 1

    run(act)


def test_the_same_bytes_are_written_once(world: FetcherWorld) -> None:
    """Within a segment and over segments a second copy is a revisit record that refers to what is surely there."""

    async def act() -> None:
        world.open()
        world.web.body = lambda one: b"the same" if one.kind is Kind.PAGE else b"other"
        world.take(lease(1), lease(2))
        await world.until(lambda: len(world.stored()) == 2, "the first segment")
        world.take(lease(3))
        await world.until(lambda: len(world.stored()) == 3, "the second segment")
        await world.close()
        first, *later = world.stored()
        assert {one.content for one in later} == {first.body}
        assert later[-1].body.segment != first.body.segment
        kinds = [
            one.type
            for name, data in sorted(world.s3.objects.items())
            if name.startswith("warc/")
            for one in read_all(data)
        ]
        assert kinds == ["warcinfo", "response", "revisit", "warcinfo", "revisit"]

    run(act)


def test_bytes_in_a_segment_that_is_not_there_yet_are_written_again(world: FetcherWorld) -> None:
    """The first copy waits for S3 in a segment of its own, which a kill would lose: the second must not refer to it."""

    async def act() -> None:
        world.open()
        world.web.body = lambda one: b"the same"
        world.s3.away = True
        world.take(lease(1))
        await world.until(lambda: world.objects.away_s() > 0, "the first segment to wait")
        world.take(lease(2))
        await world.until(lambda: len(world.results()) == 2, "the second result")
        world.s3.away = False
        await world.until(lambda: len(world.stored()) == 2, "both to be stored")
        await world.close()
        assert [one.content == one.body for one in world.stored()] == [True, True]

    run(act)


def test_bytes_in_a_full_segment_that_waits_its_turn_are_written_again(world: FetcherWorld) -> None:
    """A segment that is full and not brought yet is none that a later one may rest on."""

    async def act() -> None:
        world.open(keeping=Keeping(seal_ms=60_000, uploads_max=1), segment_bytes_max=900)
        bodies = [b"".join(hashlib.sha256(b"%d.%d" % (one, at)).digest() for at in range(40)) for one in range(2)]
        world.web.body = lambda one: bodies[min(1, one.lease_id[-1])]
        world.s3.away = True
        for number in range(3):
            world.take(lease(number))
            await world.until(lambda: len(world.results()) == number + 1, "the next result")  # noqa: B023
        world.s3.away = False
        await world.until(lambda: len(world.stored()) == 3, "all to be stored")
        await world.close()
        assert [one.content == one.body for one in world.stored()] == [True] * 3
        assert len({one.body.segment for one in world.stored()}) == 3

    run(act)


def test_robots_are_kept_and_not_announced(world: FetcherWorld) -> None:
    """Rules travel in the result; the file lies in the archive, and its lease ends with the result."""

    async def act() -> None:
        world.open()
        world.take(lease(1, kind=Kind.ROBOTS), lease(2, kind=Kind.SITEMAP))
        await world.until(lambda: len(world.stored()) == 1, "the sitemap to be stored")
        await world.close()
        assert world.stored()[0].lease_id == lease(2).lease_id
        found = [one for name, data in world.s3.objects.items() if name.startswith("warc/") for one in read_all(data)]
        assert [one.type for one in found] == ["warcinfo", "response", "response"]

    run(act)


def test_a_record_that_is_no_lease_goes_to_the_dead_letters(world: FetcherWorld) -> None:
    """It costs itself alone, and people see it whole."""

    async def act() -> None:
        world.open()
        world.fetcher.take([Received(2, 100, b"\xc3\x01nonsense")])
        world.take(lease(1))
        await world.until(lambda: len(world.results()) == 1, "the lease that follows")
        await world.close()
        (letter,) = world.sent(DeadLetter)
        assert (letter.stage, letter.record) == ("fetch", b"\xc3\x01nonsense")
        assert 'headrace_dead_letters_total{stage="fetch",error="bad_record"} 1' in world.metrics.page()

    run(act)


@pytest.mark.parametrize(
    "change",
    [
        {"url": "nonsense"},
        {"url": "http://other.example/1"},  # another host, charged to this one
        {"url": "http://h1.example/ä"},
        {"url": "http://h1.example/1 HTTP/1.1\r\nHost: other.example"},
        {"host_key": "http://h1:x", "url": "http://h1:x/1"},
        {"concurrency": 0},
    ],
)
def test_a_lease_that_no_owner_grants_costs_itself(world: FetcherWorld, change: dict[str, Any]) -> None:
    """A stranger's record whose request cannot be made ended the worker, and would ask a host in another's name."""

    async def act() -> None:
        world.open()
        strange = msgspec.structs.replace(lease(1), **change)
        world.fetcher.take([Received(2, 100, encode_batch([strange, lease(2)]))])
        world.take(lease(3))
        await world.until(lambda: len(world.results()) == 2, "the leases beside it and behind it")
        await world.close()
        (letter,) = world.sent(DeadLetter)
        assert decode(letter.record, FetchLease) == (strange,)
        assert [one.lease_id for one in world.web.asked] == [lease(2).lease_id, lease(3).lease_id]
        assert world.failures == []

    run(act)


def test_people_see_what_it_does(world: FetcherWorld) -> None:
    """Requests by what came, bytes, bodies by kind, the spool and its limit, by the names that alarms rest on."""

    async def act() -> None:
        world.open()
        world.metrics.gauges = lambda: list(world.fetcher.gauges())
        world.take(lease(1), lease(2, start_within_ms=-1))
        await world.until(lambda: len(world.stored()) == 1, "the body to be stored")
        page = world.metrics.page()
        for line in (
            'headrace_fetches_total{stage="fetch",outcome="fetched",status="200"} 1',
            'headrace_fetch_bytes_total{stage="fetch"} 19',
            'headrace_leases_expired_total{stage="fetch"} 1',
            'headrace_bodies_total{stage="fetch",kind="new"} 1',
            'headrace_consumer_lag_records{stage="fetch",topic="fetch-leases",partition="0"} 7',
            'headrace_commit_age_seconds{stage="fetch",partition="3"} 0',
            'headrace_store_backlog_bytes{stage="fetch"} 0',
        ):
            assert line in page
        await world.close()

    run(act)
