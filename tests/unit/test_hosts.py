"""The host's transition table, row by row, and the rules of tokens, delays, backoff, allotment and budget."""

from __future__ import annotations

import msgspec
import pytest

from schemas.records import FetchResult, Kind, Outcome, RobotsDecision
from streams.core import hosts
from streams.core import policy as bounds
from streams.core.hosts import NEVER_MS, Answer, HostState, InFlight, Override
from streams.core.policy import CrawlPolicy, Politeness
from streams.core.robots_fetch import RobotsState

NOW_MS = 1_700_000_000_000
POLICY = CrawlPolicy()
LEASE_ID = b"l" * 16
ANSWER = Answer(200, NOW_MS, 10, None, None, "text/html")


def lease(number: int = 0) -> InFlight:
    return InFlight(
        url_id=bytes([number]) * 16,
        url_version=1,
        attempt=0,
        kind=Kind.PAGE,
        granted_ms=NOW_MS,
        expires_ms=NOW_MS + 182_000,
    )


def result(status: int = 200, **more: object) -> FetchResult:
    return FetchResult(
        lease_id=LEASE_ID,
        host_key="http://a.test",
        url_id=bytes(16),
        url="http://a.test/",
        url_version=1,
        kind=Kind.PAGE,
        outcome=Outcome.FETCHED if status == 200 else Outcome.RETRY,
        started_ms=NOW_MS,
        finished_ms=NOW_MS,
        status=status,
        **more,  # type: ignore[arg-type]
    )


def host(**more: object) -> HostState:
    return HostState(host_key="http://a.test", **more)  # type: ignore[arg-type]


def with_lease() -> HostState:
    state = host()
    hosts.take_token(state, LEASE_ID, lease(), NOW_MS, POLICY)
    return state


def crawl_delay(delay_ms: int) -> RobotsState:
    return RobotsState(copy=RobotsDecision.PARSE_RULES, crawl_delay_ms=delay_ms)


def test_grant_takes_the_token_charges_the_budget_and_starts_the_delay() -> None:
    """Protects (none) → fetching: all that a grant costs is charged in the same step."""
    state = with_lease()
    assert not state.in_flight[LEASE_ID].storing
    assert hosts.fetching(state) == 1
    assert (state.budget_used, state.fetches) == (1, 1)
    assert state.next_allowed_ms == NOW_MS + 1_000
    assert hosts.open_ms(state, NOW_MS + 5_000, POLICY) == NEVER_MS  # the only token is out


def test_result_with_a_body_gives_the_token_back_and_keeps_the_lease() -> None:
    """Protects fetching → storing: the delay counts from the receipt of the result, not from the grant."""
    state = with_lease()
    received_ms = NOW_MS + 30_000
    closing = hosts.begin_storing(state, LEASE_ID, ANSWER, received_ms, POLICY)
    assert closing.storing
    assert state.in_flight == {LEASE_ID: closing}
    assert closing.expires_ms == received_ms + bounds.STORE_DEADLINE_MS
    assert hosts.fetching(state) == 0
    assert hosts.open_ms(state, received_ms, POLICY) == received_ms + 1_000


def test_any_other_result_closes_the_lease_and_starts_the_delay() -> None:
    """Protects fetching → (closed)."""
    state = with_lease()
    hosts.return_token(state, LEASE_ID, NOW_MS + 30_000, POLICY)
    assert not state.in_flight
    assert hosts.open_ms(state, NOW_MS + 30_000, POLICY) == NOW_MS + 31_000


def test_stored_closes_the_lease_and_moves_no_delay() -> None:
    """Protects storing → (closed): storing is our business, the site waits for nothing more."""
    state = with_lease()
    hosts.begin_storing(state, LEASE_ID, ANSWER, NOW_MS + 100, POLICY)
    before_ms = state.next_allowed_ms
    hosts.close_stored(state, LEASE_ID)
    assert not state.in_flight
    assert state.next_allowed_ms == before_ms


def test_a_transition_that_the_table_does_not_have_is_refused() -> None:
    """Protects the invariant: no second token, no stored result for a body that was not fetched."""
    state = with_lease()
    with pytest.raises(AssertionError):
        hosts.take_token(state, b"m" * 16, lease(1), NOW_MS + 9_000, POLICY)
    with pytest.raises(AssertionError):
        hosts.close_stored(with_lease(), LEASE_ID)
    hosts.begin_storing(state, LEASE_ID, ANSWER, NOW_MS, POLICY)
    with pytest.raises(AssertionError):
        hosts.return_token(state, LEASE_ID, NOW_MS, POLICY)


def test_an_older_lease_never_pulls_the_next_grant_forward() -> None:
    """Protects the maximum: with several tokens, a result does not shorten what another one began."""
    policy = CrawlPolicy(politeness=Politeness(concurrency=2))
    state = host()
    hosts.take_token(state, LEASE_ID, lease(), NOW_MS, policy)
    state.next_allowed_ms = NOW_MS + 60_000
    hosts.return_token(state, LEASE_ID, NOW_MS + 1_000, policy)
    assert state.next_allowed_ms == NOW_MS + 60_000


@pytest.mark.parametrize(
    ("own_ms", "override_ms", "asked_ms", "expected_ms"),
    [
        (1_000, None, 0, 1_000),
        (1_000, None, 30_000, 30_000),
        (5_000, None, 2_000, 5_000),  # Crawl-delay only makes it longer
        (5_000, 200, 0, 200),  # an operator's word replaces ours
        (5_000, 200, 3_000, 3_000),  # and not the site's
        (0, None, 86_400_000_000, 86_400_000_000),  # however long
    ],
)
def test_delay_is_the_longest_that_anybody_may_ask_for(
    own_ms: int, override_ms: int | None, asked_ms: int, expected_ms: int
) -> None:
    """Protects the site's own Crawl-delay from every setting of ours."""
    state = host(robots=crawl_delay(asked_ms), override=Override(delay_ms=override_ms))
    assert hosts.delay_ms(state, CrawlPolicy(politeness=Politeness(delay_ms=own_ms))) == expected_ms


def test_crawl_delay_means_one_at_a_time() -> None:
    """Protects a site that asks for a delay from being asked twice at once, by policy or by override."""
    policy = CrawlPolicy(politeness=Politeness(concurrency=8))
    assert hosts.concurrency(host(), policy) == 8
    assert hosts.concurrency(host(override=Override(concurrency=3)), policy) == 3
    assert hosts.concurrency(host(override=Override(concurrency=3), robots=crawl_delay(1)), policy) == 1


def test_budget_is_a_utc_day() -> None:
    """Protects the day's budget: used up means the next UTC midnight, and there it is whole again."""
    policy = CrawlPolicy(politeness=Politeness(delay_ms=0, budget_per_day=1))
    state = host()
    hosts.take_token(state, LEASE_ID, lease(), NOW_MS, policy)
    hosts.return_token(state, LEASE_ID, NOW_MS, policy)
    midnight_ms = (NOW_MS // bounds.DAY_MS + 1) * bounds.DAY_MS
    assert hosts.open_ms(state, NOW_MS, policy) == midnight_ms
    assert hosts.budget_left(state, midnight_ms, policy) == 1
    hosts.take_token(state, LEASE_ID, lease(), midnight_ms, policy)
    assert state.budget_used == 1
    assert hosts.budget_left(host(override=Override(budget_per_day=7)), NOW_MS, policy) == 7


@pytest.mark.parametrize(("throw", "wait_ms"), [(0.0, 5_000), (0.5, 7_500), (0.999_999, 9_999)])
def test_backoff_has_full_jitter_above_a_base(throw: float, wait_ms: int) -> None:
    """Protects the site's rest: never under the base, spread over the whole span, doubling."""
    state = host()
    hosts.troubled(state, result(429), NOW_MS, lambda: throw)
    assert state.backoff_until_ms == NOW_MS + wait_ms
    assert hosts.open_ms(state, NOW_MS, POLICY) == NOW_MS + wait_ms


def test_backoff_grows_to_an_hour_and_no_further() -> None:
    """Protects both ends of the backoff: it doubles, and it does not become for ever."""
    state = host()
    for _ in range(200):
        hosts.troubled(state, result(503), NOW_MS, lambda: 1.0)
    assert state.backoff_until_ms == NOW_MS + bounds.BACKOFF_MS_MAX


def test_retry_after_is_obeyed_and_an_earlier_one_stands() -> None:
    """Protects Retry-After: exactly as long as asked, never shortened by a later answer."""
    state = host()
    hosts.troubled(state, result(503, retry_after_ms=7_200_000), NOW_MS, lambda: 0.0)
    assert state.backoff_until_ms == NOW_MS + 7_200_000
    hosts.troubled(state, result(503, retry_after_ms=1_000), NOW_MS, lambda: 0.0)
    assert state.backoff_until_ms == NOW_MS + 7_200_000


def test_retry_after_of_nothing_still_gives_rest() -> None:
    """Protects a site in trouble from its own `Retry-After: 0`."""
    state = host()
    hosts.troubled(state, result(429, retry_after_ms=0), NOW_MS, lambda: 0.0)
    assert state.backoff_until_ms == NOW_MS + bounds.BACKOFF_BASE_MS


def test_allotment_halves_and_grows_back_slowly() -> None:
    """Protects the pace: trouble halves it down to the least, each success gives one step back."""
    state = host()
    hosts.troubled(state, result(429), NOW_MS, lambda: 0.0)
    assert state.allotment == hosts.ALLOTMENT_FULL // 2
    assert hosts.delay_ms(state, POLICY) == 2_000
    for _ in range(20):
        hosts.troubled(state, result(429), NOW_MS, lambda: 0.0)
    assert state.allotment == hosts.ALLOTMENT_MIN
    hosts.went_well(state, result())
    assert (state.allotment, state.trouble) == (hosts.ALLOTMENT_MIN + hosts.ALLOTMENT_STEP, 0)
    for _ in range(62):
        hosts.went_well(state, result())
    assert state.allotment == hosts.ALLOTMENT_FULL
    assert hosts.delay_ms(state, POLICY) == 1_000


def test_a_host_in_trouble_is_slow_even_with_no_delay() -> None:
    """Protects a site that says 429 to a crawl of `--delay 0`."""
    state = host(allotment=hosts.ALLOTMENT_FULL // 2)
    policy = CrawlPolicy(politeness=Politeness(delay_ms=0))
    assert hosts.delay_ms(state, policy) == 2 * bounds.TROUBLED_DELAY_MS_MIN


def test_failures_put_the_host_off_only_when_they_follow_one_another() -> None:
    """Protects a host from one bad URL, and a site that is down from being asked on and on."""
    state = host()
    hosts.failed(state, result(500), NOW_MS, lambda: 0.0)
    hosts.failed(state, result(500), NOW_MS, lambda: 0.0)
    assert state.backoff_until_ms == 0
    hosts.failed(state, result(500), NOW_MS, lambda: 0.0)
    assert state.backoff_until_ms > NOW_MS
    state = host()
    for _ in range(9):
        hosts.failed(state, result(500), NOW_MS, lambda: 0.0)
        hosts.went_well(state, result())
    assert state.backoff_until_ms == 0


def test_paused_and_deleted_hosts_wait_for_an_operator() -> None:
    """Protects the operator's word: no instant opens the host."""
    assert hosts.open_ms(host(override=Override(paused=True)), NOW_MS, POLICY) == NEVER_MS
    assert hosts.open_ms(host(override=Override(deleted=True)), NOW_MS, POLICY) == NEVER_MS


def test_waits_from_a_clock_that_was_set_back_end() -> None:
    """Protects a host from waiting for hours of a clock that nobody has any more, and keeps what is within bounds."""
    ahead_ms = NOW_MS + 10 * bounds.DAY_MS
    state = host(next_allowed_ms=ahead_ms, backoff_until_ms=ahead_ms, robots_wait_ms=ahead_ms)
    assert not hosts.within_reach(state, NOW_MS, POLICY)
    hosts.bring_within_reach(state, NOW_MS, POLICY)
    assert hosts.within_reach(state, NOW_MS, POLICY)
    assert state.next_allowed_ms == NOW_MS + 1_000
    asked_for = host(next_allowed_ms=NOW_MS + 3_600_000, robots=crawl_delay(3_600_000))
    asked_for.backoff_until_ms = NOW_MS + bounds.RETRY_AFTER_MS_MAX
    assert hosts.within_reach(asked_for, NOW_MS, POLICY)


def test_state_survives_its_encoding_whole() -> None:
    """Protects what a restart knows: leases, answers, hops, overrides and counts."""
    state = with_lease()
    hosts.begin_storing(state, LEASE_ID, ANSWER, NOW_MS, POLICY)
    state.hops = (hosts.Hop("http://b.test", "http://a.test/r", 2),)
    state.robots, state.override = crawl_delay(7), Override(delay_ms=3, blocked_patterns=("x",))
    assert hosts.decode_host(hosts.encode_host(state)) == state
    with pytest.raises(msgspec.ValidationError):
        hosts.decode_host(b"\x91\x01")
