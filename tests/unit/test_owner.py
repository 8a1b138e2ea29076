"""The owner between turns: crashes, takeovers, other policies and clocks, memory, and the work of its loops."""

from __future__ import annotations

import time

import msgspec

from schemas.records import FetchLease, Kind, Outcome, OwnerMessage, OwnerMessageKind, Source
from streams.core import policy as bounds
from streams.core.hosts import NEVER_MS
from streams.core.owner import Owner
from streams.core.policy import CrawlPolicy, Politeness, TrapLimits
from streams.core.rows import Status
from streams.core.rules.urls import host_id, url_id
from streams.core.turn import Family
from tests.support.core_world import ANY, World, answer, answer_robots, complete, fast, found, stored

OPEN = CrawlPolicy(politeness=Politeness(delay_ms=0, concurrency=8, respect_robots=False))
ONE = CrawlPolicy(politeness=Politeness(respect_robots=False))
URL = "http://a.test/x"
RESTED_MS = 1_000 + bounds.CLOCK_SKEW_MS_MAX  # one delay, and what another owner's clock may have been behind


def reopen(world: World, policy: CrawlPolicy) -> None:
    """The next run, under another policy."""
    world.policy = policy
    world.restart()


def urls(leases: list[FetchLease]) -> list[str]:
    return [lease.url for lease in leases]


def test_an_uncommitted_turn_leaves_nothing() -> None:
    """Protects the commit: what was decided and not made durable never happened."""
    world = World(OPEN)
    world.seed(URL)
    before = {family: dict(entries) for family, entries in world.store.families.items()}
    turn = world.turn([found("http://b.test/")], commit=False)
    assert turn.leases
    assert {family: dict(entries) for family, entries in world.store.families.items()} == before
    world.restart()
    assert urls(world.turn().leases) == [URL]


def test_leases_of_a_dead_process_are_closed_and_their_host_waits_one_delay() -> None:
    """Protects the site from a request right after the one that the kill cut off."""
    world = World(ONE)
    world.seed(URL)
    (first,) = world.turn().leases
    world.now_ms += 300
    world.restart()
    assert not world.host("http://a.test").in_flight
    world.now_ms += 999
    assert not world.turn().leases
    world.now_ms += RESTED_MS
    (again,) = world.turn().leases
    assert (again.url_version, again.attempt) == (first.url_version, 1)
    assert again.lease_id != first.lease_id


def test_a_takeover_accepts_results_of_leases_that_it_did_not_grant() -> None:
    """Protects fetches from being wasted: the lease is in the adopted state, whichever epoch granted it."""
    world = World(ONE)
    world.seed(URL)
    (lease,) = world.turn().leases
    world.restart(close_leases=False)
    complete(world, [lease])
    row = world.row(URL)
    assert row is not None
    assert row.status is Status.FETCHED


def test_a_host_with_leases_out_is_scheduled_by_a_takeover() -> None:
    """Protects a host with tokens left from waiting until one of its leases expires."""
    world = World(msgspec.structs.replace(OPEN, politeness=Politeness(delay_ms=0, concurrency=2, respect_robots=False)))
    world.seed(URL, "http://a.test/y")
    assert len(world.turn(leases_max=1).leases) == 1
    world.restart(close_leases=False)
    world.now_ms += RESTED_MS
    assert len(world.turn().leases) == 1


def test_leases_of_a_takeover_expire() -> None:
    """Protects URLs whose fetcher died with the owner before."""
    world = World(ONE)
    world.seed(URL)
    (lease,) = world.turn().leases
    world.restart(close_leases=False)
    world.now_ms = lease.start_by_ms + lease.duration_ms_max + bounds.CLOCK_SKEW_MS_MAX + 2_000
    world.turn()
    world.now_ms += 1_000
    assert urls(world.turn().leases) == [URL]


def test_backoff_and_budget_survive_a_restart() -> None:
    """Protects Retry-After and the day's budget against a kill."""
    policy = CrawlPolicy(politeness=Politeness(delay_ms=0, respect_robots=False, budget_per_day=2))
    world = World(policy)
    world.seed(URL, "http://a.test/y", "http://a.test/z")
    (lease,) = world.turn().leases
    world.turn(answer(lease, world.now_ms, Outcome.RETRY, 429, retry_after_ms=60_000), leases_max=0)
    world.restart()
    assert not world.turn().leases
    world.now_ms += 59_999
    assert not world.turn().leases
    world.now_ms += RESTED_MS
    complete(world, world.turn().leases)
    world.restart()
    world.now_ms += 3_600_000
    assert not world.turn().leases
    world.now_ms = (world.now_ms // bounds.DAY_MS + 1) * bounds.DAY_MS
    assert world.turn().leases


def test_totals_are_the_same_before_and_after_a_restart() -> None:
    """Protects the counts that people see."""
    world = World(OPEN)
    world.seed(*[f"http://h{n}.test/{m}" for n in range(5) for m in range(3)])
    complete(world, world.turn(leases_max=7).leases)
    before = msgspec.structs.asdict(world.owner.totals)
    assert (before["known"], before["hosts"], before["pages"]) == (15, 5, 7)
    world.restart()
    assert msgspec.structs.asdict(world.owner.totals) == before


# --- other policies and clocks ------------------------------------------------------------------------------------


def test_a_larger_budget_counts_at_once() -> None:
    """Protects the next run's settings: a host that waited for tomorrow is looked at today."""
    world = World(CrawlPolicy(politeness=Politeness(delay_ms=0, respect_robots=False, budget_per_day=1)))
    world.seed(URL, "http://a.test/y")
    complete(world, world.turn().leases)
    assert not world.turn().leases
    reopen(world, OPEN)
    world.now_ms += RESTED_MS
    assert len(world.turn().leases) == 1


def test_a_shorter_delay_counts_at_once_and_a_longer_one_from_the_next_request() -> None:
    """Protects both: no waiting for a delay that is no more, and no grant sooner than today's delay after a result."""
    hour = CrawlPolicy(politeness=Politeness(delay_ms=bounds.HOUR_MS, respect_robots=False))
    world = World(hour)
    world.seed(URL, "http://a.test/y")
    complete(world, world.turn().leases)
    reopen(world, ONE)
    assert not world.turn().leases
    world.now_ms += RESTED_MS
    assert len(world.turn().leases) == 1


def test_less_concurrency_counts_at_once() -> None:
    """Protects a site: leases of a run with four tokens leave no fifth request in one with one."""
    world = World(fast())
    world.seed(*[f"http://a.test/{n}" for n in range(9)])
    world.pass_robots()
    leases = world.turn().leases
    assert len(leases) == 4
    world.policy = ONE
    world.restart(close_leases=False)
    for lease in leases:
        assert not world.turn().leases
        complete(world, [lease])
        world.now_ms += 1_000
    assert len(world.turn().leases) == 1


def test_a_clock_set_back_between_runs_stops_no_host() -> None:
    """Protects a crawl from waiting for hours that are only on yesterday's clock."""
    world = World(ONE)
    world.seed(URL, "http://a.test/y")
    (lease,) = world.turn().leases
    world.turn(answer(lease, world.now_ms, Outcome.RETRY, 429, retry_after_ms=60_000), leases_max=0)
    world.now_ms -= 30 * bounds.DAY_MS
    world.restart()
    world.now_ms += bounds.RETRY_AFTER_MS_MAX
    assert world.turn().leases


def test_a_clock_that_goes_back_within_a_run_compresses_no_delay() -> None:
    """Protects the site: the owner's time never runs backwards, so no delay runs twice as fast afterwards."""
    world = World(ONE)
    world.seed(URL, "http://a.test/y")
    complete(world, world.turn().leases)
    world.now_ms -= 5_000
    assert not world.turn().leases
    assert world.owner.now_ms == world.now_ms + 5_000
    world.now_ms += 6_000
    assert world.turn().leases


def test_a_clock_that_leaps_forward_loses_nothing() -> None:
    """Protects URLs in flight when a machine wakes up after hours: leased again, once."""
    world = World(ONE)
    world.seed(URL)
    (lease,) = world.turn().leases
    world.now_ms += 9 * bounds.HOUR_MS
    turn = world.turn(answer(lease, world.now_ms), stored(lease))
    assert not turn.leases
    row = world.row(URL)
    assert row is not None
    assert row.status is Status.FETCHED


# --- dead letters -------------------------------------------------------------------------------------------------


def test_a_requeued_dead_letter_is_a_new_visit_with_all_its_tries() -> None:
    """Protects the operator's second chance."""
    world = World(msgspec.structs.replace(ONE, lost_leases_max=0))
    world.seed(URL)
    world.turn()
    world.restart()
    key = host_id("http://a.test") + url_id(URL)
    assert list(world.store.families[Family.DEAD]) == [key]
    turn = world.owner.requeue_dead([key, b"?" * 26], world.now_ms)
    world.store.commit(turn.writes)
    world.owner.committed(turn)
    assert not world.store.families[Family.DEAD]
    world.now_ms += RESTED_MS
    (lease,) = world.turn().leases
    assert (lease.url, lease.url_version, lease.attempt) == (URL, 2, 0)


def test_an_operators_message_requeues_a_dead_letter_once() -> None:
    """Protects the same chance in a fleet, where the operator speaks by owner-messages and may say it twice."""
    world = World(msgspec.structs.replace(ONE, lost_leases_max=0))
    world.seed(URL)
    world.turn()
    world.restart()
    asked = OwnerMessage("http://a.test", "operator", OwnerMessageKind.REQUEUE, URL)
    world.turn(asked)
    assert not world.store.families[Family.DEAD]
    world.now_ms += RESTED_MS
    leases = [*world.turn(asked).leases, *world.turn(asked).leases]
    assert [(lease.url, lease.url_version, lease.attempt) for lease in leases] == [(URL, 2, 0)]


def test_a_requeue_of_what_was_not_given_up_changes_nothing() -> None:
    """Protects a site from requests that an old or made-up message asks for."""
    world = World(ONE)
    world.seed(URL)
    (lease,) = world.turn().leases
    world.turn(answer(lease, world.now_ms), stored(lease))
    before = world.row(URL)
    world.turn(
        OwnerMessage("http://a.test", "operator", OwnerMessageKind.REQUEUE, URL),
        OwnerMessage("http://b.test", "operator", OwnerMessageKind.REQUEUE, "http://b.test/"),
    )
    assert world.row(URL) == before
    world.now_ms += RESTED_MS
    assert not world.turn().leases


# --- memory and work ----------------------------------------------------------------------------------------------


def test_resting_hosts_are_dropped_and_come_back_as_they_were() -> None:
    """Protects memory, and every host from being dropped with something that matters."""
    world = World(OPEN)
    world.owner.hosts._hosts_max = 10
    names = [f"http://h{n}.test" for n in range(60)]
    for name in names:
        world.seed(*[f"{name}/{n}" for n in range(3)])
        assert len(world.owner.hosts) <= 11
    asked: list[str] = []
    out: list[FetchLease] = []
    for _ in range(400):
        leases = world.turn(leases_max=9).leases
        asked += urls(leases)
        out += leases
        if len(out) > 20 or not leases:  # more hosts in flight than fit
            complete(world, out)
            out = []
        held = sum(1 for slot in world.owner.hosts.in_memory() if slot.state.in_flight)
        assert len(world.owner.hosts) <= max(11, held + 10)
    assert sorted(asked) == sorted(f"{name}/{n}" for name in names for n in range(3))
    assert world.owner.totals.queued_revisit == 180
    assert world.owner.next_pending_ms(world.now_ms, world.now_ms + 1) > world.now_ms


def test_a_dropped_host_keeps_the_counts_of_its_templates() -> None:
    """Protects the trap limits of many small hosts: what was counted last is not forgotten with them."""
    traps = TrapLimits(template_urls_max=20, sample_every=1 << 30)
    world = World(msgspec.structs.replace(OPEN, traps=traps))
    world.owner.hosts._hosts_max = 10
    names = [f"http://h{n}.test" for n in range(40)]
    for start in range(0, 60, 10):
        for name in names:
            world.turn([found(f"{name}/{n}", Source.LINK) for n in range(start, start + 10)], leases_max=0)
            assert len(world.owner.hosts) <= 13
    assert [world.host(name).known for name in names] == [20] * 40


def test_watching_leases_needs_one_entry_a_host() -> None:
    """Protects memory from the number of leases: the heap of expiries follows the hosts that have leases out."""
    world = World(OPEN)
    world.turn([found(f"http://a.test/{n}", Source.LINK) for n in range(2_000)], leases_max=0)
    for _ in range(1_000):
        complete(world, world.turn(leases_max=1).leases)
        world.now_ms += 500
    assert len(world.owner._expiries) <= 2
    schedule = world.owner.frontier.schedule
    assert sum(map(len, schedule._waiting.values())) < 50
    assert sum(map(len, schedule._ready.values())) < 50
    assert len(schedule._instants) + len(schedule._places) < 50


def test_ten_thousand_seeds_on_as_many_hosts() -> None:
    """Protects a start from work that grows with the square of the hosts, and the idle look from loading them."""
    world = World(ONE)
    seeds = [f"http://h{n}.test/" for n in range(10_000)]
    start_s = time.process_time()
    for at in range(0, len(seeds), 512):
        world.seed(*seeds[at : at + 512])
    granted: list[FetchLease] = []
    while len(granted) < len(seeds):
        leases = world.turn(leases_max=256).leases
        assert leases
        granted += leases
        complete(world, leases)
    for _ in range(20):
        assert world.owner.next_pending_ms(world.now_ms, world.now_ms + bounds.HOUR_MS) > world.now_ms
    assert len(set(urls(granted))) == len(seeds)
    assert time.process_time() - start_s < 20  # about 1 s; a square would be minutes


def test_deciding_nothing_writes_nothing() -> None:
    """Protects an idle engine from a synced write each half second."""
    world = World(ONE)
    world.seed(URL)
    complete(world, world.turn().leases)
    for _ in range(5):
        world.now_ms += 500
        assert not world.turn().writes
    assert world.owner.next_ms() > world.now_ms


def test_a_host_with_work_left_is_always_looked_at_again() -> None:
    """Protects every host from being forgotten by the schedule: queued or in flight, some instant is known."""
    world = World(ONE)
    world.seed(URL, "http://a.test/y", "http://b.test/")
    for step in range(40):
        leases = world.turn().leases
        for lease in leases:
            outcome = (Outcome.RETRY, Outcome.EXPIRED, Outcome.REFUSED, Outcome.NOT_MODIFIED)[step % 4]
            if step % 5:
                world.turn(answer(lease, world.now_ms, outcome, 500), leases_max=0)
        assert world.owner.next_ms() < NEVER_MS
        world.now_ms = max(world.now_ms + 1, world.owner.next_ms())


def test_an_owner_of_nothing_has_nothing_to_do() -> None:
    """Protects a first start: no host, no instant, no lease."""
    world = World(OPEN)
    assert (world.owner.next_ms(), world.owner.next_pending_ms(1, 2)) == (NEVER_MS, NEVER_MS)
    assert not world.turn().leases


def test_a_takeover_allows_for_a_clock_that_was_behind() -> None:
    """Protects a delay over a takeover: its end was set by a clock that may be behind ours by the largest skew."""
    world = World()
    world.seed("http://a.test/1", "http://a.test/2")
    world.pass_robots()
    complete(world, world.turn(leases_max=1).leases)
    for _ in range(2):  # also when the second owner did nothing with the host
        world.epoch += 1
        world.owner = Owner(world.store, world.policy, ANY, epoch=world.epoch, jitter=lambda: 0.5)
        world.owner.adopt(world.now_ms, close_leases=False)
    world.now_ms += world.policy.politeness.delay_ms + bounds.CLOCK_SKEW_MS_MAX - 1
    assert not world.turn().leases
    world.now_ms += 1
    assert len(world.turn().leases) == 1


def test_a_takeover_allows_for_a_clock_that_was_behind_in_groups_too() -> None:
    """Protects a domain's delay over a takeover: the next permit's instant was set by another's clock."""
    shared = Politeness(domain_concurrency=1, domain_delay_ms=5_000, respect_robots=False)
    world = World(CrawlPolicy(politeness=shared))
    world.seed("http://a.site.test/1", "http://b.site.test/1")
    leases = world.turn().leases or world.turn().leases  # the permit is asked for first
    assert len(leases) == 1
    complete(world, leases)
    world.owner = Owner(world.store, world.policy, ANY, epoch=world.epoch + 1, jitter=lambda: 0.5)
    world.owner.adopt(world.now_ms, close_leases=False)
    world.now_ms += 5_000 + bounds.CLOCK_SKEW_MS_MAX - 1
    assert not world.turn().leases
    assert not world.turn().leases
    world.now_ms += 1
    assert len(world.turn().leases or world.turn().leases) == 1


def test_what_was_refused_for_its_address_is_due_once_the_address_is_allowed() -> None:
    """Protects a crawl of one's own network that forgot --allow-address: the next run does not wait for a month."""
    world = World(OPEN)
    world.seed(URL, "http://a.test/y")
    refused, denied = world.turn().leases
    world.turn(
        answer(refused, world.now_ms, Outcome.REFUSED, 0, error="private_address"),
        answer(denied, world.now_ms, Outcome.REFUSED, 0, error="bad_scheme"),
        leases_max=0,
    )
    world.restart()
    assert not world.turn().leases
    keys = [host_id("http://a.test") + lease.url_id for lease in (refused, denied)]
    turn = world.owner.allow_addresses(host_id("http://a.test"), keys, world.now_ms)
    world.store.commit(turn.writes)
    world.owner.committed(turn)
    assert urls(world.turn().leases) == [refused.url]


def test_a_host_whose_robots_txt_was_refused_for_its_address_is_asked_again() -> None:
    """Protects the usual case: with robots.txt refused no page was tried, and the whole host waits in trouble."""
    world = World()
    world.seed(URL)
    for _ in range(bounds.TROUBLE_AFTER_FAILURES):
        (lease,) = world.turn().leases
        result = msgspec.structs.replace(
            answer_robots(lease, world.now_ms, status=503), status=0, outcome=Outcome.REFUSED, error="private_address"
        )
        world.turn(result, leases_max=0)
        world.now_ms = max(world.now_ms, world.owner.next_ms())
    world.turn(result, leases_max=0)
    for _ in range(2):
        turn = world.owner.allow_addresses(host_id("http://a.test"), [], world.now_ms)
        world.store.commit(turn.writes)
        world.owner.committed(turn)
    host = world.host("http://a.test")
    assert (host.trouble, host.backoff_until_ms, host.last_error) == (0, 0, "")
    world.now_ms += 1_000
    (lease,) = world.turn().leases
    assert lease.kind is Kind.ROBOTS
