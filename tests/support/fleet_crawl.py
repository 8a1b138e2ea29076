"""A crawl of a scripted web by a fleet's owners, the crawl that nothing disturbs, and what sets the two apart."""

from __future__ import annotations

import hashlib
import itertools
import os
from pathlib import Path
from typing import Any

from infra.settings_fleet import Fleet
from schemas.records import DeadLetter, Kind
from streams.core.rows import Status
from tests.support.fleet_world import FleetWorld, until
from tests.support.scripted_fetcher import Answer, ScriptedFetcher, judge

_numbers = itertools.count()


class Crawl:
    """A world with its fetcher, and the questions that every test asks at its end.

    Every tenth page is gone, every tenth leads to another host, all others have a body. Each host's crawl lasts one
    delay a page, and one for robots.txt, so it goes on while workers come and go.
    """

    def __init__(
        self,
        kafka: str,
        folder: Path,
        *,
        rows: Fleet | None = None,
        hosts: int = 24,
        pages: int = 40,
        delay_ms: int = 100,
        address: str | None = None,
        **order: Any,
    ) -> None:
        """`address`: at which all hosts lie."""
        self.hosts, self.pages, self.delay_ms, self._address = hosts, pages, delay_ms, address
        self._tag = f"w{os.getpid()}x{next(_numbers)}"  # hosts of this crawl alone, each a domain of its own
        self.world = FleetWorld(kafka, folder, rows=rows, delay_ms=delay_ms, **order)
        self.fetcher = ScriptedFetcher(kafka, self.world.partitions, self.web)

    def url_of(self, host: int, page: int) -> str:
        return f"http://h{host}-{self._tag}.test/{page}"

    def web(self, url: str, kind: Kind) -> Answer:
        address = self._address or "203.0.113.1"
        if kind is Kind.ROBOTS:
            return Answer(address=address)
        page = int(url.rpartition("/")[2])
        if page % 10 == 3:
            return Answer(status=404, address=address)
        if page % 10 == 7 and page < 1_000:
            target = self.url_of((page * 7) % self.hosts, 1_000 + page)
            return Answer(status=302, redirect_to=target, address=address)
        return Answer(body=url.encode(), address=address)

    def seeds(self) -> list[str]:
        return [self.url_of(host, page) for host in range(self.hosts) for page in range(self.pages)]

    def reference(self) -> dict[str, tuple[int, bytes]]:
        """URL → status and content hash of a crawl that nothing disturbs: what the web says of all that is found."""
        found: dict[str, tuple[int, bytes]] = {}
        left = self.seeds()
        while left:
            url = left.pop()
            if url in found:
                continue
            answer = self.web(url, Kind.PAGE)
            found[url] = answer.status, hashlib.sha256(answer.body).digest() if answer.body else b""
            if answer.redirect_to:
                left.append(answer.redirect_to)
        return found

    def start(self) -> None:
        self.world.seed(self.seeds())
        self.fetcher.start()

    def goes_on(self, starts: int | None = None, within_s: float = 60.0) -> None:
        """Wait until the fetcher was told to start so many more requests; without a number, one a host."""
        before = len(self.fetcher.log)
        wanted = before + (self.hosts if starts is None else starts)
        until(lambda: len(self.fetcher.log) >= wanted, "the crawl to go on\n" + self.said(), within_s)

    def complete(self) -> bool:
        rows = self.world.rows()
        return rows.keys() == self.reference().keys() and all(row.visit is not None for row in rows.values())

    def asked_enough(self) -> bool:
        """Whether the fetcher has asked for every page: only then the tables are worth a look, which costs more."""
        asked = {one.url for one in self.fetcher.log if one.kind is Kind.PAGE}
        return len(asked) >= len(self.reference())

    def check(self, within_s: float = 240.0) -> None:
        """The judge found nothing, the tables are the reference's, and nothing was given up.

        `within_s`: a lease that came too late to be started is granted again once it has expired, which takes three
        minutes.
        """
        until(self.asked_enough, lambda: f"all pages to be asked for: {self._missing()}\n{self.said()}", within_s)
        until(self.complete, lambda: f"the crawl to be complete\n{self.said()}", within_s)
        breaches = judge([one for one in self.fetcher.log if one.permitted != ""], self.delay_ms)
        assert breaches == [], f"{len(breaches)} breaches, first {breaches[:5]}"
        rows = self.world.rows()
        visits = {url: row.visit for url, row in rows.items()}
        assert {
            url: (visit.status, visit.content_hash) for url, visit in visits.items() if visit is not None
        } == self.reference()
        assert {url: visit.visits for url, visit in visits.items() if visit is not None and visit.visits != 1} == {}
        assert {url: row.version for url, row in rows.items() if row.version != 1} == {}
        assert {row.status for row in rows.values()} <= {Status.FETCHED, Status.FAILED, Status.REDIRECT}
        assert self.world.read("dead-letters", DeadLetter) == []

    def _missing(self) -> str:
        asked = {one.url for one in self.fetcher.log}
        missing = [url for url in self.reference() if url not in asked]
        fetcher = self.fetcher
        leases = f"{fetcher.leases} leases came, {fetcher.dropped} of them too late, {len(fetcher.log)} were started"
        return f"{len(missing)} are missing, such as {missing[:3]}; {leases}"

    def said(self) -> str:
        return "\n".join(worker.said() for worker in self.world.workers[-2:])

    def close(self) -> None:
        self.world.close()
        self.fetcher.stop()
