"""The judge of politeness: a site's own access log against what the site may expect. It knows nothing of the crawler.

A log line is one request: `start_ms` when its head had come, `end_ms` when the answer was ready to leave (None: the
connection broke before), `connection` a name for the TCP connection, `host`, `path` with its query, `status`, and
`retry_after_s` as it was sent (None: none). As JSON Lines these are the keys. Lines may come in any order.

Breaches, by kind:
- too_early: a request begins less than the host's delay after the end of an earlier one that had ended;
- too_many_connections: more requests of the host are open at once than its policy allows, or more connections are
  (one is known to be open from its first request to the end of its last);
- robots_not_first: a path is asked before an answer to /robots.txt has ended, or with one older than its lifetime;
- disallowed: a path that the host's rules forbid;
- retry_after_ignored: anything is asked of the host within the Retry-After of a 429 or 503.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import msgspec

ROBOTS_PATH = "/robots.txt"
ROBOTS_LIFETIME_MS = 24 * 3_600 * 1_000  # RFC 9309 section 2.4


class Request(msgspec.Struct, frozen=True):
    """One line of the log."""

    start_ms: float
    end_ms: float | None
    connection: int
    host: str
    path: str
    status: int
    retry_after_s: float | None = None


class Expected(msgspec.Struct, frozen=True):
    """What a host may expect. `allowed` says whether its robots.txt lets a path be asked."""

    delay_ms: float = 1_000
    concurrency: int = 1
    allowed: Callable[[str], bool] = lambda path: True
    robots: bool = True  # whether robots.txt must come first


class Breach(msgspec.Struct, frozen=True):
    """What was done to a host that should not have been."""

    kind: str
    host: str
    at_ms: float
    detail: str


def read_log(data: bytes) -> list[Request]:
    """JSON Lines as a server wrote them; a torn last line (the server was killed) is left out."""
    whole = data[: data.rfind(b"\n") + 1]
    return [msgspec.json.decode(line, type=Request) for line in whole.splitlines() if line]


def judge(requests: Iterable[Request], expected: Callable[[str], Expected]) -> list[Breach]:
    """All breaches, in the order of time. `expected` maps a host of the log to what it may expect."""
    ordered = sorted(requests, key=lambda request: (request.host, request.start_ms))
    breaches: list[Breach] = []
    for host, group in groupby(ordered, key=lambda request: request.host):
        lines, policy = list(group), expected(host)
        breaches += _too_early(lines, policy)
        breaches += _too_many(lines, policy)
        breaches += _disallowed(lines, policy)
        breaches += _retry_after(lines)
        if policy.robots:
            breaches += _robots_first(lines)
    return sorted(breaches, key=lambda breach: breach.at_ms)


def _too_early(lines: Sequence[Request], policy: Expected) -> Iterable[Breach]:
    ends: list[float] = []
    for line in lines:
        ended_ms = _latest(ends, line.start_ms)
        if ended_ms is not None and line.start_ms - ended_ms < policy.delay_ms:
            detail = f"{line.start_ms - ended_ms:.1f} ms after an answer, owed {policy.delay_ms:.0f} ms"
            yield _breach("too_early", line, f"{line.path} came {detail}")
        if line.end_ms is not None:
            bisect.insort(ends, line.end_ms)


def _too_many(lines: Sequence[Request], policy: Expected) -> Iterable[Breach]:
    open_now: list[Request] = []
    for line in lines:
        open_now = [other for other in open_now if other.end_ms is not None and other.end_ms > line.start_ms]
        open_now.append(line)
        if len(open_now) > policy.concurrency:
            paths = ", ".join(other.path for other in open_now)
            detail = f"{len(open_now)} requests at once ({paths}), allowed {policy.concurrency}"
            yield _breach("too_many_connections", line, detail)
    last_use: dict[int, float] = {}
    for line in lines:
        last_use[line.connection] = max(last_use.get(line.connection, 0.0), line.end_ms or line.start_ms)
    in_use: set[int] = set()
    for line in lines:
        in_use = {connection for connection in in_use if last_use[connection] > line.start_ms}
        opened = line.connection not in in_use
        in_use.add(line.connection)
        if opened and len(in_use) > policy.concurrency:
            detail = f"{len(in_use)} connections open at once, allowed {policy.concurrency}"
            yield _breach("too_many_connections", line, detail)


def _robots_first(lines: Sequence[Request]) -> Iterable[Breach]:
    answers = sorted(
        line.end_ms for line in lines if line.path == ROBOTS_PATH and line.end_ms is not None and line.status
    )
    for line in lines:
        if line.path == ROBOTS_PATH:
            continue
        answered_ms = _latest(answers, line.start_ms)
        if answered_ms is None:
            yield _breach("robots_not_first", line, f"{line.path} was asked before robots.txt had been answered")
        elif line.start_ms - answered_ms > ROBOTS_LIFETIME_MS:
            yield _breach("robots_not_first", line, f"{line.path} was asked under a robots.txt of more than a day")


def _disallowed(lines: Sequence[Request], policy: Expected) -> Iterable[Breach]:
    for line in lines:
        if line.path != ROBOTS_PATH and not policy.allowed(line.path):
            yield _breach("disallowed", line, f"{line.path} is disallowed by robots.txt")


def _retry_after(lines: Sequence[Request]) -> Iterable[Breach]:
    for asked in lines:
        if asked.status not in (429, 503) or asked.retry_after_s is None or asked.end_ms is None:
            continue
        until_ms = asked.end_ms + asked.retry_after_s * 1_000
        for line in lines:
            if asked.end_ms <= line.start_ms < until_ms:
                early_ms = until_ms - line.start_ms
                yield _breach("retry_after_ignored", line, f"{line.path} came {early_ms:.0f} ms before it was over")


def _latest(times: Sequence[float], at_most: float) -> float | None:
    """The latest of sorted `times` that is not after `at_most`."""
    index = bisect.bisect_right(times, at_most)
    return times[index - 1] if index else None


def _breach(kind: str, line: Request, detail: str) -> Breach:
    return Breach(kind, line.host, line.start_ms, detail)
