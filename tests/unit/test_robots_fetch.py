"""What answers to /robots.txt mean, and how long a copy serves (RFC 9309 sections 2.3.1 and 2.4)."""

from __future__ import annotations

import msgspec
import pytest

from schemas.records import RobotsAnswer, RobotsDecision
from streams.core import policy
from streams.core.robots_fetch import RobotsState, after_answer, changes_at_ms, decide, digest, usable
from streams.core.rules.robots import RobotsRules

URL = "http://example.org/robots.txt"
BODY = b"User-agent: *\nDisallow: /p\nCrawl-delay: 3\nSitemap: http://example.org/s\n"
NOW = 1_000_000_000_000
RULES = RobotsAnswer(RobotsDecision.PARSE_RULES, b"rules", crawl_delay_ms=3_000)
ALLOW = RobotsAnswer(RobotsDecision.ALLOW_ALL)
DISALLOW = RobotsAnswer(RobotsDecision.DISALLOW_ALL)


def answer(
    status: int, failure: str = "", body: bytes = b"", hops: int = 0, **headers: str
) -> tuple[RobotsAnswer, str | None]:
    lines = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())
    return decide(status, failure, lines, body, request_url=URL, hops_so_far=hops, product_token="headrace")


@pytest.mark.parametrize(
    ("status", "failure", "decision"),
    [
        *((status, "", RobotsDecision.ALLOW_ALL) for status in (400, 401, 403, 404, 408, 410, 418, 451, 499)),
        *(
            (status, "", RobotsDecision.DISALLOW_ALL)
            for status in (100, 300, 304, 305, 429, 500, 503, 511, 599, 600, 999)
        ),
        (0, "dns_servfail", RobotsDecision.DISALLOW_ALL),
        (0, "", RobotsDecision.DISALLOW_ALL),
        (200, "incomplete_body", RobotsDecision.DISALLOW_ALL),
        (503, "incomplete_body", RobotsDecision.DISALLOW_ALL),
        (404, "bad_encoding", RobotsDecision.ALLOW_ALL),
        (204, "", RobotsDecision.ALLOW_ALL),
        (206, "", RobotsDecision.DISALLOW_ALL),
    ],
)
def test_a_status_means_what_the_rfc_says(status: int, failure: str, decision: RobotsDecision) -> None:
    """Unavailable is free, unreachable is forbidden (2.3.1.3, 2.3.1.4)."""
    assert answer(status, failure) == (RobotsAnswer(decision), None)


def test_a_body_with_rules_travels_compact() -> None:
    """The answer carries all that the owner needs: rules, delay and sitemaps."""
    got, target = answer(200, body=BODY)
    assert (got.decision, got.crawl_delay_ms, target) == (RobotsDecision.PARSE_RULES, 3_000, None)
    assert got.sitemaps == ("http://example.org/s",)
    assert not RobotsRules.decode(got.rules).allows("http://example.org/p")
    assert answer(206, body=BODY, content_range=f"bytes 0-{len(BODY) - 1}/{len(BODY)}")[0] == got
    assert answer(206, body=BODY, content_range=f"bytes 0-9/{len(BODY)}")[0] == DISALLOW
    assert answer(200, body=b"<html>")[0] == ALLOW
    assert answer(200, body=b"Sitemap: http://e.org/")[0].sitemaps == ("http://e.org/",)


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/r", "http://example.org/r"),
        ("https://WWW.example.org/robots.txt#x", "https://www.example.org/robots.txt"),
        ("//e.net", "http://e.net/"),
        ("file:///etc/passwd", None),
        ("http://[", None),
        ("", None),
        ("/robots.txt", None),  # itself
    ],
)
def test_a_redirect_is_a_hop_to_a_normal_url_or_nothing(location: str, target: str | None) -> None:
    """No scheme but http and https is ever asked, and no circle is run to its end (2.3.1.2)."""
    got, followed = answer(301, location=location)
    assert followed == target
    assert got.decision is (RobotsDecision.HOP if target else RobotsDecision.DISALLOW_ALL)


def test_an_answer_that_travelled_is_as_old_as_it_is() -> None:
    """Protects a site's word (RFC 9309 2.4): a copy from another host's owner serves no longer than 24 h in all."""
    came = RobotsAnswer(RobotsDecision.ALLOW_ALL, received_ms=1_000)
    state = after_answer(RobotsState(), came, 700_000)
    assert (state.fetched_ms, state.expires_ms) == (1_000, 1_000 + policy.ROBOTS_TTL_MS)
    ahead = msgspec.structs.replace(came, received_ms=900_000)  # by a clock that is ahead of ours
    assert after_answer(RobotsState(), ahead, 700_000).fetched_ms == 700_000


def test_five_hops_are_followed_and_no_sixth() -> None:
    """RFC 9309 2.3.1.2 asks for at least five; what lies beyond counts as unreachable, the cautious reading."""
    assert answer(302, hops=policy.ROBOTS_HOPS_MAX - 1, location="/r")[1] is not None
    assert answer(302, hops=policy.ROBOTS_HOPS_MAX, location="/r") == (DISALLOW, None)


@pytest.mark.parametrize(
    ("control", "serves_ms"),
    [
        ("max-age=3600", policy.HOUR_MS),
        ("public, MAX-AGE=60", policy.ROBOTS_TTL_MS_MIN),
        ("max-age=99999999999", policy.ROBOTS_TTL_MS),
        ("s-maxage=60", policy.ROBOTS_TTL_MS),
        ("no-cache", policy.ROBOTS_TTL_MS_MIN),
        ("max-age=x", policy.ROBOTS_TTL_MS),
    ],
)
def test_cache_control_shortens_and_never_lengthens(control: str, serves_ms: int) -> None:
    """A copy serves 24 h at most (2.4), and not so shortly that each page needs a new one."""
    for status, body in ((200, BODY), (404, b"")):
        got, _ = answer(status, body=body, cache_control=control)
        assert after_answer(RobotsState(), got, NOW).expires_ms - NOW == serves_ms


def test_a_good_answer_serves_until_it_expires() -> None:
    """The row of "copy" in the table: served for 24 h, then asked for again."""
    state = after_answer(RobotsState(), RULES, NOW)
    assert (state.digest, state.crawl_delay_ms) == (digest(b"rules"), 3_000)
    assert usable(state, NOW) == "rules"
    assert usable(state, NOW + policy.DAY_MS - 1) == "rules"
    assert usable(state, NOW + policy.DAY_MS) == "ask"
    assert changes_at_ms(state, NOW) == NOW + policy.DAY_MS
    free = after_answer(state, ALLOW, NOW + 1)
    assert (usable(free, NOW + 1), free.digest, free.crawl_delay_ms) == ("allow_all", b"", None)


def test_an_unreachable_host_is_asked_on_the_schedule_and_for_nothing_else() -> None:
    """30 s, 2, 5, 15, 15 minutes, then hourly; in between everything is forbidden."""
    state, now = RobotsState(), NOW
    assert usable(state, now) == "ask"
    waits = []
    for _ in range(8):
        state = after_answer(state, DISALLOW, now)
        assert usable(state, now) == "disallow_all"
        assert usable(state, state.next_try_ms - 1) == "disallow_all"
        assert changes_at_ms(state, now) == state.next_try_ms
        waits.append(state.next_try_ms - now)
        now = state.next_try_ms
        assert usable(state, now) == "ask"
    assert waits == [*policy.RETRY_DELAYS_MS, *[policy.ROBOTS_RETRY_MS] * 3]
    assert after_answer(state, RULES, now).failures == 0


def test_retry_after_is_waited_for() -> None:
    """The next try is no sooner than the site asked, within the policy's maximum, and no sooner than the schedule."""
    assert after_answer(RobotsState(), DISALLOW, NOW, 3_600_000).next_try_ms == NOW + 3_600_000
    assert after_answer(RobotsState(), DISALLOW, NOW, 10**12).next_try_ms == NOW + policy.RETRY_AFTER_MS_MAX
    assert after_answer(RobotsState(), DISALLOW, NOW, 1).next_try_ms == NOW + policy.RETRY_DELAYS_MS[0]


def test_an_older_copy_serves_an_unreachable_host_for_24_hours_and_no_longer() -> None:
    """RFC 9309 2.3.1.4 and 2.4: unreachable with a copy past 24 h is forbidden."""
    good = after_answer(RobotsState(), RobotsAnswer(RobotsDecision.PARSE_RULES, b"r", max_age_ms=policy.HOUR_MS), NOW)
    at = NOW + policy.HOUR_MS
    assert usable(good, at) == "ask"
    state = after_answer(good, DISALLOW, at)
    assert (usable(state, at), usable(state, state.next_try_ms)) == ("rules", "ask")
    late = NOW + policy.DAY_MS - 1
    state = after_answer(state, DISALLOW, late)
    assert (usable(state, late), usable(state, late + 1)) == ("rules", "disallow_all")
    assert changes_at_ms(state, late) == late + 1


def test_an_unchanged_copy_serves_anew() -> None:
    """304 renews what is held, and says nothing when nothing is held."""
    state = after_answer(after_answer(RobotsState(), RULES, NOW), DISALLOW, NOW + 1)
    later = NOW + policy.DAY_MS + 5
    renewed = after_answer(state, DISALLOW, later, unchanged=True)
    assert (usable(renewed, later), renewed.failures, renewed.digest) == ("rules", 0, digest(b"rules"))
    assert usable(after_answer(RobotsState(), DISALLOW, NOW, unchanged=True), NOW) == "disallow_all"


def test_a_hop_is_no_answer_yet() -> None:
    """The state waits for the end of the chain."""
    state = after_answer(RobotsState(), RULES, NOW)
    assert after_answer(state, RobotsAnswer(RobotsDecision.HOP), NOW + 1) is state
