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
from infra.folder import DATABASE, read_last_status, read_status
from schemas.records import DeadLetter, DiscoveredUrl, Source
from streams.core.admit import Admission, decode_templates
from streams.core.budget import BUDGET_KEY, Budget, decode_spent
from streams.core.explain import Sentence, explain_host, explain_scope, explain_unknown, explain_url
from streams.core.explain_policy import explain_block, explain_budget, explain_groups, explain_pattern, explain_words
from streams.core.failures import UsageError
from streams.core.host_policy import Change, Policies, Standing, history
from streams.core.hosts import HostState, decode_host
from streams.core.memo import Memo
from streams.core.permits import decode_host_permits
from streams.core.policy import CrawlPolicy
from streams.core.progress import Counts, Progress
from streams.core.rows import HOST_ID_BYTES, QueueClass, Status, UrlRow, decode_row, due_ms_of
from streams.core.rules.robots import RobotsRules
from streams.core.rules.scope import Scope
from streams.core.rules.traps import TemplateCounts
from streams.core.rules.urls import host_id, host_key, host_name, normalize, url_id
from streams.core.sharing import HOST_KEY
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
        self._policy = policy
        self._scratch = Path(tempfile.mkdtemp(prefix="headrace-reader-"))
        try:
            self._db = CrawlDb(root / DATABASE, secondary=self._scratch)
            self._db.catch_up()
        except BaseException:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise
        self.policies = Policies(self._db.scan(Family.POLICY))
        seeds = self._db.meta("seeds")
        self._scope = scope(() if seeds is None else _decode_seeds(seeds))

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
        row = self._row(url)
        return row is not None and row.visit is not None and row.visit.content_version == url_version

    def dead_letters(self) -> Iterator[tuple[str, DeadLetter]]:
        """By key, oldest first."""
        letters = [(key.hex(), _decode_dead(raw)) for key, raw in self._db.scan(Family.DEAD)]
        letters.sort(key=lambda letter: (letter[1].failed_ms, letter[0]))
        yield from letters

    def explain(self, url_or_host: str, now_ms: int) -> list[Sentence]:
        """(label, sentence), the decisive one first. Raises UsageError for what is neither a URL nor a host."""
        text = url_or_host.strip()
        if "://" in text:
            url = normalize(text)
            if url is None:
                raise UsageError(f"explain: needed a URL or a host, got {text!r}; try https://example.org/page")
            key = host_key(url)
            if text == key and self._row(url) is None and self._host(key) is not None:  # no path: the host is meant
                return self._explain_host([key], text, now_ms)
            return self._explain_url(url, now_ms)
        bare = normalize("http://" + text)
        if bare is None:
            raise UsageError(f"explain: needed a URL or a host, got {text!r}; try example.org")
        authority = host_key(bare).partition("://")[2]
        if bare != host_key(bare) + "/":
            return self._explain_url(self._known_twin(bare), now_ms)
        keys = [f"https://{authority}", f"http://{authority}"]
        if not any(self._host(key) for key in keys):
            keys = [host.host_key for host in self.hosts() if host_name(host.host_key) == authority]  # on other ports
        return self._explain_host(keys, text, now_ms)

    def _known_twin(self, http_url: str) -> str:
        https_url = "https" + http_url[4:]
        return https_url if self._row(https_url) is not None else http_url

    def _explain_host(self, keys: list[str], named: str, now_ms: int) -> list[Sentence]:
        sentences: list[Sentence] = []
        for key in keys:
            host = self._host(key)
            if host is not None:
                sentences += explain_host(host, now_ms, self._policy)
                sentences += explain_words(self.policies.matching(key), host.policy_version)
                sentences += self._shared(key, now_ms)
        return sentences or [("now", f"{named}: the crawl does not know this host")]

    def _shared(self, key: str, now_ms: int) -> list[Sentence]:
        """What the host shares with others: the limits of its groups, and the crawl's daily budget."""
        raw = self._db.get(Family.GROUP, HOST_KEY + host_id(key))
        permits = None if raw is None else decode_host_permits(raw)
        spent = self._db.get(Family.OWNER, BUDGET_KEY)
        budget = Budget(self._policy.budget, None if spent is None else decode_spent(spent))
        return explain_groups(permits, now_ms) + explain_budget(budget, now_ms)

    def _explain_url(self, url: str, now_ms: int) -> list[Sentence]:
        row, host = self._row(url), self._host(host_key(url))
        admission = Admission(self._db, self._policy, self._scope, Memo(1))
        pattern = explain_pattern(url, self._templates(host), self._policy.traps)
        if row is None or host is None:
            found = DiscoveredUrl(url=url, host_key=host_key(url), source=Source.LINK, discovered_ms=now_ms, depth=1)
            reason = admission.refusal(found)
            rules = None if host is None else self._rules(host)
            sentences = explain_unknown(url, reason, host, rules, now_ms, depth_max=self._scope.depth_max)
            return sentences + pattern + self._host_words(host, now_ms)
        in_flight = any(lease.url_id == url_id(url) for lease in host.in_flight.values())
        sentences = explain_block(host, url) + explain_scope(admission.leaves_out(host.host_key, row))
        sentences += explain_url(row, in_flight, host, self._rules(host), now_ms, self._policy)
        return sentences + pattern + self._host_words(host, now_ms)

    def _templates(self, host: HostState | None) -> TemplateCounts:
        raw = None if host is None else self._db.get(Family.TEMPLATES, host_id(host.host_key))
        return TemplateCounts() if raw is None else decode_templates(raw)

    def _host_words(self, host: HostState | None, now_ms: int) -> list[Sentence]:
        """What there is to say of the host of a URL, below the URL's own sentences."""
        if host is None:
            return []
        words = {"now": "host", "robots": "robots.txt"}
        return [(words.get(label, label), text) for label, text in explain_host(host, now_ms, self._policy)]

    def _rules(self, host: HostState) -> RobotsRules | None:
        raw = self._db.get(Family.RULES, host_id(host.host_key))
        return None if raw is None else RobotsRules.decode(raw)

    def _row(self, url: str) -> UrlRow | None:
        raw = self._db.get(Family.URL, host_id(host_key(url)) + url_id(url))
        return None if raw is None else decode_row(raw)

    def _host(self, key: str) -> HostState | None:
        raw = self._db.get(Family.HOST, host_id(key))
        if raw is None:
            return None
        host = decode_host(raw)
        self.policies.apply_to(host)  # of a host at rest, its state may not know of the last words yet
        return host


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
