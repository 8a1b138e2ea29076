"""All the bounds of the crawl, and the policy that a lease is granted under. Every limit stands here and nowhere else.

`*_MAX` constants bound a queue, a loop, a body or a chain; the frozen structs are what an operator may set.
"""

from __future__ import annotations

import msgspec

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

# --- URLs ---------------------------------------------------------------------------------------------------------
URL_BYTES_MAX = 2_083  # of the normal form; longer ones are traps far more often than pages
HREF_CHARS_MAX = 32 * 1024  # of a link as written, before it is resolved
REDIRECT_HOPS_MAX = 10
ROBOTS_HOPS_MAX = 5  # RFC 9309 2.3.1.2: "at least five consecutive redirects"
PATH_SEGMENTS_MAX = 40
PATH_SEGMENT_REPEATS_MAX = 4  # /a/b/a/b/a/b/... : the same segment this often is a trap
QUERY_PARAMETERS_MAX = 30
SCOPE_PATTERNS_MAX = 256  # include and exclude patterns of one crawl, each
SCOPE_PATTERN_CHARS_MAX = 1_000
TEMPLATES_FROM_URLS = 256  # of a host; a smaller one is far from every limit
TEMPLATES_UNSAVED_MAX = 64  # URLs counted and not yet durable
TEMPLATES_MAX = 256  # URL templates counted a host
TEMPLATE_CHARS_MAX = 200  # of a paused template as it is shown

# --- robots.txt (RFC 9309) ----------------------------------------------------------------------------------------
ROBOTS_BYTES_MAX = 500 * 1024  # 2.5: at least 500 KiB are parsed; the rest is ignored
ROBOTS_HOP_MS_MAX = 10 * MINUTE_MS  # another host's answer is waited for; then /robots.txt is asked anew
HOPS_QUEUED_MAX = 64  # robots hops of other hosts that wait at one host
HOP_ANSWERS_MAX = 256  # answers to hops kept in memory for other hosts that are redirected to the same URL
HOP_ANSWER_BYTES_MAX = 64 * 1024  # of one that is kept: 16 MiB in all
HOP_ANSWER_MS_MAX = HOUR_MS  # how long one is kept; a failure only until the first retry
ROBOTS_TTL_MS = DAY_MS  # 2.4: no copy serves for longer
ROBOTS_TTL_MS_MIN = 5 * MINUTE_MS  # Cache-Control shortens no further: a site that says 0 is not asked before each page
ROBOTS_RETRY_MS = HOUR_MS  # between tries once RETRY_DELAYS_MS are used up
ROBOTS_SITEMAPS_MAX = 1_000  # of one file
TRUSTED_HOSTS_MAX = 16  # of one sitemap: other hosts whose robots.txt name it
ROBOTS_SITEMAPS_BYTES_MAX = 256 * 1024  # all of them together, so that an answer fits into a message
CRAWL_DELAY_MS_MAX = 2**53  # above every calendar; keeps the number exact in any codec

# --- fetch --------------------------------------------------------------------------------------------------------
RETRY_DELAYS_MS = (30 * SECOND_MS, 2 * MINUTE_MS, 5 * MINUTE_MS, 15 * MINUTE_MS, 15 * MINUTE_MS)  # then dead letter
RETRY_AFTER_MS_MAX = DAY_MS
BACKOFF_BASE_MS = 5 * SECOND_MS  # 429 and 503 without Retry-After: full jitter below base * 2**n, at least the base
BACKOFF_MS_MAX = HOUR_MS
TROUBLE_AFTER_FAILURES = 3  # consecutive failures other than 429 and 503
TROUBLED_RETRIES_MAX = 10  # of one URL answered by 429 or 503
TROUBLED_DELAY_MS_MIN = 250  # a host in trouble is never asked faster than this, whatever the delay
CLOCK_SKEW_MS_MAX = 2 * SECOND_MS  # between workers; a token comes back this long after a lease's expiry
LEASE_START_MS_MAX = 60 * SECOND_MS  # from grant to start_by
STORE_DEADLINE_MS = 10 * MINUTE_MS  # a lease in *storing* is closed and its URL leased again after this

# --- permits of groups --------------------------------------------------------------------------------------------
PERMIT_USE_MS = 10 * SECOND_MS  # from a permit's grant to the grant of the lease that uses it
PERMIT_ASK_MS = 30 * SECOND_MS  # an asker that hears nothing asks again
PERMIT_QUEUE_MAX = 100_000  # askers that wait for one group; beyond, they ask again later
ADDRESS_TTL_MS = HOUR_MS  # how long a host is taken to have the address that it was found at

# --- an operator's words ------------------------------------------------------------------------------------------
POLICIES_MAX = 100_000  # keys that have words of their own; all of them are in memory
WALK_URLS_MAX = 512  # of a deleted host's queue dropped in one turn
SWEEP_HOSTS_MAX = 1_000  # at rest, looked at in one turn after a word on many hosts
CONTROL_MS = 200  # between two looks into the folder's inbox
CONTROL_BYTES_MAX = 1024 * 1024  # of one request there

# --- one answer (RFC 9110, 9112) ----------------------------------------------------------------------------------
INTERIM_HEADS_MAX = 8  # 1xx heads before the final one
CHUNK_LINE_BYTES_MAX = 4_096  # size and extensions of a chunk; RFC 9112 7.1.1 asks for a limit
CONTENT_LENGTH_DIGITS_MAX = 18  # below 2**63; nothing near it would be read
DISCARDED_BYTES_MAX = 64 * 1024  # read of a body that is not kept; beyond, a new connection is cheaper
VALIDATOR_CHARS_MAX = 1_024  # a longer ETag is not kept: it would go out with every later request
RATIO_FROM_BYTES = 1024 * 1024  # decode_ratio_max counts from here: a small page of blanks may shrink by any ratio
DECODE_STEP_BYTES_MAX = 256 * 1024  # decoded at once, so that a bomb is seen before it has grown
RECEIVING_BYTES_MAX = 256 * 1024 * 1024  # of all bodies that are received at once; beyond, sites are made to wait
RECEIVING_SMALL_BYTES = 256 * 1024  # a body up to this is never held back: an ordinary page

LEASES_WAITING_MAX = 20_000  # at a fleet's fetcher: about 20 MB; beyond, it reads no more of them
RESULTS_UNSENT_MAX = 10_000  # of a fleet's fetcher; beyond, it starts nothing
FETCHER_STOP_MS = 170 * SECOND_MS  # a fleet's fetcher that ends has this long for its requests and its segments

# --- connections and names ----------------------------------------------------------------------------------------
CONNECTIONS_MAX = 1_000  # in use at once; more leases wait, and expire if they wait too long
IDLE_HOSTS_MAX = 1_000  # hosts with a connection kept open
KEEPALIVE_MS = 30 * SECOND_MS
DNS_TTL_MS_MIN = MINUTE_MS
DNS_TTL_MS_MAX = DAY_MS
DNS_NEGATIVE_MS = 30 * SECOND_MS  # a failed name rests; a retry comes no sooner anyway
DNS_NAMES_MAX = 100_000  # in the cache
DNS_ATTEMPT_MS = 3 * SECOND_MS  # for one server; then the next is asked
DNS_ROUNDS_MAX = 2  # through all servers

# --- back queues --------------------------------------------------------------------------------------------------
WINDOW_URLS_MAX = 64  # of a host's back queue in memory
DENIED_PER_STEP_MAX = 64  # robots-denied URLs settled in one grant step; the host is looked at again at once
DENIED_PER_TURN_MAX = 4_096  # of all hosts: about 0.1 s; the others are looked at in the next turn
AHEAD_URLS = 8  # rows of a host read together when the first of them is to be granted
AHEAD_ROWS_MAX = 100_000  # of all hosts, twice: about 60 MB
MEMO_URLS_MAX = 4_096  # of a host's links seen lately
OWNER_MEMO_URLS_MAX = 32_768  # of all hosts' links; twice that at most, about 15 MB
ACTIVE_HOSTS_MAX = 100_000  # host states in memory

EXTRACTOR_VERSION = 1  # rises with every change of what the parse stage makes of a body

# --- batches and queues -------------------------------------------------------------------------------------------
GROUP_MS_MAX = 50  # a group commit waits no longer
GROUP_MS_MIN = 5  # between two groups while busy: fewer, fuller groups cost less
GROUP_EVENTS_MAX = 512
GROUP_BYTES_MAX = (
    256 * 1024
)  # of a fleet's messages, which are batches: some 2,000 URLs, whose rows are a second's work
INDEX_ROWS_PER_TURN_MAX = 2_048  # read to load the owner's index: about 20 ms
INDEX_LOOK_ROWS = 32  # what asking the shared URL rows for a host costs, in rows: 0.3 to 1.5 ms, a row 10 to 25 us
INDEX_HOST_SHARE = 8  # one host that comes up for a grant gets this part of them, so that others come up as well
INDEX_WANTED_MAX = 10_000  # hosts that are loaded before others because links ask about them
REPLAY_TASKS_MAX = (
    10_000  # of a fleet's replay, ahead of its parsers: fresh pages wait behind no more; some 30 s of one
)
REREAD_ROWS_MAX = 2_048  # looked at in one turn, for stored bodies to be read again: about 10 ms
CLOSING_MS_EXPECTED = 5_000  # of each step of a run's end; a longer one is told
HEARTBEAT_MS = 500  # an idle runner looks around this often
PARSE_BACKLOG_MAX = 256  # stored pages that wait for a parser; beyond, nothing is granted
PARSE_BACKLOG_BYTES_MAX = 32 * 1024 * 1024  # of their bodies kept in memory; others are read back
STORE_BACKLOG_BYTES_MAX = 128 * 1024 * 1024  # bodies fetched and not yet durable; beyond, nothing is granted
MESSAGE_BYTES_MAX = 900 * 1024

# --- store --------------------------------------------------------------------------------------------------------
SEGMENT_BYTES_MAX = 1024 * 1024 * 1024  # a segment that reached it is sealed; its last record may end beyond
SEGMENT_PENDING_BYTES_MAX = 8 * 1024 * 1024  # appended and not yet written; beyond, it is written before the sync
SPOOL_BYTES_MAX = 4 * 1024 * 1024 * 1024  # a fleet's fetcher: appended and not in S3 yet; beyond, it starts nothing
CONTENT_KNOWN_MAX = 100_000  # hashes of bodies that a fleet's fetcher brought lately: about 40 MB
RECORD_HEADER_BYTES_MAX = 16 * 1024  # of a WARC header: three URLs and some lines
RECORD_BYTES_MAX = 80 * 1024 * 1024  # unpacked: the largest body (FetchLimits) and its headers, with room
FACTS_BYTES_MAX = 16 * 1024 * 1024  # of one metadata record's JSON; a page with more links has several
FETCH_LOG_ROWS_MAX = 20_000  # of one Parquet file of the fetch log, and of what waits for one
EXPORT_ROWS_MAX = 20_000  # rows of an export in memory at once
EXPORT_SORT_BYTES_MAX = 64 * 1024 * 1024  # lines of an index sorted in memory; more go through files
EXPORT_RUNS_MAX = 100  # sorted files merged at once

# --- revisit ------------------------------------------------------------------------------------------------------
REVISIT_SLOT_MS = 10 * MINUTE_MS  # revisits due within one slot are ordered by rank
REVISIT_MS_MIN = DAY_MS
REVISIT_MS_MAX = 30 * DAY_MS
TOMBSTONE_AFTER_VISITS = 2  # consecutive 404 or 410
TOMBSTONE_REVISIT_MS = 90 * DAY_MS


class FetchLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one answer may cost."""

    header_bytes_max: int = 64 * 1024  # all header lines together
    header_lines_max: int = 200
    header_line_bytes_max: int = 16 * 1024
    body_bytes_max: int = 64 * 1024 * 1024  # decoded; a Content-Length above it is refused before the body
    wire_bytes_max: int = 64 * 1024 * 1024  # as received; a page without a coding may use all of body_bytes_max
    decode_ratio_max: int = 200  # decoded bytes per wire byte, looked at from 1 MiB on
    codings_max: int = 2  # layers of Content-Encoding
    connect_ms_max: int = 10 * SECOND_MS
    idle_ms_max: int = 20 * SECOND_MS  # between two reads
    duration_ms_max: int = 2 * MINUTE_MS  # the whole request
    robots_bytes_max: int = ROBOTS_BYTES_MAX


class ParseLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one body may cost a parser."""

    body_bytes_max: int = 32 * 1024 * 1024  # only this much of a longer page is parsed
    cpu_ms_max: int = 10 * SECOND_MS
    memory_bytes_max: int = 1024 * 1024 * 1024  # address space of a worker above its own start
    attributes_per_tag_max: int = 1_000
    links_max: int = 100_000
    text_bytes_max: int = 4 * 1024 * 1024
    title_chars_max: int = 1_000
    sitemap_bytes_max: int = 50 * 1024 * 1024  # sitemaps.org: 50 MB uncompressed
    sitemap_urls_max: int = 50_000  # sitemaps.org: 50,000 URLs


class Politeness(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one host is asked. Robots' Crawl-delay can only make it slower."""

    delay_ms: int = 1_000  # from the receipt of a result to the next grant
    concurrency: int = 1  # leases that hold a token at once
    budget_per_day: int = 100_000  # grants a UTC day
    respect_robots: bool = True
    # Hosts that share an IP address, or a registrable domain, are asked together like one host. None: no such limit;
    # one of a pair alone brings the other: a delay one request at once, a concurrency no delay.
    address_concurrency: int | None = None
    address_delay_ms: int | None = None
    domain_concurrency: int | None = None
    domain_delay_ms: int | None = None


class BudgetPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Grants a UTC day over all hosts, by class; an owner's share of them. None: no limit."""

    new_per_day: int | None = None
    revisit_per_day: int | None = None
    retry_per_day: int | None = None


NO_BUDGET = BudgetPolicy()


class TrapLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many URLs of one template a host may have before the template is paused and only sampled."""

    template_urls_max: int = 50_000
    endless_template_urls_max: int = 2_000  # templates of dates, sessions and repeated segments: no end by their shape
    sample_every: int = 256  # of a paused template one URL in so many is admitted all the same


class CrawlPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What holds for the whole crawl; the owner grants, admits and completes under it."""

    politeness: Politeness = Politeness()
    budget: BudgetPolicy = NO_BUDGET
    revisit_ms_min: int = REVISIT_MS_MIN
    revisit_ms_max: int = REVISIT_MS_MAX
    revisit_share: float = 0.4  # of a host's grants, while it has both new and due known URLs
    duration_ms_max: int = 2 * MINUTE_MS  # of one fetch, written into its lease
    depth_max: int | None = None  # links from a seed; None: no limit
    follow_nofollow: bool = False
    sitemaps: bool = True  # fetch the sitemaps that robots.txt names
    traps: TrapLimits = TrapLimits()
    extractor_version: int = EXTRACTOR_VERSION
    lost_leases_max: int = 20  # a URL whose leases never came back this often is given up (a process killer?)
