"""What a group's reader commits when the group refuses, by a client that is told what to say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from connectors import group_reader
from connectors.group_reader import GroupReader, Input

TOPIC = "parsed-pages"


class Came:
    """One message of partition 0."""

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 21

    def value(self) -> bytes:
        return b"v"

    def timestamp(self) -> tuple[int, int]:
        return 1, 1

    def error(self) -> None: ...


class Client:
    """One message, and then silence. The first commit is not even sent, the second refused, the third taken."""

    commits: list[int]
    settled: threading.Event

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._on_commit = settings["on_commit"]
        self._given = False

    def subscribe(self, topics: object, on_assign: Callable[[Any, Any], None], **calls: object) -> None:
        on_assign(self, [TopicPartition(TOPIC, 0)])

    def consume(self, at_most: int, wait_s: float) -> list[Came]:
        given, self._given = self._given, True
        return [] if given else [Came()]

    def commit(self, offsets: Sequence[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous, "nothing is left for the end"
        self.commits.append(offsets[0].offset)
        if len(self.commits) == 1:
            raise KafkaException(KafkaError(KafkaError._WAIT_COORD))
        self._on_commit(KafkaError(KafkaError.REBALANCE_IN_PROGRESS) if len(self.commits) == 2 else None, offsets)
        if len(self.commits) == 3:
            self.settled.set()

    def get_watermark_offsets(self, place: object, **how: object) -> tuple[int, int]:
        return 0, 22

    def close(self) -> None: ...


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    """In the place of the library's, committed as soon as there is anything."""
    made: Any = Client
    monkeypatch.setattr(group_reader, "Consumer", made)
    monkeypatch.setattr(group_reader, "COMMIT_S", 0.0)
    monkeypatch.setattr(Client, "commits", [], raising=False)
    monkeypatch.setattr(Client, "settled", threading.Event(), raising=False)
    return Client


def test_a_commit_that_was_refused_is_made_again(client: type[Client]) -> None:
    """A rebalance or a restart of brokers refused the last commit of a topic that then fell silent: its group stayed
    22 messages behind for ever by status, and whoever got the partition next did them all again."""
    failed: list[Exception] = []

    def take(messages: Sequence[Input]) -> None:
        for one in messages:
            reader.done(one.partition, one.term, one.offset + 1)

    reader = GroupReader({}, TOPIC, "g", session_s=10, take=take, room=lambda one: True, failed=failed.append)
    reader.start()
    assert client.settled.wait(20)
    reader.close()
    assert client.commits == [22, 22, 22], "and what was taken is not committed again"
    assert failed == []


def test_what_was_refused_under_an_assignment_that_is_over_is_not(client: type[Client]) -> None:
    """Another worker had the partition meanwhile, and may be further: its positions must not go back."""
    reader = GroupReader({}, TOPIC, "g", session_s=10, take=print, room=lambda one: True, failed=print)
    place = TopicPartition(TOPIC, 0, 22)
    asked: list[TopicPartition] = []

    class Silent:
        """Takes a commit and does not answer yet."""

        def commit(self, offsets: Sequence[TopicPartition], asynchronous: bool) -> None:
            asked.extend(offsets)

    reader._assigned(Silent(), [place])
    reader.done(0, reader.terms()[0], 22)
    reader._commit(Silent(), asynchronous=True)
    reader._lost(Silent(), [place])
    reader._assigned(Silent(), [place])
    reader._answered(KafkaError(KafkaError.ILLEGAL_GENERATION), asked)
    reader._commit(Silent(), asynchronous=True)
    assert len(asked) == 1
