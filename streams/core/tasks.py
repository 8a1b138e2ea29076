"""Parse tasks: what a parser needs to read one stored body, and what it tells the owner when it has read it."""

from __future__ import annotations

import msgspec

from schemas.records import OwnerMessage, OwnerMessageKind, ParsedPage, ParseTask
from streams.core.indexing import WITHDRAWING
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


def replay_task(
    host_key: str, url_id: bytes, row: UrlRow, policy: CrawlPolicy, *, again: bool = False
) -> ParseTask | None:
    """To have a stored body read by the policy's extractor; None when there is nothing to be read.

    Nothing is: no content, one that its URL does not lead to any more, and unless `again`, one that waits to be read
    (or whose task was lost) and one that the same extractor read.
    """
    visit = row.visit
    if visit is None or visit.content is None or row.status in WITHDRAWING:
        return None
    if visit.extractor_version in (0, policy.extractor_version) and not again:
        return None
    return msgspec.structs.replace(parse_task(host_key, url_id, row, visit, policy), kept=False)


def parsed_message(page: ParsedPage) -> OwnerMessage:
    """What the owner of the page's host is told: the task is done, and this was found out.

    `page` is whole, not a part. Its links and entries go by the link router, so the message has their number only,
    in `links_omitted`, and stays small whatever the page names.
    """
    assert page.parts == 1, f"{page.url}: part {page.part} of {page.parts}"
    findings = msgspec.structs.replace(
        page,
        links=(),
        entries=(),
        head_links=(),
        feeds=(),
        resources=(),
        links_omitted=len(page.links) + len(page.entries) + page.links_omitted,
    )
    return OwnerMessage(page.host_key, "parse", OwnerMessageKind.PARSED, page=findings)
