"""A stage's outputs to Kafka: each acknowledged by every in-sync copy, in the order given, for as long as it takes.

An idempotent producer that never gives a message up while brokers are away. What the brokers refuse for ever (no leave
to write, no such topic) is no record's fault: the stage is told, and ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Producer

from streams.core.failures import EXIT_FAILED, CrawlError

__all__ = ["KafkaSender", "Output", "Sender"]

_QUEUE_KBYTES = 131_072  # encoded and not acknowledged; beyond, stages wait
_POLL_S = 0.1
_FULL_S = 0.02


class Output(NamedTuple):
    """One message, with the partition that it goes to. No value deletes its key."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class Sender(Protocol):
    """Where a stage's outputs go."""

    async def send(self, outputs: Sequence[Output]) -> asyncio.Future[None]:
        """Returns when all of them are on their way, behind all that was sent before; the future ends when all are
        acknowledged. Waits while too much is on its way."""
        ...

    def close(self) -> None: ...


class KafkaSender:
    """For one event loop; a thread of its own takes the reports."""

    def __init__(self, settings: Mapping[str, Any], failed: Callable[[BaseException], None]) -> None:
        """`failed`: the brokers refuse what is sent, whenever it is sent; called in any thread."""
        self._failed = failed
        self._producer: Any = Producer(
            {
                **settings,
                "enable.idempotence": True,
                "acks": "all",
                "message.timeout.ms": 0,  # no end: brokers that are away lose nothing
                "compression.type": "zstd",
                "linger.ms": 5,
                "message.max.bytes": 4_000_000,  # the topics have limits of their own
                "queue.buffering.max.kbytes": _QUEUE_KBYTES,
                "log_level": 3,
                "enable.metrics.push": False,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="sender", daemon=True)
        self._thread.start()

    async def send(self, outputs: Sequence[Output]) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        acknowledged: asyncio.Future[None] = loop.create_future()
        left = len(outputs)
        if not left:
            acknowledged.set_result(None)
            return acknowledged
        lock = threading.Lock()

        def reported(error: Any, message: Any) -> None:
            nonlocal left
            if error is not None:
                self._refused(error, message)
                return
            with lock:
                left -= 1
                if left:
                    return
            loop.call_soon_threadsafe(_settle, acknowledged)

        for one in outputs:
            await self._produce(one, reported)
        return acknowledged

    def close(self) -> None:
        """What is not acknowledged is left to whoever does it again."""
        self._stopping.set()
        self._thread.join()
        self._producer.purge()
        self._producer.poll(_POLL_S)

    async def _produce(self, one: Output, reported: Callable[[Any, Any], None]) -> None:
        headers = list(one.headers) or None
        while True:
            try:
                self._producer.produce(
                    one.topic,
                    value=one.value,
                    key=one.key,
                    partition=one.partition,
                    headers=headers,
                    on_delivery=reported,
                )
                return
            except BufferError:  # the client holds as much as it may
                await asyncio.sleep(_FULL_S)

    def _refused(self, error: Any, message: Any) -> None:
        if self._stopping.is_set():
            return  # purged
        self._failed(
            CrawlError(
                f"kafka, topic {message.topic()}, partition {message.partition()}: needed an acknowledgement, got:"
                f" {error.str()}; the user needs Write and Describe on the topic, and headrace provision --only topics"
                " shows whether it is as it should be",
                EXIT_FAILED,
            )
        )

    def _serve(self) -> None:
        while not self._stopping.is_set():
            self._producer.poll(_POLL_S)


def _settle(acknowledged: asyncio.Future[None]) -> None:
    if not acknowledged.done():
        acknowledged.set_result(None)
