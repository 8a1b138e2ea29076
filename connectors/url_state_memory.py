"""The URL store in memory, and the epochs: the twins of those in Cassandra, under the same laws.

They forget everything with their process, so they stand for the servers only in tests and simulations.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from connectors.ports import StoreClosed, UrlFound, UrlWrite
from connectors.url_batches import batches, found_of
from schemas.cassandra import STAMP_EPOCH_MAX, stamp


class MemoryUrlState:
    """`connectors.ports.UrlState`. Any thread may call."""

    def __init__(self, same_as: MemoryUrlState | None = None) -> None:
        """`same_as`: whose rows these are, too, as of another process."""
        self._urls: dict[str, dict[bytes, str]] = {} if same_as is None else same_as._urls
        # Of two cells the greater stands: by stamp, then by its bytes, as in Cassandra.
        self._states: dict[str, dict[bytes, tuple[int, bytes]]] = {} if same_as is None else same_as._states
        self._lock: threading.Lock = threading.Lock() if same_as is None else same_as._lock
        self._closed = False

    def write(self, rows: Sequence[UrlWrite], *, epoch: int, version: int) -> None:
        at = stamp(epoch, version)
        with self._lock:
            self._open()
            for batch in batches(rows):
                urls = self._urls.setdefault(batch.host_key, {})
                states = self._states.setdefault(batch.host_key, {})
                for cell in batch.cells:
                    if cell.url is not None:
                        urls[cell.url_id] = cell.url
                    states[cell.url_id] = max(states.get(cell.url_id, (0, b"")), (at, cell.state))

    def read(self, host_key: str, url_ids: Sequence[bytes]) -> list[UrlFound]:
        with self._lock:
            self._open()
            states = self._states.get(host_key, {})
            found = (self._found(host_key, url_id) for url_id in sorted(set(url_ids) & states.keys()))
            return [one for one in found if one is not None]

    def scan(self, host_key: str, after: bytes, rows_max: int) -> list[UrlFound]:
        rows: list[UrlFound] = []
        with self._lock:
            self._open()
            for url_id in sorted(self._states.get(host_key, {})):
                found = self._found(host_key, url_id) if url_id > after and len(rows) < rows_max else None
                if found is not None:
                    rows.append(found)
        return rows

    def close(self) -> None:
        self._closed = True

    def _found(self, host_key: str, url_id: bytes) -> UrlFound | None:
        return found_of(url_id, self._urls[host_key].get(url_id), self._states[host_key][url_id][1])

    def _open(self) -> None:
        if self._closed:
            raise StoreClosed("url_state in memory")


class MemoryEpochs:
    """`connectors.ports.Epochs`. Any thread may call."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}
        self._lock = threading.Lock()

    def take(self, partition: int, *, owner: str, region: str, now_ms: int) -> int:
        with self._lock:
            epoch = self._last[partition] = self._last.get(partition, 0) + 1
        assert epoch <= STAMP_EPOCH_MAX
        return epoch

    def last(self, partition: int) -> int:
        return self._last.get(partition, 0)
