"""A small world around the owner: a store in memory, a clock that the test moves, answers that the test chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from schemas.records import (
    BodyRef,
    DiscoveredUrl,
    FetchLease,
    FetchResult,
    Kind,
    Link,
    Outcome,
    ParsedPage,
    ParseTask,
    RobotsAnswer,
    RobotsDecision,
    SitemapEntry,
    Source,
    StoredResult,
)
from streams.core import policy as bounds
from streams.core.hosts import HostState, decode_host
from streams.core.owner import Event, Owner
from streams.core.policy import CrawlPolicy, Politeness
from streams.core.rows import UrlRow, decode_row
from streams.core.rules import robots
from streams.core.rules.scope import Scope, ScopeMode
from streams.core.rules.urls import host_id, host_key, url_id
from streams.core.turn import Family, Turn
from tests.support.memory_store import MemoryStore

NOW_MS = 1_700_000_000_000
ANY = Scope(seeds=("http://a.test/",), mode=ScopeMode.ANY)


def found(url: str, source: Source = Source.SEED, *, depth: int = 0, kind: Kind = Kind.PAGE) -> DiscoveredUrl:
    return DiscoveredUrl(url=url, host_key=host_key(url), source=source, discovered_ms=NOW_MS, depth=depth, kind=kind)


class World:
    """`turn` decides and commits; `turn(commit=False)` is a crash before the commit: call `restart` after it."""

    def __init__(
        self,
        policy: CrawlPolicy | None = None,
        scope: Scope = ANY,
        jitter: Callable[[], float] = lambda: 0.5,
        index_rows_max: int = bounds.INDEX_ROWS_PER_TURN_MAX,
        index_look_rows: int = 1,
    ) -> None:
        self.store = MemoryStore()
        self.index_rows_max, self.index_look_rows = index_rows_max, index_look_rows
        self.policy = policy or CrawlPolicy()
        self.scope = scope
        self.jitter = jitter
        self.now_ms = NOW_MS
        self.epoch = 0
        self.owner = self._open()

    def _open(self, *, close_leases: bool = True) -> Owner:
        self.epoch += 1
        owner = Owner(
            self.store,
            self.policy,
            self.scope,
            epoch=self.epoch,
            jitter=self.jitter,
            clock_skew_ms=0,
            index_rows_max=self.index_rows_max,
            index_look_rows=self.index_look_rows,
        )
        turn = owner.adopt(self.now_ms, close_leases=close_leases)
        self.store.commit(turn.writes)
        owner.committed(turn)
        return owner

    def restart(self, *, close_leases: bool = True) -> None:
        """Only what was committed is left. Leases stand when they are not closed: another owner takes them over."""
        self.owner = self._open(close_leases=close_leases)

    def lose_index(self) -> None:
        """Restart on a disk that has no index."""
        self.store.clear_index()
        self.restart()

    def load_index(self) -> int:
        """Load the index whole; returns in how many turns."""
        turns = 0
        while self.owner.index.loading:
            turn = self.owner.load_index(self.now_ms)
            self.store.commit(turn.writes)
            self.owner.committed(turn)
            turns += 1
        return turns

    def turn(self, *events: Event, leases_max: int = 100, commit: bool = True) -> Turn:
        turn = self.owner.decide(events, self.now_ms, leases_max)
        if commit:
            self.store.commit(turn.writes)
            self.owner.committed(turn)
        return turn

    def seed(self, *urls: str) -> None:
        self.turn([found(url) for url in urls], leases_max=0)

    def pass_robots(self, rules: bytes = b"", **keywords: object) -> None:
        """Answer all robots leases of the next turn."""
        turn = self.turn()
        assert turn.leases, "a robots lease was expected"
        assert all(lease.kind is Kind.ROBOTS for lease in turn.leases)
        self.turn(*[answer_robots(lease, self.now_ms, rules) for lease in turn.leases], leases_max=0)
        self.now_ms += self.policy.politeness.delay_ms

    def host(self, key: str) -> HostState:
        raw = self.store.get(Family.HOST, host_id(key))
        assert raw is not None
        return decode_host(raw)

    def row(self, url: str) -> UrlRow | None:
        raw = self.store.get(Family.URL, host_id(host_key(url)) + url_id(url))
        return None if raw is None else decode_row(raw)


def answer_robots(lease: FetchLease, now_ms: int, rules: bytes = b"", status: int = 200) -> FetchResult:
    if status >= 500 or status == 429:
        answer = RobotsAnswer(RobotsDecision.DISALLOW_ALL)
    elif rules:
        parsed = robots.parse(rules, "Headrace", base_url=lease.url)
        answer = RobotsAnswer(RobotsDecision.PARSE_RULES, parsed.encode(), parsed.crawl_delay_ms, parsed.sitemaps)
    else:
        answer = RobotsAnswer(RobotsDecision.ALLOW_ALL)
    return FetchResult(
        lease_id=lease.lease_id,
        host_key=lease.host_key,
        url_id=lease.url_id,
        url=lease.url,
        url_version=lease.url_version,
        kind=lease.kind,
        outcome=Outcome.FETCHED if status < 300 else Outcome.RETRY if status >= 500 else Outcome.FAILED,
        started_ms=now_ms,
        finished_ms=now_ms,
        status=status,
        robots=answer,
        robots_for=lease.robots_for,
    )


def answer(
    lease: FetchLease, now_ms: int, outcome: Outcome = Outcome.FETCHED, status: int = 200, **more: object
) -> FetchResult:
    return FetchResult(
        lease_id=lease.lease_id,
        host_key=lease.host_key,
        url_id=lease.url_id,
        url=lease.url,
        url_version=lease.url_version,
        kind=lease.kind,
        outcome=outcome,
        started_ms=now_ms,
        finished_ms=now_ms,
        status=status,
        **more,  # type: ignore[arg-type]
    )


def parsed(task: ParseTask, *links: str, error: str = "") -> ParsedPage:
    """What a parser makes of the body, with these links."""
    return ParsedPage(
        url_id=task.url_id,
        host_key=task.host_key,
        url=task.url,
        url_version=task.url_version,
        kind=task.kind,
        depth=task.depth,
        fetched_ms=task.fetched_ms,
        extractor_version=task.extractor_version,
        error=error,
        links=tuple(Link(url, "a") for url in links) if task.kind is Kind.PAGE else (),
        entries=tuple(SitemapEntry(url) for url in links) if task.kind is Kind.SITEMAP else (),
    )


def stored(lease: FetchLease | FetchResult, content: bytes = b"h" * 32) -> StoredResult:
    ref = BodyRef("warc/x.warc.gz", lease.url_version, 100)
    return StoredResult(
        lease_id=lease.lease_id,
        host_key=lease.host_key,
        url_id=lease.url_id,
        url_version=lease.url_version,
        content_hash=content,
        body=ref,
        content=ref,
        content_type="text/html",
    )


def complete(world: World, leases: Iterable[FetchLease], content: bytes = b"h" * 32) -> Turn:
    """Fetch and store, with success."""
    events: list[Event] = []
    for lease in leases:
        events += [answer(lease, world.now_ms), stored(lease, content)]
    return world.turn(*events, leases_max=0)


def fast() -> CrawlPolicy:
    """No delay between requests."""
    return CrawlPolicy(politeness=Politeness(delay_ms=0, concurrency=4))
