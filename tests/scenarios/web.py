"""Scenarios: little webs written down, and what every runner must come to on them.

A web answers by URL and by round: a round is one visit of every URL that is known, and all URLs are visited once in it.
What came of a run is a `Findings`, made of each runner's own durable state and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from connectors.ports import Fetched, Response
from schemas.records import FetchLease, FetchResult, Kind, Outcome
from streams.core import fetch, robots_fetch
from streams.core.http1 import Head, Headers
from streams.core.policy import DAY_MS, CrawlPolicy, Politeness

PRODUCT = "headrace"
ROUND_MS = 100 * DAY_MS
POLICY = CrawlPolicy(
    politeness=Politeness(delay_ms=0, concurrency=4), revisit_ms_min=ROUND_MS, revisit_ms_max=ROUND_MS
)  # every URL is due once a round, whatever came of it


class Answer(msgspec.Struct, frozen=True):
    """What a URL answers."""

    body: bytes = b""
    status: int = 200
    type: str = "text/html"
    headers: Headers = ()

    def head(self) -> Head:
        typed = ((b"Content-Type", self.type.encode()),) if self.type else ()
        return Head(self.status, "", "1.1", (*typed, *self.headers))


def html(body: str, **more: object) -> Answer:
    return Answer(body.encode(), **more)  # type: ignore[arg-type]


def redirect(target: str) -> Answer:
    return Answer(status=301, type="", headers=((b"Location", target.encode()),))


MISSING = Answer(b"", status=404)


class Scenario(msgspec.Struct, frozen=True):
    """`rounds`: of each the answers that are new; what is in none is missing."""

    name: str
    seeds: tuple[str, ...]
    rounds: tuple[dict[str, Answer], ...]

    def answer(self, url: str, round_: int) -> Answer:
        for answers in self.rounds[round_::-1]:
            if url in answers:
                return answers[url]
        return MISSING


class Document(msgspec.Struct, frozen=True):
    """What a search finds."""

    url: str
    version: int
    title: str
    text: str
    canonical: str | None
    simhash: str
    content_hash: str


class Findings(msgspec.Struct):
    """What came of a run: rows by URL, links by page and version, documents by URL."""

    states: dict[str, tuple[object, ...]]
    links: dict[tuple[str, int], frozenset[str]]
    documents: dict[str, Document]


class ScenarioWeb:
    """The web port, and the same as a function. `asked` are the URLs of pages and sitemaps, in order."""

    def __init__(self, scenario: Scenario, now: Callable[[], int]) -> None:
        self.scenario, self.round, self._now = scenario, 0, now
        self.asked: list[str] = []

    async def fetch(self, lease: FetchLease) -> Fetched:
        return self.answer(lease)

    async def close(self) -> None:
        return

    def answer(self, lease: FetchLease) -> Fetched:
        now_ms = max(self._now(), lease.not_before_ms)
        said = self.scenario.answer(lease.url, self.round)
        head = said.head()
        exchange = fetch.Exchange(
            started_ms=now_ms,
            finished_ms=now_ms,
            failure="",
            address="203.0.113.1",
            head=head,
            body=said.body,
            wire_bytes=len(said.body),
        )
        result = fetch.outcome(lease, exchange, conditional=False)
        if lease.kind is Kind.ROBOTS:
            return Fetched(with_robots(lease, result, said))
        self.asked.append(lease.url)
        if result.outcome is not Outcome.FETCHED:
            return Fetched(result)
        response = Response(lease.url, "203.0.113.1", head.status, "", "1.1", head.headers, said.body, "", now_ms)
        return Fetched(result, response)


def with_robots(lease: FetchLease, result: FetchResult, said: Answer) -> FetchResult:
    answer, target = robots_fetch.decide(
        said.status,
        "",
        said.head().headers,
        said.body,
        request_url=lease.url,
        hops_so_far=lease.redirect_hops,
        product_token=PRODUCT,
    )
    return fetch.with_robots(result, answer, target)


def lines(answer: Answer, name: bytes) -> tuple[str, ...]:
    """A header's lines, as the store keeps them."""
    return tuple(value.decode("latin-1") for key, value in answer.head().headers if key.lower() == name)
