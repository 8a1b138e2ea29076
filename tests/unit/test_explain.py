"""Why a host or a URL is, or is not, being fetched: the sentence that decides comes first."""

from __future__ import annotations

import msgspec
import pytest

from schemas.records import Kind, Outcome, RobotsDecision
from streams.core import policy as bounds
from streams.core.explain import explain_host, explain_unknown, explain_url, host_waits_for
from streams.core.hosts import HostState, InFlight, Override
from streams.core.policy import CrawlPolicy, Politeness
from streams.core.robots_fetch import RobotsState
from streams.core.rules import robots
from streams.tally import Tally
from tests.support.core_world import NOW_MS, World, answer, answer_robots, complete

POLICY = CrawlPolicy(politeness=Politeness(budget_per_day=10))
GOOD = RobotsState(copy=RobotsDecision.ALLOW_ALL, fetched_ms=NOW_MS, expires_ms=NOW_MS + bounds.DAY_MS)
DOWN = RobotsState(failures=1, next_try_ms=NOW_MS + 30_000)
LEASE = InFlight(bytes(16), 1, 0, Kind.PAGE, NOW_MS, NOW_MS + 1)


def host(**more: object) -> HostState:
    return HostState(host_key="http://a.test", **{"robots": GOOD, "queued": [1, 0, 0], **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "words", "until_ms"),
    [
        (host(override=Override(deleted=True)), "deleted", None),
        (host(override=Override(paused=True, until_ms=7)), "paused", 7),
        (host(backoff_until_ms=NOW_MS + 5, last_error="429"), "backs off after 429", NOW_MS + 5),
        (host(robots=DOWN), "robots.txt cannot be reached", NOW_MS + 30_000),
        (host(robots=None, robots_wait_ms=NOW_MS + 9), "another host's answer", NOW_MS + 9),
        (
            host(budget_day=NOW_MS // bounds.DAY_MS, budget_used=10),
            "budget",
            (NOW_MS // bounds.DAY_MS + 1) * bounds.DAY_MS,
        ),
        (host(in_flight={b"l": LEASE}), "under way", None),
        (host(next_allowed_ms=NOW_MS + 3), "delay is not over", NOW_MS + 3),
        (host(queued=[0, 1, 0], ready_ms=NOW_MS + 8), "tried again", NOW_MS + 8),
        (host(), "ready", None),
        (host(queued=[0, 0, 4], ready_ms=NOW_MS + 2), "nothing is due", NOW_MS + 2),
    ],
)
def test_the_reason_that_decides_is_told(state: HostState, words: str, until_ms: int | None) -> None:
    """Protects people from looking in the wrong place: one reason, and until when it holds."""
    reason, until = host_waits_for(state, NOW_MS, POLICY)
    assert words in reason
    assert until == until_ms


def test_a_host_is_told_with_what_it_rests_on() -> None:
    """Protects the facts: queue, delay and whose it is, budget, robots, pace and traps."""
    state = host(
        robots=RobotsState(
            copy=RobotsDecision.PARSE_RULES, fetched_ms=NOW_MS, expires_ms=NOW_MS + 9, crawl_delay_ms=7_000
        ),
        allotment=128,
        trouble=2,
        last_error="503",
        paused_patterns=1,
        trap_refused=44,
    )
    told = dict(explain_host(state, NOW_MS, POLICY))
    assert "14,000 ms" in told["delay"]
    assert "Crawl-delay 7,000 ms" in told["delay"]
    assert "1 new" in told["queue"]
    assert "10 requests left" in told["budget"]
    assert "obeyed" in told["robots"]
    assert "503" in told["trouble"]
    assert "50 %" in told["pace"]
    assert told["traps"] == "paused: 1 URL pattern; not taken: 44 URLs of such patterns"


def test_a_url_is_told_in_every_state() -> None:
    """Protects `explain` on URLs: waiting, out, stored, failed, forbidden, unknown."""
    policy = CrawlPolicy(politeness=Politeness(respect_robots=False))
    world = World(policy)
    url = "http://a.test/x"

    def told(*, in_flight: bool = False, rules: bytes = b"") -> dict[str, str]:
        row, state = world.row(url), world.host("http://a.test")
        assert row is not None
        parsed = robots.parse(rules, "Headrace", base_url="http://a.test/robots.txt") if rules else None
        if rules:
            state.robots = RobotsState(
                copy=RobotsDecision.PARSE_RULES, fetched_ms=world.now_ms, expires_ms=world.now_ms + 9
            )
        return dict(explain_url(row, in_flight, state, parsed, world.now_ms, policy))

    world.seed(url)
    assert "it has not been fetched yet; queued for its first visit; its host: ready to be asked" in told()["now"]
    assert "robots.txt forbids it, so it will not be asked" in told(rules=b"User-agent: *\nDisallow: /x\n")["now"]
    world.host("http://a.test").robots = None
    (lease,) = world.turn().leases
    assert "a lease is out" in told(in_flight=True)["now"]
    world.turn(answer(lease, world.now_ms, Outcome.RETRY, 500, error="http_500"), leases_max=0)
    assert "; tried again in 30.0 s" in told()["now"]
    assert told()["found"] == "as a seed"
    assert "1 in a row" in told()["failures"]
    world.now_ms += 31_000
    complete(world, world.turn().leases)
    assert "its page is stored; looked at again in " in told()["now"]
    assert "status 200" in told()["last visit"]
    assert "Disallow" in told(rules=b"User-agent: *\nDisallow: /x\n")["robots"]


def test_an_unknown_url_is_told_what_would_become_of_it() -> None:
    """Protects people from waiting for a URL that would be admitted, and then never asked for by robots.txt."""
    url = "http://a.test/x"
    rules = robots.parse(b"User-agent: *\nDisallow: /x\n", "Headrace", base_url="http://a.test/robots.txt")
    state = host(
        robots=RobotsState(copy=RobotsDecision.PARSE_RULES, fetched_ms=NOW_MS, expires_ms=NOW_MS + bounds.DAY_MS)
    )
    assert "would be admitted" in explain_unknown(url, None, None, None, NOW_MS)[0][1]
    assert "out_of_scope" in explain_unknown(url, "out_of_scope", state, rules, NOW_MS)[0][1]
    told = dict(explain_unknown(url, None, state, rules, NOW_MS))
    assert told["robots"] == "forbidden by Disallow: /x (line 2)"
    assert "robots" not in dict(explain_unknown(url, None, host(), None, NOW_MS))
    assert "within 1 link of a seed" in explain_unknown(url, None, None, None, NOW_MS, depth_max=1)[0][1]
    assert "an --exclude pattern is found in it" in explain_unknown(url, "excluded", None, None, NOW_MS)[0][1]


def test_a_host_that_is_left_names_its_trouble_once() -> None:
    """Protects the closing report from "backs off after 503 (503)"."""
    world = World(CrawlPolicy(politeness=Politeness(respect_robots=False)))
    world.seed("http://a.test/x", "http://a.test/y")
    (lease,) = world.turn().leases
    world.turn(answer(lease, world.now_ms, Outcome.RETRY, 503, error="http_503"), leases_max=0)
    (left,), number = Tally(world.now_ms, None).hosts_left(world.owner, world.now_ms)
    assert (number, left.queued) == (1, 2)
    assert left.reason.count("503") == 1


def test_a_refused_address_is_told_with_what_would_allow_it() -> None:
    """Protects the way out: `private_address` alone does not say which option was missing."""
    world = World(CrawlPolicy(politeness=Politeness(respect_robots=False)))
    url = "http://a.test/x"
    world.seed(url)
    (lease,) = world.turn().leases
    world.turn(answer(lease, world.now_ms, Outcome.REFUSED, 0, error="private_address"), leases_max=0)
    row = world.row(url)
    assert row is not None
    told = dict(explain_url(row, False, world.host("http://a.test"), None, world.now_ms, world.policy))
    assert "no answer, private_address" in told["last visit"]
    assert "--allow-address" in told["last visit"]


def test_the_cause_of_a_retry_is_told() -> None:
    """Protects `explain` on a closed socket: what went wrong, not only how often."""
    policy = CrawlPolicy(politeness=Politeness(respect_robots=False))
    world = World(policy)
    world.seed("http://a.test/x")
    (lease,) = world.turn().leases
    world.turn(answer(lease, world.now_ms, Outcome.RETRY, 0, error="connection_reset"), leases_max=0)
    row = world.row("http://a.test/x")
    assert row is not None
    told = dict(explain_url(row, False, world.host("http://a.test"), None, world.now_ms, policy))
    assert told["failures"] == "1 in a row, the last: connection_reset; the next try is number 2"


def test_a_backoff_says_what_came_and_for_what() -> None:
    """Protects readers from our own codes: a status by its number, and whether it was robots.txt's."""
    world = World(CrawlPolicy())
    world.seed("http://a.test/x")
    (lease,) = world.turn().leases
    busy = msgspec.structs.replace(answer_robots(lease, world.now_ms, status=503), error="unavailable")
    world.turn(busy, leases_max=0)
    reason, _ = host_waits_for(world.host("http://a.test"), world.now_ms, POLICY)
    assert reason == "backs off after 503 for robots.txt"
