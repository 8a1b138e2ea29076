"""The fleet's shared parts: what outlives any process, and the fence between two owners.

| part      | what it stands for                          | who writes                                                |
|-----------|---------------------------------------------|-----------------------------------------------------------|
| inbox     | the owner's input topics of one partition   | fetchers, store, parsers, router, each at least once      |
| rows      | the URL table: a later stamp wins, for ever | an owner, after the transaction that has them, or late    |
| log       | the changelog: states, redo, input position | a transaction, by the producer that began last            |
| leases    | the topic of leases, of each region         | the same transaction                                      |
| tasks     | the topic of bodies to be parsed            | the same transaction                                      |
| offset    | how far the owner's group has read          | the owner, after it applied; may be lost                  |
| home      | whose region it is, and the last epoch      | compare-and-set: a takeover, an operator who moves it     |

Rows go into the table after the transaction, not before it: a row that was written for a transaction that never was
would be read by the repeat, which then decides otherwise (infra/decisions/0061). Of all transactions only the last
one's rows may be missing there, so a redo of the last one is enough (infra/decisions/0095).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from schemas.records import FetchLease, ParseTask
from streams.core.homes import Home
from streams.core.owner import Event
from streams.core.rows import HOST_ID_BYTES, decode_row
from streams.core.turn import INDEX_FAMILIES, Family, Write
from streams.simulation.disk import NOWHERE, Transaction
from streams.simulation.loop import Violation
from streams.simulation.store import Store

STATES = frozenset(Family) - {Family.URL, *INDEX_FAMILIES}


class Fenced(Exception):  # it is what the broker says
    """Another producer of this name has begun: nothing of this one's transaction is there."""


class Partition:
    """The topics and tables of one partition."""

    def __init__(self) -> None:
        self.inbox: list[Event] = []
        self.rows: dict[bytes, tuple[int, bytes]] = {}  # key → (stamp, row)
        self.log: list[Transaction] = []
        self.offset = 0  # of the owner's group
        self.leases: dict[str, list[FetchLease]] = defaultdict(list)  # by region
        self.tasks: list[ParseTask] = []
        self.home: Home | None = None
        self.producer = 0  # the last one that began
        self._stamps: set[int] = set()  # of all transactions
        self._states: dict[tuple[Family, bytes], bytes] = {}

    @property
    def stamp(self) -> int:
        """Of the last transaction."""
        return self.log[-1].stamp if self.log else NOWHERE

    # --- the URL table ---------------------------------------------------------------------------------------------

    def write_rows(self, writes: Iterable[Write], stamp: int) -> None:
        """Each wins or loses by its stamp; a repeat changes nothing."""
        for family, key, value in writes:
            if family is Family.URL and value is not None:
                before = self.rows.get(key)
                if before is None or before[0] < stamp:
                    self.rows[key] = (stamp, value)

    def check_rows(self) -> None:
        """Nothing stands in the table but what a transaction has. Raises `Violation`."""
        for stamp, raw in self.rows.values():
            if stamp not in self._stamps:
                raise Violation("durable row", f"{decode_row(raw).url} is of a transaction that never was")

    # --- transactions ----------------------------------------------------------------------------------------------

    def init_transactions(self) -> int:
        """From here on every earlier producer is fenced."""
        self.producer += 1
        return self.producer

    def transact(
        self,
        producer: int,
        one: Transaction,
        leases: Sequence[FetchLease],
        region: str,
        tasks: Sequence[ParseTask],
    ) -> None:
        """All of it or nothing; the leases to the fetchers of the owner's region. Raises `Fenced`."""
        if producer != self.producer:
            raise Fenced
        for family, key, value in one.states:
            if value is None:
                self._states.pop((family, key), None)
            else:
                self._states[family, key] = value
        self.log.append(one)
        self._stamps.add(one.stamp)
        self.leases[region] += leases
        self.tasks += tasks

    def look(self) -> Store:
        """What is durable while there is no owner, with the queues that the rows speak of."""
        store = Store()
        rows = {key: raw for key, (_, raw) in self.rows.items()}
        if self.log:
            rows.update((key, raw) for _, key, raw in self.log[-1].redo if raw is not None)
        writes: list[Write] = [(family, key, value) for (family, key), value in self._states.items()]
        for key, raw in rows.items():
            writes.append((Family.URL, key, raw))
            writes.append((Family.QUEUE, key[:HOST_ID_BYTES] + decode_row(raw).place + key[HOST_ID_BYTES:], b""))
        store.commit(writes)
        return store
