"""URL rows and epochs in a file that several processes share: what stands for Cassandra where owners are killed."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

from connectors.ports import Elsewhere, UrlWrite
from streams.core.homes import Home

_TABLES = """
CREATE TABLE IF NOT EXISTS url_state (
    host_key TEXT, url_id BLOB, epoch INTEGER, version INTEGER, row BLOB, PRIMARY KEY (host_key, url_id));
CREATE TABLE IF NOT EXISTS owner_epoch (partition INTEGER PRIMARY KEY, epoch INTEGER, region TEXT);
"""
_WRITE = """
INSERT INTO url_state VALUES (?, ?, ?, ?, ?) ON CONFLICT (host_key, url_id) DO UPDATE
SET epoch = excluded.epoch, version = excluded.version, row = excluded.row
WHERE (excluded.epoch, excluded.version) > (epoch, version)
"""
_MOVE = """
INSERT INTO owner_epoch VALUES (?, 1, ?) ON CONFLICT (partition)
DO UPDATE SET epoch = epoch + 1, region = excluded.region RETURNING epoch
"""
_TAKE = _MOVE.replace(" RETURNING", " WHERE region = excluded.region RETURNING")


class FileUrlState:
    """See `connectors.ports.UrlState` and `Epochs`; one connection a thread."""

    refused = 0

    def __init__(self, path: Path, region: str = "") -> None:
        self._path, self._region = path, region
        self._mine = threading.local()
        self._connection().executescript(_TABLES)

    def write(self, rows: Sequence[UrlWrite], *, epoch: int, version: int) -> None:
        with self._connection() as connection:
            connection.executemany(_WRITE, [(host, url_id, epoch, version, row) for host, url_id, row in rows])

    def read(self, host_key: str, url_ids: Sequence[bytes]) -> list[bytes | None]:
        ask = "SELECT row FROM url_state WHERE host_key = ? AND url_id = ?"
        found = [self._connection().execute(ask, (host_key, url_id)).fetchone() for url_id in url_ids]
        return [None if row is None else row[0] for row in found]

    def scan(self, host_key: str, after: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        ask = (
            "SELECT url_id, row FROM url_state WHERE host_key = ? AND url_id > ? AND row IS NOT NULL"
            " ORDER BY url_id LIMIT ?"
        )
        return [
            (bytes(url_id), bytes(row)) for url_id, row in self._connection().execute(ask, (host_key, after, rows_max))
        ]

    def take(self, partition: int) -> int:
        with self._connection() as connection:
            taken = connection.execute(_TAKE, (partition, self._region)).fetchone()
        if taken is None:
            raise Elsewhere(f"partition {partition} is at home in region {self.home(partition)!r}")
        return int(taken[0])

    def home(self, partition: int) -> Home | None:
        ask = "SELECT epoch, region FROM owner_epoch WHERE partition = ?"
        found = self._connection().execute(ask, (partition,)).fetchone()
        return None if found is None else Home(int(found[0]), str(found[1]))

    def move(self, partition: int, region: str) -> int:
        with self._connection() as connection:
            return int(connection.execute(_MOVE, (partition, region)).fetchone()[0])

    def every(self) -> list[tuple[str, bytes]]:
        """(host_key, row) of all that are there."""
        return list(self._connection().execute("SELECT host_key, row FROM url_state WHERE row IS NOT NULL"))

    def _connection(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._mine, "connection", None)
        if found is None:
            found = self._mine.connection = sqlite3.connect(self._path, timeout=60)
            found.execute("PRAGMA journal_mode = WAL")
            found.execute("PRAGMA synchronous = OFF")
        return found


class NoUrlState:
    """Keeps no row: for owners that have them all in their local stores. See `connectors.ports.UrlState`."""

    refused = 0

    def write(self, rows: Sequence[UrlWrite], *, epoch: int, version: int) -> None:
        return

    def read(self, host_key: str, url_ids: Sequence[bytes]) -> list[bytes | None]:
        return [None] * len(url_ids)

    def scan(self, host_key: str, after: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        return []
