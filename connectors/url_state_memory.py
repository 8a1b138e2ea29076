"""The URL store in memory, and the epochs: the twins of those in Cassandra, under the same laws.

They forget everything with their process, so they stand for the servers only in tests and simulations.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from connectors.ports import Elsewhere, UrlWrite
from connectors.url_batches import batches
from connectors.url_rows import RowReader
from schemas.cassandra import STAMP_EPOCH_MAX, stamp
from streams.core import homes
from streams.core.homes import Home


class MemoryUrlState:
    """`connectors.ports.UrlState`. Any thread may call."""

    def __init__(self) -> None:
        self._urls: dict[str, dict[bytes, str]] = {}
        self._states: dict[str, dict[bytes, tuple[int, bytes]]] = {}  # the greater stands: by stamp, then by the cell
        self._lock = threading.Lock()
        self._reader = RowReader()

    @property
    def refused(self) -> int:
        return self._reader.refused

    def write(self, rows: Sequence[UrlWrite], *, epoch: int, version: int) -> None:
        at = stamp(epoch, version)
        with self._lock:
            for batch in batches(rows):
                urls = self._urls.setdefault(batch.host_key, {})
                states = self._states.setdefault(batch.host_key, {})
                for cell in batch.cells:
                    if cell.url is not None:
                        urls[cell.url_id] = cell.url
                    states[cell.url_id] = max(states.get(cell.url_id, (0, b"")), (at, cell.state))

    def read(self, host_key: str, url_ids: Sequence[bytes]) -> list[bytes | None]:
        with self._lock:
            return [self._row(host_key, url_id) for url_id in url_ids]

    def scan(self, host_key: str, after: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        with self._lock:
            for url_id in sorted(self._states.get(host_key, {})):
                row = self._row(host_key, url_id) if url_id > after and len(found) < rows_max else None
                if row is not None:
                    found.append((url_id, row))
        return found

    def _row(self, host_key: str, url_id: bytes) -> bytes | None:
        state = self._states.get(host_key, {}).get(url_id)
        if state is None:
            return None
        return self._reader.row(host_key, url_id, self._urls[host_key].get(url_id), state[1])


class MemoryEpochs:
    """`connectors.ports.Epochs`. Any thread may call."""

    def __init__(self, region: str = "", *, of: MemoryEpochs | None = None) -> None:
        """`region`: where the worker runs. `of`: another's, whose numbers these are."""
        self._region = region
        self._homes: dict[int, Home] = {} if of is None else of._homes
        self._lock: threading.Lock = threading.Lock() if of is None else of._lock

    def take(self, partition: int) -> int:
        with self._lock:
            before = self._homes.get(partition)
            after = homes.taken(before, self._region)
            if after is None:
                raise Elsewhere(f"partition {partition} is at home in another region than {self._region!r}: {before}")
            return self._settle(partition, after)

    def home(self, partition: int) -> Home | None:
        with self._lock:
            return self._homes.get(partition)

    def move(self, partition: int, region: str) -> int:
        with self._lock:
            return self._settle(partition, homes.moved(self._homes.get(partition), region))

    def _settle(self, partition: int, home: Home) -> int:
        assert home.epoch <= STAMP_EPOCH_MAX
        self._homes[partition] = home
        return home.epoch
