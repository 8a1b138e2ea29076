"""What is kept of a result, in every runner: the word that its body is stored, and its row of the fetch log."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.records import BodyRef, FetchLogRow, FetchResult, StoredResult


def stored_result(
    result: FetchResult,
    headers: Sequence[tuple[bytes, bytes]],
    *,
    content_hash: bytes,
    body: BodyRef,
    content: BodyRef,
) -> StoredResult:
    """`body`: the record of this visit, a revisit record where `content` lies in another. `headers`: of the answer."""
    return StoredResult(
        lease_id=result.lease_id,
        host_key=result.host_key,
        url_id=result.url_id,
        url_version=result.url_version,
        content_hash=content_hash,
        body=body,
        content=content,
        content_type=result.content_type,
        robots_tags=_values(headers, b"x-robots-tag"),
        link_headers=_values(headers, b"link"),
    )


def fetch_log_row(
    result: FetchResult,
    stored: StoredResult | None,
    *,
    url_version: int,
    attempt: int,
    policy_version: int,
    owner_epoch: int,
    delay_ms: int,
    duplicate: bool,
) -> FetchLogRow:
    """What was asked, under which lease and policy, what came, and where its body lies. `duplicate`: in another's."""
    return FetchLogRow(
        started_ms=result.started_ms,
        finished_ms=result.finished_ms,
        url=result.url,
        host_key=result.host_key,
        kind=result.kind,
        outcome=result.outcome,
        lease_id=result.lease_id,
        url_version=url_version,
        attempt=attempt,
        policy_version=policy_version,
        owner_epoch=owner_epoch,
        delay_ms=delay_ms,
        status=result.status,
        error=result.error,
        address=result.address,
        wire_bytes=result.wire_bytes,
        body_bytes=result.body_bytes,
        content_type=result.content_type,
        content_hash=b"" if stored is None else stored.content_hash,
        body=None if stored is None else stored.body,
        duplicate=duplicate,
        redirect_target=result.redirect_target,
        retry_after_ms=result.retry_after_ms,
        robots=None if result.robots is None else result.robots.decision,
    )


def _values(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> tuple[str, ...]:
    return tuple(value.decode("latin-1") for key, value in headers if key.lower() == name)
