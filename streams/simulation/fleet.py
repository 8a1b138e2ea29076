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

Rows go into the table after the transaction, not before it: a row that was written for a transaction that never was
would be read by the repeat, which then decides otherwise (infra/decisions/0061).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from schemas.records import FetchLease, ParseTask
from streams.core.owner import Event
from streams.core.rows import HOST_ID_BYTES, decode_row
from streams.core.turn import Family, Write
from streams.simulation.store import Store

IN_TRANSACTION = frozenset(Family) - {Family.URL, Family.QUEUE}


class Fenced(Exception):  # it is what the broker says
    """Another producer of this name has begun: nothing of this one's transaction is there."""


class Partition:
    """The topics and tables of one partition."""

    def __init__(self) -> None:
        self.inbox: list[Event] = []
        self.rows: dict[bytes, tuple[int, bytes]] = {}  # key → (stamp, row)
        self.changelog: dict[tuple[Family, bytes], bytes] = {}
        self.position = 0  # of the changelog: input below it is applied
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
        self.position = position

    def rows_are_written(self, stamp: int) -> None:
        """Of all transactions up to this stamp: they need not be written again."""
        self.redo = [entry for entry in self.redo if entry[0] > stamp]

    # --- recovery --------------------------------------------------------------------------------------------------

    def recover(self) -> Store:
        """The owner's local store anew: rows that may be missing are written, the index is made from the rows."""
        for stamp, redone in self.redo:
            self.write_rows(redone, stamp)
        writes: list[Write] = [(family, key, value) for (family, key), value in self.changelog.items()]
        for key, (_, raw) in self.rows.items():
            writes.append((Family.URL, key, raw))
            writes.append((Family.QUEUE, key[:HOST_ID_BYTES] + decode_row(raw).place + key[HOST_ID_BYTES:], b""))
        store = Store()
        store.commit(writes)
        return store
