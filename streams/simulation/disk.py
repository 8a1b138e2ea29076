"""A worker's local store in the fleet, as `streams.fleet.local` has it: what it holds, and where each part stands.

States follow the log of transactions, whoever made them. Rows and index are written by an owner that ran here, and are
whole exactly while their stamp is that of the states: one transaction behind they are brought up by its redo, else
cleared. An owner's own transactions leave no redo here; one that was followed may lie here for long, and says whose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from streams.core.index import whole_index
from streams.core.rows import HOST_ID_BYTES, decode_row
from streams.core.seen import seen_value
from streams.core.turn import INDEX_FAMILIES, Family, Write
from streams.simulation.store import Store

NOWHERE = -1


class Transaction(NamedTuple):
    """All of one group, as it stands in the changelog."""

    stamp: int  # owner_epoch << 32 | state_version
    before: int  # the stamp of the one before it
    states: tuple[Write, ...]
    redo: tuple[Write, ...]  # the URL rows
    position: int  # of the input: what lies before it is applied


class Process(Protocol):
    """Who runs on a worker: while it is alive no other one can run there."""

    alive: bool


class Disk:
    """One worker's."""

    def __init__(self) -> None:
        self.process: Process | None = None  # the last that ran here
        self.mark: Transaction | None = None  # the last that the states have
        self.index_stamp = NOWHERE  # where rows and index stand
        self._applied = 0  # transactions
        self._redo: Transaction | None = None  # the last with rows that was followed
        self._states: dict[tuple[Family, bytes], bytes] = {}
        self._local: dict[tuple[Family, bytes], bytes] = {}  # rows and index

    @property
    def stamp(self) -> int:
        return NOWHERE if self.mark is None else self.mark.stamp

    def free(self) -> bool:
        return self.process is None or not self.process.alive

    # --- a follower's side ----------------------------------------------------------------------------------------

    def follow(self, log: Sequence[Transaction]) -> None:
        """All that others committed, to the log's end."""
        for one in log[self._applied :]:
            _put(self._states, one.states)
            self.mark = one
            if one.redo:
                self._redo = one
        self._applied = len(log)

    # --- an owner's side ------------------------------------------------------------------------------------------

    def redo(self) -> tuple[Write, ...]:
        """The rows of the last transaction, where it was another's."""
        return self._redo.redo if self._redo is not None and self._redo.stamp == self.stamp else ()

    def settle_index(self, redo: Iterable[Write]) -> str:
        """Bring rows and index to where the states are, or clear them. What was done, in a word."""
        if self.stands_at(self.stamp):
            return "kept"
        if self.mark is not None and self.index_stamp != NOWHERE and self.stands_at(self.mark.before):
            for _, key, raw in redo:
                self._redone(key, raw)
            self.index_stamp = self.stamp
            return "redone"
        before, self.index_stamp = self.index_stamp, NOWHERE
        self._local.clear()
        return "new" if before == NOWHERE else "cleared"

    def stands_at(self, stamp: int) -> bool:
        """Whether rows and index are those of this transaction."""
        return self.index_stamp == stamp != NOWHERE

    def store(self, table: Mapping[bytes, tuple[int, bytes]]) -> Store:
        """What an owner reads here. `table`: the shared rows, which are read where the local ones are not whole."""
        store = Store()
        store.commit([(family, key, value) for (family, key), value in (self._states | self._local).items()])
        if not whole_index(store):
            there = {key for family, key in self._local if family is Family.URL}
            store.commit([(Family.URL, key, raw) for key, (_, raw) in table.items() if key not in there])
        return store

    def apply(self, writes: Sequence[Write], store: Store, mark: Transaction, applied: int) -> None:
        """A transaction of our own, whole. `store`: what the owner reads, with these writes."""
        _put(self._states, mark.states)
        local = [one for one in writes if one[0] is Family.URL or one[0] in INDEX_FAMILIES]
        for family, key, value in local:
            if family is Family.SEEN and value is not None and (Family.URL, key) not in self._local:
                row = store.get(Family.URL, key)  # loaded: its row came from the shared ones and is kept with it
                assert row is not None
                self._local[Family.URL, key] = row
        _put(self._local, local)
        self.mark, self.index_stamp, self._applied = mark, mark.stamp, applied

    def rows(self) -> dict[bytes, bytes]:
        """The local ones."""
        return {key: raw for (family, key), raw in self._local.items() if family is Family.URL}

    def _redone(self, key: bytes, raw: bytes | None) -> None:
        """What a transaction that wrote this row did to rows and index."""
        assert raw is not None
        host, url = key[:HOST_ID_BYTES], key[HOST_ID_BYTES:]
        before = self._local.get((Family.URL, key))
        if before is not None:
            self._local.pop((Family.QUEUE, host + decode_row(before).place + url), None)
        row = decode_row(raw)
        self._local[Family.URL, key] = raw
        self._local[Family.SEEN, key] = seen_value(row)
        if row.place:
            self._local[Family.QUEUE, host + row.place + url] = b""


def _put(values: dict[tuple[Family, bytes], bytes], writes: Iterable[Write]) -> None:
    for family, key, value in writes:
        if value is None:
            values.pop((family, key), None)
        else:
            values[family, key] = value
