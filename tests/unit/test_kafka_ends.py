"""Counting lag must not end whoever counts."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from connectors.kafka_ends import known_end


class Client:
    """Knows one answer."""

    def __init__(self, answer: tuple[int, int] | int) -> None:
        self._answer = answer

    def get_watermark_offsets(self, partition: object, *, cached: bool) -> tuple[int, int]:
        assert cached
        if isinstance(self._answer, int):
            raise KafkaException(KafkaError(self._answer))
        return self._answer


def test_a_partition_that_the_client_does_not_know_yet_has_no_end() -> None:
    """Protects owners, standbys and fetchers on a busy machine: lag is asked for before the client knows partitions."""
    assert known_end(Client((3, 17)), "a", 0) == 17
    assert known_end(Client((-1001, -1001)), "a", 0) is None
    assert known_end(Client(KafkaError._UNKNOWN_PARTITION), "a", 0) is None
    with pytest.raises(KafkaException):
        known_end(Client(KafkaError._FATAL), "a", 0)
