"""A fleet under load whose workers and services are killed, stopped and started again, and the judges of what it left.

The load: hosts of one small site, new ones with every deed, so that there is always something to fetch. The judges:
the site's own log, the index, the URL table and the dead letters, against what a plain walk of the site finds.
"""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from streams.core.rows import Status
from tests.support.access_log_oracle import Expected, judge
from tests.support.services import Fleet
from tests.support.site import Asked, ServedSite
from tests.support.walk import walk
from tests.support.whole_fleet import SESSION_S, STAGES, StageProcess, WholeFleet

SERVICES = ("kafka", "cassandra", "s3", "connect", "opensearch")
START = "/index.html"
_GOES_ON_S_MAX = 240.0
_NOINDEX = 9  # every so many pages
_GONE = 13  # every so many pages link to one that is not there


def make_site(root: Path, pages: int) -> None:
    """A start page and `pages` others, each found over at most log2 of them; some not to be indexed."""
    root.mkdir(parents=True)
    for number in range(-1, pages):
        targets = [one for one in (2 * number + 2, 2 * number + 3, (7 * number + 3) % pages) if 0 <= one < pages]
        links = "".join(f'<p><a href="p{one}.html">page {one}</a></p>' for one in targets)
        if number % _GONE == 5:
            links += f'<a href="gone{number}.html">not there</a>'
        robots = '<meta name="robots" content="noindex">' if number % _NOINDEX == 4 else ""
        words = " ".join(f"w{(number * 31 + at * 17) % 1_009}" for at in range(200))
        name = START[1:] if number < 0 else f"p{number}.html"
        (root / name).write_text(f"<html><title>Page {number}</title>{robots}<body>{links}<p>{words}</p></body></html>")


class Chaos:
    """The fleet, its site, and the deeds. `close` it."""

    def __init__(
        self,
        services: Fleet,
        folder: Path,
        *,
        pages: int,
        hosts_max: int,
        delay_ms: int,
        seed: int,
        say: Callable[[str], None] = print,
        **settings: Any,
    ) -> None:
        self.delay_ms, self.dice, self._say = delay_ms, random.Random(seed), say
        self._left = [f"c{number}.test" for number in range(hosts_max)]
        self._hosts: list[str] = []
        self.lines: list[Asked] = []  # as they were looked at last; there when the site is gone
        make_site(folder / "site", pages)
        self.site = ServedSite(folder / "site")
        self.site.__enter__()
        try:
            statuses = walk(self.site.url(START))
            self._statuses = {urlsplit(url).path: status for url, status in statuses.items()}
            assert len(self._statuses) > pages
            self._noindex = {f"/p{number}.html" for number in range(pages) if number % _NOINDEX == 4}
            self._began = len(self.site.log())
            self.whole = WholeFleet(
                services,
                folder / "fleet",
                list(self._left),
                name="chaos",
                module="tests.support.whole_worker",
                politeness__delay_ms=delay_ms,
                fetch__duration_ms_max=5_000,
                **settings,
            )
        except BaseException:  # services that do not come up: nobody has what would be closed
            self.site.__exit__(None, None, None)
            raise

    def close(self) -> None:
        self.whole.close()
        self.site.__exit__(None, None, None)

    # --- load ---------------------------------------------------------------------------------------------------------

    def feed(self, hosts: int, *, whole: bool = False) -> None:
        """So many more hosts. `whole`: by all their pages, which else are found one by another."""
        assert len(self._left) >= hosts, "more hosts were needed than were named"
        news = [self._left.pop(0) for _ in range(hosts)]
        self._hosts += news
        paths = list(self._statuses) if whole else [START]
        self.whole.seed(self.site.url(path, host) for host in news for path in paths)

    def passes(self, seconds: float) -> None:
        """Let so much time go by."""
        _wait(seconds)

    def goes_on(self, requests: int = 20) -> float:
        """Wait until the site was asked so much more; how long that took, in seconds."""
        before, began_s = len(self.log()), time.monotonic()
        self.whole.until(lambda: len(self.log()) >= before + requests, f"{requests} more requests", _GOES_ON_S_MAX)
        return time.monotonic() - began_s

    def log(self) -> list[Asked]:
        """What the site was asked so far, by this fleet alone."""
        self.lines = self.site.log()[self._began :]
        return self.lines

    def asked_again(self, since_ms: float, until_ms: float) -> tuple[int, int]:
        """Requests of that time, and how many of them were for what had been asked before, whenever that was."""
        seen: set[tuple[str, str]] = set()
        requests = again = 0
        for line in sorted(self.log(), key=lambda one: one.start_ms):
            if since_ms <= line.start_ms <= until_ms:
                requests += 1
                again += (line.host, line.path) in seen
            seen.add((line.host, line.path))
        return requests, again

    def longest_pause_s(self, since_ms: float, until_ms: float) -> float:
        """The longest time between two requests of any hosts."""
        times = sorted(line.start_ms for line in self.log() if since_ms <= line.start_ms <= until_ms)
        return max((later - one for one, later in pairwise(times)), default=until_ms - since_ms) / 1_000

    # --- deeds --------------------------------------------------------------------------------------------------------

    def kill_worker(self, stage: str) -> None:
        """kill -9 of one of the stage's, and a new one on its disk some seconds later."""
        one = self.dice.choice(self.whole.running(stage))
        one.kill()
        _wait(self.dice.uniform(0.0, 4.0))
        again = self.whole.worker(stage, one.name)
        self.whole.until(again.ready, f"{one.name} to be ready again")

    def stop_fetcher(self) -> None:
        """SIGSTOP past its session, and woken."""
        one = self.dice.choice(self.whole.running("fetch"))
        one.stop()
        _wait(SESSION_S + self.dice.uniform(3.0, 6.0))
        one.wake()

    def kill_service(self, name: str) -> None:
        """kill -9, and started again some seconds later."""
        os.kill(self.whole.services.status()[name].pid, signal.SIGKILL)
        _wait(self.dice.uniform(0.5, 6.0))
        self.whole.services.up(name)

    def joins(self, stage: str) -> StageProcess:
        """A worker more of the stage, ready."""
        made = self.whole.worker(stage, f"{stage}-more-{len(self.whole.workers)}")
        self.whole.until(made.ready, f"{made.name} to be ready")
        return made

    def deed(self, name: str, act: Callable[[], object], hosts: int = 2) -> None:
        """Under load, at a moment that the dice choose; and all goes on."""
        self.feed(hosts)
        self.goes_on(self.dice.randrange(5, 30))
        before, began_s = len(self.log()), time.monotonic()
        act()
        took_s, during = time.monotonic() - began_s, len(self.log()) - before
        self.feed(1)  # the deed may have taken as long as all that was left
        self._say(f"{name}: {took_s:.1f} s, {during} requests meanwhile; goes on {self.goes_on():.1f} s later")

    def deeds(self) -> dict[str, Callable[[], None]]:
        """Of each kind one, by what it is."""
        kills: dict[str, Callable[[], None]] = {
            f"kill -9 of a worker of {stage}": partial(self.kill_worker, stage) for stage in STAGES
        }
        kills["a fetcher stopped and woken"] = self.stop_fetcher
        return kills | {f"kill -9 of {name}": partial(self.kill_service, name) for name in SERVICES}

    # --- judges -------------------------------------------------------------------------------------------------------

    def expected(self) -> set[str]:
        """The URLs of the documents that there should be."""
        return {
            self.site.url(path, host)
            for host in self._hosts
            for path, status in self._statuses.items()
            if status == 200 and path not in self._noindex
        }

    def check(self, within_s: float = 300.0) -> Counter[tuple[str, str]]:
        """All came as a walk says, nobody was asked too soon. (host, path) to how often it was asked more than once."""
        expected = self.expected()
        self.whole.until(lambda: self.whole.count_documents() >= len(expected), f"{len(expected)} documents", within_s)
        self.whole.until(self._settled, "every URL's visit to be over", within_s)
        documents = self.whole.documents()
        assert documents == Counter(expected), (expected - set(documents), set(documents) - expected)
        rows = self._rows()
        given = {self.site.url(path, host): status for host in self._hosts for path, status in self._statuses.items()}
        came = {url: row.visit.status for url, row in rows.items() if row.visit is not None}
        assert came == given, set(came.items()) ^ set(given.items())
        counted = {
            url: row.visit.visits for url, row in rows.items() if row.visit is not None and row.visit.visits != 1
        }
        assert counted == {}, counted
        letters = self.whole.dead_letters()
        assert letters == [], letters[:3]
        lines = self.log()
        breaches = judge([line.as_request() for line in lines], lambda host: Expected(delay_ms=self.delay_ms))
        assert breaches == [], breaches[:5]
        asked = Counter((line.host, line.path) for line in lines)
        assert {host for host, _ in asked} == set(self._hosts)
        return asked - Counter(asked.keys())

    def _rows(self) -> dict[str, Any]:
        return self.whole.rows(re.sub("/$", "", self.site.url("/", host)) for host in self._hosts)

    def _settled(self) -> bool:
        rows = self._rows()
        over = (Status.FETCHED, Status.FAILED, Status.REDIRECT)
        return len(rows) >= len(self._hosts) * len(self._statuses) and all(
            row.visit is not None and row.status in over for row in rows.values()
        )


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)
