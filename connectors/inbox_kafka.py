"""The owner's input topics: read from the position that its changelog says, partition by partition.

No group assigns them and no committed offset is believed: the table's position is the truth, so there is no seek, and
nothing comes twice. Each topic of a partition is read as far as its reader has room, so that a flood of links does not
hold up the results.

Where the input no longer has what follows a position, retention took it before it was read: it says so and ends, unless
an operator has said that it may go on without (`skip_lost`). What a transaction leaves behind its last record is no
record: a partition that was read to its end, and whose rest was then deleted, has lost nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from connectors.kafka_ends import AWAY, known_end
from connectors.reader_thread import read_on
from streams.core.failures import EXIT_FAILED, CrawlError

log = logging.getLogger(__name__)

_MESSAGES_MAX = 1_000  # taken at once
_WAIT_S = 0.05
_ANSWER_S_MAX = 5.0  # of the brokers, on where a partition begins; others of this inbox wait meanwhile
_MARKERS_MAX = 1  # offsets behind a transaction's last record
_LOST = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


class Message(NamedTuple):
    """One record of an input topic. `at_ms`: when it was written, by its producer or the broker."""

    topic: str
    offset: int
    value: bytes | None
    at_ms: int


class Reader:
    """Of one partition: called in the inbox's thread."""

    def __init__(
        self,
        positions: Mapping[str, int],
        take: Callable[[Sequence[Message]], None],
        room: Callable[[str], bool],
    ) -> None:
        """`positions`: the last offset of each topic that is applied. `room`: whether more of a topic may come."""
        self.positions, self.take, self.room = positions, take, room


class KafkaInbox:
    """Several partitions of the same topics, by one consumer in one thread."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topics: Sequence[str],
        group: str,
        failed: Callable[[Exception], None],
        *,
        skip_lost: bool = False,
    ) -> None:
        """`group`: under which positions are committed, for people who look at lag. `failed`: it cannot go on; called
        in the inbox's thread, for whatever ended it: a partition without input would stand still without a word."""
        self._topics, self._failed, self._skip_lost = tuple(topics), failed, skip_lost
        self._settings = {
            **settings,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 20,
            "fetch.queue.backoff.ms": 20,
            "queued.max.messages.kbytes": 16_384,
            "log_level": 3,
            "on_commit": self._noted,
            "enable.metrics.push": False,
        }
        self._lock = threading.Lock()  # over all that follows
        self._readers: dict[int, Reader] = {}
        self._added: list[int] = []
        self._removed: list[int] = []
        self._paused: set[tuple[str, int]] = set()
        self._behind: dict[tuple[str, int], KafkaError] = {}  # places of which nothing more came, until they are mended
        self._applied: dict[tuple[str, int], int] = {}  # to be committed
        self._top: dict[tuple[str, int], int] = {}
        self._there = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.lag: dict[tuple[str, int], int] = {}

    def add(self, partition: int, reader: Reader) -> None:
        with self._lock:
            self._readers[partition] = reader
            self._added.append(partition)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="owner-inbox", daemon=True)
                self._thread.start()
        self._there.set()

    def remove(self, partition: int) -> None:
        """When this returns, nothing more of the partition is handed to its reader."""
        with self._lock:
            if self._readers.pop(partition, None) is None:
                return
            if partition in self._added:
                self._added.remove(partition)  # it was never assigned
            else:
                self._removed.append(partition)

    def applied(self, partition: int, positions: Mapping[str, int]) -> None:
        """These are durable, whatever becomes of this note of it."""
        with self._lock:
            for topic, offset in positions.items():
                self._applied[topic, partition] = offset

    def close(self) -> None:
        self._stopping = True
        self._there.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        read_on(lambda: Consumer(self._settings), self._read_on, self._failed)

    def _read_on(self, consumer: Any) -> None:
        while not self._stopping:
            self._assign(consumer)
            if not self._readers:
                self._there.wait()
                self._there.clear()
                continue
            self._hand_on(consumer.consume(_MESSAGES_MAX, _WAIT_S))
            self._look_behind(consumer)
            self._look_at_room(consumer)
            self._note(consumer)

    def _assign(self, consumer: Any) -> None:
        with self._lock:
            removed, self._removed = self._removed, []
            added, self._added = self._added, []
            if removed:
                consumer.incremental_unassign(
                    [TopicPartition(topic, partition) for partition in removed for topic in self._topics]
                )
                for partition in removed:
                    for topic in self._topics:
                        self._paused.discard((topic, partition))
                        self._top.pop((topic, partition), None)
                        self._behind.pop((topic, partition), None)
                        self.lag.pop((topic, partition), None)
            places = []
            for partition in added:
                reader = self._readers[partition]
                for topic in self._topics:
                    last = reader.positions.get(topic)
                    self._top[topic, partition] = -1 if last is None else last
                    places.append(TopicPartition(topic, partition, OFFSET_BEGINNING if last is None else last + 1))
            if places:
                consumer.incremental_assign(places)

    def _hand_on(self, messages: Sequence[Any]) -> None:
        found: dict[int, list[Message]] = {}
        for message in messages:
            error = message.error()
            if error is not None:
                self._hear(message, error)
                continue
            place = message.topic(), message.partition()
            if message.offset() <= self._top.get(place, -1):
                continue
            self._top[place] = message.offset()
            one = Message(message.topic(), message.offset(), message.value(), message.timestamp()[1])
            found.setdefault(message.partition(), []).append(one)
        with self._lock:
            for partition, several in found.items():
                reader = self._readers.get(partition)
                if reader is not None and partition not in self._added:
                    reader.take(several)

    def _hear(self, message: Any, error: KafkaError) -> None:
        """Raises for what no waiting mends."""
        if error.code() in _LOST:
            with self._lock:
                if (message.topic(), message.partition()) in self._top:
                    self._behind[message.topic(), message.partition()] = error
            return
        if error.fatal() or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise KafkaException(error)
        log.warning("input: %s", error.str())

    def _look_behind(self, consumer: Any) -> None:
        """Go on where the position is no longer. While the brokers do not say where, all else is read meanwhile."""
        with self._lock:
            behind = list(self._behind.items())
        for (topic, partition), error in behind:
            try:
                found = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ANSWER_S_MAX)
            except KafkaException as raised:
                away = raised.args[0]
                if away.code() not in AWAY and not away.retriable():
                    raise
                log.warning("input: topic %s partition %d: its bounds are not known: %s", topic, partition, away.str())
                return
            with self._lock:
                there = self._behind.pop((topic, partition), None)
            if there is not None:
                self._go_on_behind(consumer, topic, partition, error, found)

    def _go_on_behind(
        self, consumer: Any, topic: str, partition: int, error: KafkaError, found: tuple[int, int]
    ) -> None:
        """From the first record that is there. Raises CrawlError where that would pass over any that was not read."""
        low, high = found
        first = self._top.get((topic, partition), -1) + 1
        where = f"topic {topic} partition {partition}"
        if low < first:  # the topic was made anew, or its brokers lost what they had acknowledged
            raise CrawlError(
                f"{where}: needed the records from {first} on, which was its end, but it ends at {high} now"
                f" ({error.str()}): it is another topic than the one that this owner has read; see"
                ' "An owner that has lost input" in infra/production/README.md',
                EXIT_FAILED,
            )
        if low - first > _MARKERS_MAX and not self._skip_lost:
            raise CrawlError(
                f"{where}: needed the records from {first} on, they begin at {low} ({error.str()}): retention took"
                f" {low - first} before they were read; lengthen the topic's retention, and see"
                ' "An owner that has lost input" in infra/production/README.md',
                EXIT_FAILED,
            )
        if low - first > _MARKERS_MAX:
            log.warning("input: %s: goes on without the records from %d to %d", where, first, low - 1)
        with self._lock:
            self._top[topic, partition] = low - 1
            self._paused.discard((topic, partition))
        consumer.incremental_unassign([TopicPartition(topic, partition)])
        consumer.incremental_assign([TopicPartition(topic, partition, low)])

    def _look_at_room(self, consumer: Any) -> None:
        with self._lock:
            full, free = [], []
            for partition, reader in self._readers.items():
                if partition in self._added:
                    continue
                for topic in self._topics:
                    place = topic, partition
                    has_room = reader.room(topic)
                    if has_room and place in self._paused:
                        free.append(TopicPartition(topic, partition))
                        self._paused.discard(place)
                    elif not has_room and place not in self._paused:
                        full.append(TopicPartition(topic, partition))
                        self._paused.add(place)
            if full:
                consumer.pause(full)
            if free:
                consumer.resume(free)

    def _note(self, consumer: Any) -> None:
        """Commit positions, for people; and learn how much there is to read."""
        with self._lock:
            applied, self._applied = self._applied, {}
            tops = {place: top for place, top in self._top.items() if place[1] in self._readers}
        if applied:
            offsets = [TopicPartition(topic, partition, offset + 1) for (topic, partition), offset in applied.items()]
            try:
                consumer.commit(offsets=offsets, asynchronous=True)
            except KafkaException as error:  # the brokers are away
                self._noted(error.args[0], offsets)
        for (topic, partition), top in tops.items():
            end = known_end(consumer, topic, partition)
            if end is not None:
                self.lag[topic, partition] = max(0, end - 1 - top)

    def _noted(self, error: Any, places: Sequence[Any]) -> None:
        """What came of a note. One that was refused is made again: nothing more may come, and people would see a lag
        for ever that is none."""
        refused = [place for place in places if error or place.error]
        if not refused:
            return
        log.warning("input: %d positions are not noted: %s", len(refused), error or refused[0].error)
        with self._lock:
            for place in refused:
                if place.partition in self._readers:
                    self._applied.setdefault((place.topic, place.partition), place.offset - 1)
