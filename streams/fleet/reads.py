"""What the core reads in the fleet: the local store, and the shared URL rows where the store does not have them all.

While the index is being loaded (`streams.core.index`) a row that is not in the local store is asked for; what came is
kept with the turn that asked, so that the store is whole when the index is. A local row is always exact: rows come
into the store only by this owner, and an owner that finds another's clears them first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from connectors.crawldb_rocksdb import CrawlDb
from connectors.ports import UrlState
from streams.core.hosts import decode_host
from streams.core.index import whole_index
from streams.core.rows import HOST_ID_BYTES, URL_ID_BYTES
from streams.core.turn import Family, Write

_KEYS_MAX = 65_536
_FIRST = b"\0" * URL_ID_BYTES


class FleetReads:
    """See `streams.core.turn.Reads`. One thread at a time."""

    def __init__(self, db: CrawlDb, urls: UrlState) -> None:
        self._db, self._urls = db, urls
        self._keys: dict[bytes, str] = {}  # host_id → host_key, of hosts named lately
        self._copies: dict[bytes, bytes] = {}  # rows that came from elsewhere since the last turn
        self._whole = whole_index(db)
        self.seen, self.queue, self.get = db.seen, db.queue, db.get

    def rows(self, keys: list[bytes]) -> list[bytes | None]:
        found = self._db.rows(keys)
        if self._whole:
            return found
        missing: dict[bytes, list[int]] = {}
        for at, raw in enumerate(found):
            if raw is None:
                missing.setdefault(keys[at][:HOST_ID_BYTES], []).append(at)
        for host_id, places in missing.items():
            self._ask(host_id, keys, places, found)
        return found

    def rows_after(self, after: bytes, rows_max: int, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        """Of one host, its rows; of all, only which host has any, as the index asks for no more."""
        if self._whole:
            return self._db.rows_after(after, rows_max, prefix)
        if not prefix:
            return self._next_host(after)
        host_key = self._host_key(prefix)
        if host_key is None:
            return []
        rows = [(prefix + url_id, raw) for url_id, raw in self._urls.scan(host_key, after[HOST_ID_BYTES:], rows_max)]
        self._copies.update(rows)
        return rows

    def hosts(self) -> Iterator[tuple[bytes, bytes]]:
        return self._db.hosts()

    def scan(self, family: Family, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        assert family is not Family.URL, "rows of the fleet are read by host"
        return self._db.scan(family, prefix)

    def tasks(self) -> Iterator[tuple[bytes, bytes]]:
        return self._db.tasks()

    # --- the shell's side -----------------------------------------------------------------------------------------

    def copies(self) -> list[Write]:
        """What came from elsewhere for this turn: to be applied with it, before its own writes."""
        return [(Family.URL, key, raw) for key, raw in self._copies.items()]

    def applied(self) -> None:
        """The turn is in the local store."""
        self._copies = {}
        if not self._whole:
            self._whole = whole_index(self._db)

    def host_key(self, host_id: bytes, writes: Sequence[Write] = ()) -> str:
        """Of a host that is known, or becomes known by these writes."""
        found = self._host_key(host_id)
        if found is None:
            raw = next(value for family, key, value in writes if family is Family.HOST and key == host_id)
            assert raw is not None, "a host with rows has a state"
            found = decode_host(raw).host_key
            self._keys[host_id] = found
        return found

    def _ask(self, host_id: bytes, keys: list[bytes], places: list[int], found: list[bytes | None]) -> None:
        host_key = self._host_key(host_id)
        if host_key is None:
            return
        there = self._urls.read(host_key, [keys[at][HOST_ID_BYTES:] for at in places])
        for at, raw in zip(places, there, strict=True):
            found[at] = raw
            if raw is not None:
                self._copies[keys[at]] = raw

    def _next_host(self, after: bytes) -> list[tuple[bytes, bytes]]:
        for host_id, raw in self._db.following(Family.HOST, after[:HOST_ID_BYTES]):
            if decode_host(raw).known:
                return [(host_id + _FIRST, b"")]
        return []

    def _host_key(self, host_id: bytes) -> str | None:
        found = self._keys.get(host_id)
        if found is None:
            raw = self._db.get(Family.HOST, host_id)
            if raw is None:
                return None
            if len(self._keys) >= _KEYS_MAX:
                self._keys.clear()
            found = self._keys[host_id] = decode_host(raw).host_key
        return found
