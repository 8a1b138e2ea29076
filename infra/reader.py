"""A crawl's folder, read only: what `status`, `explain`, `export` and `dead-letters` look at, also while it runs.

It follows the running crawl's database as a RocksDB secondary, from a scratch folder of its own; nothing is locked and
nothing in the crawl's folder is written.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from connectors.crawldb_rocksdb import CrawlDb
from connectors.exports import PageRow, place
from infra.explaining import Explainer
from infra.folder import DATABASE, read_last_status, read_status
from schemas.records import DeadLetter
from streams.core.explain import Sentence
from streams.core.host_policy import Change, Policies, Standing, history
from streams.core.hosts import HostState, decode_host
from streams.core.policy import CrawlPolicy
from streams.core.progress import Counts, Progress
from streams.core.rows import HOST_ID_BYTES, QueueClass, Status, UrlRow, decode_row, due_ms_of
from streams.core.rules.scope import Scope
from streams.core.turn import Family

_decode_seeds = msgspec.msgpack.Decoder(tuple[str, ...]).decode
_decode_position = msgspec.msgpack.Decoder(tuple[tuple[str, int], ...]).decode
_decode_dead = msgspec.msgpack.Decoder(DeadLetter).decode
_STATE_WORDS = {
    Status.NEW: "queued",
    Status.FETCHED: "fetched",
    Status.REDIRECT: "redirect",
    Status.FAILED: "failed",
    Status.GONE: "tombstone",
    Status.DENIED: "denied",
    Status.REFUSED: "refused",
    Status.OUT_OF_SCOPE: "out of scope",
}


class Reader:
    """Sees what was committed when it was opened."""

    def __init__(self, root: Path, policy: CrawlPolicy, scope: Callable[[Sequence[str]], Scope]) -> None:
        """Raises StoreFailed when the database cannot be read."""
        self._root = root
        self._scratch = Path(tempfile.mkdtemp(prefix="headrace-reader-"))
        try:
            self._db = CrawlDb(root / DATABASE, secondary=self._scratch)
            self._db.catch_up()
        except BaseException:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise
        self.policies = Policies(self._db.scan(Family.POLICY))
        seeds = self._db.meta("seeds")
        known = scope(() if seeds is None else _decode_seeds(seeds))
        self._explainer = Explainer(self._db, policy, known, self.policies)

    def close(self) -> None:
        self._db.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def progress(self) -> Progress | None:
        """The last snapshot of the run that holds the folder; None when none does."""
        return read_status(self._root)

    def last_run(self) -> Progress | None:
        """The last snapshot of the last run, whether it goes on or not; None when there was none."""
        return read_last_status(self._root)

    def hosts(self) -> Iterator[HostState]:
        for _, raw in self._db.scan(Family.HOST):
            yield decode_host(raw)

    def policy_standings(self) -> list[Standing]:
        """What an operator's words come to now, by key."""
        return [self.policies.standings[key] for key in sorted(self.policies.standings)]

    def policy_changes(self) -> list[Change]:
        """All that operators and the crawl's configuration ever said, the oldest first."""
        return history(self._db.scan(Family.POLICY))

    def counts(self) -> Counts:
        """Over all runs, from the hosts' own counts: no look at any URL."""
        known = queued = hosts = patterns = 0
        by_status = [0] * len(Status)
        for host in self.hosts():
            hosts += 1
            known += host.known
            queued += host.queued[QueueClass.NEW] + host.queued[QueueClass.RETRY]
            patterns += host.paused_patterns
            for at, number in enumerate(host.statuses):
                by_status[at] += number
        return Counts(
            pages=by_status[Status.FETCHED],
            urls_known=known,
            urls_queued=queued,
            hosts_known=hosts,
            dead_letters=sum(1 for _ in self._db.scan(Family.DEAD)),
            robots_denied=by_status[Status.DENIED],
            paused_patterns=patterns,
            statuses={_STATE_WORDS[status]: by_status[status] for status in Status if by_status[status]},
        )

    def pages(self) -> Iterator[PageRow]:
        """Every known URL, host by host."""
        for key, raw in self._db.scan(Family.URL):
            yield page_row(key[HOST_ID_BYTES:], decode_row(raw))

    def position(self) -> tuple[tuple[str, int], ...]:
        """How far the open segments were durable at the last commit: what an export may read of a running crawl."""
        raw = self._db.meta("segments")
        return () if raw is None else _decode_position(raw)

    def is_current(self, url: str, url_version: int) -> bool:
        """Whether a parsed page is what its URL's row refers to now, and not an older parse."""
        row = self._explainer.row(url)
        return row is not None and row.visit is not None and row.visit.content_version == url_version

    def dead_letters(self) -> Iterator[tuple[str, DeadLetter]]:
        """By key, oldest first."""
        letters = [(key.hex(), _decode_dead(raw)) for key, raw in self._db.scan(Family.DEAD)]
        letters.sort(key=lambda letter: (letter[1].failed_ms, letter[0]))
        yield from letters

    def explain(self, url_or_host: str, now_ms: int) -> list[Sentence]:
        """(label, sentence), the decisive one first. Raises UsageError for what is neither a URL nor a host."""
        return self._explainer.explain(url_or_host, now_ms)


def page_row(url_id_: bytes, row: UrlRow) -> PageRow:
    """A row as it is exported."""
    visit = row.visit
    due_ms = due_ms_of(row.place) if row.place and row.place[0] != QueueClass.NEW else None
    common = {
        "url": row.url,
        "url_id": url_id_.hex(),
        "kind": row.kind.value,
        "state": _STATE_WORDS[row.status],
        "source": row.source.value,
        "depth": row.depth,
        "url_version": row.version,
        "next_due_ms": due_ms,
    }
    if visit is None:
        return PageRow(**common, error=row.last_error or None)  # type: ignore[arg-type]
    parsed = visit.extractor_version > 0
    return PageRow(
        **common,  # type: ignore[arg-type]
        status=visit.status or None,
        error=visit.error or visit.parse_error or row.last_error or None,
        fetched_ms=visit.fetched_ms,
        content_hash=visit.content_hash.hex() or None,
        body=place(visit.body),
        content=place(visit.content),
        text=place(visit.text),
        body_bytes=visit.body_bytes if visit.content is not None else None,
        content_type=visit.content_type,
        etag=visit.etag,
        last_modified=visit.last_modified,
        redirect_target=visit.redirect_target,
        title=visit.title or None,
        canonical=visit.canonical,
        index=visit.index if parsed else None,
        simhash=f"{visit.simhash:016x}" if visit.simhash else None,
        links=visit.links if parsed else None,
    )
