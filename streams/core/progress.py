"""What a crawl says of itself: a snapshot while it runs, and a summary when it ends.

Every count starts at 0 with the run unless its comment says otherwise; a rate is over about the last five seconds.
A runner makes one `Progress` two to four times a second, so all of it must be cheap to gather: no scan of any store.
"""

from __future__ import annotations

import enum

import msgspec


class State(enum.Enum):
    """Where a run stands. It only ever goes forward."""

    RUNNING = "running"
    DRAINING = "draining"  # no more grants; what is in flight is finished and committed
    DONE = "done"


class HostSpeed(msgspec.Struct, frozen=True):
    """One of the slowest hosts: the mean time of its answers in this run, and what still waits behind it."""

    host_key: str
    mean_ms: int
    queued: int


class RecentPage(msgspec.Struct, frozen=True):
    """An answer that came in lately. `status` is 0 when none came; `error` is then its short code."""

    url: str
    status: int
    duration_ms: int
    error: str = ""
    kind: str = "page"  # or "sitemap", "robots"


class HostWaiting(msgspec.Struct, frozen=True):
    """A host that still has URLs as the run ends, and why it gave none: `reason` is a phrase for people."""

    host_key: str
    queued: int
    reason: str  # "backs off after 503", "robots.txt cannot be reached", "today's budget is used up", ...
    next_ms: int | None = None  # when it may be asked again (UTC since the epoch), if that is known


class Counts(msgspec.Struct, frozen=True):
    """What a crawl's folder holds, over all its runs."""

    pages: int = 0  # URLs whose page is stored
    urls_known: int = 0
    urls_queued: int = 0  # due now or later in this crawl, not yet settled
    hosts_known: int = 0
    dead_letters: int = 0
    robots_denied: int = 0
    paused_patterns: int = 0  # URL templates that a trap rule paused
    statuses: dict[str, int] = {}  # URLs by their state: "fetched", "queued", "failed", "denied", "tombstone", ...


class Progress(msgspec.Struct, frozen=True):
    """A snapshot of a run."""

    state: State = State.RUNNING
    at_ms: int = 0  # when it was taken, UTC since the epoch
    elapsed_ms: int = 0
    end_reason: EndReason | None = None  # of the last snapshot of a run that came to an end of its own
    end_detail: str = ""
    waits_for: str = ""  # "1 host: dns_nxdomain", while there is nothing else to do but wait
    waits_until_ms: int | None = None  # for the next try (UTC since the epoch), if that is known

    pages: int = 0  # answers with a body that were stored, or were found unchanged
    pages_max: int | None = None  # the run's page limit
    stored: int = 0  # bodies written
    duplicates: int = 0  # bodies that were stored before; a revisit record refers to the earlier one
    not_modified: int = 0  # 304
    redirects: int = 0
    robots_denied: int = 0
    robots_fetched: int = 0  # answers to /robots.txt
    errors_by_kind: dict[str, int] = {}  # "http_404", "timeout", "connection_reset", ...: URLs, not attempts
    retries: int = 0  # attempts that are to be made again
    retries_by_kind: dict[str, int] = {}  # those, by what went wrong
    dead_letters: int = 0

    wire_bytes: int = 0  # as received
    body_bytes: int = 0  # after decoding
    pages_per_s: float = 0.0
    wire_bytes_per_s: float = 0.0

    urls_known: int = 0  # of the whole crawl, not of the run
    urls_queued: int = 0  # of the whole crawl
    hosts_known: int = 0  # of the whole crawl
    hosts_ready: int = 0  # could be asked now
    hosts_waiting: int = 0  # for their delay, or for an answer
    hosts_backing_off: int = 0
    paused_patterns: int = 0

    in_flight: int = 0  # requests
    store_backlog: int = 0  # answers that are not stored yet
    parse_backlog: int = 0  # stored pages that are not parsed yet

    slowest_hosts: tuple[HostSpeed, ...] = ()  # slowest first, at most 5
    last_urls: tuple[RecentPage, ...] = ()  # newest last, at most 8
    warnings: tuple[str, ...] = ()  # sentences, each once: a full disk ahead, a parser that died, ...


class EndReason(enum.Enum):
    """Why a run ended. The value is what people read."""

    COMPLETE = "all reachable pages are fetched"
    PAGE_LIMIT = "page limit"
    TIME_LIMIT = "time limit"
    DRAINED = "drained"
    STOPPED = "stopped"
    NOTHING_DUE = "nothing is due"  # `reason_detail` says within what time, and what comes next
    FAILED = "failed"  # a full disk, a lost folder: `reason_detail` says it


class Summary(msgspec.Struct, frozen=True):
    """How a run ended: its last snapshot, why it ended, what it left, and where things lie."""

    progress: Progress
    reason: EndReason
    reason_detail: str = ""  # "within 60 s: next at 14:02:11", "no space left on device: /data/crawl"
    exit_code: int = 0  # 0 done, 1 failed, 130 stopped
    hosts_left: tuple[HostWaiting, ...] = ()  # at most 10, the longest queues first
    hosts_left_count: int = 0
    out: str = ""  # the crawl's folder
    places: tuple[tuple[str, str], ...] = ()  # (what, path below `out`), as ("pages, WARC", "segments/")
