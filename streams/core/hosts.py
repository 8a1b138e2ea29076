"""One host's durable state: tokens, delays, backoff, budget, leases. This file holds all that can change it.

Theory of operation. A host owns `concurrency` tokens. A grant takes one and makes a lease; the receipt of the result
gives it back, and the next grant may follow one delay later. Trouble (429, 503, no answer) puts the whole host off.

| lease     | event                     | becomes   | token | host                                                    |
|-----------|---------------------------|-----------|-------|---------------------------------------------------------|
| (none)    | grant                     | fetching  | taken | next_allowed ≥ now + delay, budget used + 1             |
| fetching  | result, body to be stored | storing   | back  | next_allowed ≥ now + delay                              |
| fetching  | stored                    | fetching  |       | kept for the result, which is still to come             |
| fetching  | any other result          | (closed)  | back  | next_allowed ≥ now + delay; trouble: backoff            |
| fetching  | expiry + clock skew       | (closed)  | back  | next_allowed ≥ now + delay; the URL is leased again     |
| storing   | stored                    | (closed)  |       |                                                         |
| storing   | the store's deadline      | (closed)  |       | the URL is leased again, attempt + 1                    |
| any other | anything                  | unchanged |       | a late or repeated message changes nothing              |

The invariant: fetching leases ≤ tokens, and no grant before `next_allowed_ms`, `backoff_until_ms` or, with the day's
budget used up, the next UTC day. The state is changed in place by its one owner and written in the same commit as the
leases it charges for: 60 bytes and 2 us a write, where a copy of a frozen state would cost as much again.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from schemas.records import FetchResult, Kind, StoredResult
from streams.core import policy as bounds
from streams.core.policy import CrawlPolicy
from streams.core.robots_fetch import RobotsState
from streams.core.rows import Status

ALLOTMENT_FULL = 256  # of 256: the host's whole pace
ALLOTMENT_MIN = 4
ALLOTMENT_STEP = 4  # regained with each success: from the least to the whole in 63 successes
NEVER_MS = 1 << 62
PRIVATE_ADDRESS = "private_address"  # the error of a request that was not made: the address is not public


class Answer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is kept of a fetch result until its body is stored: the row is written once, by the stored result."""

    status: int
    finished_ms: int
    body_bytes: int
    etag: str | None
    last_modified: str | None
    content_type: str | None


class InFlight(msgspec.Struct, array_like=True, gc=False):
    """A lease that has not been closed. `storing` is False while it holds the token."""

    url_id: bytes
    url_version: int
    attempt: int
    kind: Kind
    granted_ms: int
    expires_ms: int  # fetching: when the token comes back; storing: the store's deadline
    place: bytes = b""  # of the queue entry that was granted; empty for robots
    storing: bool = False
    robots_for: str = ""
    url: str = ""  # kind ROBOTS only: rows hold the others
    hops: int = 0  # kind ROBOTS only
    answer: Answer | None = None  # once storing
    policy_version: int = 0  # under which it was granted
    delay_ms: int = 0  # of the host, as it held then
    stored: StoredResult | None = None  # came ahead of its result, by a topic of its own; while fetching


class Hop(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A robots.txt redirect that leads here from another host, which waits for the answer."""

    asker: str
    url: str
    hops: int


class Override(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an operator set for this host; `None` leaves the crawl's policy."""

    delay_ms: int | None = None
    concurrency: int | None = None
    budget_per_day: int | None = None
    blocked_patterns: tuple[str, ...] = ()
    paused: bool = False
    deleted: bool = False
    until_ms: int | None = None


class HostState(msgspec.Struct, array_like=True, gc=False):
    """All durable but what lies under keys of its own: the robots rules and the counts of URL templates."""

    host_key: str
    next_allowed_ms: int = 0
    in_flight: dict[bytes, InFlight] = {}
    robots: RobotsState | None = None
    backoff_until_ms: int = 0
    trouble: int = 0  # consecutive 429, 503 and network failures
    allotment: int = ALLOTMENT_FULL
    policy_version: int = 0
    override: Override | None = None
    budget_day: int = 0  # days since the epoch, UTC
    budget_used: int = 0
    queued: list[int] = msgspec.field(default_factory=lambda: [0, 0, 0])  # by QueueClass
    ready_ms: int = NEVER_MS  # when the frontier looks at it again
    hops: tuple[Hop, ...] = ()
    robots_wait_ms: int = 0  # the answer to a hop at another host is waited for until then
    known: int = 0  # URLs ever admitted
    statuses: list[int] = msgspec.field(default_factory=lambda: [0] * len(Status))  # of those, by Status
    fetches: int = 0
    pages: int = 0
    body_bytes: int = 0
    mean_ms: float = 0.0  # of a request, exponentially weighted
    address: str = ""
    last_error: str = ""
    paused_patterns: int = 0  # URL templates over their limit
    trap_refused: int = 0  # URLs of paused patterns that were refused
    epoch: int = 0  # of the owner that wrote this
    rank: int = 0  # of its best URL, when the frontier looked last
    revisit_ms: int = 0  # no known URL is due again before


encode_host = msgspec.msgpack.Encoder().encode
decode_host = msgspec.msgpack.Decoder(HostState).decode


def fetching(host: HostState) -> int:
    """Tokens that are out."""
    tokens = 0
    for lease in host.in_flight.values():
        if not lease.storing:
            tokens += 1
    return tokens


def all_out(host: HostState, policy: CrawlPolicy) -> bool:
    """No token is left: only an event can bring one back."""
    return bool(host.in_flight) and fetching(host) >= concurrency(host, policy)


def concurrency(host: HostState, policy: CrawlPolicy) -> int:
    """Tokens in all. A site that asks for a delay between requests is asked one at a time."""
    robots = host.robots
    if robots is not None and robots.crawl_delay_ms:
        return 1
    override = host.override
    if override is not None and override.concurrency is not None:
        return override.concurrency
    return policy.politeness.concurrency


def crawl_delay_ms(host: HostState) -> int:
    robots = host.robots
    return (robots.crawl_delay_ms or 0) if robots is not None else 0


def delay_ms(host: HostState, policy: CrawlPolicy) -> int:
    """From the receipt of a result to the next grant: the largest of ours, the operator's and the site's own.

    An operator's word replaces ours. robots' Crawl-delay can only make it longer, however long. A host in trouble goes
    at a fraction of its pace.
    """
    override = host.override
    own = policy.politeness.delay_ms
    if override is not None and override.delay_ms is not None:
        own = override.delay_ms
    robots = host.robots
    asked = 0 if robots is None else robots.crawl_delay_ms or 0
    delay = asked if asked > own else own
    if host.allotment < ALLOTMENT_FULL:
        delay = max(delay, bounds.TROUBLED_DELAY_MS_MIN) * ALLOTMENT_FULL // host.allotment
    return delay


def budget_left(host: HostState, now_ms: int, policy: CrawlPolicy) -> int:
    """Grants left in this UTC day."""
    override = host.override
    budget = policy.politeness.budget_per_day
    if override is not None and override.budget_per_day is not None:
        budget = override.budget_per_day
    used = host.budget_used if host.budget_day == now_ms // bounds.DAY_MS else 0
    return budget - used


def open_ms(host: HostState, now_ms: int, policy: CrawlPolicy) -> int:
    """The earliest instant at which politeness allows a grant; NEVER_MS while only an event can open it."""
    override = host.override
    if override is not None and (override.paused or override.deleted):
        return NEVER_MS
    if all_out(host, policy):
        return NEVER_MS
    at = host.next_allowed_ms
    if host.backoff_until_ms > at:
        at = host.backoff_until_ms
    if budget_left(host, now_ms, policy) <= 0:
        at = max(at, (now_ms // bounds.DAY_MS + 1) * bounds.DAY_MS)
    return at


def allow_for_skew(host: HostState, epoch: int, clock_skew_ms: int) -> None:
    """Read under another epoch than it was written: that owner's clock may have been behind ours by so much.

    Without it a Crawl-delay or a Retry-After would be cut short by the skew at a takeover, or at a restart after the
    machine's clock was set forward. Leases need none: their expiry has the skew in it.
    """
    if host.epoch != epoch:
        host.next_allowed_ms += clock_skew_ms
        host.backoff_until_ms += clock_skew_ms


def within_reach(host: HostState, now_ms: int, policy: CrawlPolicy) -> bool:
    """Whether the host waits no longer than it could after an answer received now, under today's policy."""
    return (
        host.next_allowed_ms <= now_ms + delay_ms(host, policy)
        and host.backoff_until_ms <= now_ms + bounds.RETRY_AFTER_MS_MAX
        and host.robots_wait_ms <= now_ms + bounds.ROBOTS_HOP_MS_MAX
    )


def bring_within_reach(host: HostState, now_ms: int, policy: CrawlPolicy) -> None:
    """After a clock that was set back, or a delay that was shortened: waiting from now on is polite by any clock."""
    host.next_allowed_ms = min(host.next_allowed_ms, now_ms + delay_ms(host, policy))
    host.backoff_until_ms = min(host.backoff_until_ms, now_ms + bounds.RETRY_AFTER_MS_MAX)
    host.robots_wait_ms = min(host.robots_wait_ms, now_ms + bounds.ROBOTS_HOP_MS_MAX)


def take_token(host: HostState, lease_id: bytes, lease: InFlight, now_ms: int, policy: CrawlPolicy) -> None:
    """(none) → fetching."""
    assert not all_out(host, policy), (host.host_key, now_ms)
    assert host.next_allowed_ms <= now_ms >= host.backoff_until_ms, (host.host_key, now_ms)
    assert lease_id not in host.in_flight
    host.in_flight[lease_id] = lease
    lease.policy_version, lease.delay_ms = host.policy_version, delay_ms(host, policy)
    host.next_allowed_ms = now_ms + lease.delay_ms
    day = now_ms // bounds.DAY_MS
    if host.budget_day != day:
        host.budget_day, host.budget_used = day, 0
    host.budget_used += 1
    host.fetches += 1


def return_token(host: HostState, lease_id: bytes, now_ms: int, policy: CrawlPolicy) -> InFlight:
    """fetching → (closed): the token is back and the delay starts."""
    lease = host.in_flight.pop(lease_id)
    assert not lease.storing
    opens_ms = now_ms + delay_ms(host, policy)
    if opens_ms > host.next_allowed_ms:
        host.next_allowed_ms = opens_ms
    return lease


def begin_storing(host: HostState, lease_id: bytes, answer: Answer, now_ms: int, policy: CrawlPolicy) -> InFlight:
    """fetching → storing: the token is back, the lease stays in flight until its body is durable."""
    lease = return_token(host, lease_id, now_ms, policy)
    lease.storing = True
    lease.answer = answer
    lease.expires_ms = now_ms + bounds.STORE_DEADLINE_MS
    host.in_flight[lease_id] = lease
    return lease


def close_stored(host: HostState, lease_id: bytes) -> InFlight:
    """storing → (closed)."""
    lease = host.in_flight.pop(lease_id)
    assert lease.storing
    return lease


def went_well(host: HostState, result: FetchResult) -> None:
    """The site answered as sites should: trouble is over, its pace grows back slowly."""
    host.trouble = 0
    host.last_error = ""
    if host.allotment < ALLOTMENT_FULL:
        host.allotment = min(ALLOTMENT_FULL, host.allotment + ALLOTMENT_STEP)
    _observe(host, result)


def failed(host: HostState, result: FetchResult, now_ms: int, jitter: Callable[[], float]) -> None:
    """A failure that may be one URL's alone: the host is in trouble only when several follow one another."""
    if host.trouble + 1 >= bounds.TROUBLE_AFTER_FAILURES:
        troubled(host, result, now_ms, jitter)
        return
    host.trouble += 1
    host.last_error = _what_came(result)
    _observe(host, result)


def troubled(host: HostState, result: FetchResult, now_ms: int, jitter: Callable[[], float]) -> None:
    """429, 503 or no answer time and again: the whole host waits, and its pace halves.

    Retry-After is obeyed (bounded by RETRY_AFTER_MS_MAX where it was read). Without one: exponential backoff with full
    jitter, never under the base, so that the site has rest even by the luckiest throw.
    """
    host.trouble += 1
    host.last_error = _what_came(result)
    host.allotment = max(ALLOTMENT_MIN, host.allotment // 2)
    ceiling = min(bounds.BACKOFF_MS_MAX, bounds.BACKOFF_BASE_MS << min(host.trouble, 20))
    wait = bounds.BACKOFF_BASE_MS + int((ceiling - bounds.BACKOFF_BASE_MS) * jitter())
    if result.retry_after_ms is not None:
        wait = max(result.retry_after_ms, bounds.BACKOFF_BASE_MS if result.retry_after_ms == 0 else 0)
    host.backoff_until_ms = max(host.backoff_until_ms, now_ms + wait)
    _observe(host, result)


def forget_refusals(host: HostState) -> bool:
    """Its address was refused by our own policy and may be asked now: trouble of that kind is over, if there is any.

    Nothing was sent to that address, so no site is asked sooner than it wants; its delay is kept all the same.
    """
    if not host.trouble or host.last_error != PRIVATE_ADDRESS:
        return False
    host.trouble, host.last_error = 0, ""
    host.backoff_until_ms, host.allotment = 0, ALLOTMENT_FULL
    if host.robots is not None:
        host.robots = msgspec.structs.replace(host.robots, failures=0, next_try_ms=0)
    return True


def _what_came(result: FetchResult) -> str:
    """For people, who know a status by its number; of a robots.txt that is said, or it would pass for a page's."""
    if not result.status:
        return result.error
    what = str(result.status) if result.status >= 400 or not result.error else result.error
    return f"{what} for robots.txt" if result.kind is Kind.ROBOTS else what


def _observe(host: HostState, result: FetchResult) -> None:
    took = max(0, result.finished_ms - result.started_ms)
    host.mean_ms = took if host.mean_ms == 0 else host.mean_ms * 0.9 + took * 0.1
    host.body_bytes += result.body_bytes
    if result.address:
        host.address = result.address


def count_status(host: HostState, before: Status | None, now: Status) -> None:
    """A URL of the host is what it is `now`; `before` is None for one that is new."""
    if before is not None:
        host.statuses[before] -= 1
    if now >= len(host.statuses):  # written before there was such a status
        host.statuses += [0] * (now + 1 - len(host.statuses))
    host.statuses[now] += 1
