"""The owner's index: loaded from the rows host by host, some rows a turn, and never wrong on the way."""

from __future__ import annotations

from schemas.records import DiscoveredUrl, HostPolicy, Source
from streams.core.hosts import NEVER_MS
from streams.core.owner import Owner
from streams.core.policy import CrawlPolicy, Politeness
from streams.core.rules.urls import host_id, url_id
from streams.core.turn import INDEX_FAMILIES, Family
from tests.support.core_checkers import Auditor
from tests.support.core_world import ANY, World, complete, found

OPEN = CrawlPolicy(politeness=Politeness(delay_ms=0, concurrency=1, respect_robots=False))
HOSTS = [f"http://h{number}.test" for number in range(6)]


def links(key: str, *numbers: int, depth: int = 1) -> list[DiscoveredUrl]:
    return [found(f"{key}/{number}", Source.LINK, depth=depth) for number in numbers]


def grown(urls: int = 20, *, index_rows_max: int = 8, policy: CrawlPolicy = OPEN) -> World:
    """Six hosts with so many URLs each, and an owner that has lost its index."""
    world = World(policy, index_rows_max=index_rows_max)
    for key in HOSTS:
        world.turn(links(key, *range(urls)), leases_max=0)
    world.lose_index()
    return world


def index_of(world: World) -> list[dict[bytes, bytes]]:
    return [dict(world.store.families[family]) for family in INDEX_FAMILIES]


def test_a_new_folder_has_a_whole_index() -> None:
    """Protects the first start: nothing is to be loaded where nothing is known, then or at the next start."""
    world = World(OPEN)
    assert not world.owner.index.loading
    world.turn(links(HOSTS[0], 1), leases_max=0)
    world.restart()
    assert not world.owner.index.loading


def test_an_index_that_was_lost_comes_back_as_it_was() -> None:
    """Protects every entry, of URLs that were fetched and of others, whatever the bound of a turn."""
    for index_rows_max in (1, 7, 1_000):
        world = World(OPEN, index_rows_max=index_rows_max)
        for key in HOSTS:
            world.turn(links(key, *range(20)), leases_max=0)
        complete(world, world.turn().leases)
        before = index_of(world)
        world.lose_index()
        world.load_index()
        assert index_of(world) == before


def test_a_turn_reads_a_bounded_number_of_rows() -> None:
    """Protects the pace of turns from a hot host: a hundred rows take more than ten turns of eight."""
    world = World(OPEN, index_rows_max=8)
    world.turn(links(HOSTS[0], *range(100)), leases_max=0)
    world.lose_index()
    before = 0
    while world.owner.index.loading:
        turn = world.owner.load_index(world.now_ms)
        assert sum(family is Family.SEEN for family, _, _ in turn.writes) <= 8
        world.store.commit(turn.writes)
        world.owner.committed(turn)
        before += 1
    assert before > 10


def test_a_turn_asks_for_a_bounded_number_of_hosts() -> None:
    """Protects the pace of turns where each host costs a question to another machine: six hosts of one URL, at 40 rows
    a question, are more than a turn's 100 rows pay for; and all of them come in the end."""
    world = World(OPEN, index_rows_max=100, index_look_rows=40)
    for key in HOSTS:
        world.turn(links(key, 1), leases_max=0)
    before = index_of(world)
    world.lose_index()
    turn = world.owner.load_index(world.now_ms)
    assert sum(family is Family.SEEN for family, _, _ in turn.writes) == 3
    world.store.commit(turn.writes)
    world.owner.committed(turn)
    world.load_index()
    assert index_of(world) == before


def test_the_first_grants_do_not_wait_for_the_index() -> None:
    """Protects a restart: while most hosts are not loaded, those that come up are, and are granted."""
    world = grown(index_rows_max=50)
    turn = world.turn(leases_max=2)
    assert len(turn.leases) == 2
    assert world.owner.index.loading


def test_a_host_is_granted_from_what_of_it_is_loaded() -> None:
    """Protects a hot host's pace: it goes on while its index is not whole, and each URL is leased once."""
    world = World(OPEN, index_rows_max=8)
    world.turn(links(HOSTS[0], *range(60)), leases_max=0)
    world.lose_index()
    granted: list[str] = []
    while world.owner.index.loading:
        leases = world.turn().leases
        granted += [lease.url for lease in leases]
        complete(world, leases)
        world.now_ms += 1
    assert 1 < len(granted) < 60
    while leases := world.turn().leases:
        granted += [lease.url for lease in leases]
        complete(world, leases)
    assert sorted(granted) == sorted(f"{HOSTS[0]}/{number}" for number in range(60))


def test_a_better_url_that_is_loaded_later_goes_first() -> None:
    """Protects the order of a queue: the best of 40 URLs is among the last that are loaded, and is granted next."""
    world = World(OPEN, index_rows_max=8)
    world.turn(links(HOSTS[0], *range(40), depth=5), leases_max=0)
    best = max((f"{HOSTS[0]}/{number}" for number in range(40)), key=url_id)
    world.turn([found(best, Source.LINK, depth=1)], leases_max=0)
    world.lose_index()
    first = world.turn().leases
    assert [lease.url for lease in first] != [best]
    world.load_index()
    complete(world, first)
    assert [lease.url for lease in world.turn().leases] == [best]


def test_links_to_a_host_that_is_not_loaded_are_told_by_its_rows() -> None:
    """Protects against a URL that is admitted twice, or told as known and lost: absent says nothing here."""
    world = grown()
    turn = world.turn(links(HOSTS[3], 0, 5, 19, 20, 21), leases_max=0)
    assert (turn.counts.known, turn.counts.admitted) == (3, 2)
    world.load_index()
    Auditor().check(world.store, world.owner)
    assert world.host(HOSTS[3]).known == 22


def test_a_host_that_links_ask_about_is_loaded_before_others() -> None:
    """Protects the seen test's pace in a takeover: of six hosts the one that was asked about is whole first."""
    for key in HOSTS:
        world = grown(index_rows_max=25)
        world.turn(links(key, 0), leases_max=0)
        assert world.owner.hosts.slot(host_id(key)).loaded_to is None


def test_a_crash_in_the_midst_goes_on_from_there() -> None:
    """Protects a long load: what was committed is not loaded again, and a turn that was not is."""
    world = grown(index_rows_max=30)
    turns = grown(index_rows_max=30).load_index()
    for _ in range(turns // 2):
        world.turn(leases_max=0)
    world.owner.load_index(world.now_ms)  # never committed
    world.restart()
    left = world.load_index()
    assert 0 < left <= turns - turns // 2 + 1
    Auditor().check(world.store, world.owner)


def test_an_owner_with_an_index_to_load_does_not_sleep() -> None:
    """Protects the load itself: with no event and nothing to grant it goes on by itself."""
    world = grown()
    assert world.owner.next_ms() <= world.now_ms
    world.load_index()
    assert world.owner.next_ms() > 0


def test_a_host_with_nothing_but_known_urls_comes_up_again() -> None:
    """Protects revisits: a host is not put to rest for ever because its entries are not there when it is looked at."""
    world = World(OPEN)
    world.turn(links(HOSTS[0], 1), leases_max=0)
    complete(world, world.turn().leases)
    world.restart()
    due_ms = world.owner.next_ms()
    assert world.now_ms < due_ms < NEVER_MS
    world.index_rows_max = 0  # a start that loads nothing at all
    world.lose_index()
    world.turn()
    world.index_rows_max = 1
    world.restart()
    world.load_index()
    assert world.owner.next_ms() == due_ms
    world.now_ms = due_ms
    assert [lease.url for lease in world.turn().leases] == [f"{HOSTS[0]}/1"]


def test_a_folder_of_before_the_seen_family_gets_one() -> None:
    """Protects folders of earlier versions: rows and queues are there, and nothing else of the index."""
    world = World(OPEN)
    world.turn(links(HOSTS[0], *range(10)), links(HOSTS[1], 1), leases_max=0)
    before = index_of(world)
    world.store.families[Family.SEEN].clear()
    world.store.families[Family.INDEX].clear()
    world.restart()
    turn = world.turn(links(HOSTS[0], 3, 11), leases_max=1)
    assert (turn.counts.known, turn.counts.admitted, len(turn.leases)) == (1, 1, 1)
    world.load_index()
    Auditor().check(world.store, world.owner)
    assert before[1].items() <= dict(world.store.families[Family.SEEN]).items()


def test_an_owner_that_was_never_adopted_changes_only_what_it_touches() -> None:
    """Protects an operator's word on a folder of before: what it leaves of the index is right, and the rest comes."""
    world = grown()
    owner = Owner(world.store, OPEN, ANY, epoch=9, jitter=lambda: 0.5, index_rows_max=3)
    world.store.commit(owner.decide([links(HOSTS[1], 1, 20, depth=0)], world.now_ms, 0).writes)
    assert 0 < len(world.store.families[Family.SEEN]) < 20
    world.restart()
    Auditor().check(world.store, world.owner)
    world.load_index()
    Auditor().check(world.store, world.owner)


def test_a_queue_that_is_there_already_is_not_loaded_twice() -> None:
    """Protects folders of earlier versions and turns that ran ahead: an entry in the window is not put there again."""
    politeness = Politeness(delay_ms=0, concurrency=4, respect_robots=False)
    world = World(CrawlPolicy(politeness=politeness), index_rows_max=3)
    world.turn(links(HOSTS[0], *range(12)), leases_max=0)
    world.store.families[Family.SEEN].clear()
    world.store.families[Family.INDEX].clear()
    world.restart()
    granted: list[str] = []
    while leases := world.turn().leases:
        granted += [lease.url for lease in leases]
        complete(world, leases)
        world.now_ms += 1
    assert not world.owner.index.loading
    assert sorted(granted) == sorted(f"{HOSTS[0]}/{number}" for number in range(12))


def test_a_known_url_that_is_due_sooner_is_not_hidden_by_one_that_was_loaded_before_it() -> None:
    """Protects revisits beside new URLs: the instant of the first one is that of all rows, not of those at hand."""
    world = World(OPEN, index_rows_max=1)
    urls = sorted((f"{HOSTS[0]}/{number}" for number in range(12)), key=url_id)
    for url in (urls[-1], urls[0]):  # the last one to be loaded is due first
        world.turn([found(url, Source.LINK, depth=1)], leases_max=0)
        complete(world, world.turn().leases)
        world.now_ms += 86_400_000
    world.turn([found(url, Source.LINK, depth=1) for url in urls], leases_max=0)
    first_ms = world.host(HOSTS[0]).revisit_ms
    world.lose_index()
    while world.owner.index.loading:
        world.turn(leases_max=1)
        world.now_ms += 1
    assert world.owner.hosts.slot(host_id(HOSTS[0])).state.revisit_ms == first_ms


def test_a_host_that_is_not_loaded_is_looked_at_in_the_next_turn() -> None:
    """Protects a host with work from being put off to the end of the load, or for ever."""
    world = grown(index_rows_max=0)  # no turn has room for it
    assert not world.turn().leases
    slot = world.owner.hosts.slot(host_id(HOSTS[0]))
    assert slot.loaded_to == b""
    ready_ms, _ = world.owner.frontier.ready(slot, world.now_ms)
    assert ready_ms == world.now_ms + 1


def visited(*, index_rows_max: int = 8) -> tuple[World, int]:
    """One host with one URL, which was fetched and rests; and when it is due."""
    world = World(OPEN, index_rows_max=index_rows_max)
    world.turn(links(HOSTS[0], 1), leases_max=0)
    complete(world, world.turn().leases)
    world.restart()
    return world, world.owner.next_ms()


def test_an_index_is_loaded_while_nothing_else_is_to_be_done() -> None:
    """Protects the load of hosts that rest: nothing wakes the owner for days, and it goes on all the same."""
    world, due_ms = visited(index_rows_max=0)
    assert due_ms > world.now_ms + 3_600_000
    world.lose_index()
    assert world.owner.next_ms() == 0


def test_a_run_does_not_end_over_a_host_that_is_not_loaded() -> None:
    """Protects known URLs that are due: what a host has is not told by what of it is loaded."""
    world, due_ms = visited(index_rows_max=0)
    world.now_ms = due_ms
    world.lose_index()
    assert world.owner.next_pending_ms(due_ms, due_ms + 1) == due_ms


def test_a_deleted_host_is_emptied_though_its_index_was_lost() -> None:
    """Protects an operator's word: the walk over a host's queues waits until they are all there."""
    world = grown(index_rows_max=6)
    world.turn(HostPolicy(HOSTS[2], 0, deleted=True), leases_max=0)
    for _ in range(60):
        world.turn(leases_max=0)
    assert not world.owner.index.loading
    assert not world.owner.oversight.busy()
    host = world.host(HOSTS[2])
    assert (host.known, host.queued) == (0, [0, 0, 0])
    assert not [key for key in world.store.families[Family.SEEN] if key.startswith(host_id(HOSTS[2]))]


def test_a_host_without_urls_is_whole_when_the_others_are() -> None:
    """Protects a host that was emptied: the walk over the rows does not meet it, and nothing waits for it."""
    world = grown()
    slot = world.owner.hosts.slot(host_id(HOSTS[0]))
    world.load_index()
    slot.loaded_to = b""
    world.owner.index.want(slot)
    assert slot.loaded_to is None


def test_a_host_that_is_loaded_in_part_asks_for_no_permit_while_nothing_of_it_is_due() -> None:
    """Protects the others of its address: it was looked at in every turn, and each time took their permit for nothing.

    Found as 137,000 messages of 24 hosts in eight simulated hours.
    """
    politeness = Politeness(delay_ms=0, respect_robots=False, domain_concurrency=1)
    world = World(CrawlPolicy(politeness=politeness), index_rows_max=1)
    world.turn(links(HOSTS[0], *range(12)), leases_max=0)
    while leases := [lease for _ in range(3) for lease in world.turn().leases]:
        complete(world, leases)
        world.now_ms += 1
    world.lose_index()
    while world.owner.index.loading:
        world.now_ms += 1
        assert all(family is not Family.GROUP for family, _, _ in world.turn().writes)
