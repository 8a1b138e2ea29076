"""What the demo's sites say of the crawler: judged from their own log, never from the crawler's word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from infra.demo_site import crawl_delay_ms, disallowed
from infra.demo_web import LogLine

__all__ = ["HostVerdict", "judge"]


class HostVerdict(msgspec.Struct, frozen=True):
    """One site's view of the crawl. `breaches` is empty when it was asked as politely as it may expect."""

    host: str
    requests: int
    pages: int  # 200, robots.txt not counted
    unchanged: int  # 304
    owed_ms: int  # the delay that holds: the crawl's or the site's own, whichever is longer
    gap_ms: int | None  # the shortest from an answer to the next request
    at_once: int  # the most requests that were open together
    robots_first: bool
    breaches: tuple[str, ...]


def judge(lines: Iterable[LogLine], delay_ms: int) -> list[HostVerdict]:
    """A verdict for each site, most requests first. `delay_ms` is the crawl's own delay."""
    ordered = sorted(lines, key=lambda line: (line.host, line.start_ms))
    verdicts = [_judge(host, list(group), delay_ms) for host, group in groupby(ordered, key=lambda line: line.host)]
    return sorted(verdicts, key=lambda verdict: (-verdict.requests, verdict.host))


def _judge(host: str, lines: Sequence[LogLine], delay_ms: int) -> HostVerdict:
    owed_ms = max(delay_ms, crawl_delay_ms(host))
    gaps = [later.start_ms - max(line.end_ms for line in lines[:i]) for i, later in enumerate(lines) if i]
    at_once = max(sum(other.start_ms <= line.start_ms < other.end_ms for other in lines) for line in lines)
    breaches = []
    early = sum(gap < owed_ms for gap in gaps)
    if early:
        breaches.append(f"{early} requests sooner than {owed_ms} ms after an answer")
    if at_once > 1:
        breaches.append(f"{at_once} requests at once")
    if lines[0].path != "/robots.txt":
        breaches.append(f"asked for {lines[0].path} before robots.txt")
    forbidden = sorted({line.path for line in lines if disallowed(host, line.path)})
    breaches += [f"asked for {path}, which its robots.txt forbids" for path in forbidden]
    for line in lines:
        until_ms = line.end_ms + (line.retry_after_s or 0) * 1_000
        if any(line.end_ms <= other.start_ms < until_ms for other in lines) and line.retry_after_s:
            breaches.append(f"asked again within the {line.retry_after_s} s of its Retry-After")
    return HostVerdict(
        host=host,
        requests=len(lines),
        pages=sum(line.status == 200 and line.path != "/robots.txt" for line in lines),
        unchanged=sum(line.status == 304 for line in lines),
        owed_ms=owed_ms,
        gap_ms=int(min(gaps)) if gaps else None,
        at_once=at_once,
        robots_first=lines[0].path == "/robots.txt",
        breaches=tuple(breaches),
    )
