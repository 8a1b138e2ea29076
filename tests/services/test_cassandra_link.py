"""The link waits for what passes, tells at once what does not, and never does more than it must; the driver's session
is a fake whose answers are scripted: a real node cannot be told to lose an answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from cassandra import AuthenticationFailed, InvalidRequest, OperationTimedOut, Unavailable, WriteTimeout
from cassandra.cluster import NoHostAvailable
from cassandra.protocol import OverloadedErrorMessage

from connectors.cassandra_link import IN_FLIGHT_MAX, CassandraLink
from connectors.epochs_cassandra import CassandraEpochs
from streams.core.failures import CrawlError

Answer = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]


class FakeFuture:
    """What the driver's execute_concurrent and ResultSet look at."""

    _col_names, _col_types, _paging_state, has_more_pages, row_factory = (), (), None, False, None

    def __init__(self) -> None:
        self._heard = threading.Event()

    def add_callbacks(
        self, callback: Any, callback_args: Any, errback: Any, errback_args: Any, **_keywords: Any
    ) -> None:
        """Who is told, and how."""
        self._good, self._bad = (callback, callback_args), (errback, errback_args)
        self._heard.set()

    def clear_callbacks(self) -> None:
        """It is told once anyway."""

    def settle(self, answer: Answer, statement: str, values: Sequence[Any]) -> None:
        """Ask and tell, as the driver's thread does."""
        assert self._heard.wait(30)
        try:
            rows = answer(statement, values)
        except Exception as error:
            self._bad[0](error, *self._bad[1])
            if not isinstance(
                error, (OperationTimedOut, WriteTimeout, Unavailable, OverloadedErrorMessage, InvalidRequest)
            ):
                raise
        else:
            self._good[0](rows, *self._good[1])


class FakeCassandra:
    """A cluster whose statements are answered by `answer`, on threads of its own."""

    def __init__(self, answer: Answer, connect_errors: Sequence[Exception] = ()) -> None:
        self._answer = answer
        self._connect_errors = list(connect_errors)
        self._threads = ThreadPoolExecutor(8)
        self._lock = threading.Lock()
        self.opened = self.shut = self.in_flight = self.most_in_flight = 0

    def open(self) -> Any:
        """What the link takes for a Cluster."""
        self.opened += 1
        return self

    def connect(self) -> Any:
        """What the link takes for a Session."""
        if self._connect_errors:
            raise self._connect_errors.pop(0)
        return self

    def shutdown(self) -> None:
        """Counted."""
        self.shut += 1

    def execution_profile_clone_update(self, profile: Any, **changes: Any) -> None:
        """Nothing to keep."""

    def prepare(self, query: str) -> Any:
        """The statement is its text."""
        return SimpleNamespace(query=query)

    def execute_async(self, statement: Any, values: Sequence[Any], execution_profile: Any) -> FakeFuture:
        """Answered by another thread."""
        future = FakeFuture()
        with self._lock:
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self._threads.submit(self._settle, future, statement.query, values)
        return future

    def _settle(self, future: FakeFuture, statement: str, values: Sequence[Any]) -> None:
        with self._lock:
            self.in_flight -= 1
        future.settle(self._answer, statement, values)

    def end(self) -> None:
        """Its threads end."""
        self._threads.shutdown()


@pytest.fixture
def said() -> list[str]:
    """What the link tells people."""
    return []


@pytest.fixture
def clusters() -> Iterator[list[FakeCassandra]]:
    """Those that are ended with the test."""
    some: list[FakeCassandra] = []
    yield some
    for one in some:
        one.end()


def linked(
    clusters: list[FakeCassandra], said: list[str], answer: Answer, connect_errors: Sequence[Exception] = ()
) -> tuple[FakeCassandra, CassandraLink]:
    """A cluster and the link to it."""
    clusters.append(FakeCassandra(answer, connect_errors))
    return clusters[-1], CassandraLink(clusters[-1].open, "ks", say=said.append)


def test_only_what_failed_is_sent_again(clusters: list[FakeCassandra], said: list[str]) -> None:
    """A timeout of one statement of a group must not double the load of a node that is slow already."""
    sent: list[int] = []
    errors: list[Exception] = [
        OperationTimedOut(),
        Unavailable("no", consistency=1, required_replicas=2, alive_replicas=1),
        WriteTimeout("slow", consistency=1, write_type=0),
        OverloadedErrorMessage(0x1001, "overloaded", None),
    ]

    def answer(statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        sent.append(values[0])
        if values[0] % 50 == 7 and errors:
            raise errors.pop()
        return [(values[0],)]

    _, link = linked(clusters, said, answer)
    statement = link.prepared("INSERT {keyspace}")
    answers = link.run([(statement, (number,)) for number in range(200)])
    assert [one.current_rows for one in answers] == [[(number,)] for number in range(200)]
    assert sorted(sent) == sorted([*range(200), 7, 57, 107, 157])
    assert [line.split(",")[0] for line in said] == [
        "cassandra: needed 200 statements carried out",
        "cassandra: it answers again",
    ]


def test_no_more_than_the_limit_is_in_flight(clusters: list[FakeCassandra], said: list[str]) -> None:
    """A group of ten thousand rows must not become ten thousand requests at once."""
    cluster, link = linked(clusters, said, lambda statement, values: [])
    link.run([(link.prepared("INSERT"), (number,)) for number in range(2_000)])
    assert 1 < cluster.most_in_flight <= IN_FLIGHT_MAX
    assert said == []


def test_what_waiting_does_not_mend_is_told_at_once(clusters: list[FakeCassandra], said: list[str]) -> None:
    """A statement that is refused will be refused for ever; a login, too."""

    def refuse(statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        raise InvalidRequest("unconfigured table") if values[0] == 5 else OperationTimedOut()

    _, link = linked(clusters, said, refuse)
    with pytest.raises(CrawlError, match=r"needed 9 statements.*unconfigured table.*headrace provision"):
        link.run([(link.prepared("INSERT"), (number,)) for number in range(9)])
    error = NoHostAvailable("none", {"node": AuthenticationFailed("bad credentials")})
    cluster, link = linked(clusters, said, refuse, [error])
    with pytest.raises(CrawlError, match="bad credentials"):
        link.prepared("SELECT")
    assert cluster.shut == 1
    assert said == []


def test_a_cluster_that_is_away_at_the_start_is_waited_for(clusters: list[FakeCassandra], said: list[str]) -> None:
    """A worker that starts before Cassandra joins it when it comes; no half-open cluster is left behind."""
    errors = [NoHostAvailable("none", {"node": ConnectionRefusedError("refused")}), OperationTimedOut()]
    cluster, link = linked(clusters, said, lambda statement, values: [(1,)], errors)
    assert link.run([(link.prepared("SELECT"), ())])[0].current_rows == [(1,)]
    assert (cluster.opened, cluster.shut) == (3, 2)
    assert "refused" in said[0]
    assert not link.away()


def test_an_epoch_whose_answer_was_lost_is_nobodys(clusters: list[FakeCassandra], said: list[str]) -> None:
    """A conditional write may be carried out although its answer is lost, and sent again by us or by the driver: two
    owners would share a number if "not applied" were taken for the other's, or the repeat for applied."""
    table: dict[int, int] = {}
    lost = [True, False, True, True, False]

    def answer(statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        if statement.startswith("SELECT"):
            return [(table[values[0]], "r")] if values[0] in table else []
        if statement.startswith("INSERT"):
            partition, epoch, expected = values[0], values[1], None
        else:
            epoch, partition, expected = values[0], values[4], values[5]
        applied = table.get(partition) == expected
        if applied:
            table[partition] = epoch
            if lost and lost.pop():
                raise WriteTimeout("lost", consistency=8, write_type=6)
        return [(applied, table[partition])]

    _, link = linked(clusters, said, answer)
    epochs = CassandraEpochs(link, owner="w", region="r", clock=lambda: 1)
    taken = [epochs.take(3) for _ in range(5)]
    assert taken == sorted(set(taken))
    assert taken[-1] == table[3] == 8  # three answers were lost
