"""The fleet's shared parts: what outlives any process, and the fence between two owners.

| part      | what it stands for                          | who writes                                             |
|-----------|---------------------------------------------|--------------------------------------------------------|
| inbox     | the owner's input topics of one partition   | fetchers, the store, parsers, each at least once       |
| rows      | the URL table: a later stamp wins, for ever | an owner, after the transaction that has them, or late |
| changelog | host states and the input's position        | a transaction, by the producer that began last         |
| redo      | rows that may not be in the table yet       | the same transaction                                   |
| leases    | the topic of leases                         | the same transaction                                   |
| tasks     | the topic of bodies to be parsed            | the same transaction                                   |
| offsets   | how far the owner's group has read          | the owner, after it applied; may be lost               |
| disk      | a worker's local store: the owner's index   | the owner that runs there, as it applies               |

Rows go into the table after the transaction, not before it: a row that was written for a transaction that never was
would be read by the repeat, which then decides otherwise (infra/decisions/0061).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from schemas.records import FetchLease, ParseTask
from streams.core.owner import Event
from streams.core.rows import HOST_ID_BYTES, decode_row
from streams.core.turn import INDEX_FAMILIES, Family, Write
from streams.simulation.store import Store

IN_TRANSACTION = frozenset(Family) - {Family.URL, *INDEX_FAMILIES}
NOWHERE = -1


class Fenced(Exception):  # it is what the broker says
    """Another producer of this name has begun: nothing of this one's transaction is there."""


class Process(Protocol):
    """An owner, as far as its disk is concerned: while it is alive no other one can run there."""

    alive: bool


class Disk:
    """One worker's: an index and the stamp of the turn that it stands at, written together."""

    def __init__(self) -> None:
        self.position = NOWHERE
        self.process: Process | None = None  # the last owner that ran here
        self._index: dict[tuple[Family, bytes], bytes] = {}

    def apply(self, writes: Iterable[Write], position: int) -> None:
        """What of a turn belongs to the index, in one step with its position."""
        for family, key, value in writes:
            if family not in INDEX_FAMILIES:
                continue
            if value is None:
                self._index.pop((family, key), None)
            else:
                self._index[family, key] = value
        self.position = position

    def stands_at(self, position: int) -> bool:
        """Whether the index may be kept by an owner whose states were recovered to this position."""
        return self.position == position

    def clear(self) -> None:
        self._index.clear()
        self.position = NOWHERE

    def index(self) -> Iterable[Write]:
        return [(family, key, value) for (family, key), value in self._index.items()]


class Partition:
    """The topics and tables of one partition."""

    def __init__(self) -> None:
        self.inbox: list[Event] = []
        self.rows: dict[bytes, tuple[int, bytes]] = {}  # key → (stamp, row)
        self.changelog: dict[tuple[Family, bytes], bytes] = {}
        self.position = 0  # of the changelog: input below it is applied
        self.stamp = NOWHERE  # of the changelog: of the last transaction
        self.offset = 0  # of the owner's group
        self.leases: list[FetchLease] = []
        self.tasks: list[ParseTask] = []
        self.epoch = 0  # by a write of its own, before anything of the new owner
        self.producer = 0  # the last one that began
        self.redo: list[tuple[int, Sequence[Write]]] = []  # (stamp, writes) of transactions

    # --- the URL table ---------------------------------------------------------------------------------------------

    def write_rows(self, writes: Iterable[Write], stamp: int) -> None:
        """Each wins or loses by its stamp; a repeat changes nothing."""
        for family, key, value in writes:
            if family is Family.URL and value is not None:
                before = self.rows.get(key)
                if before is None or before[0] < stamp:
                    self.rows[key] = (stamp, value)

    # --- transactions ----------------------------------------------------------------------------------------------

    def init_transactions(self) -> int:
        """From here on every earlier producer is fenced."""
        self.producer += 1
        return self.producer

    def transact(
        self,
        producer: int,
        writes: Sequence[Write],
        leases: Sequence[FetchLease],
        tasks: Sequence[ParseTask],
        position: int,
        stamp: int,
    ) -> None:
        """All of it or nothing. Raises `Fenced`."""
        if producer != self.producer:
            raise Fenced
        for family, key, value in writes:
            if family in IN_TRANSACTION:
                if value is None:
                    self.changelog.pop((family, key), None)
                else:
                    self.changelog[family, key] = value
        self.redo.append((stamp, writes))
        self.leases += leases
        self.tasks += tasks
        self.position, self.stamp = position, stamp

    def rows_are_written(self, stamp: int) -> None:
        """Of all transactions up to this stamp: they need not be written again."""
        self.redo = [entry for entry in self.redo if entry[0] > stamp]

    # --- recovery --------------------------------------------------------------------------------------------------

    def recover(self, disk: Disk) -> Store:
        """The owner's local store anew: rows that may be missing are written, an index of another position is gone."""
        self._write_redo()
        if not disk.stands_at(self.stamp):
            disk.clear()
        store = Store()
        store.commit(self._durable())
        store.commit([*disk.index()])
        return store

    def look(self) -> Store:
        """What is durable while there is no owner, with the queues that the rows speak of."""
        self._write_redo()
        store = Store()
        writes = self._durable()
        for key, (_, raw) in self.rows.items():
            writes.append((Family.QUEUE, key[:HOST_ID_BYTES] + decode_row(raw).place + key[HOST_ID_BYTES:], b""))
        store.commit(writes)
        return store

    def _write_redo(self) -> None:
        for stamp, redone in self.redo:
            self.write_rows(redone, stamp)

    def _durable(self) -> list[Write]:
        writes: list[Write] = [(family, key, value) for (family, key), value in self.changelog.items()]
        writes += [(Family.URL, key, raw) for key, (_, raw) in self.rows.items()]
        return writes
