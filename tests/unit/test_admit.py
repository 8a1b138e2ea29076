"""ADMIT: what becomes a row, what is known, what is refused; and that the memo never loses a URL."""

from __future__ import annotations

import msgspec

from connectors.parser_worker import parse_sitemap
from schemas.records import DiscoveredUrl, Kind, Outcome, Source
from streams.core import policy as bounds
from streams.core.memo import Memo
from streams.core.policy import CrawlPolicy, ParseLimits, Politeness, TrapLimits
from streams.core.rows import QueueClass, Status
from streams.core.rules.scope import Scope, ScopeMode
from streams.core.rules.urls import host_id
from streams.core.turn import Family, Turn
from tests.support.core_world import ANY, World, answer, answer_robots, complete, fast, found, stored

OPEN = CrawlPolicy(politeness=Politeness(delay_ms=0, concurrency=8, respect_robots=False))


def link(url: str, depth: int = 1, **more: object) -> DiscoveredUrl:
    return msgspec.structs.replace(found(url, Source.LINK, depth=depth), **more)


def test_a_new_url_gets_a_row_an_entry_and_a_count() -> None:
    """Protects admission: row, queue entry and counts of one URL, once however often it is named."""
    world = World(OPEN)
    turn = world.turn([link("http://a.test/x"), link("http://a.test/x")], leases_max=0)
    row = world.row("http://a.test/x")
    assert row is not None
    assert (row.status, row.depth, row.place[0]) == (Status.NEW, 1, QueueClass.NEW)
    assert (turn.counts.admitted, turn.counts.known) == (1, 1)
    assert world.host("http://a.test").queued == [1, 0, 0]
    again = world.turn([link("http://a.test/x")], leases_max=0)
    assert (again.counts.admitted, again.counts.known, again.writes) == (0, 1, [])


def test_a_host_of_which_nothing_is_admitted_is_not_made() -> None:
    """Protects the memory from hosts that are only named: links out of scope leave nothing behind."""
    world = World(OPEN, Scope(seeds=("http://a.test/",)))
    turn = world.turn([link("http://b.test/x")], leases_max=0)
    assert turn.counts.refused == {"out_of_scope": 1}
    assert not turn.writes
    assert len(world.owner.hosts) == 0


def test_seeds_are_in_scope_whatever_the_patterns_say() -> None:
    """Protects what the user asked for by name."""
    scope = Scope(seeds=("http://a.test/",), depth_max=0, exclude=("seed",))
    world = World(OPEN, scope)
    world.seed("http://b.test/seed")
    assert world.row("http://b.test/seed") is not None
    turn = world.turn([link("http://a.test/seed"), link("http://a.test/deep")], leases_max=0)
    assert sum(turn.counts.refused.values()) == 2


def test_memo_forgets_and_never_invents() -> None:
    """Protects exactness: "known" is only said of what was noted at this depth or a smaller one."""
    memo = Memo(4)
    seen: dict[str, int] = {}
    for step in range(400):
        url, depth = f"u{step * 7 % 13}", step * 5 % 4
        if memo.knows(url, depth):
            assert seen[url] <= depth
        seen[url] = min(depth, seen.get(url, depth))


def test_memo_remembers_two_generations() -> None:
    """Protects its use: what was seen within the last urls_max URLs is known."""
    memo = Memo(4)
    assert not any(memo.knows(f"u{n}", 1) for n in range(6))
    assert memo.knows("u3", 1)
    assert memo.knows("u3", 2)
    assert not memo.knows("u3", 0)


def test_a_link_is_admitted_though_it_was_refused_at_the_end_of_a_redirect_chain() -> None:
    """Protects a URL from being lost by the memo: too many redirects lead to it, and then a plain link does."""
    world = World(OPEN)
    world.seed("http://a.test/")
    far = link("http://a.test/x", source=Source.REDIRECT, redirect_hops=bounds.REDIRECT_HOPS_MAX + 1)
    assert world.turn([far], leases_max=0).counts.refused == {"too_many_redirects": 1}
    world.turn([link("http://a.test/x")], leases_max=0)
    assert world.row("http://a.test/x") is not None


def test_a_redirect_chain_goes_on_when_its_middle_is_met_by_a_link() -> None:
    """Protects the order from deciding: a link to the middle of a chain starts its count of hops anew."""
    world = World(OPEN)
    world.seed("http://a.test/")
    world.turn([link("http://a.test/x", source=Source.REDIRECT, redirect_hops=bounds.REDIRECT_HOPS_MAX)], leases_max=0)
    leases = {lease.url: lease for lease in world.turn().leases}
    result = answer(leases["http://a.test/x"], world.now_ms, Outcome.REDIRECT, 302, redirect_target="http://a.test/y")
    assert world.turn(result, leases_max=0).counts.refused == {"too_many_redirects": 1}
    world.turn([link("http://a.test/x")], leases_max=0)
    target = world.row("http://a.test/y")
    assert target is not None
    assert target.redirect_hops == 1


def test_a_sitemap_is_taken_though_it_was_refused_as_a_link() -> None:
    """Protects a sitemap outside the scope's prefix, to which a page linked before robots.txt named it."""
    world = World(OPEN, Scope(seeds=("http://a.test/docs/",), mode=ScopeMode.PREFIX))
    world.seed("http://a.test/docs/")
    assert world.turn([link("http://a.test/map.xml")], leases_max=0).counts.refused == {"out_of_scope": 1}
    world.turn([found("http://a.test/map.xml", Source.SITEMAP, depth=1, kind=Kind.SITEMAP)], leases_max=0)
    row = world.row("http://a.test/map.xml")
    assert row is not None
    assert row.kind is Kind.SITEMAP


def test_a_url_met_nearer_while_it_waits_moves_up() -> None:
    """Protects breadth first and the limit: depth goes down, the entry moves, there is still only one."""
    world = World(OPEN)
    world.turn([link("http://a.test/x", 5), link("http://a.test/y", 3)], leases_max=0)
    world.turn([link("http://a.test/x", 2)], leases_max=0)
    row = world.row("http://a.test/x")
    assert row is not None
    assert row.depth == 2
    assert len(world.store.families[Family.QUEUE]) == 2
    assert [lease.url for lease in world.turn(leases_max=1).leases] == ["http://a.test/x"]
    world.turn([link("http://a.test/y", 7)], leases_max=0)
    farther = world.row("http://a.test/y")
    assert farther is not None
    assert farther.depth == 3


def test_a_url_met_nearer_while_it_is_fetched_keeps_the_smaller_depth() -> None:
    """Protects the row from its own lease: the result must not bring the old depth back."""
    policy = msgspec.structs.replace(OPEN, depth_max=3)
    world = World(policy, Scope(seeds=("http://a.test/",), mode=ScopeMode.ANY, depth_max=3))
    world.turn([link("http://a.test/x", 3)], leases_max=0)
    (lease,) = world.turn().leases
    world.turn([link("http://a.test/x", 1)], leases_max=0)
    turn = complete(world, [lease])
    assert [task.depth for task in turn.tasks] == [1]
    row = world.row("http://a.test/x")
    assert row is not None
    assert row.depth == 1


def test_a_page_met_nearer_is_read_again_only_under_a_depth_limit() -> None:
    """Protects exactness under a limit, and saves the work where there is none."""
    for depth_max, tasks in ((3, 1), (None, 0)):
        world = World(
            msgspec.structs.replace(OPEN, depth_max=depth_max),
            Scope(seeds=("http://a.test/",), mode=ScopeMode.ANY, depth_max=depth_max),
        )
        world.turn([link("http://a.test/x", 3)], leases_max=0)
        complete(world, world.turn().leases)
        turn = world.turn([link("http://a.test/x", 1)], leases_max=0)
        assert len(turn.tasks) == tasks


def test_a_known_link_given_as_a_seed_becomes_one() -> None:
    """Protects a seed added on resume: its redirect leads out of the scope, and is followed as a seed's is."""
    world = World(OPEN, Scope(seeds=("http://a.test/",)))
    world.seed("http://a.test/")
    world.turn([link("http://a.test/x", 3)], leases_max=0)
    for lease in world.turn().leases:
        result = answer(lease, world.now_ms, Outcome.REDIRECT, 301, redirect_target="http://b.test/")
        if lease.url == "http://a.test/x":
            world.turn(result, leases_max=0)
    assert world.row("http://b.test/") is None
    turn = world.turn([found("http://a.test/x")], leases_max=0)
    assert turn.new_seeds == ["http://b.test/"]
    target, row = world.row("http://b.test/"), world.row("http://a.test/x")
    assert target is not None
    assert row is not None
    assert (target.source, row.source, row.depth) == (Source.SEED, Source.SEED, 0)


def test_lastmod_brings_a_revisit_forward_within_the_run() -> None:
    """Protects news: what a sitemap calls newer than our copy is due at once, and only once for the same date."""
    world = World(OPEN)
    world.seed("http://a.test/x")
    complete(world, world.turn().leases)
    started_ms = world.now_ms
    world.now_ms += bounds.HOUR_MS
    assert not world.turn().leases
    newer = link("http://a.test/x", lastmod_ms=world.now_ms - 1, source=Source.SITEMAP)
    world.turn([newer], leases_max=0)
    assert world.owner.next_pending_ms(started_ms, world.now_ms + bounds.HOUR_MS) <= world.now_ms
    (lease,) = world.turn().leases
    complete(world, [lease])
    world.turn([newer], leases_max=0)
    assert not world.turn().leases


def test_an_older_lastmod_changes_nothing() -> None:
    """Protects the schedule from sitemaps that tell what we have."""
    world = World(OPEN)
    world.seed("http://a.test/x")
    complete(world, world.turn().leases)
    turn = world.turn([link("http://a.test/x", lastmod_ms=world.now_ms - 1)], leases_max=0)
    assert not turn.writes


def test_lastmod_of_a_url_in_flight_leaves_its_lease_alone() -> None:
    """Protects the place that the lease holds: the answer on its way is newer anyway."""
    world = World(OPEN)
    world.seed("http://a.test/x")
    complete(world, world.turn().leases)
    world.now_ms += 40 * bounds.DAY_MS
    (lease,) = world.turn().leases
    world.turn([link("http://a.test/x", lastmod_ms=world.now_ms + 1)], leases_max=0)
    assert not world.turn().leases
    complete(world, [lease])
    assert world.host("http://a.test").queued == [0, 0, 1]


def test_a_growing_pattern_is_paused_and_sampled_and_the_host_goes_on() -> None:
    """Protects a host's budget from a trap, and its other pages from the trap's pause."""
    policy = msgspec.structs.replace(fast(), traps=TrapLimits(template_urls_max=50, sample_every=16))
    world = World(policy)
    turn = world.turn([link(f"http://a.test/item/{n}") for n in range(1_000)], leases_max=0)
    host = world.host("http://a.test")
    assert host.paused_patterns == 1
    assert 50 <= turn.counts.admitted < 50 + 2 * 1_000 // 16
    assert host.trap_refused == turn.counts.refused["trap_pattern"] == 1_000 - turn.counts.admitted
    assert world.turn([link("http://a.test/about")], leases_max=0).counts.admitted == 1


def test_a_paused_pattern_stays_paused_after_a_restart() -> None:
    """Protects the pause: its counts are durable when it begins."""
    policy = msgspec.structs.replace(fast(), traps=TrapLimits(template_urls_max=50, sample_every=1_000_000_000))
    world = World(policy)
    world.turn([link(f"http://a.test/item/{n}") for n in range(100)], leases_max=0)
    assert world.store.get(Family.TEMPLATES, host_id("http://a.test")) is not None
    world.restart()
    turn = world.turn([link(f"http://a.test/item/{n}") for n in range(200, 300)], leases_max=0)
    assert turn.counts.refused.get("trap_pattern", 0) >= 99


def test_seeds_of_a_trap_pattern_are_taken() -> None:
    """Protects a list of ten thousand seeds of one site from the trap rules."""
    policy = msgspec.structs.replace(fast(), traps=TrapLimits(template_urls_max=5))
    world = World(policy)
    world.seed(*[f"http://a.test/item/{n}" for n in range(100)])
    assert world.host("http://a.test").queued[QueueClass.NEW] == 100


def test_seeds_given_again_change_nothing() -> None:
    """Protects a resumed crawl: the same command writes nothing for what is known."""
    world = World(OPEN, ANY)
    world.seed("http://a.test/", "http://b.test/")
    leases = world.turn().leases
    world.turn(answer(leases[0], world.now_ms), stored(leases[0]), leases_max=0)
    world.restart()
    turn = world.turn([found("http://a.test/"), found("http://b.test/")], leases_max=0)
    assert not turn.writes


# --- sitemaps that lie elsewhere ----------------------------------------------------------------------------------

CDN = "https://cdn.test/a.xml"


def world_with_a_named_sitemap(*hosts: str) -> World:
    """Each host's robots.txt names the sitemap on the CDN, which is out of scope by itself."""
    world = World(fast(), Scope(seeds=("http://a.test/", "http://b.test/")))
    for host in hosts:
        world.seed(f"{host}/")
        (lease,) = [lease for lease in world.turn().leases if lease.kind is Kind.ROBOTS]
        rules = b"User-agent: *\nDisallow: /no\nSitemap: " + CDN.encode()
        world.turn(answer_robots(lease, world.now_ms, rules), leases_max=0)
    return world


def test_a_sitemap_on_another_host_may_name_urls_of_the_host_that_names_it() -> None:
    """Protects sites that keep their sitemaps on a CDN: cross submits of sitemaps.org."""
    world = world_with_a_named_sitemap("http://a.test")
    leases = {lease.url: lease for lease in world.turn().leases}
    world.turn(answer_robots(leases["https://cdn.test/robots.txt"], world.now_ms), leases_max=0)
    (lease,) = [lease for lease in world.turn().leases if lease.url == CDN]
    (task,) = complete(world, [lease]).tasks
    assert (task.kind, task.trusted_hosts) == (Kind.SITEMAP, ("http://a.test",))
    body = b"<urlset><url><loc>http://a.test/1</loc></url><url><loc>http://b.test/1</loc></url></urlset>"
    page = parse_sitemap(task, body, ParseLimits())
    assert page.sitemap_type == "urlset"
    world.turn(page, leases_max=0)
    assert world.row("http://a.test/1") is not None
    assert world.row("http://b.test/1") is None  # its robots.txt does not name it
    turn = world_turn_of_another_host(world)
    (again,) = turn.tasks
    assert (again.trusted_hosts, again.kept) == (("http://a.test", "http://b.test"), False)
    world.turn(parse_sitemap(again, body, ParseLimits()), leases_max=0)
    assert world.row("http://b.test/1") is not None


def world_turn_of_another_host(world: World) -> Turn:
    world.seed("http://b.test/")
    (lease,) = [lease for lease in world.turn().leases if lease.kind is Kind.ROBOTS]
    return world.turn(answer_robots(lease, world.now_ms, f"User-agent: x\nSitemap: {CDN}".encode()), leases_max=0)


def test_a_sitemap_is_not_fetched_from_elsewhere_for_hosts_out_of_scope() -> None:
    """Protects hosts that nobody asked for: trust is given by a host in scope only, by few hosts, and once."""
    world = World(fast(), Scope(seeds=("http://a.test/",)))
    sitemap = found(CDN, Source.SITEMAP, depth=1, kind=Kind.SITEMAP)
    world.turn([msgspec.structs.replace(sitemap, trusted_hosts=("http://z.test",))], leases_max=0)
    assert world.row(CDN) is None
    hosts = tuple(f"http://h{n}.test" for n in range(50))
    for _ in range(2):
        world.turn([msgspec.structs.replace(sitemap, trusted_hosts=("http://a.test", *hosts))], leases_max=0)
    row = world.row(CDN)
    assert row is not None
    assert len(row.trusted_hosts) == bounds.TRUSTED_HOSTS_MAX
