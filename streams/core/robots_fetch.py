"""What an answer to a lease of kind ROBOTS means (RFC 9309 section 2.3.1), and how long it serves (section 2.4).

Theory of operation
-------------------
The fetcher turns each answer into a `RobotsAnswer` with `decide` and sends it in `FetchResult.robots`; the owner of the
host that asked keeps one `RobotsState` and moves it with `after_answer`. Before each grant the owner asks `usable`.

`decide`, once for each request (a redirect hop is a request of its own):

| answer                                                   | decision     | then                                  |
|----------------------------------------------------------|--------------|---------------------------------------|
| 2xx, body whole or cut at ROBOTS_BYTES_MAX               | PARSE_RULES  | ALLOW_ALL when it names no user-agent |
| 301, 302, 303, 307, 308, below ROBOTS_HOPS_MAX hops      | HOP          | asked by the owner of its own host    |
| any other 3xx: too many hops, loop, no http(s) target    | DISALLOW_ALL | RFC: MAY allow; the cautious reading  |
| 304                                                      | DISALLOW_ALL | `unchanged=True` renews a copy        |
| 429                                                      | DISALLOW_ALL | a site in trouble: back off           |
| other 4xx                                                | ALLOW_ALL    |                                       |
| 5xx, other numbers, failure, 206 with a part             | DISALLOW_ALL | asked again                           |

`RobotsState` after each answer; *copy* is the last good one (PARSE_RULES or ALLOW_ALL):

| state         | PARSE_RULES, ALLOW_ALL | unchanged (304)   | DISALLOW_ALL                      | HOP  |
|---------------|------------------------|-------------------|-----------------------------------|------|
| no copy       | copy, failures 0       | as DISALLOW_ALL   | failures + 1, next try later      | same |
| copy          | new copy, failures 0   | copy, fresh again | copy stays, failures + 1, later   | same |

`usable(state, now)`; a copy *serves* before `expires_ms`, and is *old* after that, within ROBOTS_TTL_MS of the fetch:

| state                     | copy serves | copy is old  | copy is past 24 h, or none |
|---------------------------|-------------|--------------|----------------------------|
| failures 0                | the copy    | ask          | ask                        |
| failed, next try not due  | the copy    | the copy     | disallow_all               |
| failed, next try due      | the copy    | ask          | ask                        |

"ask" means: grant a robots lease and nothing else. Everything here is pure: the caller brings the time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from schemas.records import RobotsAnswer, RobotsDecision
from streams.core import policy
from streams.core.rules import robots, urls

Use = Literal["rules", "allow_all", "disallow_all", "ask"]

DIGEST_BYTES = 8
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_DISALLOW = RobotsAnswer(RobotsDecision.DISALLOW_ALL)
_MAX_AGE = re.compile(r'(?:^|[\s,])max-age\s*=\s*"?(\d{1,18})', re.IGNORECASE)
_NO_STORE = re.compile(r"(?:^|[\s,])no-(?:store|cache)\s*(?:,|$)", re.IGNORECASE)
_CONTENT_RANGE = re.compile(rb"\s*bytes\s+0-(\d{1,18})/(\d{1,18})\s*", re.IGNORECASE)


class RobotsState(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """What one host's owner remembers of robots.txt; `RobotsState()` is nothing yet. The rules lie elsewhere."""

    copy: RobotsDecision | None = None  # PARSE_RULES or ALLOW_ALL: the last good answer; None before the first
    fetched_ms: int = 0  # when the copy was received, or last found unchanged
    expires_ms: int = 0  # from here on the copy is asked for again; at most fetched_ms + ROBOTS_TTL_MS
    failures: int = 0  # in a row, since the last good answer
    next_try_ms: int = 0  # after a failure: no request sooner
    digest: bytes = b""  # DIGEST_BYTES of BLAKE2b of the copy's rules; empty unless PARSE_RULES
    crawl_delay_ms: int | None = None  # of the copy


def decide(
    status: int,
    failure: str,
    headers: Iterable[tuple[bytes, bytes]],
    body: bytes,
    *,
    request_url: str,
    hops_so_far: int,
    product_token: str,
    truncated: bool = False,
) -> tuple[RobotsAnswer, str | None]:
    """The meaning of one answer, and the target of the next hop when the decision is HOP (None otherwise).

    This is the fetcher's call for kind ROBOTS; the answer goes into `FetchResult.robots`, the target into
    `FetchResult.redirect_target`.

    - `status`: 0 when no answer came. `failure`: the result's error code when the exchange failed on the way (names,
      connect, TLS, timeouts, reset, empty reply, incomplete or undecodable body, refused address); "" when it is whole.
      An HTTP status is no failure: leave `failure` empty for 404 or 503.
      Of 3xx and 4xx the head says all: a failure in their body changes nothing.
    - `headers`: the lines as received, names in any case. `body`: decoded.
    - `truncated`: the fetcher stopped reading at its limit; that is no failure, but the last line may be cut. With one
      octet more than ROBOTS_BYTES_MAX in hand it can be told whether it was.
    - `request_url`: of this very request, normal form. `hops_so_far`: `lease.redirect_hops`, 0 for /robots.txt itself.
    - `product_token`: our own name, `Headrace`; what follows a "/" is ignored.
    """
    if failure and not 300 <= status < 500:  # those mean the same whatever became of their body
        return _DISALLOW, None
    fields = _fields(headers)
    if 200 <= status < 300:
        if status == 206 and not _is_whole(fields.get(b"content-range", b"")):
            return _DISALLOW, None
        return _parsed(body, fields, request_url, product_token, truncated), None
    if status in _REDIRECTS:
        target = _target(fields.get(b"location"), request_url)
        if target is None or hops_so_far >= policy.ROBOTS_HOPS_MAX:
            return _DISALLOW, None
        return RobotsAnswer(RobotsDecision.HOP), target
    if 400 <= status < 500 and status != 429:
        return RobotsAnswer(RobotsDecision.ALLOW_ALL, max_age_ms=_max_age_ms(fields)), None
    return _DISALLOW, None


def after_answer(
    state: RobotsState, answer: RobotsAnswer, now_ms: int, retry_after_ms: int | None = None, *, unchanged: bool = False
) -> RobotsState:
    """The state once the final answer is known. `unchanged`: its status was 304. See the table at the top.

    `retry_after_ms` is `FetchResult.retry_after_ms`: the next try is no sooner, whatever the schedule says.
    """
    assert now_ms >= 0
    if answer.decision is RobotsDecision.HOP:
        return state
    if unchanged and state.copy is not None:
        return msgspec.structs.replace(
            state,
            fetched_ms=now_ms,
            expires_ms=now_ms + ttl_ms(answer.max_age_ms),
            failures=0,
            next_try_ms=0,
        )
    if answer.decision is RobotsDecision.DISALLOW_ALL:
        failures = state.failures + 1
        wait_ms = max(_retry_ms(failures), min(retry_after_ms or 0, policy.RETRY_AFTER_MS_MAX))
        return msgspec.structs.replace(state, failures=failures, next_try_ms=now_ms + wait_ms)
    parsed = answer.decision is RobotsDecision.PARSE_RULES
    received_ms = now_ms if answer.received_ms is None else min(now_ms, answer.received_ms)  # it may have travelled
    return RobotsState(
        copy=answer.decision,
        fetched_ms=received_ms,
        expires_ms=received_ms + ttl_ms(answer.max_age_ms),
        digest=digest(answer.rules) if parsed else b"",
        crawl_delay_ms=answer.crawl_delay_ms if parsed else None,
    )


def usable(state: RobotsState, now_ms: int) -> Use:
    """What the host may be asked for now: by its rules, anything, nothing, or /robots.txt alone."""
    if state.copy is not None and now_ms < state.expires_ms:
        return _use(state.copy)
    if not state.failures or now_ms >= state.next_try_ms:
        return "ask"
    if state.copy is not None and now_ms < state.fetched_ms + policy.ROBOTS_TTL_MS:
        return _use(state.copy)
    return "disallow_all"


def changes_at_ms(state: RobotsState, now_ms: int) -> int:
    """The first instant after `now_ms` at which `usable` may say something else; `now_ms` when only an answer can."""
    instants = [state.expires_ms] if state.copy is not None else []
    if state.failures:
        instants.append(state.next_try_ms)
        if state.copy is not None:
            instants.append(state.fetched_ms + policy.ROBOTS_TTL_MS)
    return min((instant for instant in instants if instant > now_ms), default=now_ms)


def digest(rules: bytes) -> bytes:
    """Names the encoded rules that a state goes with."""
    return hashlib.blake2b(rules, digest_size=DIGEST_BYTES).digest()


def _use(copy: RobotsDecision) -> Use:
    assert copy in (RobotsDecision.PARSE_RULES, RobotsDecision.ALLOW_ALL)
    return "rules" if copy is RobotsDecision.PARSE_RULES else "allow_all"


def _retry_ms(failures: int) -> int:
    delays = policy.RETRY_DELAYS_MS
    return delays[failures - 1] if failures <= len(delays) else policy.ROBOTS_RETRY_MS


def ttl_ms(max_age_ms: int | None) -> int:
    """RFC 9309 2.4: 24 h at most; a shorter Cache-Control is followed down to ROBOTS_TTL_MS_MIN."""
    if max_age_ms is None:
        return policy.ROBOTS_TTL_MS
    return min(policy.ROBOTS_TTL_MS, max(policy.ROBOTS_TTL_MS_MIN, max_age_ms))


def _parsed(
    body: bytes, fields: dict[bytes, bytes], request_url: str, product_token: str, truncated: bool
) -> RobotsAnswer:
    rules = robots.parse(body, product_token, base_url=request_url, truncated=truncated)
    max_age_ms = _max_age_ms(fields)
    if not rules.has_groups:  # empty, an HTML page, binary: nothing was forbidden to anybody
        return RobotsAnswer(RobotsDecision.ALLOW_ALL, sitemaps=rules.sitemaps, max_age_ms=max_age_ms)
    return RobotsAnswer(
        RobotsDecision.PARSE_RULES, rules.encode(), rules.crawl_delay_ms, rules.sitemaps, max_age_ms=max_age_ms
    )


def _fields(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Lower-case names; the lines of one name joined by commas (RFC 9110 5.2), but of Location the first only."""
    fields: dict[bytes, bytes] = {}
    for name, value in headers:
        key = name.lower()
        if key not in fields:
            fields[key] = value
        elif key != b"location":
            fields[key] += b", " + value
    return fields


def _target(location: bytes | None, request_url: str) -> str | None:
    """The normal form of a Location, or None when there is nothing to follow: none, not http(s), or itself again."""
    if not location or not location.strip():
        return None
    try:
        text = location.decode("utf-8")
    except UnicodeDecodeError:
        text = location.decode("latin-1")
    target = urls.normalize(text, request_url)
    return None if target == request_url else target


def _max_age_ms(fields: dict[bytes, bytes]) -> int | None:
    """RFC 9111 5.2.2.1. Of several the least; `no-store` and `no-cache` are an age of 0."""
    control = fields.get(b"cache-control", b"").decode("latin-1")
    if not control:
        return None
    ages = [int(age) for age in _MAX_AGE.findall(control)]
    if _NO_STORE.search(control):
        ages.append(0)
    return min(min(ages) * policy.SECOND_MS, policy.ROBOTS_TTL_MS) if ages else None


def _is_whole(content_range: bytes) -> bool:
    """Of an unasked 206: whether the part is all there is (RFC 9110 14.4)."""
    match = _CONTENT_RANGE.fullmatch(content_range)
    return match is not None and int(match[1]) + 1 == int(match[2])
