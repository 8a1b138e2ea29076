"""The lease reader with the real client, against the cluster that the client itself plays for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer

from connectors.lease_reader import LeaseReader, Received
from tests.support.fleet_world import until

TOPIC = "fetch-leases"
SESSION_S = 6


class Told:
    """What one reader told."""

    def __init__(self, kafka: str) -> None:
        self.ends: dict[int, int] = {}
        self.values: list[bytes | None] = []
        self.failures: list[Exception] = []
        self.lost_any = False
        self.reader = LeaseReader({"bootstrap.servers": kafka}, TOPIC, "g", self, session_s=SESSION_S)

    def assigned(self, ends: Mapping[int, int]) -> None:
        self.ends |= ends

    def revoked(self, partitions: Sequence[int]) -> None:
        for one in partitions:
            del self.ends[one]

    def lost(self, partitions: Sequence[int]) -> None:
        self.lost_any = True
        self.revoked(partitions)

    def received(self, records: Sequence[Received]) -> None:
        self.values += [one.value for one in records]

    def room(self) -> bool:
        return True

    def failed(self, error: Exception) -> None:
        self.failures.append(error)


class Cluster:
    """In this process. A topic has four partitions."""

    def __init__(self) -> None:
        self._producer: Any = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
        (broker,) = self._producer.list_topics(timeout=20).brokers.values()
        self.address = f"{broker.host}:{broker.port}"
        self._producer.list_topics(TOPIC, timeout=20)

    def send(self, *values: bytes) -> None:
        for number, value in enumerate(values):
            self._producer.produce(TOPIC, value, partition=number % 4)
        assert self._producer.flush(20) == 0


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_members_come_and_go_and_no_record_comes_twice(cluster: Cluster) -> None:
    """Old records are left alone, answered commits make a member fresh, a second one takes half of the partitions from
    their ends, and when the first leaves the other has them all."""
    cluster.send(b"old", b"old")
    first, second = Told(cluster.address), Told(cluster.address)
    first.reader.start()
    until(first.reader.fresh, "the first to be fresh")
    assert first.ends == {0: 1, 1: 1, 2: 0, 3: 0}
    cluster.send(*(b"a%d" % number for number in range(8)))
    until(lambda: len(first.values) == 8, "eight records")
    second.reader.start()
    until(lambda: second.reader.fresh() and len(first.ends) == len(second.ends) == 2, "both to have two partitions")
    assert not set(first.ends) & set(second.ends)
    cluster.send(*(b"b%d" % number for number in range(8)))
    until(lambda: len(first.values) + len(second.values) == 16, "eight more")
    first.reader.close()
    until(lambda: len(second.ends) == 4, "the second to have them all")
    cluster.send(*(b"c%d" % number for number in range(8)))
    until(lambda: len(first.values) + len(second.values) == 24, "the last eight")
    second.reader.close()
    came = [*first.values, *second.values]
    assert sorted(one or b"" for one in came) == sorted(b"%c%d" % (kind, n) for kind in b"abc" for n in range(8))
    assert (first.failures, second.failures, first.lost_any, second.lost_any) == ([], [], False, False)
