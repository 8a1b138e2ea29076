"""A URL's row as the fleet's URL store keeps it: `UrlRow` to the bytes of one `schemas.url_rows.UrlRecord`, and back.

The way there and back is exact: the row that is read equals the one that was written, the URL being kept beside it.
"""

from __future__ import annotations

from schemas.codec import decode, encode
from schemas.url_rows import UrlRecord, UrlStatus
from streams.core.rows import Status, UrlRow

_DURABLE = [UrlStatus[status.name] for status in Status]
_STATUS = {durable: Status[durable.name] for durable in _DURABLE}
_DELETED = encode(UrlRecord(UrlStatus.DELETED))


def encode_state(row: UrlRow | None) -> bytes:
    """The state cell. No row: one that is deleted. Raises `schemas.codec.BadRecord` for what Avro does not hold."""
    if row is None:
        return _DELETED
    return encode(
        UrlRecord(
            status=_DURABLE[row.status],
            source=row.source,
            kind=row.kind,
            depth=row.depth,
            redirect_hops=row.redirect_hops,
            parent_id=row.parent_id,
            priority=row.priority,
            discovered_ms=row.discovered_ms,
            place=row.place,
            version=row.version,
            attempt=row.attempt,
            failures=row.failures,
            lost=row.lost,
            lastmod_ms=row.lastmod_ms,
            visit=row.visit,
            trusted_hosts=row.trusted_hosts,
            troubles=row.troubles,
            last_error=row.last_error,
        )
    )


def decode_state(url: str, state: bytes) -> UrlRow | None:
    """The row of a state cell, None when it is deleted. Raises `BadRecord`: a newer build's, or damage."""
    (record,) = decode(state, UrlRecord)
    if record.status is UrlStatus.DELETED:
        return None
    return UrlRow(
        url=url,
        source=record.source,
        kind=record.kind,
        depth=record.depth,
        redirect_hops=record.redirect_hops,
        parent_id=record.parent_id,
        priority=record.priority,
        discovered_ms=record.discovered_ms,
        status=_STATUS[record.status],
        place=record.place,
        version=record.version,
        attempt=record.attempt,
        failures=record.failures,
        lost=record.lost,
        lastmod_ms=record.lastmod_ms,
        visit=record.visit,
        trusted_hosts=record.trusted_hosts,
        troubles=record.troubles,
        last_error=record.last_error,
    )
