"""What the adapters of the `Segments` port share: the records of a visit and of a parsed page, and the way back."""

from __future__ import annotations

from connectors.files import StoreFailed
from connectors.ports import ParseOutput, Response, StoredContent
from schemas.records import BodyRef
from streams.core import store


def response_member(
    url: str, response: Response, content_hash: bytes, duplicate_of: StoredContent | None = None
) -> bytes:
    """A `response` record, or a `revisit` when `duplicate_of` says where the same bytes lie."""
    header = store.http_header_block(
        response.status,
        response.reason,
        response.http_version,
        response.headers,
        body_bytes=len(response.body),
        content_codings=response.content_codings,
    )
    if duplicate_of is None:
        return store.response_record(
            url,
            address=response.address,
            http_header=header,
            body=response.body,
            content_hash=content_hash,
            fetched_ms=response.fetched_ms,
            truncated=response.truncated,
        )
    return store.revisit_record(
        url,
        address=response.address,
        http_header=header,
        content_hash=content_hash,
        fetched_ms=response.fetched_ms,
        refers_to_url=duplicate_of.url,
        refers_to_ms=duplicate_of.fetched_ms,
    )


def parsed_members(output: ParseOutput) -> tuple[tuple[bytes, ...], bool]:
    """The records of a parsed page, and whether the first of them is its text."""
    if output.records:
        data, text_bytes = output.records, output.text_record_bytes
    else:
        made = store.parsed_records(output.page, output.text)
        data, text_bytes = made.data, made.text_record_bytes
    assert 0 <= text_bytes < len(data), f"the text's record has {text_bytes} of {len(data)} bytes"
    return ((data[:text_bytes], data[text_bytes:]), True) if text_bytes else ((data,), False)


def whole(ref: BodyRef, member: bytes) -> store.Record:
    """The record that a reference names, from its bytes. Raises StoreFailed."""
    record = store.read_record(member)
    if isinstance(record, store.BadRecord):
        raise StoreFailed(
            f"segments: needed the record of {ref.record_bytes} bytes at {ref.offset_bytes} of {ref.segment}, "
            f"got bytes that are none ({record.reason}); restore that file from a backup, or fetch the page again"
        )
    return record
