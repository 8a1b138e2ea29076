"""One turn of the owner: what is read, what is decided, and what must become durable before any of it shows.

A turn is a group of events decided together. Reads go through it, so that an event sees what earlier ones of the same
turn decided; writes and effects gather in it. The shell makes the writes durable in one commit and only then carries
the effects out; if it cannot, it drops the owner and starts again from what is durable.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Protocol

import msgspec

from schemas.records import DeadLetter, DiscoveredUrl, FetchLease, FetchResult, OwnerMessage, ParsedPage, ParseTask
from streams.core.backqueue import BackQueue
from streams.core.hosts import HostState, InFlight
from streams.core.rows import UrlRow
from streams.core.rules.robots import RobotsRules
from streams.core.rules.traps import TemplateCounts
from streams.core.seen import seen_value
from streams.core.tasks import encode_task


class Family(enum.IntEnum):
    """Key spaces of the owner's store."""

    URL = 0  # host_id ‖ url_id → UrlRow
    QUEUE = 1  # host_id ‖ tail → nothing
    HOST = 2  # host_id → HostState
    RULES = 3  # host_id → RobotsRules, encoded
    TEMPLATES = 4  # host_id → TemplateCounts, encoded
    TASK = 5  # host_id ‖ url_id → ParseTask: bodies that wait to be parsed
    DEAD = 6  # host_id ‖ url_id → DeadLetter
    POLICY = 7  # an operator's words and their history, see streams.core.host_policy
    GROUP = 8  # hosts and the groups that they share limits in, see streams.core.sharing
    OWNER = 9  # the owner's own small records: what it spent of the day's budget, its scope, a reading of stored bodies
    SEEN = 10  # host_id ‖ url_id → what admission compares a link with, see streams.core.seen
    INDEX = 11  # how much of SEEN and QUEUE is there, see streams.core.index


INDEX_FAMILIES = (Family.QUEUE, Family.SEEN, Family.INDEX)
"""The owner's index: all in it is derived from the rows of Family.URL."""

Write = tuple[Family, bytes, bytes | None]
"""(family, key, value); no value: the key is deleted."""


class Reads(Protocol):
    """What the owner reads: the state as of the last commit. `None` and empty lists where nothing is."""

    def rows(self, keys: list[bytes]) -> list[bytes | None]: ...

    def seen(self, keys: list[bytes]) -> list[bytes | None]:
        """Of Family.SEEN; keys of one host are the cheapest, in any order."""
        ...

    def queue(self, host_id: bytes, queue: int, after: bytes, entries_max: int) -> list[bytes]:
        """Tails of one class that follow `after`, in order."""
        ...

    def rows_after(self, after: bytes, rows_max: int, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        """(key, value) of the URL rows that follow `after` and begin with `prefix`, in order, at most so many."""
        ...

    def get(self, family: Family, key: bytes) -> bytes | None: ...

    def hosts(self) -> Iterator[tuple[bytes, bytes]]: ...

    def scan(self, family: Family, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of all keys with the prefix, in order."""
        ...

    def tasks(self) -> Iterator[tuple[bytes, bytes]]: ...


class HostSlot:
    """A host that is in memory: its durable state and what is derived from it."""

    __slots__ = (
        "dirty",
        "hop_was_last",
        "host_id",
        "loaded_to",
        "new",
        "queue",
        "revisit_credit",
        "rows",
        "rules",
        "state",
        "templates",
        "templates_unsaved",
    )

    def __init__(self, host_id: bytes, state: HostState, *, new: bool) -> None:
        self.host_id = host_id
        self.state = state
        self.queue = BackQueue(empty=new)
        self.rules: RobotsRules | None = None  # decoded when first asked
        self.templates: TemplateCounts | None = None
        self.templates_unsaved = 0  # new URLs counted since the counts were last written
        self.rows: dict[bytes, UrlRow | None] = {}  # by url_id, of the leases in flight; None: not read yet
        self.revisit_credit = 0.0
        self.hop_was_last = False  # the last lease was a robots hop of another host
        self.dirty = False
        self.loaded_to: bytes | None = None  # None: the index has all of the host; else the last url_id that it has
        self.new = new  # not durable yet, and so not in the owner's totals


class FetchLogEntry(msgspec.Struct, frozen=True, gc=False):
    """A result as it is audited: what was asked, under which lease and policy, and what came."""

    result: FetchResult
    lease: InFlight
    policy_version: int
    delay_ms: int
    accepted: bool  # False: the lease was not in flight any more


class Counts(msgspec.Struct):
    """What a turn did, for the progress view."""

    admitted: int = 0
    known: int = 0
    granted: int = 0
    stale: int = 0
    refused: dict[str, int] = msgspec.field(default_factory=dict)  # by reason, at admission
    denied: int = 0  # by robots.txt or an operator
    lost: int = 0  # leases that expired without a result, or whose body was never stored
    patterns_paused: int = 0  # URL templates, as endless
    put_off: int = 0  # queued URLs that today's scope leaves out
    completed: dict[str, int] = msgspec.field(default_factory=dict)  # by outcome
    errors: dict[str, int] = msgspec.field(default_factory=dict)  # by kind
    retried: dict[str, int] = msgspec.field(default_factory=dict)  # attempts that are to be made again, by kind


def bump(counts: dict[str, int], key: str) -> None:
    counts[key] = counts.get(key, 0) + 1


class Turn:
    """The unit of work. Discard it when its commit fails."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.writes: list[Write] = []
        self.rows: dict[bytes, UrlRow | None] = {}  # by host_id ‖ url_id: read or changed in this turn
        self.dirty_rows: dict[bytes, UrlRow] = {}
        self.touched: dict[bytes, HostSlot] = {}
        self.changed: dict[bytes, HostSlot] = {}  # of those, the ones that the frontier has not looked at since
        self.leases: list[FetchLease] = []
        self.tasks: list[ParseTask] = []
        self.dead: list[DeadLetter] = []
        self.withdrawn: list[ParsedPage] = []  # URLs that have no content any more: the index is to forget them
        self.log: list[FetchLogEntry] = []
        self.found: list[DiscoveredUrl] = []  # to be admitted: redirect targets, sitemaps of robots.txt
        self.messages: list[OwnerMessage] = []
        self.found_elsewhere: list[DiscoveredUrl] = []  # likewise, of hosts of other partitions: to be sent there
        self.messages_elsewhere: list[OwnerMessage] = []
        self.new_seeds: list[str] = []  # redirect targets of seeds: the scope grows by them
        self.counts = Counts()
        self.waits: list[tuple[int, int]] = []  # of each grant: rank of the host's best URL, ms since it was ready
        self.robots_ages_ms: list[int] = []  # of each grant for a URL that a robots.txt was asked about
        self.queued = [0, 0, 0]  # by QueueClass: entries more or fewer than before
        self.known = self.pages = 0  # likewise

    def touch(self, slot: HostSlot) -> None:
        """The host changed: its state is written with this turn, and the frontier looks at it again."""
        slot.dirty = True
        self.touched[slot.host_id] = self.changed[slot.host_id] = slot

    def add_task(self, key: bytes, task: ParseTask) -> None:
        """A body that waits to be parsed is durable work: the parsed page deletes it."""
        self.tasks.append(task)
        self.writes.append((Family.TASK, key, encode_task(task)))

    def put_row(self, key: bytes, row: UrlRow) -> None:
        self.rows[key] = row
        self.dirty_rows[key] = row

    def put_seen(self, key: bytes, row: UrlRow) -> None:
        """Of a row that changes with this turn, what links are compared with changes, too."""
        self.writes.append((Family.SEEN, key, seen_value(row)))
