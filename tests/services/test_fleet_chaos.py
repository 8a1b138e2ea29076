"""A whole fleet under load, two workers a stage: workers and services killed, a fetcher stopped and woken, workers that
join and leave, parsers that stand still; judged by the site's own log, the index and the tables."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.services.conftest import Fleet
from tests.support.chaos import SERVICES, Chaos, refetches_around
from tests.support.fleet_world import until
from tests.support.whole_fleet import STAGES

SEED = 7
BACKLOG_MAX = 40  # of a partition


@pytest.fixture(scope="module")
def chaos(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chaos]:
    made = Chaos(
        fleet,
        tmp_path_factory.mktemp("chaos"),
        pages=30,
        hosts_max=80,
        delay_ms=100,
        seed=SEED,
        fleet__parse_backlog_max=BACKLOG_MAX,
    )
    try:
        made.whole.start()
        yield made
    finally:
        made.close()


def test_workers_killed_under_load(chaos: Chaos) -> None:
    """kill -9 of one of each stage's workers, and a fetcher stopped past its session and woken: nothing is lost, the
    index is what a walk says, each URL completed once, and the site's log shows no breach."""
    chaos.feed(4)
    for stage in STAGES:
        chaos.deed(f"kill -9 of a worker of {stage}", lambda stage=stage: chaos.kill_worker(stage))  # type: ignore[misc]
    chaos.deed("a fetcher stopped and woken", chaos.stop_fetcher)
    again = chaos.check()
    print(f"{len(chaos.log())} requests, {again.total()} of them again")


def test_services_killed_under_load(chaos: Chaos) -> None:
    """kill -9 of the broker, of Cassandra, S3, Connect and OpenSearch, each started again: the same, and no worker
    ends."""
    chaos.feed(4)
    pids = {one.pid for stage in STAGES for one in chaos.whole.running(stage)}
    for name in SERVICES:
        chaos.deed(f"kill -9 of {name}", lambda name=name: chaos.kill_service(name))  # type: ignore[misc]
    chaos.check()
    assert {one.pid for stage in STAGES for one in chaos.whole.running(stage)} == pids, chaos.whole.said()


def test_workers_join_and_leave_under_load(chaos: Chaos) -> None:
    """One more fetcher and one more parser come and go by SIGTERM: nothing is lost, next to nothing asked again."""
    chaos.feed(6)
    chaos.goes_on()
    for stage in ("fetch", "parse"):
        began_ms = time.time() * 1_000
        more = chaos.joins(stage)
        chaos.feed(2)
        chaos.goes_on()
        assert more.terminate(180) == 0, more.said()
        chaos.goes_on()
        print(f"{stage}: {refetches_around(chaos.log(), began_ms)} asked again")
    chaos.check()


def test_parsers_that_stand_still_stop_the_grants(chaos: Chaos) -> None:
    """SIGSTOP of all parsers: pages wait up to the limit and no more is asked for, no worker's memory grows, and all
    goes on when they are woken."""
    parsers = chaos.whole.running("parse")
    for one in parsers:
        one.stop()
    chaos.feed(20)
    last: tuple[float, int] = (time.monotonic(), -1)

    def stands() -> bool:
        nonlocal last
        if len(chaos.log()) != last[1]:
            last = (time.monotonic(), len(chaos.log()))
        return time.monotonic() - last[0] > 8

    until(stands, "the requests to end", 120)
    others = [one for stage in STAGES for one in chaos.whole.running(stage) if stage != "parse"]
    stopped = {one.name: one.metric("headrace_grants_stopped") for one in chaos.whole.running("owner")}
    assert max(stopped.values()) >= 1, stopped
    before = {one.name: one.rss_mb() for one in others}
    asked = len(chaos.log())
    end_s = time.monotonic() + 10
    until(lambda: time.monotonic() > end_s, "ten seconds to pass")
    grown = {one.name: one.rss_mb() - before[one.name] for one in others}
    print(f"grants stopped at {asked} requests; memory grew by MB: {grown}")
    assert len(chaos.log()) == asked
    assert max(grown.values()) < 20, grown
    for one in parsers:
        one.wake()
    chaos.goes_on()
    chaos.check()
