"""Judges of the owner, apart from what drives it: politeness by its leases, books by its store."""

from __future__ import annotations

from collections import Counter, defaultdict

from schemas.records import FetchLease, FetchResult, Kind, RobotsDecision
from streams.core import policy as bounds
from streams.core.hosts import decode_host
from streams.core.owner import Owner
from streams.core.policy import CrawlPolicy
from streams.core.rows import HOST_ID_BYTES, URL_ID_BYTES, QueueClass, Status, decode_row
from streams.core.seen import seen_value
from streams.core.turn import Family
from tests.support.little_web import LittleWeb
from tests.support.memory_store import MemoryStore


class Judge:
    """Politeness: what a site may see. It is told of leases and of receipts, and reads no state of the owner."""

    def __init__(self, web: LittleWeb, policy: CrawlPolicy) -> None:
        self._web = web
        self._policy = policy
        self._out: dict[str, dict[bytes, FetchLease]] = defaultdict(dict)
        self._not_before_ms: Counter[str] = Counter()
        self._robots_ms: dict[str, int] = {}  # host: when its rules were received
        self._robots_known: set[str] = set()
        self._day: Counter[tuple[str, int]] = Counter()
        self._ids: set[bytes] = set()

    def granted(self, lease: FetchLease, now_ms: int) -> None:
        host = lease.host_key
        assert lease.lease_id not in self._ids, "a lease id was given twice"
        self._ids.add(lease.lease_id)
        out = self._out[host]
        one_at_a_time = host in self._robots_known and self._web.delay_ms(host) > 0
        tokens = 1 if one_at_a_time else self._policy.politeness.concurrency
        assert len(out) < tokens, f"{host}: {len(out)} requests were out already"
        assert now_ms >= self._not_before_ms[host], f"{host}: {self._not_before_ms[host] - now_ms} ms too early"
        self._day[host, now_ms // bounds.DAY_MS] += 1
        assert self._day[host, now_ms // bounds.DAY_MS] <= self._policy.politeness.budget_per_day, host
        if lease.kind is not Kind.ROBOTS:
            assert host in self._robots_known, f"{host}: a page before robots.txt"
            assert now_ms < self._robots_ms[host] + bounds.ROBOTS_TTL_MS, f"{host}: robots.txt is too old"
            assert self._web.allows(lease.url), f"{lease.url}: robots forbid it"
        out[lease.lease_id] = lease
        self._wait(host, now_ms)

    def received(self, result: FetchResult, now_ms: int) -> None:
        """A result came in. Of a lease that is not out, or the second time, nothing follows from it."""
        host = result.host_key
        if self._out[host].pop(result.lease_id, None) is None:
            return
        if result.robots is not None and result.robots.decision in (
            RobotsDecision.PARSE_RULES,
            RobotsDecision.ALLOW_ALL,
        ):
            asker = result.robots_for or host
            self._robots_known.add(asker)
            self._robots_ms[asker] = now_ms
        self._wait(host, now_ms)
        if result.status in (429, 503):
            least_ms = bounds.BACKOFF_BASE_MS if not result.retry_after_ms else result.retry_after_ms
            self._not_before_ms[host] = max(self._not_before_ms[host], now_ms + least_ms)

    def passed(self, now_ms: int) -> None:
        """Time went on: leases past their limits and the largest skew hold nothing any more."""
        for host, out in self._out.items():
            for lease_id, lease in list(out.items()):
                if lease.start_by_ms + lease.duration_ms_max + bounds.CLOCK_SKEW_MS_MAX <= now_ms:
                    del out[lease_id]
                    self._wait(host, now_ms)

    def closed(self, now_ms: int) -> None:
        """The fetcher's process is gone, and with it all that was out."""
        for host, out in self._out.items():
            if out:
                self._wait(host, now_ms)
            out.clear()

    def _wait(self, host: str, now_ms: int) -> None:
        asked_ms = self._web.delay_ms(host) if host in self._robots_known else 0
        delay_ms = max(self._policy.politeness.delay_ms, asked_ms)
        self._not_before_ms[host] = max(self._not_before_ms[host], now_ms + delay_ms)


class Auditor:
    """Books: after each commit the counts, rows and queues of the store agree, and no version is completed twice."""

    def __init__(self) -> None:
        self._visits: dict[bytes, tuple[int, int]] = {}
        self._known: set[bytes] = set()

    def check(self, store: MemoryStore, owner: Owner) -> None:
        rows = {key: decode_row(raw) for key, raw in store.families[Family.URL].items()}
        entries = {key[:HOST_ID_BYTES] + key[-URL_ID_BYTES:]: key for key in store.families[Family.QUEUE]}
        assert len(entries) == len(store.families[Family.QUEUE]), "a URL stands in two queues"
        seen, loading = store.families[Family.SEEN], owner.index.loading
        assert set(rows) >= self._known, "a URL was lost"
        self._known = set(rows)
        queued: dict[bytes, list[int]] = defaultdict(lambda: [0, 0, 0])
        statuses: dict[bytes, list[int]] = defaultdict(lambda: [0] * len(Status))
        for key, row in rows.items():
            host_id = key[:HOST_ID_BYTES]
            if not loading or key in entries:
                entry = host_id + row.place + key[HOST_ID_BYTES:]
                assert entries.get(key) == entry, f"{row.url}: its place is not its entry"
            if not loading or key in seen:
                assert seen.get(key) == seen_value(row), f"{row.url}: links are not compared with what it is"
            queued[host_id][row.place[0]] += 1
            statuses[host_id][row.status] += 1
            if row.visit is not None:
                now = (row.visit.visits, row.visit.url_version)
                visits, version = self._visits.get(key, (0, 0))
                if now[0] != visits:
                    assert now[1] > version, f"{row.url}: version {version} was completed twice"
                self._visits[key] = now
        assert set(entries) <= set(rows), "an entry has no row"
        assert set(seen) <= set(rows), "a URL is seen that is not known"
        totals = [0, 0, 0]
        for host_id, raw in store.hosts():
            host = decode_host(raw)
            assert host.queued == queued[host_id], host.host_key
            assert host.statuses == statuses[host_id], host.host_key
            assert host.known == sum(statuses[host_id]), host.host_key
            for queue in QueueClass:
                totals[queue] += host.queued[queue]
        found = owner.totals
        assert [found.queued_new, found.queued_retry, found.queued_revisit] == totals
        assert found.known == len(rows)
        assert found.hosts == len(store.families[Family.HOST])
