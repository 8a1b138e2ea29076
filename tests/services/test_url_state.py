"""Cassandra keeps URL rows and epochs by the laws of the fakes, by stamps and by Paxos; while it is away we wait."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from cassandra.query import BatchStatement, BatchType

from connectors.cassandra_link import CassandraLink
from connectors.ports import Epochs, StoreClosed, UrlState
from connectors.url_batches import batches
from connectors.url_state_cassandra import CassandraUrlState
from connectors.url_state_paxos import PaxosUrlState
from infra.settings_fleet import Fleet
from infra.wiring_fleet import open_epochs, open_link, open_url_state
from streams.core.failures import CrawlError
from tests.conformance.url_state_suite import (
    EpochLaws,
    OpenStore,
    UrlStateLaws,
    admitted,
    in_order,
    known,
    new_host,
    visited,
)
from tests.services.conftest import Fleet as Services

AWAY_S = 30.0
BACK_S_MAX = 60.0  # of a write, after Cassandra is back


@pytest.fixture(scope="module")
def settings(fleet: Services) -> Fleet:
    """Cassandra with the tables in a keyspace of this module's own."""
    return fleet.keyspace("url_state_test")


@pytest.fixture(scope="module")
def link(settings: Fleet) -> Iterator[CassandraLink]:
    """One way in for the module. What it waits for is CAS timeouts of writers that race."""
    link = open_link(settings, print)
    yield link
    link.close()


class TestStamped(UrlStateLaws):
    """connectors.url_state_cassandra"""

    @pytest.fixture
    def open_store(self, settings: Fleet, link: CassandraLink) -> Iterator[OpenStore]:
        """The first on the module's link, any other on one of its own."""
        yield from _stores(settings, link, CassandraUrlState)


class TestByPaxos(UrlStateLaws):
    """connectors.url_state_paxos"""

    many = 40

    @pytest.fixture
    def open_store(self, settings: Fleet, link: CassandraLink) -> Iterator[OpenStore]:
        """The first on the module's link, any other on one of its own."""
        yield from _stores(settings, link, PaxosUrlState)


class TestEpochs(EpochLaws):
    """connectors.epochs_cassandra"""

    @pytest.fixture
    def epochs(self, link: CassandraLink) -> Epochs:
        """On the module's link."""
        return open_epochs(link, worker="w", region="r")

    @pytest.fixture
    def elsewhere(self, link: CassandraLink) -> Epochs:
        """On the module's link, too."""
        return open_epochs(link, worker="w", region="elsewhere")


def _stores(settings: Fleet, link: CassandraLink, kind: type[CassandraUrlState | PaxosUrlState]) -> Iterator[OpenStore]:
    opened: list[CassandraLink] = []

    def open_store() -> UrlState:
        opened.append(open_link(settings, print))
        return kind(opened[-1])

    yield open_store
    for one in opened:
        one.close()


def test_statements_go_to_the_replicas_of_their_partition(link: CassandraLink) -> None:
    """A batch is unlogged, within one (host_key, bucket), and carries the routing key of that partition: a coordinator
    that holds none of it would cost a hop for every row, a logged or mixed one several writes for each."""
    store = CassandraUrlState(link)
    rows = [admitted(host, number) for host in (new_host(), new_host()) for number in range(200)]
    rows += [visited(new_host(), number, "a") for number in range(50)]
    several = 0
    for batch in batches(rows):
        statement, values = store.statement(batch, 1 << 32)
        key = link.prepared("SELECT url FROM {keyspace}.url_state WHERE host_key = ? AND bucket = ?").bind(
            (batch.host_key, batch.bucket)
        )
        if isinstance(statement, BatchStatement):
            several += 1
            assert statement.batch_type is BatchType.UNLOGGED
            assert statement.routing_key == key.routing_key
        else:
            assert statement.bind(values).routing_key == key.routing_key
    assert several > 16


def test_a_missing_table_is_said_at_once(settings: Fleet) -> None:
    """Waiting makes no tables: who forgot `headrace provision` reads so, instead of a worker that hangs."""
    link = open_link(msgspec.structs.replace(settings, keyspace="nowhere"), print)
    try:
        with pytest.raises(CrawlError, match="headrace provision"):
            open_url_state(link).write([admitted(new_host(), 1)], epoch=1, version=1)
    finally:
        link.close()


def test_cassandra_is_away_for_a_while(fleet: Services, settings: Fleet) -> None:
    """kill -9 in the midst of writing: the writer waits, says so once, goes on by itself within a minute of the end;
    every row and a new epoch are there, and no exception came out."""
    said: list[str] = []
    link = open_link(settings, said.append)
    store, epochs = open_url_state(link), open_epochs(link, worker="w", region="r")
    host, groups = new_host(), 40
    store.write([admitted(host, number) for number in range(groups * 100)], epoch=1, version=1)
    first = epochs.take(77)

    def write_on() -> int:
        for group in range(groups):
            rows = [visited(host, number, "a") for number in range(group * 100, group * 100 + 100)]
            store.write(rows, epoch=1, version=2 + group)
        return epochs.take(77)

    os.kill(fleet.status()["cassandra"].pid, signal.SIGKILL)
    killed = time.monotonic()
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write_on)
        with pytest.raises(TimeoutError):
            writing.result(AWAY_S)
        assert link.away()
        assert time.monotonic() - killed >= AWAY_S
        fleet.up("cassandra")
        assert writing.result(BACK_S_MAX) > first
    assert not link.away()
    expected = [visited(host, number, "a") for number in range(groups * 100)]
    assert known(store, *expected) == in_order(*expected)
    assert [line.partition(",")[0] for line in said] == [said[0].partition(",")[0], "cassandra: it answers again"]
    assert "nothing is lost" in said[0]
    link.close()


def test_a_worker_that_ends_does_not_wait_for_cassandra(fleet: Services, settings: Fleet) -> None:
    """SIGTERM while Cassandra is away: whoever waits is let go with StoreClosed, at once."""
    nobody = Fleet(cassandra=("127.0.0.1:1",), keyspace=settings.keyspace)
    waiting: list[str] = []
    link = open_link(nobody, waiting.append)
    with ThreadPoolExecutor(1) as threads:
        epoch = threads.submit(open_epochs(link, worker="w", region="r").take, 1)
        with pytest.raises(TimeoutError):
            epoch.result(1.0)
        assert link.away()
        link.close()
        with pytest.raises(StoreClosed):
            epoch.result(20.0)
    assert "refused; waiting" in waiting[0]
