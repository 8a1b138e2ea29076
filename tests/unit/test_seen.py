"""The seen family: what admission asks before it reads a row, and that it never hides what a row would have said."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import DiscoveredUrl, Kind, Source
from streams.core.hosts import HostState
from streams.core.policy import CrawlPolicy, Politeness
from streams.core.rows import QueueClass, Status, UrlRow, Visit, encode_row, place, rank
from streams.core.rules.scope import Scope, ScopeMode
from streams.core.rules.urls import host_id, url_id
from streams.core.seen import ASK_ROW, brings_news, seen_value
from streams.core.turn import Family, HostSlot, Turn
from tests.support.core_world import World, complete, found

URL, HOST = "http://a.test/x", "http://a.test"
KEY = host_id(HOST) + url_id(URL)
_depths = st.sampled_from((0, 1, 2, 3, 253, 254, 255, 256, 70_000))
_visits = st.one_of(
    st.none(),
    st.builds(
        Visit,
        fetched_ms=st.sampled_from((0, 5)),
        status=st.just(200),
        url_version=st.just(1),
        redirect_target=st.sampled_from((None, "http://a.test/y")),
    ),
)
_rows = st.builds(
    UrlRow,
    url=st.just(URL),
    source=st.sampled_from((Source.SEED, Source.LINK, Source.REDIRECT)),
    kind=st.sampled_from((Kind.PAGE, Kind.SITEMAP)),
    depth=_depths,
    redirect_hops=st.integers(0, 10),
    parent_id=st.just(b""),
    priority=st.just(128),
    discovered_ms=st.just(1),
    status=st.sampled_from((Status.NEW, Status.FETCHED, Status.OUT_OF_SCOPE)),
    lastmod_ms=st.sampled_from((None, 3)),
    visit=_visits,
    trusted_hosts=st.sampled_from(((), ("http://b.test",))),
)
_found = st.builds(
    DiscoveredUrl,
    url=st.just(URL),
    host_key=st.just(HOST),
    source=st.sampled_from((Source.SEED, Source.LINK, Source.SITEMAP, Source.REDIRECT)),
    discovered_ms=st.just(2),
    depth=_depths,
    redirect_hops=st.integers(0, 10),
    lastmod_ms=st.sampled_from((None, 0, 4, 9)),
    kind=st.sampled_from((Kind.PAGE, Kind.SITEMAP)),
    trusted_hosts=st.sampled_from(((), ("http://b.test",), ("http://c.test",))),
)


@given(row=_rows, link=_found)
def test_what_brings_no_news_changes_no_row(row: UrlRow, link: DiscoveredUrl) -> None:
    """Protects everything that admission does for a known URL: what it does not look at would have changed nothing."""
    world = World(CrawlPolicy(depth_max=9), Scope(seeds=(), mode=ScopeMode.ANY))
    row.place = place(QueueClass.NEW if row.visit is None else QueueClass.REVISIT, 7_200_000, rank(128, row.depth))
    state = HostState(host_key=HOST, known=1)
    state.queued[row.place[0]] = state.statuses[row.status] = 1
    world.store.commit([(Family.URL, KEY, encode_row(row))])
    turn, slot = Turn(10), HostSlot(host_id(HOST), state, new=False)
    before = encode_row(row), msgspec.msgpack.encode(state)
    turn.rows[KEY] = row
    world.owner.admission._meet_again(turn, slot, KEY, row, link)
    changed = (encode_row(row), msgspec.msgpack.encode(state)) != before
    changed = changed or bool(turn.writes or turn.dirty_rows or turn.tasks or turn.found or turn.touched)
    value = seen_value(msgspec.msgpack.decode(before[0], type=UrlRow))
    assert brings_news(value, link) or not changed
    store = world.store
    store.commit([(Family.SEEN, KEY, value)])
    turn, slot = Turn(10), HostSlot(host_id(HOST), state, new=False)
    looked_at = world.owner.admission.unseen(turn, slot, [link])
    assert bool(looked_at) == brings_news(value, link)
    assert turn.counts.known == 1 - len(looked_at)


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ({"depth": 3}, b"\3\0"),
        ({"depth": 254, "redirect_hops": 4}, b"\xfe\4"),
        ({"depth": 255}, b"\xff\0"),
        ({"depth": 70_000}, b"\xff\0"),
        ({"depth": 2, "status": Status.OUT_OF_SCOPE}, b"\xff\0"),
        ({"depth": 0, "source": Source.SEED}, b"\0\0\1"),
    ],
)
def test_the_value_of_a_row(row: dict[str, object], value: bytes) -> None:
    """Protects folders: what is written today is what a later version reads."""
    one = UrlRow(URL, Source.LINK, Kind.PAGE, 1, 0, b"", 128, 1)
    assert seen_value(msgspec.structs.replace(one, **row)) == value
    assert ASK_ROW == 255


class _Counted:
    """The store, with what was read of rows."""

    def __init__(self, world: World) -> None:
        self.rows_read = 0
        self._rows = world.store.rows
        world.store.rows = self.rows  # type: ignore[method-assign]

    def rows(self, keys: list[bytes]) -> list[bytes | None]:
        self.rows_read += len(keys)
        return self._rows(keys)


def _links(numbers: Iterable[int], depth: int) -> list[DiscoveredUrl]:
    return [found(f"{HOST}/{number}", Source.LINK, depth=depth) for number in numbers]


def test_rows_are_read_only_for_news() -> None:
    """Protects the pace of the seen test: new and known links read no row, a nearer one reads its own."""
    world = World()
    counted = _Counted(world)
    world.turn(_links(range(50), 3), leases_max=0)
    world.owner.memo.forget()
    assert world.turn(_links(range(60), 3), leases_max=0).counts.known == 50
    assert counted.rows_read == 0
    world.turn(_links((7, 8), 2), leases_max=0)
    assert counted.rows_read == 2


def test_a_completion_writes_no_seen_value() -> None:
    """Protects the price of a completion: what links are compared with does not change with a visit."""
    world = World(CrawlPolicy(politeness=Politeness(delay_ms=0, concurrency=4, respect_robots=False)))
    world.turn(_links(range(3), 1), leases_max=0)
    leases = world.turn().leases
    assert leases
    assert not [key for family, key, _ in complete(world, leases).writes if family is Family.SEEN]


def test_links_to_a_deep_url_still_bring_it_nearer() -> None:
    """Protects the least depth where a byte cannot hold it: its row is asked."""
    world = World()
    world.turn(_links([1], 300), leases_max=0)
    world.turn(_links([1], 299), leases_max=0)
    row = world.row(f"{HOST}/1")
    assert row is not None
    assert row.depth == 299


def test_a_url_that_left_the_scope_is_asked_for_at_each_link() -> None:
    """Protects a scope that grows again: a link that is no nearer brings the URL back, and then no news any more."""
    world = World(CrawlPolicy(politeness=Politeness(delay_ms=0, respect_robots=False)))
    world.turn(_links([1], 2), leases_max=0)
    wide = world.owner.admission.scope
    world.owner.set_scope(Scope(seeds=("http://b.test/",), mode=ScopeMode.HOST))
    assert not world.turn().leases
    key = host_id(HOST) + url_id(f"{HOST}/1")
    assert world.store.families[Family.SEEN][key] == bytes((ASK_ROW, 0))
    world.owner.set_scope(wide)
    world.turn(_links([1], 2), leases_max=0)
    assert world.store.families[Family.SEEN][key] == b"\2\0"
    assert [lease.url for lease in world.turn().leases] == [f"{HOST}/1"]
