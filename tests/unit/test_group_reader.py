"""What a stage's reader tells its group, by a consumer whose commits are answered when the test says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from connectors import group_reader
from connectors.group_reader import GroupReader

TOPIC = "parsed-pages"
REFUSED = KafkaError.COORDINATOR_LOAD_IN_PROGRESS


class Consumer:
    """Gives no messages; keeps what is committed."""

    def __init__(self) -> None:
        self.commits: list[tuple[dict[int, int], bool]] = []
        self.away = False

    def consume(self, most: int, within_s: float) -> list[Any]:
        return []

    def get_watermark_offsets(self, one: TopicPartition, **how: Any) -> tuple[int, int]:
        return 0, 100

    def commit(self, *, offsets: Sequence[TopicPartition], asynchronous: bool) -> None:
        self.commits.append(({one.partition: one.offset for one in offsets}, asynchronous))
        if self.away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


class World:
    """A reader in the test's own thread."""

    def __init__(self) -> None:
        self.consumer = Consumer()
        self.reader = GroupReader(
            {}, TOPIC, "g", session_s=10, take=lambda inputs: None, room=lambda partition: True, failed=_fail
        )
        self._answer: Callable[[Any, Sequence[Any]], None] = self.reader._settings["on_commit"]

    def assign(self, *partitions: int) -> None:
        self.reader._assigned(self.consumer, [TopicPartition(TOPIC, one) for one in partitions])

    def revoke(self, *partitions: int) -> None:
        self.reader._revoked(self.consumer, [TopicPartition(TOPIC, one) for one in partitions])

    def lose(self, *partitions: int) -> None:
        self.reader._lost(self.consumer, [TopicPartition(TOPIC, one) for one in partitions])

    def done(self, partition: int, offset: int) -> None:
        self.reader.done(partition, self.reader.terms()[partition], offset)

    def answer(self, offsets: dict[int, int], error: int | None = None) -> None:
        places = [TopicPartition(TOPIC, partition, offset) for partition, offset in offsets.items()]
        self._answer(None if error is None else KafkaError(error), places)

    def committed(self) -> list[tuple[dict[int, int], bool]]:
        """What is committed in the next turn."""
        self.consumer.commits.clear()
        self.reader.turn(self.consumer)
        return self.consumer.commits


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(group_reader, "COMMIT_S", 0.0)
    made = World()
    made.assign(0, 1)
    return made


def _fail(error: Exception) -> None:
    raise AssertionError(error)


def test_what_the_group_took_is_not_committed_again(world: World) -> None:
    """A reader with nothing new to say leaves the brokers alone."""
    world.done(0, 7)
    assert world.committed() == [({0: 7}, True)]
    world.answer({0: 7})
    assert world.committed() == []
    world.revoke(0)
    assert world.consumer.commits == []


def test_what_the_group_refused_is_committed_again(world: World) -> None:
    """A quiet partition's offset must not stay behind for ever because a broker ended as it was committed: it would
    show as lag, and be done again after a restart."""
    world.done(0, 7)
    world.done(1, 3)
    assert world.committed() == [({0: 7, 1: 3}, True)]
    world.answer({0: 7, 1: 3}, REFUSED)
    world.done(1, 4)
    assert world.committed() == [({0: 7, 1: 4}, True)]
    world.consumer.away = True
    world.done(0, 8)
    assert world.committed() == [({0: 8}, True)]
    world.consumer.away = False
    assert world.committed() == [({0: 8}, True)]


def test_a_refusal_of_what_a_newer_commit_has_overtaken_changes_nothing(world: World) -> None:
    """Offsets never go back."""
    world.done(0, 7)
    world.committed()
    world.done(0, 9)
    world.committed()
    world.answer({0: 7}, REFUSED)
    assert world.committed() == []
    world.done(0, 10)
    world.answer({0: 9}, REFUSED)
    assert world.committed() == [({0: 10}, True)]


def test_a_refusal_of_an_assignment_that_is_over_changes_nothing(world: World) -> None:
    """A partition that went to another and came back is not committed past what the other one left undone."""
    world.done(0, 7)
    world.committed()
    world.lose(0)
    world.assign(0)
    world.answer({0: 7}, REFUSED)
    assert world.committed() == []


def test_whoever_gives_partitions_up_commits_what_was_not_answered(world: World) -> None:
    """An orderly end must not rest on a commit that may still be refused."""
    world.done(0, 7)
    world.committed()
    world.consumer.commits.clear()
    world.revoke(0)
    assert world.consumer.commits == [({0: 7}, False)]
