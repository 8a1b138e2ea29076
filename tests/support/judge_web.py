"""The web of the outside judge: 50 hosts with manners of their own, and what each of them may expect.

Host `i` is of kind `i % 10`; the first ten share the address 127.0.0.2. Answers are functions of host, path, time since
the start and how often the path was asked before.
"""

from __future__ import annotations

import email.utils
import math
from collections import Counter
from typing import NamedTuple

from tests.support.access_log_oracle import ROBOTS_LIFETIME_MS
from tests.support.judge import HostPolicy, Policies

HOSTS = 50
SHARED = 10
KINDS = (
    *("no_robots", "empty_robots", "disallow", "crawl_delay", "robots_5xx", "robots_elsewhere", "expiring"),
    *("busy", "limited", "slow"),
)
PAGES = 1_000
BROKEN_MS = 8_000  # for so long a host of kind robots_5xx answers 503 to robots.txt
CRAWL_DELAY_S = 2
MAX_AGE_S = 60
EXPIRING_MS = 300_000  # what a crawler may make of it: no answer is asked for again within five minutes
RETRY_AFTER_S = 3
_PRIVATE = ("/private/",)
_RULES: dict[str, tuple[str, ...]] = {"open": (), "private": _PRIVATE, "closed": (*_PRIVATE, "/p/1")}


class Answer(NamedTuple):
    """`retry_after_ms`: the instant that a Retry-After names, 0 for none; `rules` names those of a robots.txt."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    delay_ms: int = 0
    retry_after_ms: float = 0
    rules: str = ""


def host(index: int) -> str:
    return f"h{index:02d}.test"


def kind(index: int) -> str:
    return KINDS[index % len(KINDS)]


def address(index: int) -> str:
    return "127.0.0.2" if index < SHARED else f"127.0.0.{3 + index % 8}"


def robots_path(index: int) -> str:
    return f"/robots-of-{index}.txt"


def policies(delay_ms: float) -> Policies:
    """What the hosts may expect of a crawler whose own delay is `delay_ms`."""
    found = {}
    for index in range(HOSTS):
        name = kind(index)
        via: tuple[tuple[str, str], ...] = ()
        if name == "robots_elsewhere":
            via = tuple((host(at), robots_path(index)) for at in _hops(index))
        found[host(index)] = HostPolicy(
            address=address(index),
            delay_ms=max(delay_ms, CRAWL_DELAY_S * 1_000 if name == "crawl_delay" else 0),
            rules=_RULES,
            robots_lifetime_ms=EXPIRING_MS if name == "expiring" else ROBOTS_LIFETIME_MS,
            robots_via=via,
        )
    return Policies(found)


def _hops(index: int) -> tuple[int, ...]:
    """The hosts that a robots.txt is redirected over; the last one answers. Every second host has two hops."""
    return (index - 5, index - 4) if index // len(KINDS) % 2 else (index - 4,)


class Web:
    """Answers for all hosts; counts how often each path was asked."""

    def __init__(self, port: int, started_ms: float) -> None:
        self._port = port
        self._started_ms = started_ms
        self._asked: Counter[tuple[int, str]] = Counter()

    def url(self, index: int, path: str) -> str:
        return f"http://{host(index)}:{self._port}{path}"

    def answer(self, name: str, path: str, now_ms: float) -> Answer:
        if not (name.startswith("h") and name.endswith(".test") and name[1:3].isdigit()):
            return Answer(421)
        index = int(name[1:3])
        self._asked[index, path] += 1
        if path == "/robots.txt":
            return self._robots(index, now_ms)
        if path.startswith("/robots-of-"):
            return self._robots_of(index, int(path[11:-4]))
        return self._page(index, path, now_ms)

    def _robots(self, index: int, now_ms: float) -> Answer:
        name = kind(index)
        if name in ("no_robots", "slow"):
            return Answer(404, body=b"none\n")
        if name == "empty_robots":
            return Answer(200, (("Content-Type", "text/plain"),), rules="open")
        if name == "robots_elsewhere":
            return Answer(301, (("Location", self.url(_hops(index)[0], robots_path(index))),))
        if name == "robots_5xx" and now_ms - self._started_ms < BROKEN_MS:
            if index // len(KINDS) % 2:
                return self._later(503, now_ms, as_date=False)
            return Answer(500)
        if name == "expiring":
            rules = "private" if self._asked[index, "/robots.txt"] == 1 else "closed"
            return _rules(rules, ("Cache-Control", f"max-age={MAX_AGE_S}"))
        return _rules("private", crawl_delay=name == "crawl_delay")

    def _robots_of(self, index: int, asker: int) -> Answer:
        hops = _hops(asker)
        if index != hops[-1]:
            return Answer(302, (("Location", self.url(hops[-1], robots_path(asker))),))
        return _rules("private")

    def _page(self, index: int, path: str, now_ms: float) -> Answer:
        section, _, number = path[1:].partition("/")
        name = kind(index)
        if path == "/":
            return self._links(index, 0)
        if not number.isdigit() or int(number) >= PAGES:
            return Answer(404, body=b"none\n")
        at = int(number)
        first = self._asked[index, path] == 1
        match section:
            case "go":
                return Answer(302, (("Location", self.url((index + 7) % HOSTS, f"/p/{at}")),))
            case "busy" if first:
                return self._later(503, now_ms, as_date=False)
            case "limited" if first:
                return self._later(429, now_ms, as_date=True)
            case "p" | "private" | "busy" | "limited":
                return self._links(index, at, delay_ms=300 if name == "slow" else 0)
        return Answer(404, body=b"none\n")

    def _links(self, index: int, at: int, delay_ms: int = 0) -> Answer:
        """A page: two further ones of a tree, one elsewhere, and one of the kinds that ask for manners."""
        paths = [f"/p/{at * 2 + 1}", f"/p/{at * 2 + 2}", f"/private/{at}"]
        name = kind(index)
        if at % 4 == 0:
            paths.append(f"/busy/{at}" if name == "busy" else f"/limited/{at}" if name == "limited" else f"/go/{at}")
        links = [f'<a href="{path}">{path}</a>' for path in paths]
        links.append(f'<a href="{self.url((index + 13) % HOSTS, f"/p/{at}")}">elsewhere</a>')
        body = f"<title>{host(index)} {at}</title>" + "\n".join(links)
        return Answer(200, (("Content-Type", "text/html"),), body.encode(), delay_ms)

    def _later(self, status: int, now_ms: float, *, as_date: bool) -> Answer:
        """With Retry-After in one of its forms; a date has whole seconds."""
        if not as_date:
            return Answer(status, (("Retry-After", str(RETRY_AFTER_S)),), retry_after_ms=now_ms + RETRY_AFTER_S * 1e3)
        at_s = math.ceil(now_ms / 1e3) + RETRY_AFTER_S
        date = email.utils.formatdate(at_s, usegmt=True)
        return Answer(status, (("Retry-After", date),), retry_after_ms=at_s * 1e3)


def _rules(name: str, *headers: tuple[str, str], crawl_delay: bool = False) -> Answer:
    lines = ["User-agent: *", *(f"Disallow: {prefix}" for prefix in _RULES[name])]
    if crawl_delay:
        lines.append(f"Crawl-delay: {CRAWL_DELAY_S}")
    body = "\n".join((*lines, "")).encode()
    return Answer(200, (("Content-Type", "text/plain"), *headers), body, rules=name)
