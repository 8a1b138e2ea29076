"""Are the books right? Judged by the rows that became durable and the messages that were sent.

- A visit (`url_version`) completes at most once, versions never fall, and a version has one content.
- A page that was parsed named URLs: all of them are known, unless they were refused as a trap.
- Every row stands in the queue that it says, every entry has its row, and the host's counts say so.
- Every content that was accepted is parsed or waits to be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from connectors.crawldb_memory import MemoryCrawlDb
from schemas.records import ParsedPage, ParseTask
from streams.core.hosts import HostState, decode_host
from streams.core.rows import HOST_ID_BYTES, PLACE_BYTES, URL_ID_BYTES, QueueClass, Status, decode_row
from streams.core.rules.urls import host_id, host_key, url_id
from streams.core.seen import seen_value
from streams.core.turn import Family, Write
from streams.simulation.loop import Violation


class Page(msgspec.Struct):
    """What was last seen of one URL's visits."""

    version: int = 0
    visits: int = 0
    content_version: int = 0
    contents: dict[int, bytes] = msgspec.field(default_factory=dict)  # by content_version


class BooksJudge:
    """Raises `Violation`."""

    def __init__(self) -> None:
        self._pages: dict[bytes, Page] = {}
        self._tasks: dict[tuple[bytes, int], tuple[str, int]] = {}
        self._named: dict[str, str] = {}  # URL → the page that named it
        self.completions = 0

    def committed(self, writes: Iterable[Write]) -> None:
        """The rows of one commit, in the order written."""
        for family, key, value in writes:
            if family is not Family.URL or value is None:
                continue
            row = decode_row(value)
            visit = row.visit
            if visit is None:
                continue
            page = self._pages.setdefault(key, Page())
            host = host_key(row.url)
            if visit.url_version < page.version or visit.content_version < page.content_version:
                raise Violation("one completion", f"{row.url} went back to version {visit.url_version}", host)
            if visit.url_version == page.version and visit.visits != page.visits:
                raise Violation("one completion", f"{row.url} completed version {page.version} twice", host)
            content = page.contents.setdefault(visit.content_version, visit.content_hash)
            if content != visit.content_hash:
                raise Violation("one content", f"{row.url} has two contents of one version", host)
            if visit.url_version > page.version:
                self.completions += 1
            page.version, page.visits, page.content_version = visit.url_version, visit.visits, visit.content_version

    def tasks(self, tasks: Iterable[ParseTask]) -> None:
        """Parse tasks that were sent: their version is the document's."""
        for task in tasks:
            content = (task.content.segment, task.content.offset_bytes)
            if self._tasks.setdefault((task.url_id, task.url_version), content) != content:
                raise Violation("one content", f"{task.url} was sent to be parsed twice, differently", task.host_key)

    def parsed(self, page: ParsedPage) -> None:
        """A parsed page was taken in, and that is durable."""
        for link in page.links:
            self.named(link.url, page.url)
        for entry in page.entries:
            self.named(entry.url, page.url)

    def named(self, url: str, by: str) -> None:
        """A URL that was taken in; one of a trap may be refused."""
        if "/cal/" not in url:
            self._named.setdefault(url, by)

    # --- the end of a run, or any quiet moment ---------------------------------------------------------------------

    def audit(self, store: MemoryCrawlDb, waiting: set[bytes] | None = None) -> None:
        """The whole store as it stands. `waiting`: the bodies that parsers have; None: they have what it says."""
        for url, by in self._named.items():
            if store.get(Family.URL, host_id(host_key(url)) + url_id(url)) is None:
                raise Violation("no URL lost", f"{url}, named by {by}, is not known", host_key(url))
        hosts = {key: decode_host(raw) for key, raw in store.hosts()}
        tasks = {key for key, _ in store.tasks()}
        for key in tasks if waiting is not None else ():
            if waiting is not None and key not in waiting:
                raise Violation("no URL lost", f"{key.hex()} waits to be parsed, and no parser has it")
        self._rows(store, hosts, tasks)
        for key, _ in store.scan(Family.QUEUE):
            raw = store.get(Family.URL, key[:HOST_ID_BYTES] + key[-URL_ID_BYTES:])
            if raw is None or decode_row(raw).place != key[HOST_ID_BYTES : HOST_ID_BYTES + PLACE_BYTES]:
                raise Violation("queue", f"the entry {key.hex()} has no row that says so")
        for key, value in store.scan(Family.SEEN):
            raw = store.get(Family.URL, key)
            if raw is None or seen_value(decode_row(raw)) != value:
                raise Violation("seen", f"links to {key.hex()} are compared with {value.hex()}, its row says otherwise")

    def _rows(self, store: MemoryCrawlDb, hosts: dict[bytes, HostState], tasks: set[bytes]) -> None:
        queued: Counter[tuple[bytes, int]] = Counter()
        known: Counter[bytes] = Counter()
        for key, raw in store.scan(Family.URL):
            row = decode_row(raw)
            host = host_key(row.url)
            owner = key[:HOST_ID_BYTES]
            known[owner] += 1
            if not row.place or store.get(Family.QUEUE, owner + row.place + key[HOST_ID_BYTES:]) is None:
                raise Violation("no URL lost", f"{row.url} stands in no queue", host)
            if store.get(Family.SEEN, key) is None:
                raise Violation("seen", f"{row.url} is known, and not to the seen test", host)
            queued[owner, row.place[0]] += 1
            unparsed = row.status is Status.FETCHED and row.visit is not None and not row.visit.extractor_version
            if unparsed and key not in tasks:
                raise Violation("no URL lost", f"{row.url} is stored, and nobody is to parse it", host)
        for key, state in hosts.items():
            counts = [queued[key, queue] for queue in QueueClass]
            if counts != state.queued or known[key] != state.known:
                raise Violation(
                    "counts", f"{state.queued} of {state.known}, but {counts} of {known[key]}", state.host_key
                )
