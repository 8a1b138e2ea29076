"""Within a depth limit, what is fetched does not depend on the order in which links are met, nor on crashes."""

from __future__ import annotations

import random
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import FetchLease, FetchResult, Outcome, ParsedPage, ParseTask, StoredResult
from streams.core.owner import Event
from streams.core.policy import CrawlPolicy, Politeness
from streams.core.rows import Status, decode_row
from streams.core.rules.scope import Scope, ScopeMode
from streams.core.rules.urls import url_id
from streams.core.tasks import decode_task
from streams.core.turn import Family
from tests.support.core_world import World, answer, parsed, stored

Graph = dict[str, tuple[str, list[str]]]
"""URL to ("page", its links) or ("redirect", [its target])."""

STEPS_MAX = 3_000


def _graph(dice: random.Random) -> Graph:
    """A chain with short ways through other pages: where those are slow, URLs are met first by the long way."""
    length = dice.randint(4, 12)
    urls = [f"http://{'ab'[n % 2]}.test/p{n}" for n in range(length)]
    graph: Graph = {}
    for n, url in enumerate(urls):
        links = urls[n + 1 : n + 2]
        if dice.random() < 0.5:
            detour = f"http://{dice.choice('abc')}.test/d{n}"
            links.insert(dice.randint(0, len(links)), detour)
            graph[detour] = (dice.choice(("page", "page", "redirect")), [dice.choice(urls[n:])])
        graph[url] = ("redirect", links) if len(links) == 1 and dice.random() < 0.2 else ("page", links)
    return graph


def _breadth_first(graph: Graph, start: str, depth_max: int) -> set[str]:
    """The plain answer: a link is one step, a redirect none."""
    depths = {start: 0}
    queue = deque([start])
    while queue:
        url = queue.popleft()
        kind, targets = graph[url]
        for target in targets:
            depth = depths[url] + (kind == "page")
            if depth <= depth_max and depth < depths.get(target, depth_max + 1):
                depths[target] = depth
                queue.append(target) if kind == "page" else queue.appendleft(target)
    return set(depths)


@settings(max_examples=400)
@given(seed=st.integers(0, 2**32), depth_max=st.integers(2, 8))
def test_a_depth_limited_crawl_finds_what_a_breadth_first_walk_finds(seed: int, depth_max: int) -> None:
    """Protects exactness: any order of fetches, stores, parses and crashes gives the set of the plain walk."""
    dice = random.Random(seed)
    graph = _graph(dice)
    start = "http://a.test/p0"
    policy = CrawlPolicy(
        politeness=Politeness(delay_ms=0, concurrency=4, respect_robots=False), depth_max=depth_max, lost_leases_max=999
    )
    world = World(policy, Scope(seeds=(start,), mode=ScopeMode.ANY, depth_max=depth_max))
    world.seed(start)
    _crawl(world, graph, dice)
    rows = [decode_row(raw) for raw in world.store.families[Family.URL].values()]
    assert {row.url for row in rows} == _breadth_first(graph, start, depth_max)
    assert all(row.status in (Status.FETCHED, Status.REDIRECT) for row in rows)


def _crawl(world: World, graph: Graph, dice: random.Random) -> None:
    """Do what is possible in any order until nothing is left to do; crash now and then at first."""
    pending: list[FetchLease | StoredResult | ParsedPage] = []
    slow = [url for url in graph if dice.random() < (0.7 if "/d" in url else 0.1)]  # whose steps come last
    for step in range(STEPS_MAX):
        if step < 60 and dice.random() < 0.05:
            world.restart()
            pending = [_parse(graph, decode_task(raw)) for _, raw in world.store.tasks()]
        events: list[Event] = []
        for _ in range(dice.randint(0, 3)):
            first = [at for at, one in enumerate(pending) if _url(graph, one) not in slow or dice.random() < 0.03]
            if first:
                one = pending.pop(dice.choice(first))
                events.append(one if isinstance(one, StoredResult | ParsedPage) else _answer(world, graph, one))
                if isinstance(one, FetchLease) and graph[one.url][0] == "page":
                    pending.append(stored(one))
        turn = world.turn(*events, leases_max=dice.choice((0, 1, 5)))
        pending += turn.leases
        pending += [_parse(graph, task) for task in turn.tasks]
        world.now_ms += dice.choice((0, 10, 1_000))
        totals = world.owner.totals
        if not pending and totals.queued_new + totals.queued_retry == 0:
            return
    raise AssertionError("the crawl does not end")


def _url(graph: Graph, one: FetchLease | StoredResult | ParsedPage) -> str:
    return next(url for url in graph if url_id(url) == one.url_id)


def _answer(world: World, graph: Graph, lease: FetchLease) -> FetchResult:
    kind, targets = graph[lease.url]
    if kind == "redirect":
        return answer(lease, world.now_ms, Outcome.REDIRECT, 302, redirect_target=targets[0])
    return answer(lease, world.now_ms)


def _parse(graph: Graph, task: ParseTask) -> ParsedPage:
    return parsed(task, *graph[task.url][1])
