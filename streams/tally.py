"""What a run counts of itself, for people: cheap to gather while it runs, forgotten with it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

from connectors.ports import Fetched
from schemas.records import FetchResult, Kind, Outcome, RobotsDecision
from streams.core.explain import host_waits_for
from streams.core.hosts import NEVER_MS
from streams.core.owner import Owner
from streams.core.progress import HostSpeed, HostWaiting, Progress, RecentPage, State
from streams.core.rows import QueueClass
from streams.core.rules.urls import host_name
from streams.core.turn import Turn

_RATE_MS = 5_000
_HOSTS_LOOKED_AT_MAX = 2_000  # in one snapshot
_SEED_HOSTS_MAX = 100  # as many as a person types
_WAIT_TOLD_MS_MIN = 2_000  # a shorter wait is a host's usual delay


class Tally:
    """Counts of one run; `turn` after each commit, `progress` whenever somebody looks."""

    def __init__(self, started_ms: int, pages_max: int | None, seed_hosts: Iterable[str] = ()) -> None:
        """`seed_hosts`: host keys that were named by a person, who may have mistyped one; a bounded number is kept."""
        self.pages = 0
        self.published_ms = 0
        self._started_ms = started_ms
        self._pages_max = pages_max
        self._outcomes: dict[str, int] = {}
        self._errors: dict[str, int] = {}
        self._duplicates = 0
        self._denied = 0
        self._dead = 0
        self._retried: dict[str, int] = {}
        self._wire_bytes = self._body_bytes = 0
        self._recent: deque[RecentPage] = deque(maxlen=8)
        self._marks: deque[tuple[int, int, int]] = deque()  # (ms, pages, wire bytes)
        self._warnings: dict[str, None] = {}
        self._waits = False
        self._not_met = set(islice(seed_hosts, _SEED_HOSTS_MAX))

    def warn(self, sentence: str) -> None:
        """Each sentence once."""
        self._warnings[sentence] = None

    def turn(self, turn: Turn, fetched: Sequence[Fetched], duplicates: int) -> None:
        """`duplicates`: bodies of the turn that lay stored already."""
        counts = turn.counts
        self._duplicates += duplicates
        for outcome, number in counts.completed.items():
            self._outcomes[outcome] = self._outcomes.get(outcome, 0) + number
        for kind, number in counts.errors.items():
            self._errors[kind] = self._errors.get(kind, 0) + number
        self.pages += counts.completed.get(Outcome.FETCHED.value, 0)
        self.pages += counts.completed.get(Outcome.NOT_MODIFIED.value, 0)
        for kind, number in counts.retried.items():
            self._retried[kind] = self._retried.get(kind, 0) + number
        self._denied += counts.denied
        self._dead += len(turn.dead)
        for one in fetched:
            result = one.result
            self._meet(result)
            self._wire_bytes += result.wire_bytes
            self._body_bytes += result.body_bytes
            unreachable = result.robots is not None and result.robots.decision is RobotsDecision.DISALLOW_ALL
            if unreachable:  # the host's pages wait for it, so it is told like a page's own failure
                label = f"robots.txt {result.error or result.status}"
                self._errors[label] = self._errors.get(label, 0) + 1
            if unreachable or result.kind is not Kind.ROBOTS:
                took_ms = max(0, result.finished_ms - result.started_ms)
                self._recent.append(RecentPage(result.url, result.status, took_ms, result.error, result.kind.value))

    def _meet(self, result: FetchResult) -> None:
        """Of a seed's host the first answer tells whether its name is one: it is told at once, not tried in silence."""
        if result.host_key in self._not_met:
            self._not_met.discard(result.host_key)
            if result.error == "dns_nxdomain":
                name = host_name(result.host_key)
                self.warn(f"no such name: {name} (dns_nxdomain); is it spelled right? It is tried again later")

    def progress(
        self, state: State, owner: Owner, now_ms: int, *, in_flight: int, store_backlog: int, parse_backlog: int
    ) -> Progress:
        pages_per_s, bytes_per_s = self._rates(now_ms)
        ready, waiting = owner.frontier.schedule.sizes(now_ms)
        totals = owner.totals
        slowest, backing_off, patterns = _look_at_hosts(owner, now_ms)
        outcomes = self._outcomes
        busy = in_flight or store_backlog or parse_backlog or state is not State.RUNNING
        waits_for, waits_until_ms = ("", None) if busy else _all_wait(owner, now_ms, told=self._waits)
        self._waits = bool(waits_for)
        stored = outcomes.get(Outcome.FETCHED.value, 0)
        return Progress(
            state=state,
            at_ms=now_ms,
            waits_for=waits_for,
            waits_until_ms=waits_until_ms,
            elapsed_ms=now_ms - self._started_ms,
            pages=self.pages,
            pages_max=self._pages_max,
            stored=stored - self._duplicates,
            duplicates=self._duplicates,
            not_modified=outcomes.get(Outcome.NOT_MODIFIED.value, 0),
            redirects=outcomes.get(Outcome.REDIRECT.value, 0),
            robots_denied=self._denied,
            robots_fetched=outcomes.get(Kind.ROBOTS.value, 0),
            errors_by_kind=dict(self._errors),
            retries=sum(self._retried.values()),
            retries_by_kind=dict(self._retried),
            dead_letters=self._dead,
            wire_bytes=self._wire_bytes,
            body_bytes=self._body_bytes,
            pages_per_s=pages_per_s,
            wire_bytes_per_s=bytes_per_s,
            urls_known=totals.known,
            urls_queued=totals.queued_new + totals.queued_retry,
            hosts_known=totals.hosts,
            hosts_ready=ready,
            hosts_waiting=max(0, waiting - backing_off),
            hosts_backing_off=backing_off,
            paused_patterns=patterns,
            in_flight=in_flight,
            store_backlog=store_backlog,
            parse_backlog=parse_backlog,
            slowest_hosts=slowest,
            last_urls=tuple(self._recent),
            warnings=tuple(self._warnings),
        )

    def _rates(self, now_ms: int) -> tuple[float, float]:
        marks = self._marks
        marks.append((now_ms, self.pages, self._wire_bytes))
        while len(marks) > 2 and marks[0][0] < now_ms - _RATE_MS:
            marks.popleft()
        then_ms, pages, wire = marks[0]
        if now_ms <= then_ms:
            return 0.0, 0.0
        seconds = (now_ms - then_ms) / 1_000
        return (self.pages - pages) / seconds, (self._wire_bytes - wire) / seconds

    def hosts_left(self, owner: Owner, now_ms: int) -> tuple[tuple[HostWaiting, ...], int]:
        """The hosts that still have URLs for this crawl, the longest queues first."""
        left = []
        for slot in owner.hosts.in_memory():
            host = slot.state
            queued = host.queued[0] + host.queued[1]
            if queued:
                reason, next_ms = host_waits_for(host, now_ms, owner.policy)
                told = not host.trouble or not host.last_error or host.last_error in reason
                trouble = "" if told else f" ({host.last_error})"
                left.append(HostWaiting(host.host_key, queued, reason + trouble, next_ms))
        left.sort(key=lambda host: (-host.queued, host.host_key))
        return tuple(left[:10]), len(left)


def _all_wait(owner: Owner, now_ms: int, *, told: bool) -> tuple[str, int | None]:
    """(the hosts that are waited for and why, until when); ("", None) while any may be asked soon.

    A wait that was `told` is one to its end.
    """
    if owner.frontier.schedule.next_ms() < now_ms + (1 if told else _WAIT_TOLD_MS_MIN):
        return "", None
    number, why, until_ms = 0, "", NEVER_MS
    for slot in islice(owner.hosts.in_memory(), _HOSTS_LOOKED_AT_MAX):
        host = slot.state
        if not host.queued[QueueClass.NEW] and not host.queued[QueueClass.RETRY]:
            continue
        reason, next_ms = host_waits_for(host, now_ms, owner.policy)
        if next_ms is not None and host.ready_ms < NEVER_MS:
            next_ms = max(next_ms, host.ready_ms)
        number += 1
        if not why or (next_ms is not None and next_ms < until_ms):
            why = host.last_error if host.trouble and host.last_error else reason
            until_ms = NEVER_MS if next_ms is None else next_ms
    if not number:
        return "", None
    return f"{number:,} host{'' if number == 1 else 's'}: {why}", until_ms if until_ms < NEVER_MS else None


def _look_at_hosts(owner: Owner, now_ms: int) -> tuple[tuple[HostSpeed, ...], int, int]:
    """(the slowest, how many back off, paused patterns), of the hosts in memory, a bounded number of them."""
    speeds = []
    backing_off = patterns = 0
    for at, slot in enumerate(owner.hosts.in_memory()):
        if at >= _HOSTS_LOOKED_AT_MAX:
            break
        host = slot.state
        backing_off += host.backoff_until_ms > now_ms
        patterns += host.paused_patterns
        if host.mean_ms > 0:
            speeds.append((host.mean_ms, host.host_key, host.queued[0] + host.queued[1]))
    speeds.sort(reverse=True)
    slowest = tuple(HostSpeed(key, round(mean_ms), queued) for mean_ms, key, queued in speeds[:5])
    return slowest, backing_off, patterns
