"""How the crawl's state lies in RocksDB: options of the database and of each column family."""

from __future__ import annotations

from rocksdict import BlockBasedIndexType, BlockBasedOptions, DBCompressionType, Options

from connectors.store_memory import FAMILY_MEMTABLE_BYTES, StoreMemory

_WAL_BYTES_MAX = 256 << 20
_BLOCK_BYTES = 8 << 10
_INDEX_PART_BYTES = 4 << 10


def database_options(memory: StoreMemory, *, create: bool) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(create)
    options.create_missing_column_families(create)
    options.set_write_buffer_manager(memory.memtables)
    options.set_max_total_wal_size(_WAL_BYTES_MAX)
    options.set_max_open_files(512)
    options.set_keep_log_file_num(2)
    options.set_max_background_jobs(2)
    options.set_bytes_per_sync(1 << 20)
    return options


def family_options(name: str, memory: StoreMemory) -> Options:
    """See infra/decisions/0076: what a look at a cold URL costs is decided here."""
    options = Options(raw_mode=True)
    table = BlockBasedOptions()
    table.set_block_cache(memory.cache)
    table.set_block_size(_BLOCK_BYTES)
    table.set_format_version(5)
    if name in ("url", "seen", "content", "host"):
        # Most look-ups are for what is absent, or lies in one of several levels: the filter answers "absent" without
        # reading a block, and never anything else.
        # The seen family's filters and indexes stay whole and beside the cache, as the small families' do: 1.4 bytes a
        # URL, for a fifth less of each link (infra/decisions/0073).
        table.set_bloom_filter(10, False)
    if name in ("url", "content"):
        # Filters and indexes in pieces of a block each, so that memory does not follow the number of URLs; whole ones
        # (a megabyte each) would push one another out of the cache with every look.
        table.set_cache_index_and_filter_blocks(True)
        table.set_index_type(BlockBasedIndexType.two_level_index_search())
        table.set_partition_filters(True)
        table.set_metadata_block_size(_INDEX_PART_BYTES)
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        table.set_pin_top_level_index_and_filter(True)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_size(FAMILY_MEMTABLE_BYTES)
    # What is flushed is soon merged: compressing it would be a tenth of the store's own work.
    options.set_compression_per_level([DBCompressionType.none(), *[DBCompressionType.lz4()] * 6])
    options.set_level_compaction_dynamic_level_bytes(True)
    return options
