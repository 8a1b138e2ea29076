"""A generated web: hosts of mixed manners, drawn from a seed. It answers; it never looks at the crawler.

| path            | what comes                                                                     |
|-----------------|--------------------------------------------------------------------------------|
| `/`, `/p/N`     | a page that links to three others, to other hosts and to all that stands below |
| `/private/N`    | a page that most robots.txt forbid                                             |
| `/r/K`          | a redirect to `/r/K-1`, in the end to a page; `/r/14` is too long a chain      |
| `/loop/a`, `/b` | a redirect to the other one; `/self` to itself                                 |
| `/x/N`          | a redirect to another host                                                     |
| `/gone/N`       | 410; `/missing/N` 404                                                          |
| `/cal/Y/M`      | a trap: a calendar that goes on for ever                                       |
| `/robots/H/K`   | the robots.txt of host H, K redirects away                                     |
"""

from __future__ import annotations

from email.utils import formatdate
from random import Random
from typing import NamedTuple

from schemas.records import FetchLease, Kind
from streams.core.http1 import Headers
from streams.core.policy import HOUR_MS, MINUTE_MS, SECOND_MS
from streams.simulation.faults import Faults
from streams.simulation.loop import START_MS

AGENT = "Headrace"
HOSTS_MIN = 20
ROBOTS = (
    "rules",
    "rules",
    "rules",
    "none",
    "missing",
    "hop",
    "shared",
    "hop_far",
    "broken",
    "busy",
    "short",
    "changing",
    "late",
)
TROUBLES = ("", "", "", "", "flaky", "seconds", "date", "bare", "slow", "down", "private")


class Rules(NamedTuple):
    """A robots.txt as its author means it: no path that begins so, one request in so long a time."""

    disallow: tuple[str, ...] = ()
    crawl_delay_ms: int = 0
    max_age_ms: int | None = None

    def allows(self, path: str) -> bool:
        return not path.startswith(self.disallow) if self.disallow else True


class Reply(NamedTuple):
    """What one request comes to. `reached`: the host saw it."""

    takes_ms: int
    status: int = 200
    headers: Headers = ()
    body: bytes = b""
    failure: str = ""
    revision: int = 0  # of a page's content
    rules: Rules | None = None  # of a robots.txt that was served whole
    reached: bool = True


class Host:
    """One site."""

    def __init__(self, number: int, random: Random, *, hot: bool, end_ms: int) -> None:
        self.number = number
        scheme = random.choice(("http", "https"))
        self.key = f"{scheme}://h{number}.site{number // 3}.test"
        self.address = f"203.0.113.{1 + number // 4 if number % 2 else 100 + number}"
        self.address_later = f"203.0.113.{150 + number // 5}"
        self.moves_ms = random.randrange(START_MS, end_ms) if random.random() < 0.2 else 1 << 62
        self.pages = random.randint(100, 160) if hot else random.randint(4, 24)
        self.robots = "rules" if hot else random.choice(ROBOTS)
        self.trouble = "" if hot else random.choice(TROUBLES)
        self.crawl_delay_ms = 0 if hot else random.choice((0, 0, 0, 1, 3, 10, 45)) * SECOND_MS
        self.disallow = ("/private/",) if random.random() < 0.7 else ()
        self.trap = random.random() < 0.12
        self.sitemap = random.random() < 0.3
        self.wait_s = random.choice((0, 7, 90, 1_200, 5_400))
        self.hops = random.randint(1, 5) if self.robots == "hop" else 7
        self.changes_ms = random.randint(2, 9) * HOUR_MS
        self.turns_at_ms = random.randrange(START_MS, end_ms)
        self.speed_ms = random.choice((20, 80, 400))
        self.spells = self._spells(random, end_ms)
        if self.robots in ("broken", "busy"):  # from the first day on, since robots.txt is asked but once a day
            self.spells.append((START_MS, START_MS + random.choice((2, 30, 300)) * MINUTE_MS))

    @staticmethod
    def _spells(random: Random, end_ms: int) -> list[tuple[int, int]]:
        """When the host is in trouble: one spell or some, minutes to half a day long, never to the end."""
        spells = []
        for _ in range(random.randint(1, 3)):
            start_ms = random.randrange(START_MS, end_ms)
            spells.append((start_ms, min(end_ms, start_ms + random.choice((5, 40, 300)) * MINUTE_MS)))
        return spells

    def in_trouble(self, now_ms: int) -> bool:
        return any(start_ms <= now_ms < end_ms for start_ms, end_ms in self.spells)

    def rules(self, now_ms: int) -> Rules:
        disallow = self.disallow
        if self.robots == "changing" and now_ms >= self.turns_at_ms:
            disallow = (*disallow, "/p/1", "/r/")
        return Rules(disallow, self.crawl_delay_ms, 10 * MINUTE_MS if self.robots == "short" else None)


class Web:
    """All hosts, by key and by number."""

    def __init__(self, random: Random, answers: Random, faults: Faults, end_ms: int) -> None:
        """`random` makes the web, `answers` is for what varies from request to request."""
        self._random, self._faults = answers, faults
        hosts = [Host(n, random, hot=n == 0, end_ms=end_ms) for n in range(HOSTS_MIN + random.randint(0, 4))]
        self.hosts = {host.key: host for host in hosts}
        self.by_number = hosts

    def seeds(self) -> list[str]:
        return [host.key + "/" for host in self.by_number[::2]]

    def address(self, host_key: str, now_ms: int) -> str:
        """Where the host is; some move."""
        host = self.hosts[host_key]
        return host.address if now_ms < host.moves_ms else host.address_later

    # --- answers ---------------------------------------------------------------------------------------------------

    def answer(self, lease: FetchLease, now_ms: int) -> Reply:
        host = self.hosts[lease.host_key]
        path = lease.url[len(host.key) :]
        random = self._random
        takes_ms = host.speed_ms + random.randrange(host.speed_ms)
        if host.in_trouble(now_ms):
            reply = self._troubled(host, takes_ms, now_ms)
            if reply is not None:
                return reply
            if host.trouble == "slow" and random.random() < 0.5:
                self._faults.count("slow_answer")
                takes_ms = random.choice((5, 50, 119, 400)) * SECOND_MS
        if lease.kind is Kind.ROBOTS:
            return self._robots(host, path, takes_ms, now_ms)
        return self._page(host, path, lease.etag, takes_ms, now_ms)

    def _troubled(self, host: Host, takes_ms: int, now_ms: int) -> Reply | None:
        """What trouble makes of a request; None: it is answered all the same."""
        random, count, trouble = self._random, self._faults.count, host.trouble
        if trouble == "private":
            count("dns_private")
            return Reply(5, failure="private_address", reached=False)
        if trouble == "down":
            count("host_down")
            return Reply(takes_ms, failure="connect_refused", reached=False)
        if trouble in ("", "slow") or random.random() < 0.5:
            return None
        if trouble == "flaky":
            count("failed_answer")
            failure = random.choice(("connection_reset", "read_timeout", "incomplete_body", ""))
            return Reply(takes_ms, status=500 if not failure else 200, failure=failure)
        status = random.choice((429, 503))
        if trouble == "bare":
            count("busy_bare")
            return Reply(takes_ms, status=status)
        if trouble == "seconds":
            count("retry_after_seconds")
            value = str(host.wait_s)
        else:
            count("retry_after_date")
            value = formatdate((now_ms + takes_ms) // 1_000 + host.wait_s, usegmt=True)
        return Reply(takes_ms, status=status, headers=((b"Retry-After", value.encode()),))

    def _robots(self, host: Host, path: str, takes_ms: int, now_ms: int) -> Reply:
        count, of, hops = self._faults.count, host, 0
        if path != "/robots.txt":
            _, _, number, left = path.split("/")
            of, hops = self.by_number[int(number)], int(left)
        elif host.robots == "shared":
            of, hops = self.by_number[0], 1
        elif host.robots in ("hop", "hop_far"):
            hops = host.hops
        if hops:
            count("robots_hop")
            there = of if host.robots == "shared" else self.by_number[(host.number + 1) % len(self.by_number)]
            target = f"{there.key}/robots/{of.number}/{hops - 1}"
            return Reply(takes_ms, 302, ((b"Location", target.encode()),))
        if of.robots == "missing":
            return Reply(takes_ms, 404, rules=Rules())
        if of.robots in ("broken", "busy") and of.in_trouble(now_ms):
            count(f"robots_{of.robots}")
            return Reply(takes_ms, 500 if of.robots == "broken" else 429)
        if of.robots == "none":
            return Reply(takes_ms, body=b"\n", rules=Rules())
        rules = of.rules(now_ms)
        headers: list[tuple[bytes, bytes]] = [(b"Content-Type", b"text/plain")]
        if rules.max_age_ms is not None:
            count("robots_expires_soon")
            headers.append((b"Cache-Control", b"max-age=%d" % (rules.max_age_ms // 1_000)))
        lines = ["User-agent: *", *(f"Disallow: {path}" for path in rules.disallow)]
        if rules.crawl_delay_ms:
            lines.append(f"Crawl-delay: {rules.crawl_delay_ms // 1_000}")
        if of.sitemap:
            lines.append(f"Sitemap: {of.key}/sitemap.xml")
        if of.robots == "late":
            takes_ms += 20 * SECOND_MS
        return Reply(takes_ms, headers=tuple(headers), body="\n".join(lines).encode(), rules=rules)

    def _page(self, host: Host, path: str, etag: str | None, takes_ms: int, now_ms: int) -> Reply:
        words = path.strip("/").split("/")
        kind = words[0]
        if kind == "gone":
            return Reply(takes_ms, 410)
        if kind == "missing":
            return Reply(takes_ms, 404)
        target = self._redirect(host, kind, words)
        if target is not None:
            self._faults.count("redirect_loop" if kind in ("loop", "self") else "redirect")
            return Reply(takes_ms, 301, ((b"Location", target.encode()),))
        if kind == "cal":
            self._faults.count("trap_page")
        revision = self.revision(host, path, now_ms)
        tag = f'"{revision}"'
        if etag == tag:
            return Reply(takes_ms, 304, ((b"ETag", tag.encode()),))
        headers = ((b"Content-Type", b"text/html"), (b"ETag", tag.encode()))
        return Reply(takes_ms, headers=headers, revision=revision)

    def _redirect(self, host: Host, kind: str, words: list[str]) -> str | None:
        if kind == "r":
            left = int(words[1])
            return f"/r/{left - 1}" if left else "/p/2"
        if kind == "loop":
            return "/loop/b" if words[1] == "a" else "/loop/a"
        if kind == "self":
            return "/self"
        if kind == "x":
            return self._other(host, int(words[1])).key + "/p/1"
        return None

    def revision(self, host: Host, path: str, now_ms: int) -> int:
        """A quarter of the pages change now and then."""
        return 1 + (now_ms - START_MS) // host.changes_ms if len(path) % 4 == 0 else 1

    # --- contents --------------------------------------------------------------------------------------------------

    def links(self, url: str) -> list[str]:
        """What a page names, in order."""
        key = url[: url.index("/", 8)]
        host, path = self.hosts[key], url[len(key) :]
        words = path.strip("/").split("/")
        if words[0] == "sitemap.xml":
            return [f"{key}/p/{n}" for n in range(host.pages)]
        if words[0] == "cal":
            year, month = int(words[1]), int(words[2])
            return [f"{key}/cal/{year + month // 12}/{month % 12 + 1}", f"{key}/cal/{year + 1}/{month}"]
        number = int(words[1]) if len(words) == 2 and words[0] == "p" else 0
        links = [f"{key}/", *(f"{key}/p/{n}" for n in range(3 * number + 1, 3 * number + 4) if n < host.pages)]
        links.append(self._other(host, number).key + "/")
        if path == "/":
            links += [key + one for one in ("/r/3", "/r/14", "/loop/a", "/self", "/gone/1", "/missing/1", "/private/1")]
            links += [f"{key}/x/{host.number % 7}", f"{key}/private/2"]
            if host.trap:
                links.append(f"{key}/cal/2026/1")
        return links

    def _other(self, host: Host, number: int) -> Host:
        return self.by_number[(host.number + 1 + number * 5) % len(self.by_number)]
