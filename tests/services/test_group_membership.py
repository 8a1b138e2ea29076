"""Members of a real consumer group, one more than there are partitions: each of them is in, and says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from connectors.group_reader import GroupReader
from tests.services.conftest import Fleet
from tests.support.fleet_world import FleetWorld, until

TOPIC = "surplus-members"


@pytest.fixture
def kafka(fleet: Fleet, tmp_path: Path) -> Iterator[str]:
    """A broker with new topics."""
    world = FleetWorld(fleet.up("kafka")["kafka"], tmp_path)
    yield world.kafka
    world.close()


def test_a_member_without_a_partition_is_in_its_group(kafka: str) -> None:
    """The real client's statistics say that it is steady, where none of its callbacks says anything: a worker more than
    there are partitions was never ready."""
    partitions = 2
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(TOPIC, partitions)])[TOPIC].result(30)
    until(
        lambda: TOPIC in admin.list_topics(timeout=30).topics,
        "brokers to know the topic: a worker looks before it reads",
    )
    failed: list[Exception] = []
    readers = [
        GroupReader(
            {"bootstrap.servers": kafka},
            TOPIC,
            "surplus",
            session_s=10,
            take=lambda messages: None,
            room=lambda partition: True,
            failed=failed.append,
        )
        for _ in range(partitions + 1)
    ]
    for reader in readers:
        reader.start()
    until(
        lambda: all(reader.is_member() for reader in readers),
        lambda: f"all of them to be in their group: {[reader.is_member() for reader in readers]}, {failed}",
    )
    until(lambda: sum(len(reader.terms()) for reader in readers) == partitions, "the partitions to be dealt")
    until(lambda: min(len(reader.terms()) for reader in readers) == 0, "one of them to have none")
    assert all(reader.is_member() for reader in readers)
    for reader in readers:
        reader.close()
    assert not any(reader.is_member() for reader in readers)
    assert failed == []
