"""The owner's store in RocksDB, its twin in memory and the core tests' fake answer alike; commits are whole."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors import crawldb_rocksdb
from connectors.crawldb_memory import MemoryCrawlDb
from connectors.crawldb_rocksdb import CrawlDb
from connectors.files import StoreFailed
from connectors.ports import StoredContent
from schemas.records import BodyRef
from streams.core.rows import HOST_ID_BYTES, URL_ID_BYTES
from streams.core.turn import INDEX_FAMILIES, Family, Write
from tests.support.memory_store import MemoryStore

HOSTS = [bytes((n,)) * HOST_ID_BYTES for n in (0, 1, 2, 255)]
# Tails whose bytes meet the ends of every range: a class that is followed by nothing, all zeros, all ones.
TAILS = [
    bytes((queue,)) + due + number * URL_ID_BYTES
    for queue, due, number in itertools.product(
        (0, 1, 2), (b"\0" * 6, b"\0\0\0\1\0\0", b"\xff" * 6), (b"\0", b"\x80", b"\xff")
    )
]
_keys = st.one_of(
    st.builds(lambda host, number: host + bytes((number,)) * URL_ID_BYTES, st.sampled_from(HOSTS), st.integers(0, 255)),
    st.builds(lambda host, tail: host + tail, st.sampled_from(HOSTS), st.sampled_from(TAILS)),
)
_writes = st.lists(
    st.tuples(st.sampled_from(list(Family)), _keys, st.one_of(st.none(), st.binary(max_size=20))), max_size=12
)
_ENTRIES = st.lists(st.tuples(st.sampled_from(HOSTS), st.sampled_from(TAILS), st.booleans()), max_size=20)


@pytest.fixture(scope="module")
def db_paths(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A new database for each example."""
    root = tmp_path_factory.mktemp("crawldb")
    return (root / str(number) for number in itertools.count())


def _same_answers(db: CrawlDb | MemoryCrawlDb, store: MemoryStore, written: set[bytes]) -> None:
    keys = sorted(written | {b"\0" * 26, b"\xff" * 26})
    assert db.rows(keys) == store.rows(keys)
    assert db.rows([]) == []
    assert db.seen(keys) == store.seen(keys)
    for after, most, prefix in itertools.product((b"", HOSTS[1], HOSTS[2] + b"\x80" * 16), (1, 3), (b"", *HOSTS)):
        start = max(after, prefix)  # as the index asks: from within the prefix
        assert db.rows_after(start, most, prefix) == store.rows_after(start, most, prefix)
    for family in Family:
        assert [db.get(family, key) for key in keys] == [store.get(family, key) for key in keys]
        assert list(db.scan(family)) == list(store.families[family].items())
    assert list(db.hosts()) == list(store.hosts())
    assert list(db.tasks()) == list(store.tasks())
    for host, queue, most in itertools.product(HOSTS, (0, 1, 2), (1, 3, 100)):
        for after in (b"", *(tail for tail in TAILS if tail[0] == queue)):
            assert db.queue(host, queue, after, most) == store.queue(host, queue, after, most)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(commits=st.lists(st.tuples(_writes, _ENTRIES), min_size=1, max_size=4))
def test_all_stores_answer_alike(
    db_paths: Iterator[Path], commits: list[tuple[list[Write], list[tuple[bytes, bytes, bool]]]]
) -> None:
    """Protects the port: what tests and simulations show in memory holds on disk, also after opening it again."""
    path = next(db_paths)
    store, db, twin = MemoryStore(), CrawlDb(path), MemoryCrawlDb()
    written: set[bytes] = set()
    for writes, entries in commits:
        batch: list[Write] = [
            *writes,
            *((Family.QUEUE, host + tail, b"" if present else None) for host, tail, present in entries),
        ]
        written |= {key for _, key, _ in batch}
        db.commit(batch)
        store.commit(batch)
        twin.commit(batch)
    _same_answers(db, store, written)
    _same_answers(twin, store, written)
    db.close()
    db = CrawlDb(path)
    _same_answers(db, store, written)
    db.close()


def test_the_last_write_of_a_batch_counts(tmp_path: Path) -> None:
    """Protects a requeue to the same place: removed and put again in one turn, the entry stands."""
    db = CrawlDb(tmp_path / "db")
    key = HOSTS[1] + TAILS[0]
    db.commit([(Family.QUEUE, key, b""), (Family.QUEUE, key, None), (Family.QUEUE, key, b"")])
    assert db.queue(HOSTS[1], TAILS[0][0], b"", 5) == [TAILS[0]]
    db.commit([(Family.QUEUE, key, b""), (Family.QUEUE, key, None)])
    assert db.queue(HOSTS[1], TAILS[0][0], b"", 5) == []
    db.close()


def test_everything_of_a_commit_is_there_after_opening_again(tmp_path: Path) -> None:
    """Protects atomicity over families: rows, position, content index and journal become durable together."""
    content = StoredContent(BodyRef("warc/1", 2, 3), "http://a.test/", 4)
    db = CrawlDb(tmp_path / "db")
    db.commit(
        [(Family.URL, b"k" * 26, b"row")],
        meta={"segments": b"here"},
        content={b"h" * 32: content},
        log=[(7, b"seven"), (8, b"eight"), (256, b"later")],
    )
    db.close()
    db = CrawlDb(tmp_path / "db")
    assert db.get(Family.URL, b"k" * 26) == b"row"
    assert db.meta("segments") == b"here"
    assert db.meta("nothing") is None
    assert db.content(b"h" * 32) == content
    assert db.content(b"i" * 32) is None
    assert list(db.log_rows()) == [(7, b"seven"), (8, b"eight"), (256, b"later")]
    db.commit(meta={"log_next": b"8"}, log_end=8)
    assert list(db.log_rows()) == [(8, b"eight"), (256, b"later")]
    db.close()


def test_a_torn_last_batch_leaves_the_one_before_whole(tmp_path: Path) -> None:
    """Protects atomicity against a crash while the log is written: half a batch is no batch."""
    db = CrawlDb(tmp_path / "db")
    db.commit([(Family.URL, b"a" * 26, b"1"), (Family.HOST, b"a" * 10, b"1")])
    (log,) = (tmp_path / "db").glob("*.log")
    whole = log.stat().st_size
    db.commit([(Family.URL, b"a" * 26, b"2"), (Family.HOST, b"a" * 10, b"2"), (Family.TASK, b"t" * 26, b"2")])
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "db", copy)  # as it lies while the writer runs
    db.close()
    torn = copy / log.name
    torn.write_bytes(torn.read_bytes()[:-5])
    assert torn.stat().st_size > whole
    db = CrawlDb(copy)
    assert db.get(Family.URL, b"a" * 26) == b"1"
    assert db.get(Family.HOST, b"a" * 10) == b"1"
    assert db.get(Family.TASK, b"t" * 26) is None
    db.close()


def test_a_secondary_follows_the_running_writer(tmp_path: Path) -> None:
    """Protects status and export of a running crawl: the reader sees each commit, and never holds the writer up."""
    db = CrawlDb(tmp_path / "db")
    db.commit([(Family.URL, b"a" * 26, b"1")])
    reader = CrawlDb(tmp_path / "db", secondary=tmp_path / "scratch")
    reader.catch_up()
    assert reader.get(Family.URL, b"a" * 26) == b"1"
    for number in range(20):
        db.commit([(Family.URL, b"a" * 26, str(number).encode()), (Family.URL, bytes((number,)) * 26, b"x")])
        reader.catch_up()
        assert reader.get(Family.URL, b"a" * 26) == str(number).encode()
        assert len(list(reader.scan(Family.URL))) == number + 2
    reader.close()
    db.commit([(Family.URL, b"z" * 26, b"1")])
    db.close()


def test_a_scan_does_not_see_commits_that_came_after_it_began(tmp_path: Path) -> None:
    """Protects `--refresh`, which walks the queues while it commits to them: no entry is met twice."""
    db = CrawlDb(tmp_path / "db")
    db.commit([(Family.QUEUE, bytes((n,)) * 33, b"") for n in range(50)])
    seen = []
    for key, _ in db.scan(Family.QUEUE):
        seen.append(key)
        db.commit([(Family.QUEUE, bytes((200 - key[0],)) * 33, b"")])
    assert seen == [bytes((n,)) * 33 for n in range(50)]
    db.close()


def test_a_folder_in_use_is_one_clear_error(tmp_path: Path) -> None:
    """Protects a running crawl from a second writer."""
    db = CrawlDb(tmp_path / "db")
    with pytest.raises(StoreFailed, match=r"crawl state: needed to open .*in use"):
        CrawlDb(tmp_path / "db")
    db.close()


@pytest.mark.parametrize("damage", ["CURRENT", "MANIFEST", "sst"])
def test_a_damaged_database_is_one_clear_error(tmp_path: Path, damage: str) -> None:
    """Protects people from a stack trace, and the folder from being taken for an empty one."""
    path = tmp_path / "db"
    db = CrawlDb(path)
    db.commit([(Family.URL, bytes((n,)) * 26, b"x" * 100) for n in range(200)])
    db.close()  # the memory tables go to disk
    assert list(path.glob("*.sst"))
    for file in path.iterdir():
        if file.name.startswith(damage) or file.suffix == f".{damage}":
            file.write_bytes(b"\0" * 200 + file.read_bytes()[200:])
    for read in (
        lambda db: list(db.scan(Family.URL)),
        lambda db: db.rows([b"\1" * 26]),
        lambda db: db.get(Family.URL, b"\1" * 26),
    ):
        with pytest.raises(StoreFailed, match="crawl state: needed to"), _opened(path) as db:
            read(db)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[CrawlDb]:
    db = CrawlDb(path)
    try:
        yield db
    finally:
        db.close()


def test_a_reader_needs_no_right_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crawl on a read-only disk, or of another user, is read; nothing is written beside its files."""
    db = CrawlDb(tmp_path / "db")
    db.commit([(Family.HOST, HOSTS[1], b"one")])
    db.close()
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "db").iterdir()}
    monkeypatch.setattr("connectors.crawldb_rocksdb.os.access", lambda path, mode: False)  # a superuser may always
    reader = CrawlDb(tmp_path / "db", secondary=tmp_path / "scratch")
    reader.catch_up()
    assert list(reader.hosts()) == [(HOSTS[1], b"one")]
    reader.close()
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "db").iterdir()} == before


@pytest.mark.parametrize("make", [MemoryStore, MemoryCrawlDb, CrawlDb])
def test_a_cleared_index_is_gone_and_nothing_else(
    make: type[MemoryStore | MemoryCrawlDb | CrawlDb], tmp_path: Path
) -> None:
    """Protects a rebuild: of the families only those that are derived are emptied, and they can be filled again."""
    db = make(tmp_path / "db") if make is CrawlDb else make()  # type: ignore[call-arg]
    keys = [host + number * 16 for host in HOSTS for number in (b"\0", b"\xff")]
    entries = [host + tail for host in HOSTS for tail in TAILS]
    db.commit([(family, key, b"x") for family in Family for key in (entries if family is Family.QUEUE else keys)])
    db.clear_index()
    left = {family for family in Family if list(db.scan(family))}
    assert left == set(Family) - set(INDEX_FAMILIES)
    assert all(db.queue(host, queue, b"", 9) == [] for host in HOSTS for queue in (0, 1, 2))
    db.commit([(Family.QUEUE, entries[0], b""), (Family.SEEN, keys[0], b"y")])
    assert db.seen(keys[:2]) == [b"y", None]
    assert db.queue(HOSTS[0], TAILS[0][0], b"", 9) == [TAILS[0]]
    if isinstance(db, CrawlDb):
        db.close()


def test_a_folder_of_an_earlier_version_can_be_read_and_gone_on_with(tmp_path: Path) -> None:
    """Protects `status` of an old folder: families that came later are missing until a crawl goes on in it."""
    path = tmp_path / "db"
    old = [name for name in crawldb_rocksdb._ALL if name not in ("seen", "index")]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(crawldb_rocksdb, "_ALL", old)
        db = CrawlDb(path)
        db.commit([(Family.HOST, HOSTS[1], b"one"), (Family.URL, HOSTS[1] + b"k" * 16, b"row")])
        db.close()
    for reader in (CrawlDb(path, secondary=tmp_path / "scratch"), CrawlDb(path, read_only=True)):
        assert list(reader.hosts()) == [(HOSTS[1], b"one")]
        reader.close()
    db = CrawlDb(path)
    assert db.get(Family.INDEX, b"state") is None
    assert db.seen([b"k" * 26]) == [None]
    assert db.rows_after(HOSTS[1], 5, HOSTS[1]) == [(HOSTS[1] + b"k" * 16, b"row")]
    db.close()
