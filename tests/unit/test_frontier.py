"""FRONTIER: who may be asked next and for what; robots first; hosts neither starve nor hold one another up."""

from __future__ import annotations

import msgspec
import pytest

from schemas.records import (
    FetchLease,
    FetchResult,
    Kind,
    Outcome,
    OwnerMessage,
    OwnerMessageKind,
    RobotsAnswer,
    RobotsDecision,
    Source,
)
from streams.core import policy as bounds
from streams.core.hosts import NEVER_MS
from streams.core.policy import CrawlPolicy, Politeness
from streams.core.rows import QueueClass, Status, due_ms_of
from streams.core.turn import Family, Turn
from tests.support.core_world import World, answer, answer_robots, complete, fast, found, stored

OPEN = CrawlPolicy(politeness=Politeness(delay_ms=0, concurrency=8, respect_robots=False))
RESTED_MS = 1_000 + bounds.CLOCK_SKEW_MS_MAX  # one delay, and what another owner's clock may have been behind
RULES = b"User-agent: *\nDisallow: /no\n"


def urls(turn: Turn) -> list[str]:
    return [lease.url for lease in turn.leases]


def hop(lease: FetchLease, now_ms: int, target: str) -> FetchResult:
    return msgspec.structs.replace(
        answer_robots(lease, now_ms), robots=RobotsAnswer(RobotsDecision.HOP), redirect_target=target, status=302
    )


def wait_for_leases(world: World) -> list[FetchLease]:
    """Move the clock as the owner says until there are leases."""
    for _ in range(5):
        leases = world.turn().leases
        if leases:
            return leases
        assert world.owner.next_ms() < NEVER_MS
        world.now_ms = max(world.now_ms, world.owner.next_ms())
    raise AssertionError("no lease")


# --- robots first -------------------------------------------------------------------------------------------------


def test_robots_comes_first_and_everything_waits_for_it() -> None:
    """Protects RFC 9309: one robots lease, no page and no sitemap before its answer."""
    world = World(fast())
    world.turn([found("http://a.test/x"), found("http://a.test/s", Source.SEED, kind=Kind.SITEMAP)], leases_max=0)
    turn = world.turn()
    assert [(lease.url, lease.kind) for lease in turn.leases] == [("http://a.test/robots.txt", Kind.ROBOTS)]
    world.now_ms += 60_000
    assert not world.turn().leases
    world.turn(answer_robots(turn.leases[0], world.now_ms), leases_max=0)
    assert sorted(urls(world.turn())) == ["http://a.test/s", "http://a.test/x"]


def test_a_robots_request_spends_the_hosts_token_and_delay() -> None:
    """Protects the delay between robots.txt and the first page."""
    world = World()
    world.seed("http://a.test/x")
    (lease,) = world.turn().leases
    world.now_ms += 10_000
    world.turn(answer_robots(lease, world.now_ms), leases_max=0)
    world.now_ms += 999
    assert not world.turn().leases
    world.now_ms += 1
    assert urls(world.turn()) == ["http://a.test/x"]


def test_a_crawl_delay_holds_from_the_answer_that_named_it() -> None:
    """Protects the site's delay from the first page on."""
    world = World(fast())
    world.seed("http://a.test/x", "http://a.test/y")
    (lease,) = world.turn().leases
    world.turn(answer_robots(lease, world.now_ms, b"User-agent: *\nCrawl-delay: 7\n"), leases_max=0)
    world.now_ms += 6_999
    assert not world.turn().leases
    world.now_ms += 1
    assert len(world.turn().leases) == 1  # one at a time, whatever the concurrency


def test_an_unreachable_robots_disallows_all_and_is_asked_again() -> None:
    """Protects RFC 9309 2.3.1.4: nothing but robots.txt is asked, by the retry schedule."""
    world = World()
    world.seed("http://a.test/x")
    (lease,) = world.turn().leases
    world.turn(answer_robots(lease, world.now_ms, status=500), leases_max=0)
    world.now_ms += bounds.RETRY_DELAYS_MS[0] - 1
    assert not world.turn().leases
    world.now_ms += 1
    (again,) = world.turn().leases
    assert again.kind is Kind.ROBOTS
    world.turn(answer_robots(again, world.now_ms), leases_max=0)
    assert [lease.url for lease in wait_for_leases(world)] == ["http://a.test/x"]


def test_robots_is_asked_anew_after_a_day() -> None:
    """Protects RFC 9309 2.4: no copy serves for longer."""
    world = World(fast())
    world.seed("http://a.test/x")
    world.pass_robots(RULES)
    world.now_ms += bounds.ROBOTS_TTL_MS
    assert urls(world.turn()) == ["http://a.test/robots.txt"]


def test_robots_is_not_asked_while_nothing_is_due() -> None:
    """Protects a site whose pages all rest from being asked for its rules each day, or each hour when it is down."""
    world = World(fast())
    world.turn([found("http://a.test/x", Source.LINK)], leases_max=0)
    world.pass_robots()
    complete(world, world.turn().leases)
    row = world.row("http://a.test/x")
    assert row is not None
    world.now_ms += 2 * bounds.ROBOTS_TTL_MS
    due_ms = due_ms_of(row.place)
    assert due_ms > world.now_ms
    assert world.owner.frontier.ready(world.owner.hosts.named("http://a.test"), world.now_ms)[0] == due_ms


def test_rules_survive_a_restart() -> None:
    """Protects what robots.txt said against a kill: no second request, no forbidden page."""
    world = World(fast())
    world.seed("http://a.test/no", "http://a.test/x")
    world.pass_robots(RULES)
    world.restart()
    world.now_ms += RESTED_MS
    assert urls(world.turn()) == ["http://a.test/x"]


# --- hops ---------------------------------------------------------------------------------------------------------


def test_a_robots_redirect_to_another_host_is_that_hosts_lease_and_comes_back() -> None:
    """Protects hops: the other host's token pays, the chain's count goes on, the asker gets the rules."""
    world = World()
    world.seed("http://a.test/no", "http://a.test/x")
    (first,) = world.turn().leases
    (second,) = world.turn(hop(first, world.now_ms, "http://b.test/r")).leases
    assert (second.host_key, second.url, second.redirect_hops) == ("http://b.test", "http://b.test/r", 1)
    assert second.robots_for == "http://a.test"
    (third,) = world.turn(hop(second, world.now_ms, "http://c.test/r")).leases
    assert (third.host_key, third.redirect_hops, third.robots_for) == ("http://c.test", 2, "http://a.test")
    world.now_ms += 500
    world.turn(answer_robots(third, world.now_ms, RULES), leases_max=0)
    world.now_ms += 1_000
    assert urls(world.turn()) == ["http://a.test/x"]
    assert world.host("http://b.test").robots is None  # it was not asked for its own sake
    assert world.host("http://c.test").next_allowed_ms >= world.now_ms


def test_a_robots_redirect_within_the_host_is_followed() -> None:
    """Protects the common case: /robots.txt redirects to another path of the same host."""
    world = World(fast())
    world.seed("http://a.test/x")
    (first,) = world.turn().leases
    (second,) = world.turn(hop(first, world.now_ms, "http://a.test/r")).leases
    assert (second.url, second.robots_for) == ("http://a.test/r", "http://a.test")
    assert urls(world.turn(answer_robots(second, world.now_ms))) == ["http://a.test/x"]


def test_a_hop_whose_answer_never_comes_is_asked_anew() -> None:
    """Protects a host from waiting for ever for another one, which may be paused, gone, or too busy to say no."""
    world = World()
    world.seed("http://a.test/x")
    (first,) = world.turn().leases
    (second,) = world.turn(hop(first, world.now_ms, "http://b.test/r")).leases
    world.now_ms += bounds.ROBOTS_HOP_MS_MAX - 1
    world.turn(leases_max=0)
    assert not [lease for lease in world.turn(leases_max=0).leases if lease.host_key == "http://a.test"]
    leases = wait_for_leases(world)
    assert "http://a.test/robots.txt" in [lease.url for lease in leases]
    assert second.lease_id not in [lease.lease_id for lease in leases]


def test_a_hop_whose_lease_is_lost_is_asked_anew_at_once() -> None:
    """Protects the asker from the full wait when it is known that no answer will come."""
    world = World()
    world.seed("http://a.test/x")
    (first,) = world.turn().leases
    world.turn(hop(first, world.now_ms, "http://b.test/r"))
    world.restart()
    world.now_ms += RESTED_MS
    assert "http://a.test/robots.txt" in urls(world.turn())


def test_hops_that_wait_at_one_host_are_bounded() -> None:
    """Protects a host's state from ten thousand parked domains that redirect to it."""
    world = World()
    hosts = [f"http://p{n}.test/" for n in range(bounds.HOPS_QUEUED_MAX + 20)]
    world.seed(*hosts)
    leases = world.turn().leases
    world.turn(*[hop(lease, world.now_ms, "http://b.test/r") for lease in leases], leases_max=0)
    assert len(world.host("http://b.test").hops) == bounds.HOPS_QUEUED_MAX


def test_one_fetch_answers_all_that_are_redirected_to_the_same_url() -> None:
    """Protects a parking service from ten thousand requests for one robots.txt, and hosts from waiting in its queue."""
    world = World()
    hosts = [f"http://p{n}.test" for n in range(20)]
    world.seed(*[f"{host}/x" for host in hosts])
    hops = [hop(lease, world.now_ms, "http://b.test/r") for lease in world.turn().leases]
    (only,) = world.turn(*hops[:15]).leases
    assert only.url == "http://b.test/r"
    world.now_ms += 5_000
    world.turn(answer_robots(only, world.now_ms, RULES), leases_max=0)
    assert not world.host("http://b.test").hops
    world.now_ms += 60_000
    turn = world.turn(*hops[15:], leases_max=0)  # these come after the answer
    assert not turn.leases
    world.now_ms += 1_000
    assert sorted(urls(world.turn())) == sorted(f"{host}/x" for host in hosts)
    for host in hosts:
        robots = world.host(host).robots
        assert robots is not None
        assert robots.fetched_ms == only.not_before_ms + 5_000


def ask_for(asker: str, url: str = "http://b.test/r") -> OwnerMessage:
    return OwnerMessage("http://b.test", asker, OwnerMessageKind.ROBOTS_HOP, url, 1)


@pytest.mark.parametrize(("status", "kept_ms"), [(200, bounds.HOP_ANSWER_MS_MAX), (500, bounds.RETRY_DELAYS_MS[0])])
def test_an_answer_to_a_hop_is_kept_for_a_while(status: int, kept_ms: int) -> None:
    """Protects hosts from another's old answer, and the retry after a failure from meeting the failure again."""
    world = World()
    (lease,) = world.turn(ask_for("http://p.test")).leases
    world.turn(answer_robots(lease, world.now_ms, RULES if status == 200 else b"", status), leases_max=0)
    world.now_ms += kept_ms - 1
    assert not world.turn(ask_for("http://q.test")).leases
    world.now_ms += 1
    assert urls(world.turn(ask_for("http://r.test"))) == ["http://b.test/r"]


def test_a_hop_does_not_make_a_host_ask_again_for_what_it_waits_for() -> None:
    """Protects a site from a second request for its robots.txt while the first one's answer is under way elsewhere."""
    world = World(CrawlPolicy(politeness=Politeness(delay_ms=0, concurrency=2)))
    world.seed("http://b.test/x")
    (first,) = world.turn().leases
    assert urls(world.turn(ask_for("http://p.test"), ask_for("http://q.test", "http://b.test/q"))) == [
        "http://b.test/r"
    ]
    asked = urls(world.turn(hop(first, world.now_ms, "http://c.test/r"))) + urls(world.turn())
    assert sorted(asked) == ["http://b.test/q", "http://c.test/r"]


def test_kept_answers_are_bounded() -> None:
    """Protects memory: many URLs and long files."""
    world = World(fast())
    for n in range(bounds.HOP_ANSWERS_MAX + 10):
        (lease,) = world.turn(ask_for("http://p.test", f"http://b.test/{n}")).leases
        world.turn(answer_robots(lease, world.now_ms), leases_max=0)
    assert len(world.owner.robots._kept) == bounds.HOP_ANSWERS_MAX
    assert world.host("http://b.test").robots is None  # nothing of it is due
    (lease,) = world.turn(ask_for("http://p.test")).leases
    long = b"User-agent: *\n" + b"".join(b"Disallow: /%d\n" % n for n in range(20_000))
    world.turn(answer_robots(lease, world.now_ms, long), leases_max=0)
    assert urls(world.turn(ask_for("http://q.test"))) == ["http://b.test/r"]


def test_hops_and_the_hosts_own_urls_take_turns() -> None:
    """Protects both: a host whose robots.txt many others are sent to still gets its pages fetched, and they rules."""
    world = World()
    world.seed("http://b.test/1", "http://b.test/2", "http://b.test/3")
    world.pass_robots()
    world.turn(*[ask_for(f"http://p{n}.test", f"http://b.test/r{n}") for n in range(5)], leases_max=0)
    asked = []
    for _ in range(8):
        (lease,) = world.turn().leases
        asked.append(lease.kind)
        if lease.kind is Kind.ROBOTS:
            world.turn(answer_robots(lease, world.now_ms), leases_max=0)
        else:
            complete(world, [lease])
        world.now_ms += 1_000
    assert asked == [Kind.ROBOTS, Kind.PAGE] * 3 + [Kind.ROBOTS] * 2


# --- denied -------------------------------------------------------------------------------------------------------


def test_denied_urls_are_settled_without_a_request_and_hold_nobody_up() -> None:
    """Protects the budget: ten thousand forbidden URLs cost the site nothing, the allowed one comes at once."""
    world = World(fast())
    world.seed("http://a.test/x")
    world.pass_robots(RULES)
    batch = [found(f"http://a.test/no/{n}", Source.LINK) for n in range(1_000)]
    world.turn([msgspec.structs.replace(one, priority_hint=200) for one in batch], leases_max=0)
    world.turn([found("http://a.test/last", Source.LINK)], leases_max=0)
    seen: list[str] = []
    for _ in range(5):
        seen += urls(world.turn())
    assert seen == ["http://a.test/x", "http://a.test/last"]
    host = world.host("http://a.test")
    assert host.statuses[Status.DENIED] == 1_000
    assert (host.queued[QueueClass.NEW], host.fetches) == (2, 3)


def test_denying_is_bounded_by_the_turn_and_lets_others_in() -> None:
    """Protects the turn from a host that forbids all of its many URLs, and the hosts beside it from waiting for it."""
    world = World(fast())
    world.seed("http://a.test/no")
    world.pass_robots(RULES)
    world.turn([found(f"http://a.test/no/{n}", Source.LINK) for n in range(20_000)], leases_max=0)
    turn = world.turn()
    assert bounds.DENIED_PER_TURN_MAX <= turn.counts.denied < bounds.DENIED_PER_TURN_MAX + bounds.DENIED_PER_STEP_MAX
    assert world.owner.next_ms() <= world.now_ms  # the rest is for the next turn, at once
    world.now_ms += 1
    world.seed("http://b.test/")
    world.now_ms += 1
    assert urls(world.turn()) == ["http://b.test/robots.txt"]
    for _ in range(5):
        world.turn()
    assert world.host("http://a.test").statuses[Status.DENIED] == 20_001


def test_a_denied_url_is_fetched_when_the_rules_have_changed() -> None:
    """Protects a site that opens: at the first look after a day robots.txt is asked, then the page."""
    world = World(fast())
    world.seed("http://a.test/no")
    world.pass_robots(RULES)
    assert not world.turn().leases
    before = world.now_ms
    (lease,) = wait_for_leases(world)
    assert lease.kind is Kind.ROBOTS
    assert world.now_ms - before <= bounds.ROBOTS_TTL_MS + 2 * bounds.REVISIT_SLOT_MS
    world.turn(answer_robots(lease, world.now_ms), leases_max=0)
    assert urls(world.turn()) == ["http://a.test/no"]


# --- order and fairness -------------------------------------------------------------------------------------------


def test_retries_go_first_and_revisits_have_their_share() -> None:
    """Protects both: new URLs do not starve the due ones, nor the other way about."""
    world = World(OPEN)
    world.seed(*[f"http://a.test/old{n}" for n in range(20)])
    for _ in range(3):
        complete(world, world.turn().leases)
    world.now_ms += 40 * bounds.DAY_MS
    world.turn([found(f"http://a.test/new{n}", Source.LINK) for n in range(20)], leases_max=0)
    granted: list[str] = []
    for _ in range(10):
        leases = world.turn(leases_max=1).leases
        granted += [lease.url for lease in leases]
        complete(world, leases)
    assert sum("/old" in url for url in granted) == 4  # revisit_share of ten


def test_a_hot_host_holds_nobody_up() -> None:
    """Protects the others from one host with many URLs: each ready host gets its lease in the same turn."""
    world = World(msgspec.structs.replace(OPEN, politeness=Politeness(delay_ms=1_000, respect_robots=False)))
    world.turn([found(f"http://hot.test/{n}", Source.LINK) for n in range(2_000)], leases_max=0)
    world.seed(*[f"http://h{n}.test/" for n in range(50)])
    turn = world.turn(leases_max=51)
    assert len({lease.host_key for lease in turn.leases}) == 51


def test_the_valuable_go_first_and_nobody_waits_for_ever() -> None:
    """Protects both ends of the handicap: by value among hosts that became ready together, by time in the end."""
    world = World(msgspec.structs.replace(OPEN, politeness=Politeness(delay_ms=0, respect_robots=False)))
    low = msgspec.structs.replace(found("http://low.test/", Source.LINK), priority_hint=0)
    world.turn([low], leases_max=0)
    world.seed("http://high.test/")
    assert urls(world.turn(leases_max=1)) == ["http://high.test/"]
    for n in range(30):  # high.test always has another one, and always of the highest value
        world.now_ms += bounds.MINUTE_MS
        world.seed(f"http://high{n}.test/")
        if "http://low.test/" in urls(world.turn(leases_max=1)):
            return
    raise AssertionError("low.test waited for ever")


def test_no_more_leases_than_there_is_room_for() -> None:
    """Protects backpressure."""
    world = World(OPEN)
    world.seed(*[f"http://h{n}.test/" for n in range(20)])
    assert not world.turn(leases_max=0).leases
    assert len(world.turn(leases_max=7).leases) == 7
    assert len(world.turn(leases_max=100).leases) == 13


def test_a_lease_carries_what_a_fetcher_needs() -> None:
    """Protects the contract of a lease: its window of time, its version, its epoch."""
    world = World(OPEN)
    world.seed("http://a.test/x")
    (lease,) = world.turn().leases
    assert (lease.not_before_ms, lease.start_by_ms) == (world.now_ms, world.now_ms + bounds.LEASE_START_MS_MAX)
    assert (lease.url_version, lease.attempt, lease.owner_epoch) == (1, 0, world.epoch)
    assert len(lease.lease_id) == 16


# --- expiry -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storing_first", [False, True])
def test_the_token_of_a_lost_lease_comes_back_only_after_the_skew(storing_first: bool) -> None:
    """Protects the site from a second request beside one that may still run, also while a body waits to be stored."""
    world = World(CrawlPolicy(politeness=Politeness(respect_robots=False)))
    world.seed("http://a.test/x", "http://a.test/y")
    (lease,) = world.turn().leases
    if storing_first:
        world.now_ms += 100_000
        world.turn(answer(lease, world.now_ms), leases_max=0)
        world.now_ms += 100_000
        world.turn(leases_max=0)
        (lease,) = world.turn().leases
    expires_ms = lease.start_by_ms + lease.duration_ms_max + bounds.CLOCK_SKEW_MS_MAX
    world.now_ms = expires_ms - 1
    assert not world.turn().leases
    world.now_ms = expires_ms
    assert not world.turn().leases
    assert not [one for one in world.host("http://a.test").in_flight.values() if not one.storing]
    world.now_ms += 1_000
    (again,) = world.turn().leases
    assert (again.url, again.url_version, again.attempt) == (lease.url, 1, 1)


# --- what idle and end rest on ------------------------------------------------------------------------------------


def test_pending_tells_due_work_from_resting_pages() -> None:
    """Protects the end of a crawl: new and failed URLs are waited for, pages that rest are not."""
    world = World(fast())
    world.seed("http://a.test/x")
    until_ms = world.now_ms + bounds.HOUR_MS
    assert world.owner.next_pending_ms(world.now_ms, until_ms) <= world.now_ms
    world.pass_robots()
    (lease,) = world.turn().leases
    world.turn(answer(lease, world.now_ms, Outcome.RETRY, 500), leases_max=0)
    assert 0 < world.owner.next_pending_ms(world.now_ms, until_ms) - world.now_ms <= 31_000
    world.now_ms += 40_000
    complete(world, world.turn().leases)
    assert world.owner.next_pending_ms(world.now_ms, until_ms) > until_ms
    world.now_ms += 40 * bounds.DAY_MS
    assert world.owner.next_pending_ms(world.now_ms, world.now_ms) <= world.now_ms


def test_refreshed_pages_are_pending_however_late_the_clock() -> None:
    """Protects `--refresh` at the turn of a slot: what it made due counts as due when the run began."""
    world = World(CrawlPolicy(politeness=Politeness(respect_robots=False)))
    world.seed("http://a.test/x")
    complete(world, world.turn().leases)
    started_ms = world.now_ms
    world.now_ms += bounds.REVISIT_SLOT_MS
    entries = _queue(world)
    turn = world.owner.refresh(entries, world.now_ms)
    world.store.commit(turn.writes)
    world.owner.committed(turn)
    assert world.owner.next_pending_ms(started_ms, world.now_ms) <= world.now_ms
    assert urls(world.turn()) == ["http://a.test/x"]


def test_refresh_leaves_urls_in_flight_alone() -> None:
    """Protects the lease that is out: its URL is not granted a second time."""
    world = World(OPEN)
    world.seed("http://a.test/x")
    complete(world, world.turn().leases)
    world.now_ms += 40 * bounds.DAY_MS
    (lease,) = world.turn().leases
    entries = _queue(world)
    turn = world.owner.refresh(entries, world.now_ms)
    world.store.commit(turn.writes)
    world.owner.committed(turn)
    assert not world.turn().leases
    world.turn(answer(lease, world.now_ms), stored(lease), leases_max=0)
    assert len(_queue(world)) == 1


def _queue(world: World) -> list[bytes]:
    return list(world.store.families[Family.QUEUE])
