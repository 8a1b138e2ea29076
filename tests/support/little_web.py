"""A little web made from a seed: hosts with robots of every kind, pages, redirects, failures, Retry-After.

It knows nothing of the crawler but the records that cross the boundary. `reachable` is the plain answer to the question
what a crawl of it must know in the end.
"""

from __future__ import annotations

import random
from collections import Counter

import msgspec

from schemas.records import FetchLease, FetchResult, Kind, Outcome, RobotsAnswer, RobotsDecision
from streams.core.rules import robots

PRODUCT = "Headrace"


class Page(msgspec.Struct):
    """What a URL answers, once it has failed so many times."""

    links: list[str]
    redirect: str | None = None
    status: int = 200
    fails: int = 0
    failure: int = 0  # HTTP status of the failures, 0 for a broken connection
    retry_after_ms: int | None = None


class Robots(msgspec.Struct):
    """What a robots.txt, or a URL that one redirects to, answers."""

    text: bytes = b""  # none: 404
    hop: str | None = None
    fails: int = 0


class LittleWeb:
    """The sites' side. `asked` counts requests by URL."""

    def __init__(self, dice: random.Random) -> None:
        self.hosts = [f"http://h{n}.test" for n in range(dice.randint(1, 4))]
        self.pages: dict[str, Page] = {}
        self.robots: dict[str, Robots] = {}
        self.asked: Counter[str] = Counter()
        urls = [f"{host}/{kind}{n}" for host in self.hosts for n in range(dice.randint(1, 6)) for kind in ("p", "no")]
        for url in urls:
            self.pages[url] = self._page(dice, urls)
        for host in self.hosts:
            self._add_robots(dice, host)
        self.seeds = dice.sample(urls, min(len(urls), 2))

    def _page(self, dice: random.Random, urls: list[str]) -> Page:
        page = Page(links=dice.sample(urls, min(len(urls), dice.randint(0, 4))))
        kind = dice.choice(("page", "page", "page", "redirect", "gone", "flaky", "busy", "dead"))
        if kind == "redirect":
            page.redirect = dice.choice(urls)
        elif kind == "gone":
            page.status = dice.choice((404, 410, 403))
        elif kind == "flaky":
            page.fails, page.failure = dice.randint(1, 4), dice.choice((0, 500, 502))
        elif kind == "busy":
            page.fails, page.failure = dice.randint(1, 4), dice.choice((429, 503))
            page.retry_after_ms = dice.choice((None, 0, 3_000, 400_000))
        elif kind == "dead":
            page.fails = 1_000_000
        return page

    def _add_robots(self, dice: random.Random, host: str) -> None:
        text = dice.choice((b"", b"User-agent: *\nDisallow: /no\n", b"User-agent: *\nDisallow: /no\nCrawl-delay: 7\n"))
        first = f"{host}/robots.txt"
        if dice.random() < 0.3:
            target = f"{dice.choice(self.hosts)}/rules-of-{host[7:]}"
            self.robots[first] = Robots(hop=target)
            first = target
        self.robots[first] = Robots(text=text, fails=dice.choice((0, 0, 0, 1, 3)))

    def rules(self, host: str) -> Robots:
        """The file that stands for the host in the end."""
        found = self.robots[f"{host}/robots.txt"]
        return found if found.hop is None else self.robots[found.hop]

    def allows(self, url: str) -> bool:
        host, _, path = url[7:].partition("/")
        return not (path.startswith("no") and b"Disallow" in self.rules(f"http://{host}").text)

    def delay_ms(self, host: str) -> int:
        return 7_000 if b"Crawl-delay" in self.rules(host).text else 0

    def reachable(self) -> set[str]:
        """All URLs that the seeds lead to by links and redirects of pages that robots allow and that answer."""
        known, todo = set(self.seeds), list(self.seeds)
        while todo:
            url = todo.pop()
            page = self.pages[url]
            if not self.allows(url) or page.fails > 1_000 or page.status != 200:
                continue
            for target in [page.redirect] if page.redirect is not None else page.links:
                if target not in known:
                    known.add(target)
                    todo.append(target)
        return known

    # --- answers --------------------------------------------------------------------------------------------------

    def answer(self, lease: FetchLease, now_ms: int) -> FetchResult:
        self.asked[lease.url] += 1
        if lease.kind is Kind.ROBOTS:
            return self._robots_answer(lease, now_ms)
        page = self.pages[lease.url]
        if self.asked[lease.url] <= page.fails:
            return _result(
                lease, now_ms, Outcome.RETRY, page.failure, error="failed", retry_after_ms=page.retry_after_ms
            )
        if page.redirect is not None:
            return _result(lease, now_ms, Outcome.REDIRECT, 302, redirect_target=page.redirect)
        if page.status != 200:
            return _result(lease, now_ms, Outcome.FAILED, page.status, error=f"http_{page.status}")
        if lease.etag is not None:
            return _result(lease, now_ms, Outcome.NOT_MODIFIED, 304)
        return _result(lease, now_ms, Outcome.FETCHED, 200, etag='"e"')

    def _robots_answer(self, lease: FetchLease, now_ms: int) -> FetchResult:
        found = self.robots[lease.url]
        if self.asked[lease.url] <= found.fails:
            refused = RobotsAnswer(RobotsDecision.DISALLOW_ALL)
            return _result(lease, now_ms, Outcome.RETRY, 503, robots=refused, retry_after_ms=None)
        if found.hop is not None:
            hop = RobotsAnswer(RobotsDecision.HOP)
            return _result(lease, now_ms, Outcome.REDIRECT, 302, robots=hop, redirect_target=found.hop)
        if not found.text:
            return _result(lease, now_ms, Outcome.FAILED, 404, robots=RobotsAnswer(RobotsDecision.ALLOW_ALL))
        rules = robots.parse(found.text, PRODUCT, base_url=lease.url)
        answer = RobotsAnswer(RobotsDecision.PARSE_RULES, rules.encode(), rules.crawl_delay_ms)
        return _result(lease, now_ms, Outcome.FETCHED, 200, robots=answer)


def _result(lease: FetchLease, now_ms: int, outcome: Outcome, status: int, **more: object) -> FetchResult:
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
        robots_for=lease.robots_for,
        **more,  # type: ignore[arg-type]
    )
