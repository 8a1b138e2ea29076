"""The threads that read Kafka for a worker: whatever ends one is told to the worker, which ends with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from connectors import changelog_kafka, group_reader, inbox_kafka, lease_reader
from connectors.changelog_kafka import ChangelogFollower
from connectors.group_reader import GroupReader, Input
from connectors.inbox_kafka import KafkaInbox, Message, Reader
from connectors.lease_reader import LeaseReader
from connectors.ports import Record

TOPIC = "discovered-urls"


class OneMessage:
    """A Kafka message, and a consumer that gives it again and again."""

    def __init__(self, settings: object) -> None:
        self.offset_now = -1

    def incremental_assign(self, places: object) -> None: ...

    def assign(self, places: object) -> None: ...

    def subscribe(self, topics: object, on_assign: Callable[[Any, Any], None], **calls: object) -> None:
        on_assign(self, [TopicPartition(TOPIC, 0)])

    def get_watermark_offsets(self, place: object, **how: object) -> tuple[int, int]:
        return 0, 0

    def commit(self, **what: object) -> None: ...

    def close(self) -> None: ...

    def consume(self, at_most: int, wait_s: float) -> list[OneMessage]:
        self.offset_now += 1
        return [self]

    def error(self) -> None: ...

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.offset_now

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def timestamp(self) -> tuple[int, int]:
        return 1, 1


class Told:
    """What a thread said of its end."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self._there = threading.Event()

    def __call__(self, error: Exception) -> None:
        self.errors.append(error)
        self._there.set()

    def wait(self) -> list[Exception]:
        assert self._there.wait(20), "nobody said a word"
        return self.errors


def inbox(failed: Told) -> None:
    def take(messages: Sequence[Message]) -> None:
        raise KeyError("a fault of ours")

    KafkaInbox({}, [TOPIC], "group", failed).add(0, Reader({}, take, lambda topic: True))


def follower(failed: Told) -> None:
    def batch(records: Sequence[Record], last: int) -> None:
        raise KeyError("a fault of ours")

    ChangelogFollower({}, TOPIC, failed).add(0, None, batch)


def group(failed: Told) -> None:
    def take(inputs: Sequence[Input]) -> None:
        raise KeyError("a fault of ours")

    GroupReader({}, TOPIC, "group", session_s=10, take=take, room=lambda partition: True, failed=failed).start()


class Receiver:
    """Of leases, with a fault."""

    def __init__(self, failed: Told) -> None:
        self.failed = failed

    def assigned(self, ends: object) -> None: ...

    def revoked(self, partitions: object) -> None: ...

    def lost(self, partitions: object) -> None: ...

    def received(self, records: object) -> None:
        raise KeyError("a fault of ours")

    def room(self) -> bool:
        return True


def leases(failed: Told) -> None:
    made = vars(lease_reader)["Consumer"]  # as a test has put it there
    LeaseReader({}, TOPIC, "group", Receiver(failed), session_s=10, make_consumer=made).start()


READERS = (inbox, follower, group, leases)
MODULES = (inbox_kafka, changelog_kafka, group_reader, lease_reader)


@pytest.mark.parametrize("begin", READERS)
def test_a_thread_does_not_die_in_silence(monkeypatch: pytest.MonkeyPatch, begin: Callable[[Told], None]) -> None:
    """A fault that nobody foresaw ends the worker: its partitions would stand still, or a standby fall behind, while
    the worker looks well and keeps them."""
    for module in MODULES:
        monkeypatch.setattr(module, "Consumer", OneMessage)
    failed = Told()
    begin(failed)
    assert [str(error) for error in failed.wait()] == ["'a fault of ours'"]


@pytest.mark.parametrize("begin", READERS)
def test_a_client_that_cannot_be_made_is_told(monkeypatch: pytest.MonkeyPatch, begin: Callable[[Told], None]) -> None:
    """A setting that the library refuses shows when the client is made, in the thread."""

    def refuse(settings: Any) -> None:
        raise ValueError("no such setting")

    for module in MODULES:
        monkeypatch.setattr(module, "Consumer", refuse)
    failed = Told()
    begin(failed)
    assert [str(error) for error in failed.wait()] == ["no such setting"]
