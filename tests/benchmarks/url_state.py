"""The URL store in Cassandra: plain, batched and by Paxos side by side; reading back; bytes on disk.

    python -m tests.benchmarks.url_state --settle "sh -c 'nodetool flush && nodetool compact'" --data DIR

Rows go through the adapters as the owner's do: in groups, 64 statements in flight, waited for. An admission is a new
URL; pages name 20 of them, all of one host. A completion is the row of a visited URL, each of another host. `plain` is
the stamped store with batches of one row. CPU is this process's, Avro included; `load` is the machine's at the end.

`--settle` is a command that flushes and compacts, `--data` the node's data folder: with both, the bytes a row on disk
are measured, too. The keyspace `headrace_bench` is made and dropped.
"""

from __future__ import annotations

import argparse
import random
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from connectors.cassandra_link import CassandraLink
from connectors.ports import UrlState, UrlWrite
from connectors.url_records import encode_state
from connectors.url_state_cassandra import CassandraUrlState
from connectors.url_state_paxos import PaxosUrlState
from infra.provision.cassandra_admin import open_cluster
from infra.provision.everything import provision
from infra.settings import load as settings
from infra.settings_fleet import Fleet
from infra.wiring_fleet import open_link
from streams.core.rows import UrlRow, decode_row, encode_row
from streams.core.rules.urls import url_id
from tests.benchmarks.measured import load
from tests.benchmarks.record_bytes import row, url_of

KEYSPACE = "headrace_bench"
LINKS = 20
GROUP = 1_000  # rows of one call
_version = iter(range(1, 1 << 32))


def main() -> None:
    """All of it, a line each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["writes", "reads", "host"], help="writes, reads, host")
    parser.add_argument("--rows", type=int, default=60_000, help="of the stamped store")
    parser.add_argument("--paxos-rows", type=int, default=3_000)
    parser.add_argument("--host-rows", type=int, default=1_000_000, help="of the host that is read back")
    parser.add_argument("--settle", default="")
    parser.add_argument("--data", type=Path)
    arguments = parser.parse_args()
    fleet = msgspec.structs.replace(settings().fleet, keyspace=KEYSPACE)
    _drop(fleet)
    for _, step in provision(fleet, ["keyspace"]):
        assert not isinstance(step, Exception), step
    link = open_link(fleet, print)
    try:
        _measure(link, arguments)
    finally:
        link.close()
        _drop(fleet)


def _measure(link: CassandraLink, arguments: argparse.Namespace) -> None:
    dice = random.Random(1)
    store = CassandraUrlState(link)
    _encoding(dice)
    for each in (CassandraUrlState(link, batch_rows_max=1), store):  # a node is slow until its code is compiled
        _write("not counted: the node warms up", each, _pages(dice, 40_000))
    if "writes" in arguments.parts:
        _writes(link, dice, arguments)
    if "reads" in arguments.parts:
        rows = _pages(dice, 6_000)
        store.write(rows, epoch=1, version=next(_version))
        _read(store, rows)
    if "host" in arguments.parts:
        _big_host(store, dice, arguments.host_rows)
        _visited_host(store, dice, arguments.rows)
    if arguments.settle and arguments.data:
        for visited in (False, True):
            _disk(link, dice, arguments, visited=visited)


def _writes(link: CassandraLink, dice: random.Random, arguments: argparse.Namespace) -> None:
    batched = CassandraUrlState(link)
    stores = (
        ("plain", CassandraUrlState(link, batch_rows_max=1), arguments.rows // 3),
        ("batched", batched, arguments.rows),
        ("paxos", PaxosUrlState(link), arguments.paxos_rows),
    )
    for name, store, count in stores:
        _write(f"admit, pages of {LINKS} links, {name}", store, _pages(dice, count))
        site = f"https://www.sitemap-{name}.example"
        _write(f"admit, a sitemap of one host, {name}", store, list(_site(dice, site, count)))
        lone = [one for at in range(count) for one in _site(dice, f"https://{name}{at}.example", 1)]
        for at in range(0, count, GROUP):
            store.write(lone[at : at + GROUP], epoch=1, version=next(_version))
        _write(f"complete, {name}", store, [_visited(write, dice) for write in lone])
    for rows in (GROUP // 10, 5 * GROUP):
        _write(f"admit, pages, groups of {rows:,}, batched", batched, _pages(dice, arguments.rows // 3), group=rows)


def _encoding(dice: random.Random) -> None:
    """What Avro costs of it, and what the local store's form would."""
    new = [decode_row(write.row) for write in _site(dice, "https://a.example", 3_000) if write.row is not None]
    for name, rows in (("new", new), ("visited", [row(dice) for _ in range(3_000)])):
        for form, encode in (("avro", encode_state), ("msgpack", encode_row)):
            began = time.process_time()
            size = sum(len(encode(one)) for one in rows)
            us = (time.process_time() - began) / len(rows) * 1e6
            _say(f"{form} of a {name} row", f"{us:.1f} us, {size / len(rows):.0f} bytes")


def _write(name: str, store: UrlState, rows: Sequence[UrlWrite], group: int = GROUP) -> None:
    def run() -> int:
        for at in range(0, len(rows), group):
            store.write(rows[at : at + group], epoch=1, version=next(_version))
        return len(rows)

    _timed(name, run)


def _read(store: UrlState, rows: Sequence[UrlWrite]) -> None:
    """Rows one by one, and hosts whole: of about 20 rows each."""
    some = rows[:2_000]

    def single() -> int:
        assert all(store.read(write.host_key, [write.url_id]) == [write.row] for write in some)
        return len(some)

    def pages() -> int:
        for at in range(0, len(some), LINKS):
            page = some[at : at + LINKS]
            assert store.read(page[0].host_key, [write.url_id for write in page]) == [write.row for write in page]
        return len(some)

    hosts = sorted({write.host_key for write in rows})[:500]

    def whole() -> int:
        assert all(store.scan(host, b"", GROUP) for host in hosts)
        return len(hosts)

    _timed("read, a row at a time", single)
    _timed(f"read, {LINKS} rows of a host at a time", pages)
    _timed("read small hosts whole", whole, "hosts")


def _big_host(store: UrlState, dice: random.Random, count: int) -> None:
    """Written, then read back as the rebuild does, by pages."""
    host = "https://www.large.example"

    def write() -> int:
        rows: list[UrlWrite] = []
        for one in _site(dice, host, count):
            rows.append(one)
            if len(rows) == 10 * GROUP:
                store.write(rows, epoch=1, version=next(_version))
                rows.clear()
        store.write(rows, epoch=1, version=next(_version))
        return count

    _timed(f"write a host of {count:,} URLs", write)
    for page_rows in (200, 2_000):

        def read(page_rows: int = page_rows, most: int = count if page_rows == 2_000 else count // 10) -> int:
            after, rows = b"", 0
            while rows < most:
                page = store.scan(host, after, page_rows)
                rows += len(page)
                if len(page) < page_rows:
                    assert rows == count, rows
                    break
                after = page[-1][0]
            return rows

        _timed(f"read it back, pages of {page_rows:,}", read)


def _visited_host(store: UrlState, dice: random.Random, count: int) -> None:
    """A host all of whose URLs were fetched, read back."""
    host = "https://www.visited.example"
    for some in _both(dice, host, count):
        store.write(some, epoch=1, version=next(_version))

    def read() -> int:
        after, rows = b"", 0
        while page := store.scan(host, after, 2 * GROUP):
            after, rows = page[-1][0], rows + len(page)
        assert rows == count, rows
        return rows

    _timed("read a host of visited URLs back, pages of 2,000", read)


def _both(dice: random.Random, host: str, count: int) -> Iterator[list[UrlWrite]]:
    """Groups of new rows, each followed by the same as visited ones."""
    site = _site(dice, host, count)
    for _ in range(0, count, GROUP):
        some = [write for _, write in zip(range(GROUP), site, strict=False)]
        yield some
        yield [_visited(write, dice) for write in some]


def _disk(link: CassandraLink, dice: random.Random, arguments: argparse.Namespace, *, visited: bool) -> None:
    """What rows of one kind take, in the table that holds nothing else."""
    link.run([(link.prepared("TRUNCATE {keyspace}.url_state"), ())])
    store, rows = CassandraUrlState(link), 0
    for at in range(arguments.rows // GROUP):
        for number, some in enumerate(_both(dice, f"https://www.site{at}.example", GROUP)):
            if visited or not number % 2:
                store.write(some, epoch=1, version=next(_version))
        rows += GROUP
    subprocess.run(shlex.split(arguments.settle), check=True, capture_output=True)
    size = sum(path.stat().st_size for path in arguments.data.glob(f"**/{KEYSPACE}/url_state-*/*.db"))
    _say(f"{'visited' if visited else 'new'} rows on disk", f"{size / rows:.0f} bytes a row ({rows:,} rows)")


def _pages(dice: random.Random, rows: int) -> list[UrlWrite]:
    return [write for _ in range(rows // LINKS) for write in _page(dice)]


def _page(dice: random.Random) -> list[UrlWrite]:
    """New URLs of one host, as a page's links are."""
    return list(_site(dice, f"https://www.site{dice.randrange(1_000)}.example", LINKS))


def _site(dice: random.Random, host: str, count: int) -> Iterator[UrlWrite]:
    """New URLs of a host."""
    parent = dice.randbytes(16)
    for number in range(count):
        url = f"{url_of(dice, host)[0]}?{number}"
        one = row(dice)
        new = UrlRow(url, one.source, one.kind, 3, 0, parent, 128, one.discovered_ms, place=bytes(7))
        yield UrlWrite(host, url_id(url), encode_row(new))


def _visited(write: UrlWrite, dice: random.Random) -> UrlWrite:
    assert write.row is not None
    visited = msgspec.structs.replace(row(dice), url=decode_row(write.row).url)
    return write._replace(row=encode_row(visited))


def _timed(name: str, run: Callable[[], int], what: str = "rows") -> None:
    began, cpu = time.monotonic(), time.process_time()
    count = run()
    wall, used = time.monotonic() - began, time.process_time() - cpu
    _say(name, f"{count / wall:>9,.0f} {what}/s {used / count * 1e6:>6.0f} us of client CPU each ({count:,}); {load()}")


def _say(name: str, figures: str) -> None:
    print(f"{name:<50}{figures}", flush=True)


def _drop(fleet: Fleet) -> None:
    cluster = open_cluster(fleet)
    try:
        cluster.connect().execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}", timeout=60)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
