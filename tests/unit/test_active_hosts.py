"""Hosts at hand: which are asked first, which are forgotten first, what is read ahead, what small ones are spared."""

from __future__ import annotations

import msgspec

from schemas.records import Source
from streams.core import policy as bounds
from streams.core.admit import decode_templates
from streams.core.policy import CrawlPolicy, Politeness, TrapLimits
from streams.core.rules.urls import host_id
from streams.core.schedule import COLD_MS, Schedule
from streams.core.turn import Family
from tests.support.core_world import NOW_MS, World, complete, found

ONE = CrawlPolicy(politeness=Politeness(respect_robots=False))
RANK = 0x4000


def test_a_host_at_hand_goes_first_but_not_for_ever() -> None:
    """Protects the pace (loading costs as much as several grants), and hosts on disk from waiting without end."""
    schedule = Schedule()
    schedule.put(b"disk", NOW_MS, RANK, NOW_MS, cold=True)
    schedule.put(b"hand", NOW_MS + 1, RANK, NOW_MS)
    assert schedule.pop(NOW_MS + 1) == b"hand"
    schedule.put(b"late", NOW_MS + COLD_MS + 1, RANK, NOW_MS + 1)
    assert schedule.pop(NOW_MS + COLD_MS + 1) == b"disk"


def test_a_host_that_leaves_memory_loses_its_place_to_those_that_stay() -> None:
    """Protects `cool`: what is dropped while it waits comes up as what is on disk."""
    schedule = Schedule()
    schedule.put(b"gone", NOW_MS + 1, RANK, NOW_MS)
    schedule.put(b"hand", NOW_MS + 2, RANK, NOW_MS)
    schedule.cool(b"gone")
    schedule.cool(b"never scheduled")
    assert [schedule.pop(NOW_MS + 2), schedule.pop(NOW_MS + 2), schedule.pop(NOW_MS + 2)] == [b"hand", b"gone", None]


def test_the_better_of_two_urls_goes_first_though_it_came_later() -> None:
    """Protects the order by value across hosts, and that a better rank counts though the instant is the same."""
    schedule = Schedule()
    schedule.put(b"poor", NOW_MS, 0x8000, NOW_MS)
    schedule.put(b"rich", NOW_MS + 5, 0x1000, NOW_MS)
    schedule.put(b"poor", NOW_MS + 5, 0x0800, NOW_MS)
    assert [schedule.pop(NOW_MS + 5), schedule.pop(NOW_MS + 5), schedule.pop(NOW_MS + 5)] == [b"poor", b"rich", None]


def test_hosts_that_are_wanted_last_are_forgotten_first() -> None:
    """Protects the hosts that are asked again in a second from being dropped for hosts that rest for days."""
    world = World(ONE)
    world.owner.hosts._hosts_max = 20
    rests = [f"http://rests{n}.test/" for n in range(10)]
    works = [f"http://works{n}.test/" for n in range(10)]
    world.seed(*works, *[f"{url}{n}" for url in works for n in range(3)], *rests)
    complete(world, world.turn().leases)  # what rests has nothing left that is due before days
    assert len(world.owner.hosts) == 20
    world.seed("http://new.test/")
    for url in works:
        assert host_id(url[:-1]) in world.owner.hosts, url
    assert sum(host_id(url[:-1]) in world.owner.hosts for url in rests) < 10


def test_a_row_that_changed_after_it_was_read_ahead_is_read_anew() -> None:
    """Protects a lease from what was known of its URL before: a nearer way to it that was found meanwhile."""
    world = World(msgspec.structs.replace(ONE, depth_max=9))
    world.turn([found(f"http://a.test/{n}", Source.LINK, depth=3) for n in range(4)], leases_max=0)
    world.restart()
    (first,) = world.turn().leases  # the rows of the other three are read with it
    left = [f"http://a.test/{n}" for n in range(4) if f"http://a.test/{n}" != first.url]
    world.turn([found(url, Source.LINK, depth=1) for url in left], leases_max=0)
    complete(world, [first])
    world.now_ms += 60_000
    (second,) = world.turn().leases
    assert (second.url in left, second.depth) == (True, 1)


def test_rows_that_come_next_are_read_together() -> None:
    """Protects the cost of a grant: one look into the store for as many URLs of a host as are read ahead."""
    world = World(ONE)
    world.seed(*[f"http://a.test/{n}" for n in range(bounds.AHEAD_URLS)])
    world.restart()
    looks = 0
    rows = world.store.rows

    def counting(keys: list[bytes]) -> list[bytes | None]:
        nonlocal looks
        looks += 1
        return rows(keys)

    world.store.rows = counting  # type: ignore[method-assign]
    for _ in range(bounds.AHEAD_URLS):
        world.now_ms += 60_000
        complete(world, world.turn().leases)
    assert looks == 1


def test_the_templates_of_a_small_host_are_not_counted() -> None:
    """Protects admission from work that no limit needs; with limits that a small host could reach, all are counted."""
    for limit, counted in ((50_000, 10), (20, bounds.TEMPLATES_FROM_URLS + 10)):
        traps = TrapLimits(template_urls_max=limit, endless_template_urls_max=limit, sample_every=1)
        world = World(msgspec.structs.replace(ONE, traps=traps))
        urls = [f"http://a.test/{n}" for n in range(bounds.TEMPLATES_FROM_URLS + 10)]
        world.turn([found(url, Source.LINK) for url in urls], leases_max=0)
        slot = world.owner.hosts.named("http://a.test")
        assert slot.templates is not None
        assert sum(slot.templates.urls.values()) == counted
    raw = world.store.get(Family.TEMPLATES, host_id("http://a.test"))
    assert raw is not None
    assert sum(decode_templates(raw).urls.values()) > 0
