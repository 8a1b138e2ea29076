"""COMPLETE: what a result, a stored body, a parsed page or a lost lease makes of a URL and its host.

A message counts only if its lease is in flight and in the state that the message answers (`streams.core.hosts` has the
table); anything else is late or repeated, is counted, and changes nothing.

| result (page or sitemap)    | the URL                                             | the host              |
|-----------------------------|-----------------------------------------------------|-----------------------|
| fetched                     | waits for its stored result                         | went well             |
| stored                      | FETCHED, parse task if its content changed, revisit |                       |
| not modified                | times change, longer interval                       | went well             |
| redirect                    | REDIRECT, target admitted as a URL of its own host  | went well             |
| retry: 429, 503             | again after the host's backoff                      | backoff, pace halves  |
| retry: others               | again after 30 s, 2, 5, 15, 15 min, then given up   | backoff when repeated |
| failed: 404, 410            | FAILED, soon once more, then GONE                   | went well             |
| failed: others              | FAILED, long interval                               | went well             |
| refused                     | REFUSED, long interval                              |                       |
| expired (nothing was asked) | leased again                                        |                       |
| no result, lease expired    | leased again, attempt + 1; given up after many      |                       |
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from schemas.records import (
    DeadLetter,
    FetchResult,
    Kind,
    Outcome,
    ParsedPage,
    Source,
    StoredResult,
)
from streams.core import hosts
from streams.core import policy as bounds
from streams.core.admit import change_status, redirect_target, requeue
from streams.core.frontier import Frontier
from streams.core.hosts import Answer, InFlight
from streams.core.indexing import WITHDRAWING, withdrawal
from streams.core.policy import CrawlPolicy
from streams.core.rows import HOST_ID_BYTES, QueueClass, Status, UrlRow, Visit
from streams.core.rules import revisit
from streams.core.tasks import parse_task
from streams.core.turn import Family, FetchLogEntry, HostSlot, Turn, bump

_encode_dead = msgspec.msgpack.Encoder().encode
_GONE_STATUSES = (404, 410)
_HOST_TROUBLE_STATUSES = (429, 503)


class Completion:
    """Settles the leases of one owner."""

    def __init__(self, frontier: Frontier, policy: CrawlPolicy, jitter: Callable[[], float]) -> None:
        self._frontier = frontier
        self._policy = policy
        self._jitter = jitter

    def fetched(self, turn: Turn, slot: HostSlot, result: FetchResult) -> bool:
        """A fetch result of kind page or sitemap. False: it was late or repeated, nothing changed."""
        host, now_ms = slot.state, turn.now_ms
        lease = host.in_flight.get(result.lease_id)
        if lease is None or lease.storing or lease.url_id != result.url_id:
            turn.counts.stale += 1
            return False
        turn.touch(slot)
        self.log(turn, slot, result, lease)
        bump(turn.counts.completed, result.outcome._value_)  # `.value` is a call
        if result.error and result.outcome not in (Outcome.RETRY, Outcome.EXPIRED):
            bump(turn.counts.errors, result.error)
        if result.outcome is Outcome.FETCHED:
            answer = Answer(
                status=result.status,
                finished_ms=result.finished_ms,
                body_bytes=result.body_bytes,
                etag=result.etag,
                last_modified=result.last_modified,
                content_type=result.content_type,
            )
            hosts.begin_storing(host, result.lease_id, answer, now_ms, self._policy)
            hosts.went_well(host, result)
            if lease.stored is not None:
                early, lease.stored = lease.stored, None
                self.stored(turn, slot, early)
            return True
        hosts.return_token(host, result.lease_id, now_ms, self._policy)
        key = slot.host_id + lease.url_id
        row = self._row(turn, slot, lease)
        slot.rows.pop(lease.url_id, None)
        if result.outcome is Outcome.RETRY:
            self._retry(turn, slot, key, row, lease, result)
        elif result.outcome is Outcome.EXPIRED:
            self._lease_again(turn, slot, key, row, lease, lost=0)
        else:
            if result.outcome is not Outcome.REFUSED:
                hosts.went_well(host, result)
            self._settle(turn, slot, key, row, lease, result)
        return True

    def stored(self, turn: Turn, slot: HostSlot, stored: StoredResult) -> bool:
        """The body is durable: the visit is complete once its result is there. False: late or repeated."""
        host = slot.state
        lease = host.in_flight.get(stored.lease_id)
        if (
            lease is None
            or lease.kind is Kind.ROBOTS
            or lease.url_id != stored.url_id
            or lease.url_version != stored.url_version
            or lease.stored is not None
        ):
            turn.counts.stale += 1
            return False
        turn.touch(slot)
        if not lease.storing or lease.answer is None:  # results and stored results come by topics of their own
            lease.stored = stored
            return True
        hosts.close_stored(host, stored.lease_id)
        key = slot.host_id + lease.url_id
        row = self._row(turn, slot, lease)
        slot.rows.pop(lease.url_id, None)
        answer = lease.answer
        before = row.visit
        hash_before = b"" if before is None else before.content_hash
        changed = hash_before != stored.content_hash
        told_before = None if before is None else (before.robots_tags, before.link_headers)
        visit = _next_visit(before, answer.finished_ms, answer.status, lease.url_version)
        visit.gone, visit.error, visit.redirect_target = 0, "", None
        visit.body, visit.content, visit.content_hash = stored.body, stored.content, stored.content_hash
        visit.body_bytes, visit.content_type = answer.body_bytes, stored.content_type
        visit.etag, visit.last_modified = answer.etag, answer.last_modified
        visit.robots_tags, visit.link_headers = stored.robots_tags, stored.link_headers
        if visit.interval_ms == 0:
            visit.interval_ms = revisit.first_interval_ms(row.priority, self._policy)
        elif changed:
            visit.interval_ms = revisit.changed_interval_ms(visit.interval_ms, self._policy)
        else:
            visit.interval_ms = revisit.unchanged_interval_ms(visit.interval_ms, self._policy)
        if changed:
            visit.content_version = lease.url_version
            visit.changed_ms = answer.finished_ms
            visit.extractor_version = 0
            visit.changes += 1 if hash_before else 0
        elif told_before != (stored.robots_tags, stored.link_headers):  # a late noindex: the same bytes read otherwise
            visit.content_version, visit.extractor_version = lease.url_version, 0
        self._close(turn, slot, key, row, lease, Status.FETCHED, visit, visit.interval_ms)
        host.pages += 1
        turn.pages += 1
        if changed or visit.extractor_version != self._policy.extractor_version:
            turn.add_task(key, parse_task(host.host_key, lease.url_id, row, visit, self._policy))
        return True

    def parsed(self, turn: Turn, slot: HostSlot, page: ParsedPage) -> None:
        """What the parser made of a body. Of an older version, only the links are news."""
        key = slot.host_id + page.url_id
        row = self._frontier.row(turn, key)
        if row is None or row.visit is None or not self._has_newer_task(row, row.visit, page):
            turn.writes.append((Family.TASK, key, None))
        if row is None or row.visit is None or row.visit.content_version != page.url_version:
            turn.counts.stale += 1
            return
        visit = row.visit
        if visit.extractor_version == page.extractor_version and page.error and not visit.parse_error:
            return  # the reading before went well and tells more
        if visit.extractor_version != page.extractor_version or page.text is not None:
            visit.text = page.text  # else its records were not made again
        visit.extractor_version, visit.parse_error = page.extractor_version, page.error
        visit.simhash, visit.title, visit.canonical = page.simhash, page.title, page.canonical
        visit.index, visit.follow = page.index and not page.soft_404, page.follow
        visit.links = len(page.links) + page.links_omitted + len(page.entries)
        turn.put_row(key, row)
        leased = slot.rows.get(page.url_id)
        if leased is not None and leased is not row:
            slot.rows[page.url_id] = row
        if page.error:
            bump(turn.counts.errors, page.error)

    def _has_newer_task(self, row: UrlRow, visit: Visit, page: ParsedPage) -> bool:
        """Whether another task of the URL took this one's key meanwhile: of newer content, or from nearer to a seed."""
        nearer = self._policy.depth_max is not None and row.depth < page.depth
        return nearer or page.url_version < visit.content_version

    def lost(self, turn: Turn, slot: HostSlot, lease_id: bytes) -> None:
        """No result came in time, or none can come any more: the token is back and the URL is leased again."""
        host = slot.state
        lease = host.in_flight[lease_id]
        if lease.storing:
            hosts.close_stored(host, lease_id)
        else:
            hosts.return_token(host, lease_id, turn.now_ms, self._policy)
        turn.touch(slot)
        key = slot.host_id + lease.url_id
        row = self._row(turn, slot, lease)
        slot.rows.pop(lease.url_id, None)
        self._lease_again(turn, slot, key, row, lease, lost=1)

    def _row(self, turn: Turn, slot: HostSlot, lease: InFlight) -> UrlRow:
        row = slot.rows.get(lease.url_id)
        key = slot.host_id + lease.url_id
        if row is None or turn.rows.get(key) is not None:
            row = self._frontier.row(turn, key)
        assert row is not None, (slot.state.host_key, lease.url_id.hex())
        return row

    def log(self, turn: Turn, slot: HostSlot, result: FetchResult, lease: InFlight) -> None:
        turn.log.append(FetchLogEntry(result, lease, lease.policy_version, lease.delay_ms, accepted=True))

    def _close(
        self,
        turn: Turn,
        slot: HostSlot,
        key: bytes,
        row: UrlRow,
        lease: InFlight,
        status: Status,
        visit: Visit,
        interval_ms: int,
    ) -> None:
        change_status(turn, slot, key, row, status)
        row.visit, row.last_error = visit, ""
        row.version, row.attempt, row.failures, row.troubles, row.lost = lease.url_version, 0, 0, 0, 0
        requeue(turn, slot, key, row, QueueClass.REVISIT, turn.now_ms + interval_ms)

    def _settle(
        self, turn: Turn, slot: HostSlot, key: bytes, row: UrlRow, lease: InFlight, result: FetchResult
    ) -> None:
        """Every outcome that ends a visit without a stored body."""
        status_before = result.status if row.visit is None else row.visit.status
        visit = _next_visit(row.visit, result.finished_ms, result.status, lease.url_version)
        visit.error = result.error
        if result.outcome is Outcome.NOT_MODIFIED:
            visit.gone, visit.redirect_target = 0, None
            visit.status = status_before  # of the answer that the content came with
            visit.etag = result.etag or visit.etag
            visit.last_modified = result.last_modified or visit.last_modified
            visit.interval_ms = revisit.unchanged_interval_ms(visit.interval_ms, self._policy)
            self._close(turn, slot, key, row, lease, Status.FETCHED, visit, visit.interval_ms)
            if visit.content is not None and visit.extractor_version != self._policy.extractor_version:
                turn.add_task(key, parse_task(slot.state.host_key, lease.url_id, row, visit, self._policy))
        elif result.outcome is Outcome.REDIRECT:
            target = result.redirect_target
            assert target is not None
            visit.gone, visit.redirect_target = 0, target
            _withdraw(turn, slot, key, row, visit)
            interval = self._policy.revisit_ms_max if result.permanent else self._policy.revisit_ms_min * 7
            interval = max(self._policy.revisit_ms_min, min(self._policy.revisit_ms_max, interval))
            self._close(turn, slot, key, row, lease, Status.REDIRECT, visit, interval)
            found = redirect_target(row, lease.url_id, target, turn.now_ms)
            turn.found.append(found)
            if found.source is Source.SEED:
                turn.new_seeds.append(target)
        elif result.status in _GONE_STATUSES:
            visit.gone += 1
            status = Status.GONE if visit.gone >= bounds.TOMBSTONE_AFTER_VISITS else Status.FAILED
            interval = revisit.gone_interval_ms(visit.gone, self._policy)
            if status is Status.GONE:
                _withdraw(turn, slot, key, row, visit)
            self._close(turn, slot, key, row, lease, status, visit, interval)
        else:
            status = Status.REFUSED if result.outcome is Outcome.REFUSED else Status.FAILED
            self._close(turn, slot, key, row, lease, status, visit, revisit.failed_interval_ms(self._policy))

    def _retry(self, turn: Turn, slot: HostSlot, key: bytes, row: UrlRow, lease: InFlight, result: FetchResult) -> None:
        host, now_ms = slot.state, turn.now_ms
        in_trouble = result.status in _HOST_TROUBLE_STATUSES
        if in_trouble:
            hosts.troubled(host, result, now_ms, self._jitter)
        else:
            hosts.failed(host, result, now_ms, self._jitter)
        row.version, row.attempt = lease.url_version, lease.attempt + 1
        delays = bounds.RETRY_DELAYS_MS
        if in_trouble:  # counted apart: a busy host's 429s do not use up the tries of a URL that then fails
            row.troubles += 1
        else:
            row.failures += 1
        if row.troubles > bounds.TROUBLED_RETRIES_MAX or row.failures > len(delays):
            self._give_up(turn, slot, key, row, lease, result.error or str(result.status), result)
            return
        row.last_error = result.error or str(result.status)
        bump(turn.counts.retried, row.last_error)
        wait = 0 if in_trouble else delays[min(row.failures, len(delays)) - 1]
        due_ms = max(now_ms + max(wait, result.retry_after_ms or 0), host.backoff_until_ms if in_trouble else 0)
        requeue(turn, slot, key, row, QueueClass.RETRY, due_ms)

    def _lease_again(self, turn: Turn, slot: HostSlot, key: bytes, row: UrlRow, lease: InFlight, *, lost: int) -> None:
        row.version, row.attempt = lease.url_version, lease.attempt + 1
        row.lost += lost
        if row.lost > self._policy.lost_leases_max:
            self._give_up(turn, slot, key, row, lease, "lease_lost", None)
            return
        requeue(turn, slot, key, row, QueueClass.RETRY, turn.now_ms)

    def _give_up(
        self,
        turn: Turn,
        slot: HostSlot,
        key: bytes,
        row: UrlRow,
        lease: InFlight,
        error: str,
        result: FetchResult | None,
    ) -> None:
        """After the last try: a dead letter for the operator, and the URL rests as failed."""
        letter = DeadLetter(
            stage="fetch",
            host_key=slot.state.host_key,
            url=row.url,
            error=error,
            attempts=lease.attempt + 1,
            failed_ms=turn.now_ms,
            record=b"" if result is None else _encode_dead(result),
            url_id=lease.url_id,
            status=0 if result is None else result.status,
        )
        turn.dead.append(letter)
        bump(turn.counts.errors, error)
        turn.writes.append((Family.DEAD, key, _encode_dead(letter)))
        visit = _next_visit(row.visit, turn.now_ms, letter.status, lease.url_version)
        visit.error = error
        self._close(turn, slot, key, row, lease, Status.FAILED, visit, revisit.failed_interval_ms(self._policy))


def bury(turn: Turn, slot: HostSlot, key: bytes, row: UrlRow) -> None:
    """An operator deleted the host: the URL, which is not leased, is a tombstone that keeps its place in the queue.

    It takes a version of its own, above that of its content, so that the index forgets the document for good; the
    next visit, should there be one, is above it.
    """
    visit = row.visit
    assert visit is not None, row.url
    if row.status in WITHDRAWING:
        return
    row.version += 1
    visit.url_version = row.version
    _withdraw(turn, slot, key, row, visit)
    change_status(turn, slot, key, row, Status.GONE)
    turn.put_row(key, row)
    turn.touch(slot)


def _withdraw(turn: Turn, slot: HostSlot, key: bytes, row: UrlRow, visit: Visit) -> None:
    """There is no content any more. Should it come back unchanged, it is read anew, under this visit's version."""
    if visit.content is None or row.status in WITHDRAWING:
        return
    visit.content_version, visit.extractor_version = visit.url_version, 0
    turn.writes.append((Family.TASK, key, None))
    if row.kind is Kind.PAGE:
        url_id = key[HOST_ID_BYTES:]
        turn.withdrawn.append(withdrawal(row, url_id, slot.state.host_key, visit.url_version, visit.fetched_ms))


def _next_visit(before: Visit | None, fetched_ms: int, status: int, url_version: int) -> Visit:
    """The visit that follows: what is known stays, what this visit tells is overwritten by the caller."""
    if before is None:
        return Visit(fetched_ms=fetched_ms, status=status, url_version=url_version)
    before.fetched_ms, before.status, before.url_version = fetched_ms, status, url_version
    before.visits += 1
    return before
