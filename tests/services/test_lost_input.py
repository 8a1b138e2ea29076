"""An owner's input on a real Kafka, of which retention has taken some: what is lost is said, what is not is no loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from connectors.inbox_kafka import KafkaInbox, Message, Reader
from infra import production
from streams.core.failures import CrawlError
from tests.services.conftest import Fleet
from tests.support.fleet_world import FleetWorld, until

TOPIC = "fetch-results"


class Inbox:
    """One partition, read from behind `position`."""

    def __init__(self, kafka: str, position: int, *, skip_lost: bool = False) -> None:
        self.taken: list[Message] = []
        self.failed: list[Exception] = []
        self.inbox = KafkaInbox(
            {"bootstrap.servers": kafka}, [TOPIC], "lost-input", self.failed.append, skip_lost=skip_lost
        )
        self.inbox.add(0, Reader({TOPIC: position}, self._take, lambda topic: True))

    def _take(self, messages: Sequence[Message]) -> None:
        self.taken += messages

    def offsets(self) -> list[int]:
        return [one.offset for one in self.taken]


@pytest.fixture
def kafka(fleet: Fleet, tmp_path: Path) -> Iterator[str]:
    """A broker with new topics."""
    world = FleetWorld(fleet.up("kafka")["kafka"], tmp_path)
    yield world.kafka
    world.close()


def send(kafka: str, count: int) -> None:
    """One transaction: so many records, and its end."""
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": "lost-input"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(TOPIC, str(number).encode(), partition=0)
    producer.commit_transaction(30)


def take_away(kafka: str, below: int) -> None:
    """As retention does."""
    admin = AdminClient({"bootstrap.servers": kafka})
    for future in admin.delete_records([TopicPartition(TOPIC, 0, below)]).values():
        future.result(30)


def test_what_retention_took_unread_is_said(kafka: str) -> None:
    """The worker ends with what is missing and where the remedy stands, and that section is there."""
    send(kafka, 10)
    take_away(kafka, 7)
    inbox = Inbox(kafka, 3)
    until(lambda: bool(inbox.failed), "the inbox to give up")
    inbox.inbox.close()
    [error] = inbox.failed
    assert isinstance(error, CrawlError)
    assert f"topic {TOPIC} partition 0: needed the records from 4 on, they begin at 7" in str(error)
    section = str(error).partition('see "')[2].partition('"')[0]
    assert f"### {section}\n" in (Path(production.__file__).parent / "README.md").read_text()
    assert inbox.taken == []


def test_an_operator_may_let_it_go_on(kafka: str) -> None:
    """From the first record that is there, each once, and on to those that come."""
    send(kafka, 10)
    take_away(kafka, 7)
    inbox = Inbox(kafka, 3, skip_lost=True)
    until(lambda: inbox.offsets() == [7, 8, 9], "what is left")
    send(kafka, 2)
    until(lambda: inbox.offsets() == [7, 8, 9, 11, 12], "what came after it")
    assert inbox.failed == []
    inbox.inbox.close()


def test_the_end_of_a_transaction_is_no_record(kafka: str) -> None:
    """A quiet partition that was read to its end, and deleted to its end, has lost nothing: its owner must start."""
    send(kafka, 3)
    take_away(kafka, 4)
    inbox = Inbox(kafka, 2)
    send(kafka, 2)
    until(lambda: inbox.offsets() == [4, 5] or bool(inbox.failed), "what came after it")
    assert inbox.failed == []
    inbox.inbox.close()


def test_a_topic_that_was_made_anew_is_refused(kafka: str) -> None:
    """Its offsets mean other records: an owner that went on would pass over them in silence."""
    send(kafka, 3)
    inbox = Inbox(kafka, 1_000, skip_lost=True)
    until(lambda: bool(inbox.failed), "the inbox to give up")
    inbox.inbox.close()
    assert "it ends at 4 now" in str(inbox.failed[0])
