"""What an owner's turn tells of its grants: the figures that alarms rest on."""

from __future__ import annotations

from streams.core import policy as bounds
from tests.support.core_world import World, answer_robots, fast


def test_a_grant_says_how_long_its_host_could_have_been_asked() -> None:
    """From when the host was ready, not from when its URL was found: a host's own delay is no lag of ours."""
    world = World()
    world.seed("http://a.test/x", "http://a.test/y")
    world.now_ms += 400
    (robots,) = (turn := world.turn()).leases
    assert [waited_ms for _, waited_ms in turn.waits] == [400]
    assert turn.robots_ages_ms == []
    world.now_ms += 5_000
    world.turn(answer_robots(robots, world.now_ms), leases_max=0)
    world.now_ms += 1_000
    turn = world.turn()
    assert [waited_ms for _, waited_ms in turn.waits] == [0]
    assert turn.robots_ages_ms == [1_000]


def test_a_lost_lease_is_counted() -> None:
    """What an operator is to be told of, once."""
    world = World(fast())
    world.seed("http://a.test/x")
    (robots,) = world.turn().leases
    world.now_ms = robots.start_by_ms + robots.duration_ms_max + bounds.CLOCK_SKEW_MS_MAX
    assert world.turn(leases_max=0).counts.lost == 1
    assert world.turn(leases_max=0).counts.lost == 0
