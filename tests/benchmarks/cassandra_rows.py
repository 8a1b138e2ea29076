"""What URL rows cost in Cassandra: by the number of buckets, by compression, and to the client.

    python -m tests.benchmarks.cassandra_rows --settle "sh -c 'nodetool flush && nodetool compact'" --data DIR

Writes go as the owner's would: prepared, unlogged batches within a partition, stamped, 64 in flight. A page names 20
new URLs of its host. `--settle` is a command that flushes and compacts (a flush alone writes LZ4, whatever the table
says: `flush_compression: fast`), `--data` the node's data folder: with both, the bytes a row on disk are measured, too.
The keyspace `headrace_bench` is made and dropped.
"""

from __future__ import annotations

import argparse
import random
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cassandra.cluster import Session
from cassandra.concurrent import execute_concurrent
from cassandra.query import BatchStatement, BatchType

from infra.provision.cassandra_admin import open_cluster
from infra.provision.cql import CRAWL_CQL, tables
from infra.settings import load
from schemas.cassandra import stamp
from streams.core.rows import encode_row
from tests.benchmarks.record_bytes import row, url_id_of, url_of

KEYSPACE = "headrace_bench"
LINKS = 20
COMPRESSIONS = (
    "{'class': 'LZ4Compressor', 'chunk_length_in_kb': '16'}",
    "{'class': 'ZstdCompressor', 'compression_level': '1', 'chunk_length_in_kb': '16'}",
    "{'class': 'ZstdCompressor', 'compression_level': '1', 'chunk_length_in_kb': '64'}",
)
Row = tuple[str, bytes, str, bytes]  # host_key, url_id, url, state


def main() -> None:
    """All tables, one after the other."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pages", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=100_000, help="for bytes on disk")
    parser.add_argument("--settle", default="")
    parser.add_argument("--data", type=Path)
    arguments = parser.parse_args()
    cluster = open_cluster(load().fleet)
    session = cluster.connect()
    session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
    session.execute(
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}}"
    )
    session.set_keyspace(KEYSPACE)
    try:
        for buckets in (1, 4, 16, 64):
            _admissions(session, buckets, arguments.pages)
        _single(session, arguments.pages * 10)
        if arguments.settle and arguments.data:
            for compression in COMPRESSIONS:
                _disk(session, compression, arguments)
    finally:
        session.execute(f"DROP KEYSPACE {KEYSPACE}", timeout=60)
        cluster.shutdown()


def _table(session: Session, name: str, compression: str = COMPRESSIONS[1]) -> Any:
    create = tables(CRAWL_CQL.read_text())[0].create.replace(" url_state ", f" {name} ")
    session.execute(create.replace(COMPRESSIONS[1], compression))
    insert = f"INSERT INTO {name} (host_key, bucket, url_id, url, state) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?"
    return session.prepare(insert)


def _admissions(session: Session, buckets: int, pages: int) -> None:
    insert = _table(session, f"by_{buckets}")
    dice = random.Random(buckets)
    batches = [batch for _ in range(pages) for batch in _by_bucket(_page(dice), buckets)]
    _run(f"admit, {buckets} buckets", session, [_batch(insert, batch, buckets) for batch in batches], pages * LINKS)


def _single(session: Session, count: int) -> None:
    insert = _table(session, "single")
    dice = random.Random(5)
    rows = [one for _ in range(count // LINKS) for one in _page(dice)]
    _run("complete, a row each", session, [(insert, _bound(one, 16, 1)) for one in rows], len(rows))
    read = session.prepare("SELECT state FROM single WHERE host_key = ? AND bucket = ? AND url_id = ?")
    _run("read, a row each", session, [(read, (one[0], one[1][0] >> 4, one[1])) for one in rows], len(rows))


def _disk(session: Session, compression: str, arguments: argparse.Namespace) -> None:
    name = f"disk_{COMPRESSIONS.index(compression)}"
    insert = _table(session, name, compression)
    dice = random.Random(9)
    some = [one for _ in range(arguments.rows // LINKS) for one in _page(dice)]
    batches = [batch for at in range(0, len(some), 2_000) for batch in _by_bucket(some[at : at + 2_000], 1)]
    execute_concurrent(session, [_batch(insert, batch, 16) for batch in batches], concurrency=64)
    subprocess.run(shlex.split(arguments.settle), check=True, capture_output=True)
    size = sum(path.stat().st_size for path in arguments.data.glob(f"**/{KEYSPACE}/{name}-*/*.db"))
    print(f"{compression:<85}{size / len(some):>8.0f} bytes a row on disk")


def _page(dice: random.Random) -> list[Row]:
    """20 new URLs of one host, with the state of a page that was fetched."""
    host = f"https://www.site{dice.randrange(1_000)}.example"
    urls = [url_of(dice, host)[0] for _ in range(LINKS)]
    return [(host, url_id_of(url), url, encode_row(row(dice))) for url in urls]


def _by_bucket(rows: Sequence[Row], buckets: int) -> Iterator[list[Row]]:
    groups: dict[tuple[str, int], list[Row]] = {}
    for one in rows:
        groups.setdefault((one[0], one[1][0] * buckets >> 8), []).append(one)
    yield from groups.values()


def _bound(one: Row, buckets: int, version: int) -> tuple[Any, ...]:
    host, url_id, url, state = one
    return host, url_id[0] * buckets >> 8, url_id, url, state, stamp(1, version)


def _batch(insert: Any, rows: Sequence[Row], buckets: int) -> tuple[Any, Any]:
    if len(rows) == 1:
        return insert, _bound(rows[0], buckets, 1)
    batch = BatchStatement(BatchType.UNLOGGED)
    for one in rows:
        batch.add(insert, _bound(one, buckets, 1))
    return batch, None


def _run(name: str, session: Session, statements: Sequence[Any], rows: int) -> None:
    began, cpu = time.monotonic(), time.process_time()
    execute_concurrent(session, statements, concurrency=64)
    wall, used = time.monotonic() - began, time.process_time() - cpu
    said = f"{rows / wall:>10,.0f} rows/s{used / rows * 1e6:>8.0f} us of client CPU a row"
    print(f"{name:<24}{len(statements):>8} statements{said}", flush=True)


if __name__ == "__main__":
    main()
