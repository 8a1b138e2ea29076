"""A crawl's folder read only, beside the process that writes it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from connectors.crawldb_rocksdb import CrawlDb
from infra.folder import DATABASE, Folder, is_held
from infra.kept import keep
from infra.settings import Given, build
from infra.wiring import open_reader, requeue_dead_letters
from schemas.records import Outcome, Source
from streams.core.failures import CrawlError, UsageError
from streams.core.owner import Owner
from streams.core.policy import CrawlPolicy, Politeness, TrapLimits
from streams.core.rules.traps import TemplateCounts, template
from streams.core.rules.urls import host_id
from streams.core.turn import Family, Turn
from tests.support.core_world import ANY, NOW_MS, answer, found, stored

POLICY = CrawlPolicy(politeness=Politeness(delay_ms=0, concurrency=8, respect_robots=False), lost_leases_max=0)


class Running:
    """An owner on a real database in a held folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = Folder(root, now_ms=NOW_MS)
        self.db = CrawlDb(root / DATABASE)
        self.db.commit(meta={"seeds": msgspec.msgpack.encode(("http://a.test/",))})
        self.owner = Owner(self.db, POLICY, ANY, epoch=1, jitter=lambda: 0.5)
        self.turn([found(f"http://a.test/{name}") for name in ("ok", "dead", "new")], leases_max=0)

    def turn(self, *events: object, leases_max: int = 100) -> Turn:
        turn = self.owner.decide(events, NOW_MS, leases_max)  # type: ignore[arg-type]
        self.db.commit(turn.writes)
        self.owner.committed(turn)
        return turn

    def crawl(self) -> None:
        leases = {lease.url.rpartition("/")[2]: lease for lease in self.turn(leases_max=3).leases}
        self.turn(answer(leases["ok"], NOW_MS), stored(leases["ok"]), leases_max=0)
        self.turn(answer(leases["new"], NOW_MS, Outcome.EXPIRED, 0), leases_max=0)
        turn = Owner(self.db, POLICY, ANY, epoch=2, jitter=lambda: 0.5).adopt(NOW_MS, close_leases=True)
        self.db.commit(turn.writes)  # what a restart makes of the lease that is left: it was lost once too often

    def close(self) -> None:
        self.db.close()
        self.folder.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    one = Running(tmp_path / "crawl")
    yield one
    one.close()


def test_a_running_crawl_is_read_without_touching_it(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects the writer: counts, pages and letters are seen as committed, and nothing is left behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # its own: other readers may come and go on this machine
    running.crawl()
    reader = open_reader(running.root)
    counts = reader.counts()
    assert (counts.pages, counts.urls_known, counts.urls_queued, counts.hosts_known) == (1, 3, 1, 1)
    assert counts.dead_letters == 1
    assert counts.statuses == {"queued": 1, "fetched": 1, "failed": 1}
    rows = {row.url: row for row in reader.pages()}
    assert rows["http://a.test/ok"].state == "fetched"
    assert rows["http://a.test/ok"].next_due_ms is not None
    assert rows["http://a.test/ok"].content_hash == (b"h" * 32).hex()
    assert rows["http://a.test/dead"].error == "lease_lost"
    assert (rows["http://a.test/ok"].error, rows["http://a.test/new"].error) == (None, None)
    ((_, letter),) = list(reader.dead_letters())
    assert letter.url == "http://a.test/dead"
    assert len(list(tmp_path.glob("headrace-reader-*"))) == 1
    reader.close()
    assert not list(tmp_path.glob("headrace-reader-*"))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("http://a.test/ok", "its page is stored"),
        ("a.test/ok", "its page is stored"),
        ("http://a.test/never", "would be admitted"),
        ("ftp://a.test/x", None),
        ("a.test", "http://a.test: "),
        ("http://a.test", "http://a.test: "),
        ("http://unknown.test", "would not be admitted: out_of_scope"),
        ("http://unknown.test/", "would not be admitted: out_of_scope"),
        ("unknown.test", "does not know this host"),
        ("not a url at all \x00", None),
    ],
)
def test_explain_takes_urls_and_hosts_as_people_write_them(running: Running, asked: str, words: str | None) -> None:
    """Protects `explain`: scheme or not, URL or host, known or not; nonsense is one clear error."""
    running.crawl()
    reader = open_reader(running.root)
    try:
        if words is None:
            with pytest.raises(UsageError, match="explain: needed a URL or a host"):
                reader.explain(asked, NOW_MS)
        else:
            sentences = reader.explain(asked, NOW_MS)
            assert sentences[0][0] == "now"
            assert words in sentences[0][1]
    finally:
        reader.close()


def test_a_folder_is_judged_by_the_settings_that_it_keeps(running: Running) -> None:
    """Protects `explain` from the defaults: the crawl's own scope and delay decide."""
    running.turn([found("http://a.test/left", Source.LINK, depth=1)], leases_max=0)
    reader = open_reader(running.root, build([Given("crawl.include", ["nothing"], "")]))
    try:
        assert "not_included" in dict(reader.explain("http://a.test/left", NOW_MS))["scope"]
        assert "scope" not in dict(reader.explain("http://a.test/new", NOW_MS))  # a seed
    finally:
        reader.close()
    keep(running.root, build([Given("crawl.scope", "any", ""), Given("politeness.delay", "7s", "")]))
    reader = open_reader(running.root)
    try:
        assert "would be admitted" in reader.explain("http://unknown.test/", NOW_MS)[0][1]
        assert "7,000 ms" in dict(reader.explain("a.test", NOW_MS))["delay"]
        assert [label for label, _ in reader.explain("http://a.test/never", NOW_MS)].count("now") == 1
    finally:
        reader.close()


def test_dead_letters_are_requeued_by_key_or_all(running: Running) -> None:
    """Protects the operator's second chance on a folder at rest, and a wrong key from doing anything."""
    running.crawl()
    running.close()
    with pytest.raises(CrawlError, match="needed the key of a dead letter"):
        requeue_dead_letters(running.root, ["00"], now=lambda: NOW_MS)
    reader = open_reader(running.root)
    ((key, _),) = list(reader.dead_letters())
    reader.close()
    assert requeue_dead_letters(running.root, [key, key], now=lambda: NOW_MS) == 1
    assert requeue_dead_letters(running.root, "all", now=lambda: NOW_MS) == 0
    reader = open_reader(running.root)
    assert (reader.counts().dead_letters, reader.counts().urls_queued) == (0, 2)
    reader.close()
    running.folder = Folder(running.root, now_ms=NOW_MS)
    running.db = CrawlDb(running.root / DATABASE)


def test_a_running_crawls_letters_are_not_requeued(running: Running) -> None:
    """Protects the one writer."""
    with pytest.raises(CrawlError, match="holds it"):
        requeue_dead_letters(running.root, "all", now=lambda: NOW_MS)
    assert is_held(running.root)


def test_a_folder_without_a_crawl_is_one_clear_error(tmp_path: Path) -> None:
    """Protects people from a stack trace."""
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(CrawlError, match="needed a crawl's folder"):
            open_reader(path)


def test_a_url_near_the_trap_limit_is_told_how_near(running: Running) -> None:
    """Protects whoever misses pages of a calendar: how many of its pattern are known, and what happens at the limit."""
    limits = TrapLimits()
    day = "http://a.test/cal/2026-01-05"
    counts = TemplateCounts()
    for n in range(1_407):
        counts.count(template(day), n.to_bytes(16), limits)
    key = host_id("http://a.test")
    running.db.commit([(Family.TEMPLATES, key, msgspec.msgpack.encode(counts))])
    near = dict(open_reader(running.root).explain(day, NOW_MS))
    assert near["trap"] == "1,407 of 2,000 URLs of the pattern /cal/{date} are known"
    assert "trap" not in dict(open_reader(running.root).explain("http://a.test/ok", NOW_MS))
    for n in range(600):
        counts.count(template(day), n.to_bytes(16), limits)
    running.db.commit([(Family.TEMPLATES, key, msgspec.msgpack.encode(counts))])
    over = dict(open_reader(running.root).explain(day, NOW_MS))
    assert "it is paused, and of its new URLs one in 256 is taken" in over["trap"]
