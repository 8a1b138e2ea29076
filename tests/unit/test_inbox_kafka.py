"""An owner's input while its brokers are away, by a client that is told what to say."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from connectors import inbox_kafka
from connectors.inbox_kafka import KafkaInbox, Message, Reader

TOPICS = ("fetch-results", "discovered-urls")


class Came:
    """A message as the client gives one."""

    def __init__(self, topic: str, offset: int, error: KafkaError | None = None) -> None:
        self._topic, self._offset, self._error = topic, offset, error

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return b"v"

    def timestamp(self) -> tuple[int, int]:
        return 1, 1

    def error(self) -> KafkaError | None:
        return self._error


class Client:
    """The first topic's position is gone, which it says once; where it begins is not known for `away` questions."""

    away = 2

    commits: list[list[tuple[str, int]]]
    taken: threading.Event

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._on_commit = settings["on_commit"]
        self._left = self.away
        self._said = False
        self._other = 0
        self._places: dict[str, int] = {}

    def incremental_assign(self, places: Sequence[TopicPartition]) -> None:
        self._places |= {one.topic: one.offset for one in places}

    def incremental_unassign(self, places: Sequence[TopicPartition]) -> None:
        for one in places:
            del self._places[one.topic]

    def consume(self, at_most: int, wait_s: float) -> list[Came]:
        self._other += 1
        found = [Came(TOPICS[1], self._other)]
        if not self._said:
            self._said = True
            found.append(Came(TOPICS[0], -1, KafkaError(KafkaError._AUTO_OFFSET_RESET)))
        elif self._places[TOPICS[0]] == 5:
            found.append(Came(TOPICS[0], 5))
        return found

    def get_watermark_offsets(self, place: TopicPartition, **how: object) -> tuple[int, int]:
        if how.get("cached"):
            return -1, -1
        if self._left:
            self._left -= 1
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return 5, 9

    def commit(self, offsets: Sequence[TopicPartition], asynchronous: bool) -> None:
        """The first is not even sent, the second refused, the third taken."""
        assert asynchronous
        self.commits.append([(one.topic, one.offset) for one in offsets])
        if len(self.commits) == 1:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        self._on_commit(KafkaError(KafkaError._WAIT_COORD) if len(self.commits) == 2 else None, offsets)
        if len(self.commits) == 3:
            self.taken.set()

    def pause(self, places: object) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("away", [0, 2])
def test_brokers_that_are_away_are_waited_for(monkeypatch: pytest.MonkeyPatch, away: int) -> None:
    """The question where a partition begins, and the note of positions, ended the worker when the brokers were away
    for a moment; nothing else of the inbox may stand still meanwhile."""
    taken: list[Message] = []
    failed: list[Exception] = []
    over = threading.Event()

    def take(messages: Sequence[Message]) -> None:
        taken.extend(messages)
        if any(one.topic == TOPICS[0] for one in taken):
            over.set()

    def fail(error: Exception) -> None:
        failed.append(error)
        over.set()

    monkeypatch.setattr(Client, "away", away)
    monkeypatch.setattr(Client, "commits", [], raising=False)
    monkeypatch.setattr(Client, "taken", threading.Event(), raising=False)
    made: Any = Client
    monkeypatch.setattr(inbox_kafka, "Consumer", made)
    inbox = KafkaInbox({}, TOPICS, "group", fail)
    inbox.add(0, Reader({TOPICS[0]: 3, TOPICS[1]: 0}, take, lambda topic: True))
    inbox.applied(0, {TOPICS[1]: 0})
    assert over.wait(20)
    assert Client.taken.wait(20)
    inbox.close()
    assert Client.commits == [[(TOPICS[1], 1)]] * 3, "a note that was refused is made again, once it is taken no more"
    assert failed == []
    first = next(at for at, one in enumerate(taken) if one.topic == TOPICS[0])
    assert taken[first].offset == 5
    assert first > away
