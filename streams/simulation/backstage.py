"""What stands behind the fetchers: the store that makes a body durable, and the parsers. Neither looks at a host."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b

from schemas.records import (
    BodyRef,
    FetchLease,
    FetchResult,
    Kind,
    Link,
    ParsedPage,
    ParseTask,
    SitemapEntry,
    StoredResult,
)
from streams.core import policy as bounds
from streams.simulation.faults import Faults
from streams.simulation.loop import Loop
from streams.simulation.web import Reply, Web

PARSES_MAX = 4


def stored_result(lease: FetchLease, result: FetchResult, reply: Reply) -> StoredResult:
    """The body lies where its reference says: a reference is as good as a body here, for the web can tell it again."""
    content = f"{lease.url} {reply.revision}".encode()
    ref = BodyRef("web", reply.revision, 1)
    return StoredResult(
        lease_id=lease.lease_id,
        host_key=lease.host_key,
        url_id=lease.url_id,
        url_version=lease.url_version,
        content_hash=blake2b(content, digest_size=32).digest(),
        body=ref,
        content=ref,
        content_type=result.content_type,
    )


def parsed_page(web: Web, task: ParseTask, error: str) -> ParsedPage:
    links: tuple[Link, ...] = ()
    entries: tuple[SitemapEntry, ...] = ()
    if not error:
        named = web.links(task.url)
        if task.kind is Kind.SITEMAP:
            entries = tuple(SitemapEntry(url) for url in named)
        else:
            links = tuple(Link(url, "a") for url in named)
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
        links=links,
        entries=entries,
    )


class Parsers:
    """A few bodies at a time, in order; they may stall, fail, die and do their work again."""

    def __init__(self, loop: Loop, web: Web, faults: Faults, parsed: Callable[[ParsedPage], None]) -> None:
        self._loop, self._web, self._faults, self._parsed = loop, web, faults, parsed
        self._random = loop.random("parsers")
        self._life = 0
        self._busy = 0
        self.waiting: deque[ParseTask] = deque()
        self._at_work: list[ParseTask] = []
        self.backlog_max = 0  # the most that ever waited

    def backlog(self) -> int:
        return len(self.waiting) + self._busy

    def tasks(self) -> list[ParseTask]:
        """All that is not parsed yet."""
        return [*self._at_work, *self.waiting]

    def add(self, task: ParseTask) -> None:
        self.waiting.append(task)
        self.backlog_max = max(self.backlog_max, self.backlog())
        self._feed()

    def crash(self) -> None:
        """Nothing of what was here is left."""
        self._life += 1
        self._busy = 0
        self.waiting.clear()
        self._at_work.clear()

    def _feed(self) -> None:
        while self.waiting and self._busy < PARSES_MAX:
            task = self.waiting.popleft()
            self._busy += 1
            self._at_work.append(task)
            took_ms = self._random.randrange(5, 300)
            if self._faults.hit("parser_stalled"):
                took_ms = self._random.choice((1, 10, 40)) * bounds.MINUTE_MS
            self._loop.after(took_ms, self._done, self._life, task)

    def _done(self, life: int, task: ParseTask) -> None:
        if life != self._life:
            return
        self._busy -= 1
        self._at_work.remove(task)
        error = "parse_timeout" if self._faults.hit("parser_failed") else ""
        page = parsed_page(self._web, task, error)
        self._parsed(page)
        if self._faults.hit("parse_repeated"):
            self._parsed(page)
        self._feed()
