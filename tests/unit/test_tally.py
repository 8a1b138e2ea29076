"""What a run tells of itself while it waits."""

from __future__ import annotations

import msgspec

from connectors.ports import Fetched
from schemas.records import Outcome
from streams.core.policy import CrawlPolicy
from streams.core.progress import Progress, State
from streams.tally import Tally
from tests.support.core_world import World, answer_robots


def looked_at(world: World, tally: Tally, *, in_flight: int = 0) -> Progress:
    return tally.progress(
        State.RUNNING, world.owner, world.now_ms, in_flight=in_flight, store_backlog=0, parse_backlog=0
    )


def test_a_mistyped_host_is_told_at_once_and_what_is_waited_for() -> None:
    """Protects whoever mistyped a host: no such name, once, and then what the run waits for and until when."""
    world = World(CrawlPolicy())
    tally = Tally(world.now_ms, None, ["http://nosuch.invalid"])
    world.seed("http://nosuch.invalid/")
    assert looked_at(world, tally).waits_for == ""  # it is to be asked now
    for _ in range(2):
        turn = world.turn()
        (lease,) = turn.leases
        result = msgspec.structs.replace(
            answer_robots(lease, world.now_ms, status=503), status=0, error="dns_nxdomain", outcome=Outcome.RETRY
        )
        assert looked_at(world, tally, in_flight=1).waits_for == ""
        fetched = Fetched(result, None)
        tally.turn(world.turn(result, leases_max=0), [fetched], 0)
        progress = looked_at(world, tally)
        assert progress.waits_for == "1 host: dns_nxdomain"
        assert progress.waits_until_ms is not None
        assert progress.waits_until_ms >= world.now_ms + 30_000
        assert len(progress.warnings) == 1
        assert progress.warnings[0].startswith("no such name: nosuch.invalid (dns_nxdomain)")
        world.now_ms = progress.waits_until_ms - 1
        assert looked_at(world, tally).waits_for == progress.waits_for, "a wait is told to its end"
        world.now_ms += 1


def test_a_host_that_nobody_typed_is_not_told_as_mistyped() -> None:
    """Protects the screen from a warning for each dead link's host."""
    world = World(CrawlPolicy())
    tally = Tally(world.now_ms, None, ["http://a.test"])
    world.seed("http://dead.test/")
    (lease,) = world.turn().leases
    result = msgspec.structs.replace(answer_robots(lease, world.now_ms, status=503), status=0, error="dns_nxdomain")
    tally.turn(world.turn(result, leases_max=0), [Fetched(result, None)], 0)
    assert looked_at(world, tally).warnings == ()


def test_a_host_that_was_met_is_not_told_as_mistyped_later() -> None:
    """Protects a crawl through an hour without names: a host that answered once is spelled right."""
    world = World(CrawlPolicy())
    tally = Tally(world.now_ms, None, ["http://a.test"])
    world.seed("http://a.test/")
    (lease,) = world.turn().leases
    good = answer_robots(lease, world.now_ms)
    bad = msgspec.structs.replace(good, status=0, error="dns_nxdomain")
    tally.turn(world.turn(good, leases_max=0), [Fetched(good, None), Fetched(bad, None)], 0)
    assert looked_at(world, tally).warnings == ()
