"""What a fetcher's reader believes of its group, by a consumer that is told what to say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from connectors.lease_reader import LeaseReader, Received
from streams.core.failures import CrawlError

SESSION_S = 10.0


class Message:
    """As the client gives one."""

    def __init__(self, partition: int, offset: int, error: KafkaError | None = None) -> None:
        self._at, self._error = (partition, offset), error

    def partition(self) -> int:
        return self._at[0]

    def offset(self) -> int:
        return self._at[1]

    def value(self) -> bytes:
        return b"v"

    def error(self) -> KafkaError | None:
        return self._error


class Consumer:
    """Gives the messages that it is told; commits are answered when the test says so."""

    def __init__(self) -> None:
        self.ends: dict[int, int] = {}
        self.places: dict[int, int] = {}
        self.paused: set[int] = set()
        self.messages: list[Message] = []
        self.commits: list[dict[int, int]] = []
        self.end_fails = 0
        self.commit_fails = False

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.places |= {one.partition: one.offset for one in partitions}

    def get_watermark_offsets(self, one: TopicPartition, **how: Any) -> tuple[int, int]:
        if self.end_fails and not how.get("cached"):
            self.end_fails -= 1
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return 0, self.ends[one.partition]

    def consume(self, most: int, within_s: float) -> list[Message]:
        messages, self.messages = self.messages, []
        return messages

    def commit(self, *, offsets: Sequence[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous
        if self.commit_fails:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.commits.append({one.partition: one.offset for one in offsets})

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused |= {one.partition for one in partitions}

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused -= {one.partition for one in partitions}


class World:
    """A reader in the test's own thread, and what it was told."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.consumer = Consumer()
        self.events: list[tuple[str, Any]] = []
        self.has_room = True
        self.reader = LeaseReader({}, "fetch-leases", "g", self, session_s=SESSION_S, clock=lambda: self.now_s)
        self._answer: Callable[[Any, Sequence[Any]], None] = self.reader._settings["on_commit"]

    def assigned(self, ends: Mapping[int, int]) -> None:
        self.events.append(("assigned", dict(ends)))

    def revoked(self, partitions: Sequence[int]) -> None:
        self.events.append(("revoked", list(partitions)))

    def lost(self, partitions: Sequence[int]) -> None:
        self.events.append(("lost", list(partitions)))

    def received(self, records: Sequence[Received]) -> None:
        self.events.append(("received", [(one.partition, one.offset) for one in records]))

    def room(self) -> bool:
        return self.has_room

    def failed(self, error: Exception) -> None:
        raise AssertionError(error)

    def assign(self, *partitions: int) -> None:
        self.reader._assign(self.consumer, _places(*partitions))

    def lose(self, *partitions: int) -> None:
        self.reader._lose(self.consumer, _places(*partitions))

    def turn(self, *messages: Message) -> None:
        self.consumer.messages += messages
        self.reader.turn(self.consumer)

    def answer(self, error: int | None = None) -> None:
        self._answer(None if error is None else KafkaError(error), [])


def _places(*partitions: int) -> list[TopicPartition]:
    return [TopicPartition("fetch-leases", one) for one in partitions]


@pytest.fixture
def world() -> World:
    made = World()
    made.consumer.ends = {0: 100, 1: 200}
    return made


def test_a_partition_is_read_from_its_end(world: World) -> None:
    """What lay there before the assignment may have been started by another: the end is asked for until it is known."""
    world.consumer.end_fails = 3
    world.assign(0, 1)
    assert world.consumer.places == {0: 100, 1: 200}
    assert world.events == [("assigned", {0: 100, 1: 200})]


def test_nobody_is_fresh_before_the_group_said_so(world: World) -> None:
    """An assignment may lie in a stopped process for long: only an answered commit counts, from when it was sent."""
    assert not world.reader.fresh()
    world.assign(0)
    assert not world.reader.fresh()
    world.turn()
    assert not world.reader.fresh()
    world.now_s += 4
    world.answer()
    assert world.reader.fresh()
    world.now_s += 5.9
    assert world.reader.fresh()
    world.now_s += 0.2
    assert not world.reader.fresh()


def test_a_fifth_of_a_session_later_it_asks_again(world: World) -> None:
    """One commit at a time, with the positions behind what was handed on."""
    world.assign(0)
    world.turn()
    world.now_s += 5
    world.turn(Message(0, 100), Message(0, 101))
    assert world.consumer.commits == [{0: 100}]
    world.answer()
    world.turn()
    assert world.consumer.commits == [{0: 100}, {0: 102}]
    world.answer()
    world.now_s += 1.9
    world.turn()
    assert len(world.consumer.commits) == 2
    world.now_s += 0.2
    world.turn()
    assert len(world.consumer.commits) == 3


def test_a_refused_commit_is_no_heartbeat(world: World) -> None:
    """A member that was taken for gone is told so by its commit; a client in trouble cannot even ask."""
    world.assign(0)
    world.turn()
    world.answer(KafkaError.UNKNOWN_MEMBER_ID)
    assert not world.reader.fresh()
    world.consumer.commit_fails = True
    world.now_s += 3
    world.turn()
    world.consumer.commit_fails = False
    world.now_s += 3
    world.turn()
    assert len(world.consumer.commits) == 2
    world.reader._settings["on_commit"](None, [_refused()])
    assert not world.reader.fresh()


def _refused() -> TopicPartition:
    class Refused(TopicPartition):
        error = KafkaError(KafkaError.ILLEGAL_GENERATION)

    return Refused("fetch-leases", 0)


def test_lost_partitions_end_it_at_once(world: World) -> None:
    """Another may have them: the last good answer counts no more, nor does one to a commit from before."""
    world.assign(0)
    world.turn()
    world.answer()
    world.now_s += 3
    world.turn()
    world.lose(0)
    assert not world.reader.fresh()
    world.answer()
    assert not world.reader.fresh()
    assert world.events[-1] == ("lost", [0])
    world.assign(0)
    world.turn()
    world.answer()
    assert world.reader.fresh()


def test_a_full_fetcher_is_not_fed(world: World) -> None:
    """All partitions pause while there is no room, those that come meanwhile too, and go on afterwards."""
    world.assign(0)
    world.has_room = False
    world.turn()
    world.assign(1)
    assert world.consumer.paused == {0, 1}
    world.has_room = True
    world.turn()
    assert world.consumer.paused == set()


def test_lag_is_what_is_not_read(world: World) -> None:
    """People see how far behind each partition is, and nothing of partitions that are another's."""
    world.assign(0, 1)
    world.consumer.ends = {0: 130, 1: 200}
    world.turn()
    assert world.reader.lag == {0: 30, 1: 0}
    world.answer()
    world.turn(Message(0, 128), Message(0, 130, KafkaError(KafkaError._PARTITION_EOF)))  # 129 marks a transaction's end
    world.now_s += 3
    world.turn()
    assert world.reader.lag == {0: 0, 1: 0}
    assert world.consumer.commits[-1] == {0: 130, 1: 200}
    assert world.events[-1] == ("received", [(0, 128)])
    world.lose(0)
    assert world.reader.lag == {1: 0}


def test_a_lost_place_ends_the_reader_and_trouble_does_not(world: World) -> None:
    """Where the topic no longer has our position the worker starts anew; brokers that are away are waited for."""
    world.assign(0)
    world.turn(Message(0, 0, KafkaError(KafkaError._TRANSPORT)))
    with pytest.raises(CrawlError, match="needed the records behind our position"):
        world.turn(Message(0, 0, KafkaError(KafkaError._AUTO_OFFSET_RESET)))
    with pytest.raises(KafkaException):
        world.turn(Message(0, 0, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
