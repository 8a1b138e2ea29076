"""The thread of whoever reads Kafka: one consumer from its beginning to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def read_on(make_consumer: Callable[[], Any], read: Callable[[Any], None], failed: Callable[[Exception], None]) -> None:
    """Read until `read` returns; the consumer is closed then. Whatever ends it otherwise is told to `failed`."""
    try:
        consumer = make_consumer()
        try:
            read(consumer)
        finally:
            consumer.close()
    except Exception as error:  # whatever it is: what this thread reads would stand still, and nobody would say so
        failed(error)
