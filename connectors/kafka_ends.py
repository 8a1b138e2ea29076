"""Where a partition ends, as far as a client has heard: for lag, which nobody waits for; and who is away meanwhile."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

AWAY = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
    }
)
"""What a client says of brokers that are away: waiting mends it."""


def known_end(consumer: Any, topic: str, partition: int) -> int | None:
    """The offset behind the last record of the last fetch; None while the client knows nothing of the partition.

    A partition that was just assigned, or let go, or whose brokers are away, is unknown to it for a while: no reason
    for whoever counts lag to end.
    """
    try:
        _, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), cached=True)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
            raise
        return None
    return int(high) if high >= 0 else None
