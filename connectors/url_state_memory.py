"""URL rows in memory, for several owners of one process: the twin of the tables in Cassandra."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from connectors.ports import UrlWrite


class MemoryUrlState:
    """See `connectors.ports.UrlState`."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[bytes, tuple[tuple[int, int], bytes | None]]] = {}
        self._lock = threading.Lock()

    def write(self, rows: Sequence[UrlWrite], *, epoch: int, version: int) -> None:
        stamp = (epoch, version)
        with self._lock:
            for host_key, url_id, row in rows:
                host = self._rows.setdefault(host_key, {})
                before = host.get(url_id)
                if before is None or before[0] < stamp:
                    host[url_id] = (stamp, row)

    def read(self, host_key: str, url_ids: Sequence[bytes]) -> list[bytes | None]:
        with self._lock:
            host = self._rows.get(host_key, {})
            return [host[url_id][1] if url_id in host else None for url_id in url_ids]

    def scan(self, host_key: str, after: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        with self._lock:
            host = self._rows.get(host_key, {})
            found = ((url_id, host[url_id][1]) for url_id in sorted(host) if url_id > after)
            return [(url_id, row) for url_id, row in found if row is not None][:rows_max]


class MemoryEpochs:
    """See `connectors.ports.Epochs`."""

    def __init__(self) -> None:
        self._taken: dict[int, int] = {}
        self._lock = threading.Lock()

    def take(self, partition: int) -> int:
        with self._lock:
            self._taken[partition] = self._taken.get(partition, 0) + 1
            return self._taken[partition]
