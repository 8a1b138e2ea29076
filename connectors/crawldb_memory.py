"""The crawl's state in memory: the twin of `connectors.crawldb_rocksdb` for runners without a disk.

What `commit` was given is there, all of it or nothing; reads are in key order. It forgets everything with its process,
so it stands for a disk only where a process is itself only thought of: in the simulator.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from streams.core.turn import INDEX_FAMILIES, Family, Write


class MemoryCrawlDb:
    """The owner's reads (`streams.core.turn.Reads`) and the shell's notes beside them."""

    def __init__(self) -> None:
        self._families: dict[Family, dict[bytes, bytes]] = {family: {} for family in Family}
        self._in_order: dict[Family, list[bytes]] = {Family.QUEUE: [], Family.URL: []}  # keys of what is scanned often
        self._meta: dict[str, bytes] = {}

    # --- what the owner reads --------------------------------------------------------------------------------------

    def rows(self, keys: list[bytes]) -> list[bytes | None]:
        urls = self._families[Family.URL]
        return [urls.get(key) for key in keys]

    def seen(self, keys: list[bytes]) -> list[bytes | None]:
        values = self._families[Family.SEEN]
        return [values.get(key) for key in keys]

    def get(self, family: Family, key: bytes) -> bytes | None:
        return self._families[family].get(key)

    def rows_after(self, after: bytes, rows_max: int, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        """(key, value) of the URL rows that follow `after` and begin with `prefix`, in order."""
        urls, keys = self._families[Family.URL], self._in_order[Family.URL]
        at = bisect_left(keys, after + b"\0") if after else 0
        following = itertools.takewhile(lambda key: key.startswith(prefix), keys[at : at + rows_max])
        return [(key, urls[key]) for key in following]

    def queue(self, host_id: bytes, queue: int, after: bytes, entries_max: int) -> list[bytes]:
        """Tails of one class that follow `after`, in order."""
        prefix = host_id + bytes((queue,))
        keys, width = self._in_order[Family.QUEUE], len(host_id)
        at = bisect_left(keys, host_id + after + b"\0" if after else prefix)
        found: list[bytes] = []
        while at < len(keys) and len(found) < entries_max and keys[at].startswith(prefix):
            found.append(keys[at][width:])
            at += 1
        return found

    def hosts(self) -> Iterator[tuple[bytes, bytes]]:
        return self.scan(Family.HOST)

    def tasks(self) -> Iterator[tuple[bytes, bytes]]:
        return self.scan(Family.TASK)

    def scan(self, family: Family, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of all keys with the prefix, in order, as of the first one's reading."""
        values = self._families[family]
        return iter([(key, values[key]) for key in sorted(values) if key.startswith(prefix)])

    # --- what the shell keeps beside it ----------------------------------------------------------------------------

    def meta(self, key: str) -> bytes | None:
        return self._meta.get(key)

    def commit(self, writes: Sequence[Write] = (), *, meta: dict[str, bytes] | None = None) -> None:
        """One atomic step."""
        for family, key, value in writes:
            values = self._families[family]
            if family in self._in_order:
                self._move(self._in_order[family], key, there=key in values, wanted=value is not None)
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        self._meta.update(meta or {})

    def clear_index(self) -> None:
        """Forget all of the owner's index: the next owner makes it anew from the URL rows."""
        for family in INDEX_FAMILIES:
            self._families[family].clear()
            self._in_order.get(family, []).clear()

    def clear_rows(self) -> None:
        """Forget the URL rows, where others hold them, too."""
        self._families[Family.URL].clear()
        self._in_order[Family.URL].clear()

    @staticmethod
    def _move(keys: list[bytes], key: bytes, *, there: bool, wanted: bool) -> None:
        if wanted and not there:
            insort(keys, key)
        elif there and not wanted:
            del keys[bisect_left(keys, key)]
