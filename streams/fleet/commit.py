"""The owner's commit, step by step, and where it may be cut off.

1. *decide*: a turn of the core. Nothing is anywhere yet.
2. *transaction*: host states, redo of the URL rows, outputs and the input positions, all or nothing. From here on the
   turn stands: leases, charges and rows alike, for whoever owns the partition next finds the rows in the redo.
3. *rows*: to the URL table, each with the stamp of this transaction. A repeat changes nothing.
4. *apply*: to the local store, in one batch with where it stands.
5. *offsets*: of the input's group, for people.

Rows after the transaction and not before it: infra/decisions/0061. Before it, a row of a transaction that never was is
read by the repeat, which then decides otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from connectors.ports import OwnerLog, Record, UrlState, UrlWrite
from streams.core.rows import HOST_ID_BYTES
from streams.core.turn import Family, Write
from streams.fleet import changelog
from streams.fleet.changelog import Mark
from streams.fleet.local import LocalStore
from streams.fleet.reads import FleetReads

STEPS = ("decided", "sent", "committed", "rows", "applied", "noted")
"""Where a process may end. `sent`: the transaction's records lie there, and nobody can see them yet."""

EPOCH_MAX = (1 << 31) - 1  # what a stamp of 63 bits has room for beside 32 bits of version


class Closed(Exception):
    """The partition was let go meanwhile: what the group came to is left to its next owner."""


class Committer:
    """Of one owner, from its epoch on. One thread at a time."""

    def __init__(
        self,
        partition: int,
        store: LocalStore,
        reads: FleetReads,
        log: OwnerLog,
        urls: UrlState,
        *,
        epoch: int,
        topic: str,
        at: Callable[[str], None],
    ) -> None:
        """`topic`: of the changelog. `at`: told each of `STEPS` as it is reached."""
        assert 0 < epoch <= EPOCH_MAX, epoch
        self._partition, self._topic, self._epoch = partition, topic, epoch
        self._store, self._reads, self._log, self._urls, self._at = store, reads, log, urls, at
        self._before = store.mark
        self._version = 0
        self.begun = False  # its first transaction, which records the epoch, stands
        self._lock = threading.Lock()  # over the local store's last writes and its being let go
        self._closed = False
        self.positions: dict[str, int] = {} if self._before is None else dict(self._before.positions)

    def commit(
        self, writes: Sequence[Write], onward: Sequence[Record], positions: Mapping[str, int], now_ms: int
    ) -> None:
        """Steps 2 to 4. Raises `Fenced`, `LogUncertain`, `Closed`, StoreFailed: after any, this owner is at its end."""
        at = self._at
        at("decided")
        if self._closed:
            raise Closed(f"partition {self._partition}")
        rows = self._rows(writes)
        redo = changelog.redo(rows, (self._epoch, self._version))
        mark = Mark(
            epoch=self._epoch,
            version=self._version,
            positions={**self.positions, **positions},
            redo=len(redo),
            written_ms=now_ms,
            before=None if self._before is None else self._before.stamp,
        )
        entries = [*changelog.states(writes), *redo, changelog.marked(mark)]
        records = [*onward, *(Record(self._topic, self._partition, key, value) for key, value in entries)]
        offset = self._log.transact(records, before_commit=lambda: at("sent"))
        at("committed")
        if rows:
            self._urls.write(rows, epoch=self._epoch, version=self._version)
        at("rows")
        with self._lock:
            if self._closed:
                raise Closed(f"partition {self._partition}")
            self._store.apply([*self._reads.copies(), *writes], mark, offset)
            self._reads.applied()
        self._version += 1
        self.begun = True
        self._before = mark
        self.positions = mark.positions
        at("applied")

    def close(self) -> None:
        """From here on nothing more is applied: another may write the local store."""
        with self._lock:
            self._closed = True

    def _rows(self, writes: Sequence[Write]) -> list[UrlWrite]:
        """Each URL's last."""
        last = {key: value for family, key, value in writes if family is Family.URL}
        keys = self._reads.host_key
        return [UrlWrite(keys(key[:HOST_ID_BYTES], writes), key[HOST_ID_BYTES:], row) for key, row in last.items()]
