"""What the world would send back for a lease, made at once: a page that is stored, or a robots.txt that allows all."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from schemas.records import (
    BodyRef,
    FetchLease,
    FetchResult,
    Kind,
    Outcome,
    RobotsAnswer,
    RobotsDecision,
    StoredResult,
)
from streams.core.owner import Event

_ALLOW_ALL = RobotsAnswer(RobotsDecision.ALLOW_ALL, max_age_ms=86_400_000)
_TYPE = "text/html; charset=utf-8"


def answers(leases: Iterable[FetchLease], now_ms: int) -> list[Event]:
    """Result and stored result of each lease, as the engine hands them in: a body of its own each, with validators."""
    events: list[Event] = []
    for lease in leases:
        robots = lease.kind is Kind.ROBOTS
        digest = b"" if robots else sha256(lease.url_id).digest()
        events.append(
            FetchResult(
                lease_id=lease.lease_id,
                host_key=lease.host_key,
                url_id=lease.url_id,
                url=lease.url,
                url_version=lease.url_version,
                kind=lease.kind,
                outcome=Outcome.FETCHED,
                started_ms=now_ms,
                finished_ms=now_ms,
                status=200,
                address="192.0.2.1",
                etag=None if robots else f'"{lease.url_id[:6].hex()}"',
                content_type="text/plain" if robots else _TYPE,
                body_bytes=50_000,
                wire_bytes=12_000,
                robots=_ALLOW_ALL if robots else None,
                robots_for=lease.robots_for,
            )
        )
        if not robots:
            ref = BodyRef("warc/20260101-000000-00001.warc.gz", int.from_bytes(digest[:4], "big"), 12_345)
            events.append(
                StoredResult(
                    lease_id=lease.lease_id,
                    host_key=lease.host_key,
                    url_id=lease.url_id,
                    url_version=lease.url_version,
                    content_hash=digest,
                    body=ref,
                    content=ref,
                    content_type=_TYPE,
                )
            )
    return events
