"""A topic read as it lies, for people: from any place to its end or beyond, no group joined, nothing committed.

Read is committed data only. The end of a partition is where the broker says that nothing more is there
(`enable.partition.eof`): the last offsets may be markers of transactions, which no reader ever sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from streams.core.failures import EXIT_FAILED, CrawlError

__all__ = ["BEGINNING", "CONSUMER_SETTINGS", "END", "Consumer", "Message", "TopicReader", "last"]

BEGINNING, END = -2, -1  # as librdkafka names them
_TAIL_BASE = -2_000  # librdkafka's RD_KAFKA_OFFSET_TAIL: this minus n is n before the end
_POLL_S = 0.1
_ANSWER_S_MAX = 15.0

CONSUMER_SETTINGS: Mapping[str, Any] = {
    "group.id": "headrace-operator",  # the client asks for one; nobody joins it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",  # a place before the first record that is kept
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "queued.max.messages.kbytes": 32 << 10,
    "log_level": 0,
}


class Consumer(Protocol):
    """What is used of `confluent_kafka.Consumer`."""

    def assign(self, partitions: list[Any]) -> None: ...

    def unassign(self) -> None: ...

    def poll(self, timeout: float) -> Any: ...

    def offsets_for_times(self, partitions: list[Any], timeout: float) -> list[Any]: ...

    def close(self) -> None: ...


class Message(msgspec.Struct, frozen=True):
    """One message as it came; `timestamp_ms` is its sender's or its broker's clock."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class Place(msgspec.Struct, frozen=True):
    """Of one partition: what its group has committed (None: nothing yet), where it begins and where it ends."""

    committed: int | None
    begin: int
    end: int

    @property
    def next(self) -> int:
        """Where the group goes on: what retention took is no work for it any more."""
        return self.begin if self.committed is None else max(self.begin, self.committed)


def last(count: int) -> int:
    """The place from which `count` offsets follow to a partition's end."""
    assert count > 0
    return _TAIL_BASE - count


class TopicReader:
    """Reads one topic at a time. `tick` is called several times a second while nothing comes."""

    def __init__(self, consumer: Consumer, address: str, *, tick: Callable[[], None] = lambda: None) -> None:
        self._consumer, self._address, self._tick = consumer, address, tick

    def close(self) -> None:
        self._consumer.close()

    def at_time(self, topic: str, partitions: Sequence[int], since_ms: int) -> dict[int, int]:
        """The first place of each partition that is not older."""
        asked = _places(topic, dict.fromkeys(partitions, since_ms))
        found = self._consumer.offsets_for_times(asked, _ANSWER_S_MAX)
        return {one.partition: END if one.offset < 0 else one.offset for one in found}

    def read(self, topic: str, places: Mapping[int, int], *, silent_s_max: float = _ANSWER_S_MAX) -> Iterator[Message]:
        """From these places (partition → offset or `last(n)`) to the end of each partition, mixed as they come.

        Raises CrawlError when the brokers say nothing for so long.
        """
        missing = set(places)
        silent = 0
        for one in self._messages(topic, places):
            if isinstance(one, int):
                missing.discard(one)
            elif one is not None:
                yield one
            silent = silent + 1 if one is None else 0
            if not missing:
                return
            if silent * _POLL_S >= silent_s_max:
                raise CrawlError(
                    f"kafka at {self._address}: needed topic {topic} to its end, got nothing for {silent_s_max:.0f} s"
                    f" ({len(missing)} partitions are not read); look at the brokers' log, then repeat",
                    EXIT_FAILED,
                )

    def follow(self, topic: str, places: Mapping[int, int]) -> Iterator[Message | None]:
        """From these places on, for ever; None when nothing came for a while."""
        for one in self._messages(topic, places):
            if not isinstance(one, int):
                yield one

    def _messages(self, topic: str, places: Mapping[int, int]) -> Iterator[Message | int | None]:
        """Messages; the number of a partition whose end was met; None after a poll without anything."""
        from confluent_kafka import KafkaError  # its constants alone; a fake consumer speaks in them, too

        passing = {getattr(KafkaError, name) for name in _PASSING}
        self._consumer.assign(_places(topic, places))
        try:
            while True:
                came = self._consumer.poll(_POLL_S)
                self._tick()
                if came is None:
                    yield None
                elif came.error() is None:
                    yield _message(came)
                elif came.error().code() == KafkaError._PARTITION_EOF:
                    yield came.partition()
                elif not came.error().retriable() and came.error().code() not in passing:
                    raise CrawlError(
                        f"kafka at {self._address}: needed topic {topic}, got: {came.error().str()};"
                        " the user needs Read and Describe on the topic",
                        EXIT_FAILED,
                    )
        finally:
            self._consumer.unassign()


_PASSING = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE")  # the brokers are away: the client goes on


def _places(topic: str, places: Mapping[int, int]) -> list[Any]:
    from confluent_kafka import TopicPartition

    return [TopicPartition(topic, partition, place) for partition, place in places.items()]


def _message(came: Any) -> Message:
    return Message(
        topic=came.topic(),
        partition=came.partition(),
        offset=came.offset(),
        timestamp_ms=max(0, came.timestamp()[1]),
        key=came.key(),
        value=came.value(),
        headers=tuple((name, value or b"") for name, value in came.headers() or ()),
    )
