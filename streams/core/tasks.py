"""Parse tasks: what a parser needs to read one stored body."""

from __future__ import annotations

import msgspec

from schemas.records import ParseTask
from streams.core.policy import CrawlPolicy
from streams.core.rows import UrlRow, Visit

encode_task = msgspec.msgpack.Encoder().encode
decode_task = msgspec.msgpack.Decoder(ParseTask).decode


def parse_task(host_key: str, url_id: bytes, row: UrlRow, visit: Visit, policy: CrawlPolicy) -> ParseTask:
    """For the content that the visit refers to, with the header lines that bear on its reading."""
    assert visit.content is not None
    return ParseTask(
        url_id=url_id,
        host_key=host_key,
        url=row.url,
        url_version=visit.content_version,
        kind=row.kind,
        content=visit.content,
        fetched_ms=visit.fetched_ms,
        depth=row.depth,
        extractor_version=policy.extractor_version,
        content_type=visit.content_type,
        robots_tags=visit.robots_tags,
        link_headers=visit.link_headers,
        trusted_hosts=row.trusted_hosts,
        kept=visit.extractor_version == policy.extractor_version,
    )
