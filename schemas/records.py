"""The records that stages hand to one another: frozen, checked when decoded, the same in every runner.

Units stand in the names: `_ms` is milliseconds (an instant is UTC since the epoch), `_bytes` is octets.
`url` is always the normal form of `streams.core.rules.urls.normalize`; `host_key` is its scheme and authority
(`https://www.example.org:8443`); `url_id` is 128 bits of BLAKE2b of the normal form.

None of them can be part of a cycle, so the collector need not look at them (`gc=False`): with some hundred thousand
alive its passes would cost more than the work.

An optional value is `None` when the sender does not know it; an empty string is a value.
"""

from __future__ import annotations

import enum

import msgspec


class Source(enum.Enum):
    """How a URL was found. All of them enter by the same admit step."""

    SEED = "seed"
    SITEMAP = "sitemap"
    FEED = "feed"
    LINK = "link"
    REDIRECT = "redirect"


class Kind(enum.Enum):
    """What a lease fetches, and so what the body is taken for."""

    PAGE = "page"
    ROBOTS = "robots"
    SITEMAP = "sitemap"


class Outcome(enum.Enum):
    """What a fetch came to. Exactly one request was sent for each, or none (REFUSED, EXPIRED, name failures)."""

    FETCHED = "fetched"  # a final answer with a body that is to be stored (2xx)
    NOT_MODIFIED = "not_modified"  # 304 to a conditional request: times change, nothing else
    REDIRECT = "redirect"  # `redirect_target` is admitted as a URL of its own host
    RETRY = "retry"  # the world failed in a way that may pass: network, 408, 421, 425, 429, 5xx
    FAILED = "failed"  # a final answer without a page: other 4xx, bad Location, unreadable body
    REFUSED = "refused"  # our own policy: private address, scheme, size
    EXPIRED = "expired"  # nothing was asked: past `start_by_ms`, or `address` is not the permitted one


class RobotsDecision(enum.Enum):
    """RFC 9309 section 2.3.1: what an answer to /robots.txt means."""

    PARSE_RULES = "parse_rules"
    ALLOW_ALL = "allow_all"
    DISALLOW_ALL = "disallow_all"  # unreachable: ask again, and ask the host nothing else meanwhile
    HOP = "hop"  # redirected: `redirect_target` of the result is asked next, by its own host's owner


class BodyRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record of a segment: `segment` is a path below the store's root, `/`-separated, without `.open`."""

    segment: str
    offset_bytes: int
    record_bytes: int


class DiscoveredUrl(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A URL that somebody names. `priority_hint` is 0 (least) to 255; 128 is an ordinary link."""

    url: str
    host_key: str
    source: Source
    discovered_ms: int
    parent_id: bytes = b""  # url_id of the page that named it, empty for seeds
    depth: int = 0  # links from a seed
    redirect_hops: int = 0
    priority_hint: int = 128
    lastmod_ms: int | None = None
    kind: Kind = Kind.PAGE
    trusted_hosts: tuple[str, ...] = ()  # of a sitemap: host_keys whose robots.txt names it from elsewhere


class FetchLease(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Leave to send one request, to be started at most once, between `not_before_ms` and `start_by_ms`."""

    lease_id: bytes  # 16 bytes: partition, epoch, sequence
    host_key: str  # the host whose token this lease holds
    url_id: bytes
    url: str
    url_version: int  # rises with each granted visit; a retry keeps it
    kind: Kind
    attempt: int  # 0 for the first try of this version
    policy_version: int
    owner_epoch: int
    not_before_ms: int
    start_by_ms: int
    duration_ms_max: int  # of the whole request, from connect to the last byte
    depth: int = 0
    redirect_hops: int = 0
    etag: str | None = None
    last_modified: str | None = None
    robots_for: str = ""  # kind ROBOTS: the host_key that asked; another than host_key for a hop
    permitted_address: str | None = None  # the only IP address that may be asked; "": none, say which it would be
    concurrency: int = 1  # requests of the host at once
    delay_ms: int = 0  # between requests of the host, under which this was granted: for the fetch log


class RobotsAnswer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The rules of one host for our user agent, or what stands for them."""

    decision: RobotsDecision
    rules: bytes = b""  # streams.core.rules.robots.RobotsRules.encode(); empty unless PARSE_RULES
    crawl_delay_ms: int | None = None
    sitemaps: tuple[str, ...] = ()
    max_age_ms: int | None = None  # Cache-Control: how long the site lets the answer serve; None when it says nothing
    received_ms: int | None = None  # by the owner that had it fetched for another's host; None: just now


class FetchResult(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What came of a lease. `error` is a short code (`connection_reset`, `not_found`), empty when all went well."""

    lease_id: bytes
    host_key: str
    url_id: bytes
    url: str
    url_version: int
    kind: Kind
    outcome: Outcome
    started_ms: int
    finished_ms: int
    status: int = 0  # HTTP status, 0 when no answer came
    error: str = ""
    address: str = ""  # the IP address that answered, or that was refused
    redirect_target: str | None = None  # normal form
    permanent: bool = False  # 301 and 308
    retry_after_ms: int | None = None  # a span from `finished_ms`, bounded by policy; never negative
    etag: str | None = None
    last_modified: str | None = None
    content_type: str | None = None  # as received, parameters and all
    body_bytes: int = 0  # after decoding
    wire_bytes: int = 0  # as received
    robots: RobotsAnswer | None = None
    robots_for: str = ""


class StoredResult(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The body of a lease lies, synced, where `body` says."""

    lease_id: bytes
    host_key: str
    url_id: bytes
    url_version: int
    content_hash: bytes  # SHA-256 of the decoded body, 32 bytes
    body: BodyRef  # this visit's record: a response, or a revisit record that refers to an earlier one
    content: BodyRef  # the record that holds the bytes: `body` itself, or the earlier response
    content_type: str | None = None
    robots_tags: tuple[str, ...] = ()  # X-Robots-Tag, one entry a header line
    link_headers: tuple[str, ...] = ()  # Link, one entry a header line


class ParseTask(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Read the body by reference and take from it what a crawler wants."""

    url_id: bytes
    host_key: str
    url: str
    url_version: int
    kind: Kind
    content: BodyRef
    fetched_ms: int
    depth: int
    extractor_version: int
    content_type: str | None = None
    robots_tags: tuple[str, ...] = ()
    link_headers: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()  # of a sitemap: it may name URLs of these host_keys, too
    kept: bool = False  # this extractor read it before and its records lie stored: only the links are wanted


class Link(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One link of a page, resolved and normalized. `kind` is a, area, iframe, frame, svg-a, refresh, ..."""

    url: str
    kind: str
    rel: tuple[str, ...] = ()  # lower case, document order
    nofollow: bool = False


class SitemapEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One URL of a sitemap or feed; `is_sitemap` for the children of an index."""

    url: str
    lastmod_ms: int | None = None
    is_sitemap: bool = False


class HeadLink(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A `<link>` to another page: the next one, a translation (`hreflang`), another form (`media`, `type`)."""

    url: str
    rel: tuple[str, ...]  # lower case, document order
    hreflang: str = ""
    media: str = ""
    type: str = ""


class Refresh(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A declarative refresh: the page asks to be replaced by `url` (its own for a mere reload) after a while."""

    delay_s: int
    url: str


class ParsedPage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What parsing one body gave. A failure is a value: `error` says it, everything else is empty."""

    url_id: bytes
    host_key: str
    url: str
    url_version: int
    kind: Kind
    depth: int
    fetched_ms: int
    extractor_version: int
    error: str = ""  # "", or a code: not_parsed_type, parse_timeout, parser_died, too_many_attributes, ...
    links: tuple[Link, ...] = ()
    entries: tuple[SitemapEntry, ...] = ()  # kind SITEMAP
    canonical: str | None = None
    index: bool = True  # robots directives of page and headers, for our user agent
    follow: bool = True
    simhash: int = 0  # unsigned 64 bits
    title: str = ""
    language: str = ""
    charset: str = ""
    text_bytes: int = 0
    text: BodyRef | None = None  # the conversion record, once stored
    part: int = 0  # split so that no message exceeds 900 KB; parts 0 .. parts-1
    parts: int = 1
    base_url: str = ""  # what links were resolved against; empty when nothing was parsed
    canonical_element: str | None = None  # the page's own word; `canonical` also weighs the Link header
    canonical_header: str | None = None
    refresh: Refresh | None = None
    head_links: tuple[HeadLink, ...] = ()  # document order
    feeds: tuple[str, ...] = ()  # document order
    resources: tuple[str, ...] = ()  # images, scripts, ...; only when asked for
    soft_404: bool = False  # it says that it is not there, whatever its status: no document
    sitemap_type: str = ""  # kind SITEMAP: urlset, index, rss, atom, text, invalid, refused
    trusted_hosts: tuple[str, ...] = ()  # as in its task
    links_omitted: int = 0  # links that this parser named before, at no greater depth, and that may be followed
    content_hash: bytes = b""  # SHA-256 of the body, as decoded; empty when nobody asked for it


class HostPolicy(msgspec.Struct, frozen=True):
    """An operator's word on a host, or on several. `None` leaves a value as it is.

    `host_key` is a host's, or a name (`example.org`: by http and https, at any port; with a port at that one), or
    `*.example.org` for a name and all below it, or `*` for all. The nearer word wins, value by value.
    `reset` forgets all earlier words of the same key first. With `until_ms` the values are an exception that lies over
    those that last; an instant that has passed ends it. `policy_version` 0: the owner numbers the change.
    """

    host_key: str
    policy_version: int
    delay_ms: int | None = None
    concurrency: int | None = None
    budget_per_day: int | None = None
    blocked_patterns: tuple[str, ...] | None = None
    paused: bool | None = None
    deleted: bool | None = None
    until_ms: int | None = None  # an exception negotiated with a site ends here
    block: tuple[str, ...] = ()  # added to the blocked patterns
    unblock: tuple[str, ...] = ()  # taken from them
    reset: bool = False
    request_id: str = ""  # who asked; a repeated one changes nothing


class OwnerMessageKind(enum.Enum):
    """What one owner asks of another, or what an operator or the parse stage tells an owner."""

    ROBOTS_HOP = "robots_hop"
    ROBOTS_ANSWER = "robots_answer"
    PERMIT_ASKED = "permit_asked"
    PERMIT_GRANTED = "permit_granted"
    PERMIT_RETURNED = "permit_returned"
    REQUEUE = "requeue"  # an operator: `url` of to_key was given up, and is to be tried anew
    PARSED = "parsed"  # the parse stage: what it found out of a page of to_key, whose links go another way


class OwnerMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Keyed by `to_key`: the host_key or the group that is asked."""

    to_key: str
    from_key: str
    kind: OwnerMessageKind
    url: str = ""  # ROBOTS_HOP: what to fetch for from_key
    hops: int = 0
    robots: RobotsAnswer | None = None
    until_ms: int | None = None
    number: int = 0  # PERMIT_*: of the asking; a higher one ends all permits asked for before
    page: ParsedPage | None = None  # PARSED: without what is to be routed, see streams.core.tasks.parsed_message


class IndexEvent(msgspec.Struct, frozen=True):
    """One document of the search index; JSON on the wire, `doc_version` travels as a header too."""

    url_id: str  # hex; the document's id
    doc_version: int  # url_version << 20 | revision
    url: str
    title: str
    text: str
    language: str
    content_hash: str
    simhash: str
    fetched_ms: int
    canonical: str | None = None


class DeadLetter(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A record that a stage gave up, whole, with what an operator needs to judge it."""

    stage: str  # admit, fetch, store, parse, ...
    host_key: str
    url: str
    error: str
    attempts: int
    failed_ms: int
    record: bytes  # as it came
    url_id: bytes = b""
    status: int = 0
    topic: str = ""  # by which `record` came, whole, in the letter's own partition; "": it is no message


class FetchLogRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One closed lease, as the audit keeps it: what was asked of whom, under which policy, and what came."""

    started_ms: int
    finished_ms: int
    url: str
    host_key: str
    kind: Kind
    outcome: Outcome
    lease_id: bytes
    url_version: int
    attempt: int
    policy_version: int
    owner_epoch: int
    delay_ms: int  # between requests of the host, under which the lease was granted
    status: int = 0  # HTTP status, 0 when no answer came
    error: str = ""
    address: str = ""
    wire_bytes: int = 0  # as received
    body_bytes: int = 0  # after decoding
    content_type: str | None = None
    content_hash: bytes = b""  # SHA-256 of the body that was stored, else empty
    body: BodyRef | None = None  # the visit's record
    duplicate: bool = False  # `body` is a revisit: the same bytes lay stored already
    redirect_target: str | None = None
    retry_after_ms: int | None = None
    robots: RobotsDecision | None = None  # kind ROBOTS: what the answer means
