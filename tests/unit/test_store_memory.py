"""What all RocksDB stores of a process may have in memory together."""

from __future__ import annotations

from pathlib import Path

from connectors.crawldb_rocksdb import CrawlDb
from connectors.store_memory import StoreMemory
from streams.core.turn import Family

MB = 1 << 20


def test_the_limit_follows_what_lies_in_tables_within_bounds() -> None:
    """Protects the memory of a small crawl, and that of a worker with many partitions: the bound is for all of them."""
    memory = StoreMemory()
    assert memory.memtables.get_buffer_size() == 32 * MB
    memory.sized("a", 600 * MB)
    memory.sized("b", 600 * MB)
    assert memory.memtables.get_buffer_size() == 100 * MB
    memory.sized("c", 100_000 * MB)
    assert memory.memtables.get_buffer_size() == 128 * MB
    for store in "abc":
        memory.sized(store, 0)
    assert memory.memtables.get_buffer_size() == 32 * MB


def test_a_store_says_how_large_it_is_until_it_is_closed(tmp_path: Path) -> None:
    """Protects the limit from standing still: a store tells its size as it commits, and takes it back at its end."""
    memory = StoreMemory()
    for _ in range(2):
        db = CrawlDb(tmp_path / "db", memory=memory, synced=False)
        db.commit([(Family.URL, b"k" * 32, b"v" * 100_000)])
        told = dict(memory.sizes)
        db.close()
        assert not memory.sizes
    assert told[str(tmp_path / "db")] > 0
