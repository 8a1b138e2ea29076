"""The seen test: how many links of real pages a CPU-second can tell known from new, over many known URLs.

The pages of a folder are parsed once, and stand at so many hosts; a page of any of them comes up at random, as in a
crawl of many sites, so that the memo holds little of a host when its next page comes. Of their links 97 % are known.
Two figures from the same links, from normalized URLs by host (as the router leaves them), hashing included, both by the
core's own code: the seen test, which tells the known links from those that are new or bring news; and all of admission,
in which each of these few becomes a row, a queue entry and a count of its template, or is refused.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec

from connectors.crawldb_rocksdb import CrawlDb
from connectors.store_memory import StoreMemory
from schemas.records import BodyRef, DiscoveredUrl, Kind, ParseTask, Source
from streams.bench.meter import Meter, folder_bytes, rss_peak_mb
from streams.bench.population import Population
from streams.bench.runner import START_MS, bench_policy
from streams.collector import quiet_collector
from streams.core import policy as bounds
from streams.core.admit import Admission
from streams.core.failures import UsageError
from streams.core.hosts import HostState
from streams.core.memo import Memo
from streams.core.parse import parse_page
from streams.core.policy import ParseLimits
from streams.core.route import route
from streams.core.rows import QueueClass, Status, UrlRow, Visit, encode_row, place, rank
from streams.core.rules.scope import Scope, ScopeMode
from streams.core.rules.urls import host_id, host_key, url_id
from streams.core.seen import seen_value
from streams.core.turn import Family, HostSlot, Turn, Write

PAGES_MAX = 2_000
COPIES_MAX = 256
_HOME = "https://pages.example.org"
_FILL_WRITES = 6_000
_PAGES_A_TURN = 16
_UNKNOWN_OF_256 = 8  # by the first byte of the URL's id

Page = tuple[list[str], list[tuple[str, list[str]]]]
"""(paths at its own host; (host_key, URLs) of the others)."""
Routed = list[tuple[str, list[DiscoveredUrl]]]


class SeenFigures(msgspec.Struct):
    """`_per_cpu_s`: of the process, less what made the links. `memo_share`: answered by the memo alone."""

    urls: int = 0
    cache_mb: int = 0
    pages: int = 0
    copies: int = 0
    pages_asked: int = 0
    links: int = 0
    links_a_page: float = 0.0
    known_share: float = 0.0
    memo_share: float = 0.0
    links_per_cpu_s: float = 0.0
    admission_links_per_cpu_s: float = 0.0
    bytes_per_url: float = 0.0
    rss_mb: int = 0


def run_seen(
    folder: Path,
    *,
    urls: int,
    links: int,
    cache_bytes: int,
    pages: Path,
    say: Callable[[str], None] = lambda line: None,
) -> SeenFigures:
    """Fill `folder`, which must be empty, with `urls` known ones, then ask for so many links.

    Raises UsageError when `pages` holds no page.
    """
    read = read_pages(pages)
    own = sorted({path for paths, _ in read for path in paths})
    others = sorted({url for _, rest in read for _, group in rest for url in group})
    copies = max(1, min(COPIES_MAX, urls // 2 // max(1, len(own))))
    figures = SeenFigures(cache_mb=cache_bytes >> 20, pages=len(read), copies=copies)
    say(f"{len(read)} pages with links to {len(own)} pages of their own site and {len(others)} of others")
    db = CrawlDb(folder, memory=StoreMemory(cache_bytes))
    linked = (_copy(copy) + path for path in own for copy in range(copies))  # many hosts at a time, as in a crawl
    stored = _fill(db, (url for group in (linked, others) for url in group), partial=True)
    filler = Population(max(2, (urls - stored) // 10), max(urls - stored, 20), seed=7)
    made = (
        filler.url(host, filler.host_key(host), number)
        for host, start, count in filler.plan()
        for number in range(start, start + count)
    )
    figures.urls = stored + (_fill(db, made, partial=False) if urls > stored else 0)
    db.close()
    say(f"{figures.urls} URLs are known")
    # For reading only: what the filling left to be compacted is not ours.
    db = CrawlDb(folder, memory=StoreMemory(cache_bytes), read_only=True)
    quiet_collector()  # as a crawl has it
    _ask(_CountingReads(db), _visits(read, copies), links // 10, figures, seen_alone=True)  # what a long run has cached
    _ask(_CountingReads(db), _visits(read, copies), links, figures, seen_alone=True)
    _ask(_CountingReads(db), _visits(read, copies), links, figures, seen_alone=False)
    db.close()
    figures.bytes_per_url = folder_bytes(folder) / figures.urls
    figures.rss_mb = rss_peak_mb()
    return figures


class _CountingReads:
    """The store, with a count of the keys that the seen family was asked for."""

    def __init__(self, db: CrawlDb) -> None:
        self.rows, self.rows_after, self.get, self.queue = db.rows, db.rows_after, db.get, db.queue
        self.hosts, self.scan, self.tasks = db.hosts, db.scan, db.tasks
        self._seen = db.seen
        self.asked = 0

    def seen(self, keys: list[bytes]) -> list[bytes | None]:
        self.asked += len(keys)
        return self._seen(keys)


def _ask(
    reads: _CountingReads, visits: Iterator[Routed], links_min: int, figures: SeenFigures, *, seen_alone: bool
) -> None:
    """Page by page, some to a turn. What it would write is dropped, so that each link stays known or unknown."""
    admission = Admission(
        reads, bench_policy(1_000), Scope(seeds=(), mode=ScopeMode.ANY), Memo(bounds.OWNER_MEMO_URLS_MAX)
    )
    step: Callable[[Turn, HostSlot, list[DiscoveredUrl]], object]
    step = admission.unseen if seen_alone else admission.admit
    slots: dict[str, HostSlot] = {}
    meter = Meter()
    links = known = pages = 0
    meter.start()
    while links < links_min:
        with meter:
            batches = [batch for _ in range(_PAGES_A_TURN) for batch in next(visits)]
            for key, _ in batches:
                if key not in slots:
                    slots[key] = HostSlot(host_id(key), HostState(host_key=key), new=False)
            pages += _PAGES_A_TURN
            links += sum(len(found) for _, found in batches)
            turn = Turn(START_MS)
        for key, found in batches:
            step(turn, slots[key], found)
        with meter:
            known += turn.counts.known
            for slot in turn.touched.values():
                slot.queue.committed()
            del batches, turn
    per_cpu_s = links / meter.cpu_s()
    if not seen_alone:
        figures.admission_links_per_cpu_s = per_cpu_s
        return
    figures.links_per_cpu_s = per_cpu_s
    figures.pages_asked, figures.links, figures.links_a_page = pages, links, links / pages
    figures.known_share, figures.memo_share = known / links, 1 - reads.asked / links


def _visits(read: Sequence[Page], copies: int) -> Iterator[Routed]:
    """Pages at random, of hosts at random, for ever; the same ones each time."""
    dice = random.Random(11)
    while True:
        paths, others = dice.choice(read)
        key = _copy(dice.randrange(copies))
        parent = blake2b(key.encode(), digest_size=16).digest()
        groups = [(key, [key + path for path in paths])] if paths else []
        yield [(host, [_link(url, host, parent) for url in urls]) for host, urls in (*groups, *others)]


def _link(url: str, key: str, parent: bytes) -> DiscoveredUrl:
    return DiscoveredUrl(url, key, Source.LINK, START_MS, parent, 3, 0, 128, None, Kind.PAGE)


def _copy(copy: int) -> str:
    return f"https://docs-{copy * 7_919 % 100_003}.example.org"


def read_pages(folder: Path) -> list[Page]:
    """The links of the folder's HTML pages, PAGES_MAX of them evenly over all, as the router groups them."""
    files = sorted(folder.rglob("*.html"))
    files = files[:: max(1, len(files) // PAGES_MAX)][:PAGES_MAX]
    pages: list[Page] = []
    for file in files:
        task = ParseTask(
            url_id=b"\0" * 16,
            host_key=_HOME,
            url=f"{_HOME}/{file.relative_to(folder).as_posix()}",
            url_version=1,
            kind=Kind.PAGE,
            content=BodyRef("", 0, 0),
            fetched_ms=START_MS,
            depth=2,
            extractor_version=1,
            content_type="text/html",
        )
        parsed = parse_page(task, file.read_bytes(), product_token="Headrace", now_ms=START_MS, limits=ParseLimits())
        routed = {key: [one.url for one in found] for key, found in route(parsed.page, now_ms=START_MS).items()}
        own = [url[len(_HOME) :] for url in routed.pop(_HOME, [])]
        if own or routed:
            pages.append((own, list(routed.items())))
    if not pages:
        raise UsageError(f"{folder}: needed HTML pages with links, found none; name the folder of a documentation tree")
    return pages


def _fill(db: CrawlDb, urls: Iterator[str], *, partial: bool) -> int:
    """Write URLs as a crawl leaves them, every second one visited: row, queue entry and what the seen test asks.

    `partial`: some stay unknown. Returns how many became known.
    """
    writes: list[Write] = []
    stored = 0
    for url in urls:
        id_ = url_id(url)
        if partial and id_[0] < _UNKNOWN_OF_256:
            continue
        owner, row = host_id(host_key(url)), _row(url, id_)
        writes.append((Family.URL, owner + id_, encode_row(row)))
        writes.append((Family.QUEUE, owner + row.place + id_, b""))
        writes.append((Family.SEEN, owner + id_, seen_value(row)))
        stored += 1
        if len(writes) >= _FILL_WRITES:
            db.commit(writes)
            writes = []
    db.commit(writes)
    return stored


def _row(url: str, id_: bytes) -> UrlRow:
    row = UrlRow(
        url=url,
        source=Source.LINK,
        kind=Kind.PAGE,
        depth=2,
        redirect_hops=0,
        parent_id=id_[::-1],
        priority=128,
        discovered_ms=START_MS,
    )
    if id_[1] & 1:
        row.place = place(QueueClass.NEW, 0, rank(128, 2))
        return row
    ref = BodyRef("warc/20260101-000000-00001.warc.gz", int.from_bytes(id_[:4], "big"), 12_345)
    row.status, row.version = Status.FETCHED, 1
    row.place = place(QueueClass.REVISIT, START_MS + int.from_bytes(id_[:4], "big"), rank(128, 2))
    row.visit = Visit(
        fetched_ms=START_MS,
        status=200,
        url_version=1,
        content_version=1,
        interval_ms=604_800_000,
        content_hash=id_ + id_,
        body=ref,
        content=ref,
        body_bytes=50_000,
        content_type="text/html",
        etag=f'"{id_[:6].hex()}"',
        title=url[-30:],
        text=ref,
        links=100,
    )
    return row
