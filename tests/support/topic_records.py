"""All records of a topic, as a reader of committed data finds them."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from confluent_kafka import Consumer, TopicPartition

from schemas.codec import decode

T = TypeVar("T", bound=msgspec.Struct)
_PATIENCE_S = 15


def records_of(kafka: str, topic: str, kind: type[T]) -> list[T]:
    """From the first to those that are committed when this is called; partition after partition in their order."""
    consumer: Any = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "nobody",  # reads without joining it
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        found: list[T] = []
        ended: set[int] = set()
        while len(ended) < len(partitions):
            for message in consumer.consume(1_000, 0.2):
                if message.error() is not None:
                    ended.add(message.partition())
                elif message.value() is not None:
                    found += decode(message.value(), kind)
        return found
    finally:
        consumer.close()
