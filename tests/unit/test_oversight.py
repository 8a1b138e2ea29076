"""An operator's words at work: at once on hosts in memory, in steps on all others, through crashes and restarts."""

from __future__ import annotations

from schemas.records import HostPolicy, Outcome
from streams.core import policy as bounds
from streams.core.hosts import NEVER_MS
from streams.core.indexing import Verdict, of_page
from streams.core.policy import CrawlPolicy, Politeness
from streams.core.rows import Status
from streams.core.rules.urls import host_id
from streams.core.tasks import parsed_message
from streams.core.turn import Family
from tests.support.core_world import World, answer, complete, found
from tests.unit.test_indexing import read

A, B = "http://a.test", "http://b.test"
LATER_MS = 10_000  # more than a delay, and the skew after a restart
PLAIN = CrawlPolicy(politeness=Politeness(delay_ms=1_000, respect_robots=False))
SOON_AGAIN = CrawlPolicy(politeness=Politeness(delay_ms=0, respect_robots=False))


def said(key: str, **values: object) -> HostPolicy:
    return HostPolicy(key, 0, **values)  # type: ignore[arg-type]


def hosts_granted(world: World) -> set[str]:
    """Whose URLs the next turn leases; they are completed."""
    leases = world.turn().leases
    complete(world, leases)
    return {lease.host_key for lease in leases}


def settle(world: World) -> None:
    """Turns until nothing of earlier words is left to be done."""
    for _ in range(1_000):
        if not world.owner.oversight.busy():
            return
        world.turn(leases_max=0)
    raise AssertionError("it never comes to an end")


def test_a_pause_counts_at_once_and_for_the_very_turn() -> None:
    """No lease is granted in the turn that hears of the pause; the URLs wait, and a resume lets them go."""
    world = World(PLAIN)
    world.seed(f"{A}/1", f"{A}/2", f"{B}/1")
    leases = world.turn(said("a.test", paused=True)).leases
    assert {lease.host_key for lease in leases} == {B}
    world.now_ms += LATER_MS
    assert hosts_granted(world) == set()
    assert world.host(A).ready_ms == NEVER_MS
    assert {lease.host_key for lease in world.turn(said("a.test", paused=False)).leases} == {A}


def test_a_pause_survives_a_restart_and_a_resume_reaches_hosts_at_rest() -> None:
    """Hosts that nobody has in memory are let go on, too, by a word on their domain or on all."""
    world = World(PLAIN)
    world.seed(f"{A}/1", f"{B}/1")
    world.turn(said("*", paused=True), leases_max=0)
    settle(world)
    world.restart()
    world.now_ms += LATER_MS
    assert hosts_granted(world) == set()
    world.owner.hosts.forget()
    world.turn(said("*", paused=False), leases_max=0)
    settle(world)
    assert hosts_granted(world) == {A, B}


def test_a_word_that_was_not_committed_was_not_said() -> None:
    """The change, its number and what it does become durable together or not at all."""
    world = World(PLAIN)
    world.seed(f"{A}/1")
    world.turn(said(A, paused=True), commit=False)
    world.restart()
    world.now_ms += LATER_MS
    assert hosts_granted(world) == {A}


def test_a_longer_delay_counts_from_now_on() -> None:
    """The request that just ended is followed by the new delay, not by the old one."""
    world = World(PLAIN)
    world.seed(f"{A}/1", f"{A}/2")
    complete(world, world.turn().leases)
    world.turn(said(A, delay_ms=60_000), leases_max=0)
    world.now_ms += 59_999
    assert not world.turn().leases
    world.now_ms += 1
    assert len(world.turn().leases) == 1


def test_a_shorter_delay_counts_at_once() -> None:
    """An exception that a site granted is made use of in the same breath."""
    world = World(PLAIN)
    world.seed(f"{A}/1", f"{A}/2")
    complete(world, world.turn().leases)
    world.turn(said(A, delay_ms=100, until_ms=world.now_ms + 5_000), leases_max=0)
    world.now_ms += 100
    assert len(world.turn().leases) == 1


def test_an_exception_ends_at_its_date_by_itself() -> None:
    """The owner comes up at that instant, numbers the end as a change, and the crawl's policy holds again."""
    world = World(PLAIN)
    world.seed(f"{A}/1")
    until_ms = world.now_ms + 50_000
    world.turn(said(A, paused=True, until_ms=until_ms), leases_max=0)
    assert world.owner.next_ms() <= until_ms
    world.now_ms = until_ms - 1
    assert hosts_granted(world) == set()
    world.now_ms = until_ms
    assert hosts_granted(world) == {A}
    assert world.host(A).policy_version == 3
    assert world.host(A).override is None


def test_an_exception_that_ended_while_nobody_ran_is_over() -> None:
    """A crawl that is started after the date does not hold to it any longer."""
    world = World(PLAIN)
    world.seed(f"{A}/1")
    world.turn(said(A, paused=True, until_ms=world.now_ms + 50_000), leases_max=0)
    world.now_ms += 60_000
    world.restart()
    world.now_ms += LATER_MS
    assert hosts_granted(world) == {A}


def test_the_log_says_under_what_a_lease_was_granted() -> None:
    """A change between the grant and the answer is not what the site was asked under."""
    world = World(PLAIN)
    world.seed(f"{A}/1")
    (lease,) = world.turn().leases
    assert lease.policy_version == 1
    world.turn(said(A, delay_ms=7_000), leases_max=0)
    turn = world.turn(answer(lease, world.now_ms, Outcome.FAILED, 404), leases_max=0)
    assert [(entry.policy_version, entry.delay_ms) for entry in turn.log] == [(1, 1_000)]
    world.now_ms += 7_000
    world.turn([found(f"{A}/2")], leases_max=0)
    (lease,) = world.turn().leases
    assert lease.policy_version == 2
    turn = world.turn(answer(lease, world.now_ms, Outcome.FAILED, 404), leases_max=0)
    assert [(entry.policy_version, entry.delay_ms) for entry in turn.log] == [(2, 7_000)]


def test_a_deleted_host_is_forgotten_but_for_what_was_fetched() -> None:
    """Nothing is granted, what was never fetched goes in bounded steps, the stored page stays known."""
    world = World(SOON_AGAIN)
    world.seed(*(f"{A}/{number}" for number in range(1_500)))
    complete(world, world.turn().leases)
    before = world.owner.totals.known
    turn = world.turn(said("a.test", deleted=True))
    assert not turn.leases
    assert 0 < world.owner.totals.queued_new < before, "a part of it in each turn"
    settle(world)
    host = world.host(A)
    assert (host.queued, host.known, host.pages) == ([0, 0, 1], 1, 1)
    assert sum(host.statuses) == 1
    assert len(world.store.families[Family.URL]) == 1
    assert len(world.store.families[Family.QUEUE]) == 1
    world.now_ms += 400 * bounds.DAY_MS
    assert not world.turn().leases


def test_the_index_forgets_a_deleted_host_and_a_resume_brings_it_back() -> None:
    """Documents of a host that an operator deleted stood in the index for ever. Each is withdrawn once, above all
    readings of its content; found back unchanged, its body is read anew, above that."""
    world = World(SOON_AGAIN)
    urls = [f"{A}/{number}" for number in range(3)]
    world.seed(*urls, f"{B}/1")
    versions: dict[str, int] = {}
    for _ in urls:
        turn = complete(world, world.turn().leases)
        for task in turn.tasks:
            page = read(task)
            versions[page.url] = of_page(page)[1]
            world.turn(parsed_message(page), leases_max=0)
        world.now_ms += 1
    withdrawn = list(world.turn(said("a.test", deleted=True)).withdrawn)
    while world.owner.oversight.busy():
        withdrawn += world.turn(leases_max=0).withdrawn
    assert sorted(page.url for page in withdrawn) == urls
    assert all(of_page(page)[0] is Verdict.DELETE for page in withdrawn)
    assert all(of_page(page)[1] > versions[page.url] for page in withdrawn)
    assert world.host(A).statuses[Status.GONE] == len(urls)
    world.restart()
    assert not world.owner.oversight.busy(), "a tombstone is not told twice"
    world.now_ms += 400 * bounds.DAY_MS
    leases = world.turn(said("a.test", deleted=False, paused=False)).leases
    turn = complete(world, [lease for lease in leases if lease.host_key == A])
    (task,) = turn.tasks
    (gone,) = [page for page in withdrawn if page.url == task.url]
    assert of_page(read(task))[1] > of_page(gone)[1]


def test_a_page_that_comes_after_its_host_was_deleted_is_withdrawn_too() -> None:
    """A request that was out, and its body, would put a document into the index that nobody takes out again."""
    world = World(SOON_AGAIN)
    world.seed(f"{A}/1")
    leases = world.turn().leases
    world.turn(said(A, deleted=True), leases_max=0)
    settle(world)
    turn = complete(world, leases)
    (gone,) = turn.withdrawn
    (task,) = turn.tasks
    assert of_page(gone)[1] > of_page(read(task))[1]
    row = world.row(f"{A}/1")
    assert row is not None
    assert row.status is Status.GONE
    assert world.host(A).queued == [0, 0, 1]


def test_a_deleted_host_is_not_found_again_until_it_is_resumed() -> None:
    """Links, seeds and restarts do not bring it back; a resume does, and its URLs are found anew."""
    world = World(SOON_AGAIN)
    world.seed(f"{A}/1", f"{A}/2")
    world.turn(said("a.test", deleted=True), leases_max=0)
    settle(world)
    turn = world.turn([found(f"{A}/1"), found(f"{A}/3")])
    assert (turn.leases, turn.counts.refused) == ([], {"deleted": 2})
    world.restart()
    world.seed(f"{A}/1")
    world.now_ms += LATER_MS
    assert not world.turn().leases
    world.turn(said("a.test", deleted=False, paused=False), leases_max=0)
    world.seed(f"{A}/1")
    assert [lease.url for lease in world.turn().leases] == [f"{A}/1"]


def test_a_result_that_comes_after_the_drop_is_dropped_too() -> None:
    """A request that was out as the host was deleted may fail: its retry must not wait there for ever."""
    world = World(SOON_AGAIN)
    world.seed(f"{A}/1")
    (lease,) = world.turn().leases
    world.turn(said(A, deleted=True), leases_max=0)
    settle(world)
    world.turn(answer(lease, world.now_ms, Outcome.RETRY, 0, error="timeout"), leases_max=0)
    world.turn(leases_max=0)
    settle(world)
    host = world.host(A)
    assert (host.queued, host.known) == ([0, 0, 0], 0)


def test_a_drop_that_was_cut_short_goes_on_after_a_restart() -> None:
    """The words are its only record: a crash between two steps loses nothing of it."""
    world = World(SOON_AGAIN)
    world.seed(*(f"{A}/{number}" for number in range(1_200)))
    world.turn(said(A, deleted=True), leases_max=0)
    assert world.owner.totals.queued_new > 0
    world.restart()
    settle(world)
    assert world.host(A).known == 0


def test_a_blocked_url_is_not_asked_and_comes_up_again_when_it_may() -> None:
    """A pattern settles URLs at no cost to the site; taken away, they are asked without waiting a month."""
    world = World(SOON_AGAIN)
    world.seed(f"{A}/x.pdf", f"{A}/y")
    leases = world.turn(said("*", block=(r"\.pdf$",))).leases
    assert [lease.url for lease in leases] == [f"{A}/y"]
    complete(world, leases)
    world.turn()
    row = world.row(f"{A}/x.pdf")
    assert row is not None
    assert row.status is Status.DENIED
    world.turn(said("*", unblock=(r"\.pdf$",)), leases_max=0)
    settle(world)
    assert [lease.url for lease in world.turn().leases] == [f"{A}/x.pdf"]


def test_a_host_that_nobody_knows_yet_is_under_its_word_from_the_start() -> None:
    """A word may come before the first URL of the host."""
    world = World(PLAIN)
    world.turn(said("*.test", paused=True), leases_max=0)
    assert world.store.get(Family.HOST, host_id(A)) is None
    world.seed(f"{A}/1")
    assert not world.turn().leases


def test_another_configuration_is_another_version() -> None:
    """The log of a crawl that goes on with another delay tells the two runs apart."""
    world = World(PLAIN)
    world.seed(f"{A}/1", f"{A}/2")
    (lease,) = world.turn().leases
    complete(world, [lease])
    world.policy = SOON_AGAIN
    world.restart()
    world.now_ms += LATER_MS
    (again,) = world.turn().leases
    assert (lease.policy_version, again.policy_version) == (1, 2)


def test_a_wrong_word_is_an_error_and_nothing_else() -> None:
    """What cannot be is counted and kept with its reason; the owner goes on."""
    world = World(PLAIN)
    world.seed(f"{A}/1")
    turn = world.turn(said(A, concurrency=0))
    assert turn.counts.errors == {"bad_policy": 1}
    assert len(turn.leases) == 1
