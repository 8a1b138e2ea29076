"""REREAD: stored bodies are read again, and none of them is fetched again.

A page's links are judged by the scope of the day on which the page is read. When the scope grows, because a run was
told so or because a seed redirected to another host, what was refused before must come in: the stored bodies that
belong to the crawl are given to the parsers again, the targets of known redirects are admitted again, and URLs that a
narrower scope had put off come up at once. With `every` off the same walk reads only what an older extractor read.

It is a walk over all rows in the order of their keys, a bounded number at a time, whenever the parsers have little to
do. Its place becomes durable with the tasks that it made, so a crash in its midst costs nothing. A scope that grows
during a walk needs the rows walked over so far once more: the walk then goes on to the end, and from the beginning up
to there.

What the scope was is remembered in short (`_Remembered`): seeds are only ever added, so a count and a digest name them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from schemas.records import Kind
from streams.core.active import Hosts
from streams.core.admit import Admission, redirect_target, take_in
from streams.core.policy import CrawlPolicy
from streams.core.rows import HOST_ID_BYTES, Status, UrlRow, Visit, decode_row
from streams.core.rules.scope import Scope, ScopeMode
from streams.core.rules.urls import host_key
from streams.core.tasks import parse_task
from streams.core.turn import Family, Reads, Turn

REREAD_KEY, SCOPE_KEY = b"reread", b"scope"
_DIGEST_BYTES = 16


class Reread(msgspec.Struct, frozen=True, array_like=True):
    """Where a walk stands. Keys are host_id ‖ url_id; empty ones are the ends."""

    after: bytes = b""  # the last key that was looked at
    stop: bytes = b""  # the last key to look at; empty: to the end
    again: bytes = b""  # at the end, begin anew and go up to here; empty: no
    every: bool = True  # else only bodies that an older extractor read

    def grown(self) -> Reread:
        """Everything up to here has to be looked at once more."""
        return msgspec.structs.replace(self, stop=b"", again=max(self.after, self.again), every=True)

    def next_round(self) -> Reread | None:
        """At the end of a round."""
        return Reread(stop=self.again, every=self.every) if self.again else None


class _Remembered(msgspec.Struct, frozen=True, array_like=True):
    """A scope without its seeds."""

    mode: ScopeMode
    depth_max: int | None
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    seeds: int
    digest: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode_place = msgspec.msgpack.Decoder(Reread).decode
_decode_scope = msgspec.msgpack.Decoder(_Remembered).decode


class Rereading:
    """The walk of one owner, if there is one: `place` is None when nothing is left to be read again."""

    def __init__(self, reads: Reads, policy: CrawlPolicy) -> None:
        self._reads = reads
        self._policy = policy
        self._scope: Scope | None = None
        self._unwritten: dict[bytes, bytes | None] = {}
        raw = reads.get(Family.OWNER, REREAD_KEY)
        self.place: Reread | None = None if raw is None else _decode_place(raw)

    def meet(self, scope: Scope) -> None:
        """The scope at the start, and each that it becomes: one that may admit more begins a walk."""
        before = self._scope or self._remembered(scope)
        if before is not None and scope.may_admit_more_than(before):
            self.begin(every=True)
        if scope != before:
            self._unwritten[SCOPE_KEY] = _encode(_in_short(scope))
        self._scope = scope

    def begin(self, *, every: bool) -> None:
        """Read all stored bodies again, or those that an older extractor read."""
        place = self.place
        if place is None or (every and not place.every):
            self._go_to(Reread(every=every))
        elif every and place.after:
            self._go_to(place.grown())

    def step(
        self,
        turn: Turn,
        rows: Sequence[tuple[bytes, bytes]],
        hosts: Hosts,
        admission: Admission,
        *,
        at_end: bool,
        tasks_max: int,
    ) -> None:
        """Look at `rows`, the (key, value) that follow `place.after`, until so many tasks are made.

        `at_end`: there are no rows behind these.
        """
        place = self.place
        assert place is not None
        after = place.after
        for key, raw in rows:
            if place.stop and key > place.stop:
                at_end = True
                break
            if len(turn.tasks) >= tasks_max:
                at_end = False
                break
            self._look(turn, key, decode_row(raw), hosts, admission, every=place.every)
            after = key
        if at_end:
            self._go_to(place.next_round())
        else:
            self._go_to(msgspec.structs.replace(place, after=after))

    def record(self, turn: Turn) -> None:
        """What changed becomes durable with what was decided from it."""
        for key, value in self._unwritten.items():
            turn.writes.append((Family.OWNER, key, value))
        self._unwritten = {}

    def _go_to(self, place: Reread | None) -> None:
        self.place = place
        self._unwritten[REREAD_KEY] = None if place is None else _encode(place)

    def _look(self, turn: Turn, key: bytes, row: UrlRow, hosts: Hosts, admission: Admission, *, every: bool) -> None:
        host_key_ = host_key(row.url)
        if admission.leaves_out(host_key_, row) is not None:
            return
        if row.status is Status.OUT_OF_SCOPE:
            take_in(turn, hosts.slot(key[:HOST_ID_BYTES]), key, row)
        visit = row.visit
        if visit is None:
            return
        if visit.redirect_target is not None and every:
            turn.found.append(redirect_target(row, key[HOST_ID_BYTES:], visit.redirect_target, turn.now_ms))
        if visit.content is not None and self._is_wanted(row, visit, every=every):
            turn.add_task(key, parse_task(host_key_, key[HOST_ID_BYTES:], row, visit, self._policy))

    def _is_wanted(self, row: UrlRow, visit: Visit, *, every: bool) -> bool:
        if not visit.extractor_version:
            return False  # not read at all yet: its task waits
        if visit.extractor_version != self._policy.extractor_version:
            return True
        return every and (visit.follow or self._policy.follow_nofollow or row.kind is Kind.SITEMAP)

    def _remembered(self, scope: Scope) -> Scope | None:
        raw = self._reads.get(Family.OWNER, SCOPE_KEY)
        if raw is None:
            return None
        short = _decode_scope(raw)
        seeds = scope.seeds[: short.seeds]
        if _digest(seeds) != short.digest:
            seeds = ()  # they are not the same that were added to: whatever is named by seeds may be new
        return Scope(seeds, short.mode, short.depth_max, short.include, short.exclude)


def _in_short(scope: Scope) -> _Remembered:
    return _Remembered(
        scope.mode, scope.depth_max, scope.include, scope.exclude, len(scope.seeds), _digest(scope.seeds)
    )


def _digest(seeds: Sequence[str]) -> bytes:
    return hashlib.blake2b("\n".join(seeds).encode(), digest_size=_DIGEST_BYTES).digest()
