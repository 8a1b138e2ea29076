"""What is durable of a URL: the `state` cell of Cassandra's `url_state`, one Avro record.

The cell is all that ever changes of a row, and it is written and read whole, so that no two writes can mix. The URL is
not in it: it is a column of its own, written once. The core works with `streams.core.rows.UrlRow`;
`connectors.url_records` turns one into the other and back, exactly.
"""

from __future__ import annotations

import enum

import msgspec

from schemas.records import BodyRef, Kind, Source


class UrlStatus(enum.Enum):
    """What the last settled visit made of the URL; `streams.core.rows.Status` by name, and one more."""

    NEW = "new"
    FETCHED = "fetched"
    REDIRECT = "redirect"
    FAILED = "failed"
    GONE = "gone"
    DENIED = "denied"
    REFUSED = "refused"
    OUT_OF_SCOPE = "out_of_scope"
    DELETED = "deleted"  # as if it had never been: url_state knows no DELETE, whose stamp would beat all later writes


class Visit(msgspec.Struct, array_like=True, gc=False):
    """What the visits so far have left. Everything here is the last accepted visit's, but for the counts."""

    fetched_ms: int
    status: int  # HTTP status
    url_version: int
    content_version: int = 0  # the url_version that brought the present content
    visits: int = 1
    changes: int = 0  # visits whose content differed from the one before
    interval_ms: int = 0  # learnt: the present revisit interval
    gone: int = 0  # consecutive 404 or 410
    error: str = ""
    content_hash: bytes = b""
    body: BodyRef | None = None
    content: BodyRef | None = None
    body_bytes: int = 0
    content_type: str | None = None
    etag: str | None = None
    last_modified: str | None = None
    redirect_target: str | None = None
    changed_ms: int = 0  # when the present content was first seen
    extractor_version: int = 0  # that parsed the present content; 0: not parsed yet
    parse_error: str = ""
    simhash: int = 0
    title: str = ""
    canonical: str | None = None
    index: bool = True  # no robots directive and no soft 404 speaks against a document
    follow: bool = True
    text: BodyRef | None = None
    links: int = 0
    robots_tags: tuple[str, ...] = ()  # X-Robots-Tag, kept for a later reading of the stored body
    link_headers: tuple[str, ...] = ()


class UrlRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A URL that is known. The fields are those of `streams.core.rows.UrlRow`, which says what they mean."""

    status: UrlStatus
    source: Source = Source.LINK
    kind: Kind = Kind.PAGE
    depth: int = 0
    redirect_hops: int = 0
    parent_id: bytes = b""
    priority: int = 0
    discovered_ms: int = 0
    place: bytes = b""
    version: int = 0
    attempt: int = 0
    failures: int = 0
    lost: int = 0
    lastmod_ms: int | None = None
    visit: Visit | None = None
    trusted_hosts: tuple[str, ...] = ()
    troubles: int = 0
    last_error: str = ""
