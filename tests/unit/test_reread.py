"""REREAD: what a wider scope takes in of what lies stored, and what a narrower one leaves alone."""

from __future__ import annotations

import msgspec
import pytest

from schemas.records import FetchLease, Kind, Outcome, ParsedPage, ParseTask, Source
from streams.core import policy as bounds
from streams.core.policy import CrawlPolicy, Politeness
from streams.core.rows import QueueClass, Status
from streams.core.rules.scope import Scope, ScopeMode
from streams.core.tasks import decode_task
from streams.core.turn import Family, Turn
from tests.support.core_world import World, answer, complete, fast, found, parsed

OPEN = CrawlPolicy(politeness=Politeness(delay_ms=0, concurrency=8, respect_robots=False))
HERE = Scope(seeds=("http://a.test/",))
ALL = Scope(seeds=("http://a.test/",), mode=ScopeMode.ANY)
LINKS = {
    "http://a.test/": ("http://a.test/1", "http://b.test/1", "http://a.test/hop"),
    "http://a.test/1": ("http://c.test/1",),
}


def crawl(world: World) -> list[str]:
    """Fetch, store and parse until nothing is due; the URLs in the order of their requests."""
    asked: list[str] = []
    for _ in range(100):
        leases = world.turn().leases
        if not leases:
            return sorted(asked)
        asked += [lease.url for lease in leases]
        read(world, fetch(world, leases))
    raise AssertionError("no end")


def fetch(world: World, leases: list[FetchLease]) -> list[ParseTask]:
    tasks: list[ParseTask] = []
    for lease in leases:
        if lease.url.endswith("/hop"):
            world.turn(
                answer(lease, world.now_ms, Outcome.REDIRECT, 302, redirect_target="http://d.test/"), leases_max=0
            )
        else:
            tasks += complete(world, [lease], lease.url_id * 2).tasks
    return tasks


def read(world: World, tasks: list[ParseTask]) -> None:
    world.turn(*[page_of(task) for task in tasks], leases_max=0)


def page_of(task: ParseTask) -> ParsedPage:
    return parsed(task, *LINKS.get(task.url, ()))


def reread(world: World, *, rows_max: int = 3, tasks_max: int = 2, commit: bool = True) -> Turn:
    """One step of the walk, as the runner makes it."""
    place = world.owner.rereading.place
    assert place is not None
    rows = [(key, raw) for key, raw in world.store.families[Family.URL].items() if key > place.after][:rows_max]
    turn = world.owner.reread(rows, world.now_ms, at_end=len(rows) < rows_max, tasks_max=tasks_max)
    assert len(turn.tasks) <= tasks_max
    if commit:
        world.store.commit(turn.writes)
        world.owner.committed(turn)
    return turn


def unread(world: World) -> list[ParseTask]:
    """The tasks of a whole walk, left undone."""
    tasks: list[ParseTask] = []
    while world.owner.rereading.place is not None:
        tasks += reread(world).tasks
    return tasks


def reread_all(world: World) -> list[str]:
    """The walk to its end, each body read as it comes."""
    seen: list[str] = []
    while world.owner.rereading.place is not None:
        tasks = reread(world).tasks
        assert all(task.kept for task in tasks)
        seen += [task.url for task in tasks]
        read(world, tasks)
    return sorted(seen)


def reopen(world: World, scope: Scope, **policy: object) -> None:
    """The next run, one day later, with another scope."""
    world.scope = scope
    world.policy = msgspec.structs.replace(world.policy, **policy)
    world.now_ms += bounds.CLOCK_SKEW_MS_MAX + 1_000
    world.restart()


def crawled(scope: Scope = HERE) -> World:
    world = World(OPEN, scope)
    world.seed("http://a.test/")
    crawl(world)
    return world


def test_a_wider_scope_takes_in_what_stored_pages_name_without_fetching_them_again() -> None:
    """Protects a crawl that is resumed with --scope any: links and redirects that were refused come in."""
    world = crawled()
    reopen(world, ALL)
    assert reread_all(world) == ["http://a.test/", "http://a.test/1"]
    assert crawl(world) == ["http://b.test/1", "http://c.test/1", "http://d.test/"]
    assert not world.store.families[Family.TASK]
    reopen(world, ALL)
    assert world.owner.rereading.place is None  # it is not made twice


def test_a_greater_depth_takes_in_what_was_too_deep() -> None:
    """Protects --depth of a later run."""
    world = World(msgspec.structs.replace(OPEN, depth_max=1), Scope(seeds=ALL.seeds, mode=ScopeMode.ANY, depth_max=1))
    world.seed("http://a.test/")
    assert "http://c.test/1" not in crawl(world)
    reopen(world, ALL, depth_max=None)
    reread_all(world)
    assert crawl(world) == ["http://c.test/1"]


def test_a_step_makes_no_more_tasks_than_the_parsers_have_room_for() -> None:
    """Protects memory, and the bodies that no longer fitted: the next step goes on with them."""
    world = crawled()
    reopen(world, ALL)
    assert sorted(reread(world, rows_max=100, tasks_max=1).tasks[0].url for _ in range(2)) == [
        "http://a.test/",
        "http://a.test/1",
    ]


def test_no_wider_scope_reads_nothing_again() -> None:
    """Protects an ordinary resume from hours of parsing."""
    world = crawled(ALL)
    for scope in (ALL, HERE, Scope(seeds=(*ALL.seeds, "http://a.test/x"))):
        reopen(world, scope)
        assert world.owner.rereading.place is None


@pytest.mark.parametrize("lost", [0, 1, 2, 3])
def test_a_crash_in_its_midst_loses_no_body(lost: int) -> None:
    """Protects the walk: its place and its tasks are one commit, and a step that was not committed is made again."""
    world = crawled()
    reopen(world, ALL)
    for _ in range(lost):
        if world.owner.rereading.place is not None:
            reread(world, rows_max=1, tasks_max=1)
    if world.owner.rereading.place is not None:
        reread(world, commit=False)
    reopen(world, ALL)
    read(world, [decode_task(raw) for raw in world.store.families[Family.TASK].values()])
    reread_all(world)
    assert crawl(world) == ["http://b.test/1", "http://c.test/1", "http://d.test/"]


def test_a_scope_that_grows_within_a_run_reads_what_lies_stored() -> None:
    """Protects links that were refused before a seed's redirect widened the scope, wherever the walk stands then."""
    for steps in range(4):
        world = crawled()
        for _ in range(steps):
            world.owner.set_scope(world.owner.admission.scope.with_seeds([f"http://x{steps}.test/"]))
            reread(world, rows_max=1)
        world.owner.set_scope(world.owner.admission.scope.with_seeds(["http://c.test/"]))
        reread_all(world)
        assert crawl(world) == ["http://c.test/1"]
        world.scope = world.owner.admission.scope
        reopen(world, world.scope)
        assert world.owner.rereading.place is None


def test_only_what_an_older_extractor_read_is_read_again_when_that_is_asked() -> None:
    """Protects replay: bodies of the present extractor are left alone, the others are read in full."""
    world = crawled()
    reopen(world, HERE, extractor_version=OPEN.extractor_version + 1)
    world.owner.rereading.begin(every=False)
    tasks = unread(world)
    assert sorted(task.url for task in tasks) == ["http://a.test/", "http://a.test/1"]
    assert not any(task.kept for task in tasks)
    read(world, tasks)
    world.owner.rereading.begin(every=False)
    assert unread(world) == []


def test_a_reading_that_fails_takes_nothing_away() -> None:
    """Protects what is known of a page, its text too, from a second reading that brings less."""
    world = World(OPEN, HERE)
    world.seed("http://a.test/")
    (task,) = fetch(world, world.turn().leases)
    assert task.content is not None
    world.turn(msgspec.structs.replace(page_of(task), title="T", text=task.content), leases_max=0)
    for page in (page_of(task), parsed(task, error="parse_timeout")):
        world.turn(msgspec.structs.replace(page, title="T" * (not page.error)), leases_max=0)
        row = world.row("http://a.test/")
        assert row is not None
        assert row.visit is not None
        assert (row.visit.title, row.visit.text, row.visit.parse_error) == ("T", task.content, "")


# --- narrower -----------------------------------------------------------------------------------------------------


def test_a_narrower_scope_settles_what_is_queued_without_a_request_and_a_wider_one_brings_it_back() -> None:
    """Protects hosts that are out of scope now: not even their robots.txt is asked for; and URLs from being lost."""
    world = World(fast(), ALL)
    world.seed("http://a.test/")
    world.turn([found(f"http://b.test/{n}", Source.LINK, depth=1) for n in range(200)], leases_max=0)
    reopen(world, HERE)
    hosts = {lease.host_key for _ in range(6) for lease in world.turn().leases}
    assert hosts == {"http://a.test"}
    row = world.row("http://b.test/7")
    assert row is not None
    assert (row.status, row.place[0]) == (Status.OUT_OF_SCOPE, QueueClass.REVISIT)
    assert world.host("http://b.test").statuses[Status.OUT_OF_SCOPE] == 200
    assert world.owner.totals.queued_new <= 1
    world.turn([found("http://b.test/7")], leases_max=0)  # as a seed: whoever names it wants it
    row = world.row("http://b.test/7")
    assert row is not None
    assert (row.status, row.place[0]) == (Status.NEW, QueueClass.NEW)
    reopen(world, ALL)
    reread_all(world)
    host = world.host("http://b.test")
    assert (host.queued, host.statuses[Status.NEW]) == ([200, 0, 0], 200)
    assert Kind.ROBOTS in {lease.kind for lease in world.turn().leases if lease.host_key == "http://b.test"}


def test_known_pages_out_of_scope_are_not_revisited() -> None:
    """Protects hosts that are out of scope now from the visits that pages of a wider crawl are due for."""
    world = crawled(ALL)
    reopen(world, HERE)
    world.now_ms += OPEN.revisit_ms_max + bounds.REVISIT_SLOT_MS
    assert {url[:13] for url in crawl(world)} == {"http://a.test"}
    reopen(world, ALL)
    reread_all(world)
    assert {"http://b.test/1", "http://c.test/1", "http://d.test/"} <= set(crawl(world))
