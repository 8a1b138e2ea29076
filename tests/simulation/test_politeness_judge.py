"""The politeness judge by itself: what it must not blame, and that it blames the same thing without its reason."""

from __future__ import annotations

import pytest

from schemas.records import FetchLease, Kind
from streams.core.policy import CrawlPolicy, Politeness
from streams.core.rules.urls import url_id
from streams.simulation.loop import START_MS, Violation
from streams.simulation.politeness_judge import PolitenessJudge
from streams.simulation.web import Reply, Rules

SHARED = "http://shared.test/robots/0/0"
FIRST, SECOND = "http://first.test", "http://second.test"
MOVED = Reply(20, 302, ((b"Location", SHARED.encode()),))
RULES = Reply(20, rules=Rules())
SLOW = Reply(20, rules=Rules(disallow=("/p/",), crawl_delay_ms=300_000))


class Watched:
    """A judge, and leases that are granted, asked, answered and taken in one after the other, a minute each."""

    def __init__(self) -> None:
        self.judge = PolitenessJudge(CrawlPolicy(politeness=Politeness(delay_ms=1_000)))
        self.now_ms = START_MS
        self._leases = 0

    def fetch(
        self, url: str, reply: Reply | None, *, kind: Kind = Kind.ROBOTS, robots_for: str = "", late_ms: int = 0
    ) -> None:
        """`reply` None: the lease came to nothing, and that is what the owner heard. `late_ms`: when it heard."""
        self._leases += 1
        self.now_ms += 60_000
        lease = FetchLease(
            lease_id=self._leases.to_bytes(16, "big"),
            host_key=url[: url.index("/", 8)],
            url_id=url_id(url),
            url=url,
            url_version=1,
            kind=kind,
            attempt=0,
            policy_version=0,
            owner_epoch=1,
            not_before_ms=self.now_ms,
            start_by_ms=self.now_ms + 60_000,
            duration_ms_max=60_000,
            robots_for=robots_for,
        )
        self.judge.granted(lease, self.now_ms, self.now_ms)
        self.judge.started(lease, "203.0.113.1", self.now_ms)
        self.judge.ended(lease, self.now_ms + 20, reply)
        self.now_ms += late_ms
        self.judge.taken(lease.lease_id, self.now_ms + 30)


def test_who_waits_for_a_shared_robots_txt_goes_on_waiting_when_a_lease_of_it_comes_to_nothing() -> None:
    """Two hosts were sent to one robots.txt; the first lease of it is cut, the second one's rules are both hosts'."""
    watched = Watched()
    watched.fetch(FIRST + "/robots.txt", MOVED, robots_for=FIRST)
    watched.fetch(SECOND + "/robots.txt", MOVED, robots_for=SECOND)
    watched.fetch(SHARED, None, robots_for=FIRST)
    with pytest.raises(Violation, match="robots first"):
        watched.fetch(SECOND + "/", RULES, kind=Kind.PAGE)
    watched.fetch(SHARED, RULES, robots_for=FIRST)
    watched.fetch(FIRST + "/", RULES, kind=Kind.PAGE)
    watched.fetch(SECOND + "/p/1", RULES, kind=Kind.PAGE)


def test_an_answer_that_came_too_late_obliges_nobody() -> None:
    """The owner was away for so long that the lease had expired: it went by the copy before, or by the new one."""
    watched = Watched()
    watched.fetch(FIRST + "/robots.txt", RULES)
    watched.fetch(FIRST + "/robots.txt", SLOW, late_ms=200_000)
    watched.fetch(FIRST + "/p/1", RULES, kind=Kind.PAGE)
    watched.fetch(FIRST + "/p/2", RULES, kind=Kind.PAGE)
    watched.now_ms += 300_000
    watched.fetch(FIRST + "/robots.txt", SLOW, late_ms=100_000)
    with pytest.raises(Violation, match="delay: "):
        watched.fetch(FIRST + "/p/3", RULES, kind=Kind.PAGE)


def test_an_answer_in_time_is_obeyed() -> None:
    """What a host forbids is asked no more once its word was taken in; a late answer before it frees from nothing."""
    watched = Watched()
    watched.fetch(FIRST + "/robots.txt", RULES, late_ms=200_000)
    watched.fetch(FIRST + "/robots.txt", Reply(20, rules=Rules(disallow=("/p/",))))
    watched.fetch(FIRST + "/", RULES, kind=Kind.PAGE)
    with pytest.raises(Violation, match="robots obeyed"):
        watched.fetch(FIRST + "/p/1", RULES, kind=Kind.PAGE)
