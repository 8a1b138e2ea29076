"""One record of each kind that crosses a boundary, with every optional part present and the edges of its numbers."""

from __future__ import annotations

import msgspec

from schemas.records import (
    BodyRef,
    DeadLetter,
    DiscoveredUrl,
    FetchLease,
    FetchResult,
    HostPolicy,
    Kind,
    Link,
    Outcome,
    OwnerMessage,
    OwnerMessageKind,
    ParsedPage,
    ParseTask,
    RobotsAnswer,
    RobotsDecision,
    SitemapEntry,
    Source,
    StoredResult,
)
from schemas.url_rows import UrlRecord, UrlStatus, Visit

HOST = "https://www.example.org:8443"
URL = HOST + "/stra%C3%9Fe?q=1"
URL_ID = bytes(range(16))
LEASE_ID = bytes(range(16, 32))
BODY = BodyRef("warc/2026/a.warc.gz", (1 << 40) + 1, 4_096)
RULES = RobotsAnswer(RobotsDecision.PARSE_RULES, b"\x00\xff", 1_500, (URL,), 60_000, 9)

SAMPLES: tuple[msgspec.Struct, ...] = (
    DiscoveredUrl(URL, HOST, Source.SITEMAP, 1, URL_ID, 2, 3, 255, -1, Kind.SITEMAP, (HOST,)),
    FetchLease(
        LEASE_ID,
        HOST,
        URL_ID,
        URL,
        9,
        Kind.ROBOTS,
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        'W/"é"',
        "Mon",
        "https://b.example",
        "203.0.113.1",
        2,
        1_500,
    ),
    FetchResult(
        LEASE_ID,
        HOST,
        URL_ID,
        URL,
        1,
        Kind.ROBOTS,
        Outcome.RETRY,
        10,
        20,
        status=429,
        error="too_many_requests",
        address="2001:db8::1",
        redirect_target=URL,
        permanent=True,
        retry_after_ms=0,
        etag="",
        last_modified="x",
        content_type="text/plain",
        body_bytes=(1 << 63) - 1,
        wire_bytes=1,
        robots=RULES,
        robots_for=HOST,
    ),
    StoredResult(
        LEASE_ID, HOST, URL_ID, 1, bytes(32), BODY, BODY, "text/html", ("noindex", "b: none"), ("<x>; rel=a",)
    ),
    ParseTask(URL_ID, HOST, URL, 1, Kind.PAGE, BODY, 5, 2, 1, "text/html", ("a", "b"), ("c", "d"), (HOST,), True),
    ParsedPage(
        URL_ID,
        HOST,
        URL,
        1,
        Kind.PAGE,
        2,
        5,
        1,
        links=(Link(URL, "a", ("nofollow", "ugc"), True), Link(URL, "area")),
        entries=(SitemapEntry(URL, 3, True), SitemapEntry(URL)),
        canonical=URL,
        index=False,
        simhash=(1 << 64) - 1,
        title="日本語 \U0001f600",
        text=BODY,
        part=1,
        parts=2,
    ),
    HostPolicy(HOST, 1, 0, 1, 2, ("string", "null"), True, False, 3),  # two texts: no (type name, value) of fastavro's
    OwnerMessage(HOST, "group:example.org", OwnerMessageKind.ROBOTS_ANSWER, URL, 5, RULES, 6),
    OwnerMessage(
        HOST,
        "parse",
        OwnerMessageKind.PARSED,
        page=ParsedPage(
            URL_ID, HOST, URL, 1, Kind.PAGE, 2, 5, 1, simhash=(1 << 64) - 1, title="é", text=BODY, links_omitted=9
        ),
    ),
    DeadLetter("fetch", HOST, URL, "timeout", 6, 7, b"\xc3\x01", URL_ID, 503),
    UrlRecord(
        UrlStatus.FETCHED,
        Source.SEED,
        Kind.SITEMAP,
        parent_id=URL_ID,
        place=b"\x02" + bytes(6),
        version=3,
        lastmod_ms=4,
        visit=Visit(
            5, 200, 3, body=BODY, content=BODY, etag='W/"é"', simhash=1 << 63, text=BODY, robots_tags=("a", "b")
        ),
        trusted_hosts=("string", "null"),
    ),
)
