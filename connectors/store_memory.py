"""The memory of all RocksDB stores of a process: one block cache and one limit for what is not in tables yet.

Larger memtables are fewer and larger flushes, so less merging; a small store has no use for them. Their limit follows
the bytes that lie in tables, within bounds (infra/decisions/0139): a small crawl stays small.
"""

from __future__ import annotations

import threading
from typing import Any

from rocksdict import Cache, WriteBufferManager

_CACHE_BYTES = 32 << 20
_MEMTABLES_BYTES_MIN = 32 << 20
_MEMTABLES_BYTES_MAX = 128 << 20
_TABLES_PER_MEMTABLE = 12  # bytes in tables for one in memtables

FAMILY_MEMTABLE_BYTES = 64 << 20  # of one column family, before it is flushed whatever the others have


class StoreMemory:
    """Any thread may call. Shared by stores that are open at once; each tells its size from time to time."""

    def __init__(self, cache_bytes: int = _CACHE_BYTES) -> None:
        self.cache = Cache(cache_bytes)
        self.memtables: Any = WriteBufferManager(_MEMTABLES_BYTES_MIN, False)
        self.sizes: dict[str, int] = {}  # by store, in bytes
        self._lock = threading.Lock()

    def sized(self, store: str, tables_bytes: int) -> None:
        """A store's bytes in tables; 0 when it is closed."""
        with self._lock:
            if tables_bytes:
                self.sizes[store] = tables_bytes
            else:
                self.sizes.pop(store, None)
            wanted = sum(self.sizes.values()) // _TABLES_PER_MEMTABLE
            limit = min(max(wanted, _MEMTABLES_BYTES_MIN), _MEMTABLES_BYTES_MAX)
            if limit != self.memtables.get_buffer_size():
                self.memtables.set_buffer_size(limit)
