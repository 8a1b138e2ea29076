"""The owner's store in memory: what is durable is what `commit` was given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sortedcontainers import SortedDict  # type: ignore[import-untyped]

from streams.core.turn import INDEX_FAMILIES, Family, Write


class MemoryStore:
    """A fake of `connectors.crawldb_rocksdb.CrawlDb` for the core: the same reads, in order."""

    def __init__(self) -> None:
        self.families: dict[Family, SortedDict[bytes, bytes]] = {family: SortedDict() for family in Family}

    def commit(self, writes: Sequence[Write]) -> None:
        for family, key, value in writes:
            if value is None:
                self.families[family].pop(key, None)
            else:
                self.families[family][key] = value

    def rows(self, keys: list[bytes]) -> list[bytes | None]:
        return [self.families[Family.URL].get(key) for key in keys]

    def seen(self, keys: list[bytes]) -> list[bytes | None]:
        return [self.families[Family.SEEN].get(key) for key in keys]

    def get(self, family: Family, key: bytes) -> bytes | None:
        value: bytes | None = self.families[family].get(key)
        return value

    def rows_after(self, after: bytes, rows_max: int, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        rows = self.families[Family.URL]
        for key in rows.irange(after, inclusive=(False, True)):
            if len(found) >= rows_max or not key.startswith(prefix):
                break
            found.append((key, rows[key]))
        return found

    def clear_index(self) -> None:
        for family in INDEX_FAMILIES:
            self.families[family].clear()

    def queue(self, host_id: bytes, queue: int, after: bytes, entries_max: int) -> list[bytes]:
        prefix = host_id + bytes((queue,))
        found: list[bytes] = []
        start = host_id + after + b"\0" if after else prefix
        for key in self.families[Family.QUEUE].irange(start):
            if not key.startswith(prefix) or len(found) >= entries_max:
                break
            found.append(key[len(host_id) :])
        return found

    def hosts(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(list(self.families[Family.HOST].items()))

    def scan(self, family: Family, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return iter([item for item in self.families[family].items() if item[0].startswith(prefix)])

    def tasks(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(list(self.families[Family.TASK].items()))
