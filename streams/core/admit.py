"""ADMIT: discovered URLs become rows and queue entries, or are known, or are refused with a reason.

Seeds, sitemaps, feeds, redirects and links all enter here. The order of the tests is by cost and by how many links each
settles: the memo of links seen lately, then one multi-get of the seen family (`streams.core.seen`) for all that
is left of one host's links; only for what is new, or may bring news of a known URL, come scope and shape, the rows of
the known ones, and the count of a new one's template.

Two known URLs are not quite the same: one found again nearer to a seed gets the smaller depth, for what lies within a
depth limit must not depend on the order of discovery; one that a sitemap calls newer than our copy is due at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from schemas.records import DiscoveredUrl, Kind, Source
from streams.core import policy as bounds
from streams.core.hosts import count_status
from streams.core.memo import Memo
from streams.core.policy import CrawlPolicy
from streams.core.rows import QueueClass, Status, UrlRow, decode_row, due_ms_of, place, rank
from streams.core.rules.scope import Scope
from streams.core.rules.traps import TemplateCounts, template, url_trap
from streams.core.rules.urls import host_key, url_id
from streams.core.seen import ASK_ROW, brings_news
from streams.core.tasks import parse_task
from streams.core.turn import Family, HostSlot, Reads, Turn, bump

AT_ONCE_MS = 0  # due before anything that became due by itself, and so within the run that found it

encode_templates = msgspec.msgpack.Encoder().encode
decode_templates = msgspec.msgpack.Decoder(TemplateCounts).decode


Unseen = tuple[bytes, DiscoveredUrl, bool]
"""(key, what was found, whether there may be a row of it)."""


class Admission:
    """Admits the URLs of one host at a time."""

    def __init__(self, reads: Reads, policy: CrawlPolicy, scope: Scope, memo: Memo) -> None:
        self.scope = scope
        self._reads = reads
        self._policy = policy
        self._memo = memo
        self.on_partial: Callable[[HostSlot], None] = lambda slot: None  # links ask about a host that is not loaded
        limits = policy.traps
        least = min(limits.template_urls_max, limits.endless_template_urls_max)
        self._templates_from = bounds.TEMPLATES_FROM_URLS if least >= 4 * bounds.TEMPLATES_FROM_URLS else 0

    def admit(self, turn: Turn, slot: HostSlot, batch: Sequence[DiscoveredUrl]) -> None:
        """Admit URLs of the slot's host, in order. A URL twice in the batch is admitted once."""
        left = self.unseen(turn, slot, batch)
        if not left:
            return
        counts, rows = turn.counts, turn.rows
        passed: list[tuple[bytes, DiscoveredUrl]] = []
        to_read: list[bytes] = []
        for key, found, known in left:
            reason = self.refusal(found)
            if reason is not None:
                bump(counts.refused, reason)
                continue
            passed.append((key, found))
            if known:
                to_read.append(key)
        if to_read:
            self._read(turn, to_read)
        for key, found in passed:
            row = rows.get(key)
            if row is None:
                self._admit_new(turn, slot, key, found)
            elif row.url != found.url:
                # Two URLs with one id: by 128 bits of BLAKE2b this does not happen; if it does, the first one stands.
                bump(counts.refused, "id_collision")
            else:
                counts.known += 1
                self._meet_again(turn, slot, key, row, found)

    def unseen(self, turn: Turn, slot: HostSlot, batch: Sequence[DiscoveredUrl]) -> list[Unseen]:
        """The seen test: what is new or may bring news, in order. All others are counted as known.

        Of a host that the owner's index has only in part, what is not found there may have a row nevertheless.
        """
        prefix, rows, partial = slot.host_id, turn.rows, slot.loaded_to is not None
        asked = [(prefix + url_id(found.url), found) for found in self._memo.sift(batch)]
        values: list[bytes | None] = [None] * len(asked)
        if asked and not slot.new:  # of a host that this turn found, all that there is is in the turn
            values = self._reads.seen([key for key, _ in asked])
        left: list[Unseen] = []
        for (key, found), value in zip(asked, values, strict=True):
            if value is None:
                left.append((key, found, partial or key in rows))
                continue
            # `brings_news` in short, as it comes out for most links: no nearer, and nothing said but the URL.
            plain = found.source is Source.LINK and found.lastmod_ms is None and not found.trusted_hosts
            if plain and not value[1] and value[0] <= found.depth < ASK_ROW:
                continue
            if brings_news(value, found):
                left.append((key, found, True))
        if partial and left:
            self.on_partial(slot)
        turn.counts.known += len(batch) - len(left)
        return left

    def refusal(self, found: DiscoveredUrl) -> str | None:
        """Why a URL would not be admitted whatever is known, for `explain`; None when nothing stands against it."""
        if found.redirect_hops > bounds.REDIRECT_HOPS_MAX:
            return "too_many_redirects"
        if found.source is Source.SEED:
            return None
        if found.kind is Kind.SITEMAP and found.source is Source.SITEMAP:
            return self._leaves_out_sitemap(found.host_key, found.trusted_hosts)
        return self.scope.admits(found.url, found.host_key, found.depth) or url_trap(found.url)

    def leaves_out(self, host_key_: str, row: UrlRow) -> str | None:
        """Why today's scope leaves out a URL that was admitted, perhaps under a wider one; None when it does not."""
        if row.source is Source.SEED:
            return None
        if row.kind is Kind.SITEMAP and row.source is Source.SITEMAP:
            return self._leaves_out_sitemap(host_key_, row.trusted_hosts)
        return self.scope.admits(row.url, host_key_, row.depth)

    def _leaves_out_sitemap(self, host_key_: str, trusted_hosts: Sequence[str]) -> str | None:
        """Its path and name say nothing of the pages that it names: those of its own host, or of one that trusts it."""
        covered = any(map(self.scope.covers_host, (host_key_, *trusted_hosts)))
        return None if covered and self.scope.depth_max != 0 else "out_of_scope"

    def _read(self, turn: Turn, keys: list[bytes]) -> None:
        rows = turn.rows
        missing = sorted({key for key in keys if key not in rows})
        for key, raw in zip(missing, self._reads.rows(missing), strict=True):
            rows[key] = None if raw is None else decode_row(raw)

    def _admit_new(self, turn: Turn, slot: HostSlot, key: bytes, found: DiscoveredUrl) -> None:
        if found.source is not Source.SEED and self._growing_trap(turn, slot, found.url, key[-16:]):
            slot.state.trap_refused += 1
            bump(turn.counts.refused, "trap_pattern")
            turn.touch(slot)
            return
        priority = priority_of(found)
        row = UrlRow(
            url=found.url,
            source=found.source,
            kind=found.kind,
            depth=found.depth,
            redirect_hops=found.redirect_hops,
            parent_id=found.parent_id,
            priority=priority,
            discovered_ms=found.discovered_ms,
            lastmod_ms=found.lastmod_ms,
            trusted_hosts=found.trusted_hosts[: bounds.TRUSTED_HOSTS_MAX],
        )
        enqueue(turn, slot, key, row, QueueClass.NEW, 0)
        turn.put_seen(key, row)
        slot.state.known += 1
        turn.known += 1
        count_status(slot.state, None, row.status)
        turn.counts.admitted += 1

    def _growing_trap(self, turn: Turn, slot: HostSlot, url: str, url_id_: bytes) -> bool:
        """Count the URL's template. The counts are written once in a while: too low a count errs for the site.

        Most hosts are small and never come near a limit: theirs are not counted at all.
        """
        if slot.state.known < self._templates_from:
            return False
        templates = slot.templates
        if templates is None:
            raw = self._reads.get(Family.TEMPLATES, slot.host_id)
            templates = slot.templates = TemplateCounts() if raw is None else decode_templates(raw)
        paused = len(templates.paused)
        reason = templates.count(template(url), url_id_, self._policy.traps)
        slot.templates_unsaved += 1
        if slot.templates_unsaved >= bounds.TEMPLATES_UNSAVED_MAX or len(templates.paused) != paused:
            write_templates(turn, slot)
        turn.counts.patterns_paused += len(templates.paused) - paused
        slot.state.paused_patterns = len(templates.paused)
        turn.touch(slot)
        return reason is not None

    def _meet_again(self, turn: Turn, slot: HostSlot, key: bytes, row: UrlRow, found: DiscoveredUrl) -> None:
        nearer = found.depth < row.depth
        becomes_seed = found.source is Source.SEED and row.source is not Source.SEED
        if nearer or becomes_seed or found.redirect_hops < row.redirect_hops:
            self._relax(turn, slot, key, row, found)
            visit = row.visit
            if nearer and self._policy.depth_max is not None and visit is not None and visit.content is not None:
                # Its links lie nearer now, and some may have come within the limit: the stored body is read again.
                turn.add_task(key, parse_task(slot.state.host_key, key[-16:], row, visit, self._policy))
            if visit is not None and visit.redirect_target is not None:
                turn.found.append(redirect_target(row, key[-16:], visit.redirect_target, turn.now_ms))
                if row.source is Source.SEED:
                    turn.new_seeds.append(visit.redirect_target)
        if row.status is Status.OUT_OF_SCOPE and self.leaves_out(slot.state.host_key, row) is None:
            take_in(turn, slot, key, row)
        if found.trusted_hosts:
            self._trust(turn, slot, key, row, found)
        newer = found.lastmod_ms is not None and row.visit is not None and found.lastmod_ms > row.visit.fetched_ms
        if newer and row.lastmod_ms != found.lastmod_ms and key[-16:] not in slot.rows:
            row.lastmod_ms = found.lastmod_ms
            requeue(turn, slot, key, row, QueueClass.REVISIT, AT_ONCE_MS)

    def _trust(self, turn: Turn, slot: HostSlot, key: bytes, row: UrlRow, found: DiscoveredUrl) -> None:
        """Another host's robots.txt names the sitemap: what it says of that host counts from now on."""
        trusted = tuple(dict.fromkeys((*row.trusted_hosts, *found.trusted_hosts)))[: bounds.TRUSTED_HOSTS_MAX]
        if trusted == row.trusted_hosts:
            return
        row.trusted_hosts = trusted
        turn.put_row(key, row)
        if key[-16:] in slot.rows:
            slot.rows[key[-16:]] = row
        visit = row.visit
        if visit is not None and visit.content is not None:
            task = parse_task(slot.state.host_key, key[-16:], row, visit, self._policy)
            turn.add_task(key, msgspec.structs.replace(task, kept=False))  # it says more than what lies stored

    def _relax(self, turn: Turn, slot: HostSlot, key: bytes, row: UrlRow, found: DiscoveredUrl) -> None:
        """Of all ways to a URL the row tells the best, whichever was met first; a seed is what the user asked for."""
        row.depth = min(row.depth, found.depth)
        row.redirect_hops = min(row.redirect_hops, found.redirect_hops)
        if found.source is Source.SEED:
            row.source, row.priority = Source.SEED, priority_of(found)
        turn.put_row(key, row)
        turn.put_seen(key, row)
        if key[-16:] in slot.rows:
            slot.rows[key[-16:]] = row  # its result is to complete this row, not the one from before
        elif row.place and row.place[0] == QueueClass.NEW:
            requeue(turn, slot, key, row, QueueClass.NEW, 0)


def write_templates(turn: Turn, slot: HostSlot) -> None:
    """Make the counts of the host's URL templates durable, with everything counted so far."""
    slot.templates_unsaved = 0
    turn.writes.append((Family.TEMPLATES, slot.host_id, encode_templates(slot.templates)))


def priority_of(found: DiscoveredUrl) -> int:
    """Page value as far as it is known before the first fetch: what the finder says, seeds first."""
    if found.source is Source.SEED:
        return 255
    if found.kind is Kind.SITEMAP:
        return max(found.priority_hint, 200)  # it is one fetch and names many
    return found.priority_hint


def redirect_target(row: UrlRow, url_id_: bytes, target: str, now_ms: int) -> DiscoveredUrl:
    """A redirect's target is a URL of its own host. A seed's target is a seed: it is what the user asked for."""
    return DiscoveredUrl(
        url=target,
        host_key=host_key(target),
        source=Source.SEED if row.source is Source.SEED else Source.REDIRECT,
        discovered_ms=now_ms,
        parent_id=url_id_,
        depth=row.depth,
        redirect_hops=row.redirect_hops + 1,
        priority_hint=row.priority,
        kind=row.kind,
    )


def enqueue(turn: Turn, slot: HostSlot, key: bytes, row: UrlRow, queue: QueueClass, due_ms: int) -> None:
    """Put a row that is in no queue into one, in the window and durably."""
    assert not row.place
    state = slot.state
    row.place = place(queue, due_ms, rank(row.priority, row.depth))
    tail = row.place + key[-16:]
    slot.queue.push(tail)
    if queue is QueueClass.REVISIT:
        due_ms = due_ms_of(tail)
        if due_ms < state.revisit_ms or not state.queued[queue]:
            state.revisit_ms = due_ms
    turn.writes.append((Family.QUEUE, slot.host_id + tail, b""))
    turn.rows[key] = turn.dirty_rows[key] = row
    state.queued[queue] += 1
    turn.queued[queue] += 1
    turn.touch(slot)


def dequeue(turn: Turn, slot: HostSlot, key: bytes, row: UrlRow) -> None:
    """Take a row out of its queue, wherever it stands."""
    if not row.place:
        return
    tail = row.place + key[-16:]
    slot.queue.remove(tail)
    turn.writes.append((Family.QUEUE, slot.host_id + tail, None))
    queue, queued = tail[0], slot.state.queued
    queued[queue] -= 1
    turn.queued[queue] -= 1
    assert queued[queue] >= 0, (slot.state.host_key, queue)
    row.place = b""


def requeue(turn: Turn, slot: HostSlot, key: bytes, row: UrlRow, queue: QueueClass, due_ms: int) -> None:
    """Move a row from its queue, if it is in one, to another place."""
    dequeue(turn, slot, key, row)
    enqueue(turn, slot, key, row, queue, due_ms)


def change_status(turn: Turn, slot: HostSlot, key: bytes, row: UrlRow, status: Status) -> None:
    """What became of a URL. The caller writes the row."""
    before = row.status
    count_status(slot.state, before, status)
    row.status = status
    if before is not status and (before is Status.OUT_OF_SCOPE or status is Status.OUT_OF_SCOPE):
        turn.put_seen(key, row)


def take_in(turn: Turn, slot: HostSlot, key: bytes, row: UrlRow) -> None:
    """A URL that was put off, when its turn came under a narrower scope, is in scope now and due at once."""
    assert row.status is Status.OUT_OF_SCOPE, row.url
    assert key[-16:] not in slot.rows, row.url
    visit = row.visit
    if visit is None:
        status = Status.NEW
    elif visit.content is not None:
        status = Status.FETCHED
    else:
        status = Status.FAILED if visit.redirect_target is None else Status.REDIRECT
    change_status(turn, slot, key, row, status)
    requeue(turn, slot, key, row, QueueClass.NEW if visit is None else QueueClass.REVISIT, AT_ONCE_MS)
