"""COMPLETE: the table at its top row by row, and that late or repeated messages change nothing."""

from __future__ import annotations

import copy

import msgspec
import pytest

from schemas.records import DeadLetter, FetchLease, Outcome, ParseTask
from streams.core import policy as bounds
from streams.core.owner import Event
from streams.core.policy import CrawlPolicy, Politeness
from streams.core.rows import QueueClass, Status, UrlRow, due_ms_of
from streams.core.rules import revisit
from streams.core.rules.urls import host_id, url_id
from streams.core.tasks import decode_task
from streams.core.turn import Family
from tests.support.core_world import World, answer, answer_robots, complete, found, parsed, stored

OPEN = CrawlPolicy(politeness=Politeness(delay_ms=0, concurrency=8, respect_robots=False))
URL = "http://a.test/x"


def world_with_lease(policy: CrawlPolicy = OPEN) -> tuple[World, FetchLease]:
    world = World(policy)
    world.seed(URL)
    (lease,) = world.turn().leases
    return world, lease


def row_of(world: World, url: str = URL) -> UrlRow:
    row = world.row(url)
    assert row is not None
    return row


def due_in_ms(world: World) -> int:
    return due_ms_of(row_of(world).place) - world.now_ms


def lease_again(world: World) -> FetchLease:
    """The lease of the URL's next visit or try, when it is due."""
    row = row_of(world)
    world.now_ms = max(world.now_ms, due_ms_of(row.place))
    for _ in range(3):
        leases = world.turn().leases
        if leases:
            return leases[0]
        world.now_ms = max(world.now_ms + 1, world.owner.next_ms())
    raise AssertionError("no lease")


def snapshot(world: World) -> dict[Family, dict[bytes, bytes]]:
    return {family: dict(entries) for family, entries in world.store.families.items()}


# --- the table ----------------------------------------------------------------------------------------------------


def test_fetched_waits_for_its_stored_result() -> None:
    """Protects the row from a body that is not durable: it is written by the stored result alone."""
    world, lease = world_with_lease()
    before = row_of(world)
    turn = world.turn(answer(lease, world.now_ms), leases_max=0)
    assert row_of(world) == before
    assert not turn.tasks
    assert world.host("http://a.test").in_flight[lease.lease_id].storing


def test_stored_settles_the_visit() -> None:
    """Protects a completed page: status, references, validators, a parse task and the next visit."""
    world, lease = world_with_lease()
    result = answer(lease, world.now_ms, etag='"e"', last_modified="yesterday", body_bytes=9)
    turn = world.turn(result, stored(lease), leases_max=0)
    row = row_of(world)
    visit = row.visit
    assert visit is not None
    assert (row.status, row.version, row.attempt, visit.status) == (Status.FETCHED, 1, 0, 200)
    assert (visit.etag, visit.last_modified, visit.body_bytes) == ('"e"', "yesterday", 9)
    assert visit.content == stored(lease).content
    assert [task.url for task in turn.tasks] == [URL]
    assert world.store.families[Family.TASK].keys() == {host_id("http://a.test") + url_id(URL)}
    assert row.place[0] == QueueClass.REVISIT
    host = world.host("http://a.test")
    assert (host.queued, host.pages, host.in_flight) == ([0, 0, 1], 1, {})


def test_not_modified_changes_times_and_lengthens_the_interval() -> None:
    """Protects 304: validators are sent, the content stands, nothing is parsed again."""
    world, lease = world_with_lease()
    world.turn(answer(lease, world.now_ms, etag='"e"'), stored(lease), leases_max=0)
    (task,) = _tasks(world)
    world.turn(parsed(task), leases_max=0)
    before = row_of(world)
    second = lease_again(world)
    assert (second.etag, second.url_version, second.attempt) == ('"e"', 2, 0)
    turn = world.turn(answer(second, world.now_ms, Outcome.NOT_MODIFIED, 304), leases_max=0)
    row = row_of(world)
    assert before.visit is not None
    assert row.visit is not None
    assert not turn.tasks
    assert (row.visit.status, row.visit.content, row.visit.etag) == (200, before.visit.content, '"e"')
    assert row.visit.fetched_ms == world.now_ms
    assert row.visit.interval_ms == revisit.unchanged_interval_ms(before.visit.interval_ms, OPEN)


def _tasks(world: World) -> list[ParseTask]:
    return [decode_task(raw) for _, raw in world.store.tasks()]


def test_the_same_body_again_is_no_change() -> None:
    """Protects an unchanged 200: the interval grows, nothing is parsed again."""
    world, lease = world_with_lease()
    complete(world, [lease])
    world.turn(parsed(_tasks(world)[0]), leases_max=0)
    before = row_of(world).visit
    turn = complete(world, [lease_again(world)])
    after = row_of(world).visit
    assert before is not None
    assert after is not None
    assert not turn.tasks
    assert (after.changes, after.content_version, after.visits) == (0, 1, 2)
    assert after.interval_ms > before.interval_ms or after.interval_ms == OPEN.revisit_ms_max


def test_a_changed_body_shortens_the_interval_and_is_parsed() -> None:
    """Protects learning, and that what is known of the old content is not taken for the new one's."""
    world, lease = world_with_lease()
    complete(world, [lease])
    world.turn(parsed(_tasks(world)[0]), leases_max=0)
    for _ in range(6):
        complete(world, [lease_again(world)])
    before = row_of(world).visit
    turn = complete(world, [lease_again(world)], content=b"n" * 32)
    after = row_of(world).visit
    assert before is not None
    assert after is not None
    assert after.interval_ms == revisit.changed_interval_ms(before.interval_ms, OPEN) < before.interval_ms
    assert (after.changes, after.content_version, after.extractor_version) == (1, 8, 0)
    assert len(turn.tasks) == 1


def test_the_first_content_after_a_failure_is_no_change() -> None:
    """Protects the count of changes from visits that had no content to compare with."""
    world, lease = world_with_lease()
    world.turn(answer(lease, world.now_ms, Outcome.FAILED, 403), leases_max=0)
    complete(world, [lease_again(world)])
    visit = row_of(world).visit
    assert visit is not None
    assert visit.changes == 0


def test_redirect_admits_its_target() -> None:
    """Protects redirects as results: the target is a URL of its own host, one hop further, at the same depth."""
    world = World(OPEN)
    world.turn([msgspec.structs.replace(found(URL), depth=0)], leases_max=0)
    (lease,) = world.turn().leases
    turn = world.turn(
        answer(lease, world.now_ms, Outcome.REDIRECT, 301, redirect_target="http://b.test/y", permanent=True),
        leases_max=0,
    )
    target = row_of(world, "http://b.test/y")
    assert row_of(world).status is Status.REDIRECT
    assert (target.redirect_hops, target.depth, target.parent_id) == (1, 0, url_id(URL))
    assert turn.new_seeds == ["http://b.test/y"]


def test_a_redirect_loop_ends() -> None:
    """Protects the crawl from loops: each URL of it is asked once."""
    world, lease = world_with_lease()
    asked = []
    leases = [lease]
    while leases:
        asked += [one.url for one in leases]
        assert len(asked) < 10
        events: list[Event] = []
        for one in leases:
            target = "http://b.test/y" if one.url == URL else URL
            events.append(answer(one, world.now_ms, Outcome.REDIRECT, 302, redirect_target=target))
        leases = world.turn(*events).leases
    assert asked == [URL, "http://b.test/y"]


def test_a_redirect_chain_is_bounded() -> None:
    """Protects the crawl from a site that redirects for ever."""
    world, lease = world_with_lease()
    hops = 0
    leases = [lease]
    while leases:
        hops += 1
        target = f"http://a.test/hop{hops}"
        leases = world.turn(answer(leases[0], world.now_ms, Outcome.REDIRECT, 302, redirect_target=target)).leases
    assert hops == bounds.REDIRECT_HOPS_MAX + 1


@pytest.mark.parametrize("status", [404, 410])
def test_gone_twice_is_a_tombstone(status: int) -> None:
    """Protects a page from one blunder, and the site from being asked for ever."""
    world, lease = world_with_lease()
    world.turn(answer(lease, world.now_ms, Outcome.FAILED, status, error="not_found"), leases_max=0)
    assert row_of(world).status is Status.FAILED
    assert due_in_ms(world) <= bounds.DAY_MS
    world.turn(answer(lease_again(world), world.now_ms, Outcome.FAILED, status), leases_max=0)
    assert row_of(world).status is Status.GONE
    assert due_in_ms(world) >= bounds.TOMBSTONE_REVISIT_MS - bounds.REVISIT_SLOT_MS
    complete(world, [lease_again(world)])
    visit = row_of(world).visit
    assert visit is not None
    assert (row_of(world).status, visit.gone) == (Status.FETCHED, 0)


@pytest.mark.parametrize(
    ("outcome", "status", "becomes"),
    [(Outcome.FAILED, 403, Status.FAILED), (Outcome.REFUSED, 0, Status.REFUSED)],
)
def test_a_final_answer_without_a_page_rests_long(outcome: Outcome, status: int, becomes: Status) -> None:
    """Protects what cannot be had from being asked for time and again."""
    world, lease = world_with_lease()
    world.turn(answer(lease, world.now_ms, outcome, status, error="why"), leases_max=0)
    row = row_of(world)
    assert row.visit is not None
    assert (row.status, row.visit.error) == (becomes, "why")
    assert due_in_ms(world) >= OPEN.revisit_ms_max - bounds.REVISIT_SLOT_MS


def test_other_failures_are_tried_again_by_the_schedule_then_given_up() -> None:
    """Protects the schedule of 30 s, 2, 5, 15, 15 minutes, the version, and the dead letter with its status."""
    world, lease = world_with_lease()
    for attempt, delay_ms in enumerate(bounds.RETRY_DELAYS_MS, start=1):
        world.turn(answer(lease, world.now_ms, Outcome.RETRY, 500, error="http_500"), leases_max=0)
        assert 0 <= due_in_ms(world) - delay_ms < 1_000
        lease = lease_again(world)
        assert (lease.url_version, lease.attempt) == (1, attempt)
    turn = world.turn(answer(lease, world.now_ms, Outcome.RETRY, 500, error="http_500"), leases_max=0)
    row = row_of(world)
    assert row.visit is not None
    assert (row.status, row.visit.status, row.visit.error) == (Status.FAILED, 500, "http_500")
    assert due_in_ms(world) >= OPEN.revisit_ms_max - bounds.REVISIT_SLOT_MS
    (raw,) = world.store.families[Family.DEAD].values()
    letter = msgspec.msgpack.decode(raw, type=DeadLetter)
    assert turn.dead == [letter]
    assert (letter.url, letter.status, letter.error, letter.attempts) == (URL, 500, "http_500", 6)
    after = lease_again(world)
    assert (after.url_version, after.attempt) == (2, 0)  # a new visit, with all its tries


@pytest.mark.parametrize("status", [429, 503])
def test_trouble_waits_for_the_host(status: int) -> None:
    """Protects Retry-After: the URL and its whole host wait, however many other URLs are due."""
    world, lease = world_with_lease()
    world.seed("http://a.test/other")
    world.turn(answer(lease, world.now_ms, Outcome.RETRY, status, retry_after_ms=90_000), leases_max=0)
    assert world.host("http://a.test").backoff_until_ms == world.now_ms + 90_000
    world.now_ms += 89_999
    assert not world.turn().leases
    world.now_ms += 1
    assert world.turn().leases


def test_trouble_of_one_url_ends_in_a_dead_letter_too() -> None:
    """Protects the crawl from a URL that says 429 for ever."""
    world, lease = world_with_lease()
    for _ in range(bounds.TROUBLED_RETRIES_MAX):
        world.turn(answer(lease, world.now_ms, Outcome.RETRY, 429), leases_max=0)
        lease = lease_again(world)
    turn = world.turn(answer(lease, world.now_ms, Outcome.RETRY, 429), leases_max=0)
    assert len(turn.dead) == 1


def test_trouble_and_other_failures_are_counted_apart() -> None:
    """Protects a URL of a busy host from being given up at its first broken connection, and both from no end."""
    world, lease = world_with_lease()
    for _ in range(6):
        world.turn(answer(lease, world.now_ms, Outcome.RETRY, 429), leases_max=0)
        lease = lease_again(world)
    for delay_ms in bounds.RETRY_DELAYS_MS:
        turn = world.turn(answer(lease, world.now_ms, Outcome.RETRY, 500), leases_max=0)
        assert not turn.dead
        assert 0 <= due_in_ms(world) - delay_ms < 1_000
        lease = lease_again(world)
    assert world.turn(answer(lease, world.now_ms, Outcome.RETRY, 500), leases_max=0).dead
    assert (row_of(world).failures, row_of(world).troubles) == (0, 0)


def test_a_lease_that_was_not_started_is_leased_again_at_no_charge() -> None:
    """Protects a URL from our own slowness: no failure is counted, the version stands."""
    world, lease = world_with_lease()
    (again,) = world.turn(answer(lease, world.now_ms, Outcome.EXPIRED, 0)).leases
    assert (again.url_version, again.attempt) == (1, 1)
    assert (row_of(world).failures, row_of(world).lost) == (0, 0)


def test_lost_leases_are_bounded() -> None:
    """Protects the crawl from a page that kills its fetcher each time."""
    world, _ = world_with_lease(msgspec.structs.replace(OPEN, lost_leases_max=3))
    for _ in range(4):
        assert not row_of(world).status
        world.restart()
        world.now_ms += 1_000 + bounds.CLOCK_SKEW_MS_MAX
        leases = world.turn().leases
    assert not leases
    assert row_of(world).status is Status.FAILED
    assert len(world.store.families[Family.DEAD]) == 1


def test_a_body_that_is_never_stored_is_fetched_again_after_the_deadline() -> None:
    """Protects a URL from a store that lost its body: attempt + 1, not before the deadline."""
    world, lease = world_with_lease()
    world.turn(answer(lease, world.now_ms), leases_max=0)
    world.now_ms += bounds.STORE_DEADLINE_MS - 1
    assert not world.turn().leases
    world.now_ms += 1
    (again,) = world.turn().leases
    assert (again.url_version, again.attempt) == (1, 1)
    late = snapshot(world)
    world.turn(stored(lease), leases_max=0)
    assert snapshot(world) == late


# --- late and repeated --------------------------------------------------------------------------------------------


def test_a_body_that_is_stored_before_its_result_comes() -> None:
    """The two come by topics of their own, and an owner that catches up may read one far ahead: no fetch is wasted."""
    world, lease = world_with_lease()
    result, body = answer(lease, world.now_ms), stored(lease)
    world.turn(body, leases_max=0)
    _unchanged(world, body)
    turn = world.turn(result, leases_max=0)
    assert turn.pages == 1
    assert [task.content for task in turn.tasks] == [body.content]
    assert not world.owner.hosts.named("http://a.test").state.in_flight
    _unchanged(world, result, body)


def test_late_and_repeated_messages_change_nothing() -> None:
    """Protects every state against every message that does not answer it, byte by byte."""
    world, lease = world_with_lease()
    result, body = answer(lease, world.now_ms), stored(lease)
    other = msgspec.structs.replace(lease, lease_id=b"?" * 16)
    never: list[Event] = [answer(other, world.now_ms), stored(other), answer(other, world.now_ms, Outcome.RETRY, 500)]
    _unchanged(world, *never)
    world.turn(result, leases_max=0)
    _unchanged(world, *never, result, answer(lease, world.now_ms, Outcome.RETRY, 503))
    _unchanged(world, msgspec.structs.replace(body, url_version=2))
    world.turn(body, leases_max=0)
    _unchanged(world, *never, result, body)


def _unchanged(world: World, *events: Event) -> None:
    before = snapshot(world)
    in_memory = copy.deepcopy(world.owner.hosts.named("http://a.test").state)
    turn = world.turn(*events, leases_max=0)
    assert turn.counts.stale == len(events)
    assert not turn.writes
    assert snapshot(world) == before
    assert world.owner.hosts.named("http://a.test").state == in_memory


def test_an_answer_of_an_expired_lease_changes_nothing() -> None:
    """Protects the second lease from the first one's late answer, of pages and of robots.txt alike."""
    world = World()
    world.seed(URL)
    (first,) = world.turn().leases
    world.now_ms = first.start_by_ms + first.duration_ms_max + bounds.CLOCK_SKEW_MS_MAX
    world.turn()
    world.now_ms += 1_000
    (second,) = world.turn().leases
    assert second.lease_id != first.lease_id
    _unchanged(world, answer_robots(first, world.now_ms))


def test_a_page_parsed_twice_or_from_an_older_body_leaves_the_newer_alone() -> None:
    """Protects title and task of the newer content: an older page takes neither."""
    world, lease = world_with_lease()
    (old,) = complete(world, [lease]).tasks
    (new,) = complete(world, [lease_again(world)], content=b"n" * 32).tasks
    page = msgspec.structs.replace(parsed(old), title="old")
    turn = world.turn(page, leases_max=0)
    assert turn.counts.stale == 1
    assert len(world.store.families[Family.TASK]) == 1
    world.turn(msgspec.structs.replace(parsed(new), title="new"), leases_max=0)
    assert not world.store.families[Family.TASK]
    world.turn(page, leases_max=0)
    visit = row_of(world).visit
    assert visit is not None
    assert visit.title == "new"


def test_the_task_of_a_nearer_reading_outlives_the_farther_one() -> None:
    """Protects children within the limit against a crash between two readings of one body."""
    policy = msgspec.structs.replace(OPEN, depth_max=5)
    world = World(policy)
    world.turn([msgspec.structs.replace(found(URL), depth=4)], leases_max=0)
    (far,) = complete(world, world.turn().leases).tasks
    (near,) = world.turn([found(URL)], leases_max=0).tasks
    world.turn(parsed(far), leases_max=0)
    world.restart()
    assert _tasks(world) == [near]
    world.turn(parsed(near), leases_max=0)
    assert not _tasks(world)


def test_a_retried_failure_keeps_its_cause_until_the_visit_closes() -> None:
    """Protects whoever asks why a URL is tried again: the last error stands in its row and in the turn's counts."""
    world, lease = world_with_lease()
    turn = world.turn(answer(lease, world.now_ms, Outcome.RETRY, 0, error="connection_reset"), leases_max=0)
    assert (row_of(world).last_error, turn.counts.retried) == ("connection_reset", {"connection_reset": 1})
    again = lease_again(world)
    world.turn(answer(again, world.now_ms), stored(again), leases_max=0)
    assert row_of(world).last_error == ""
