"""The owners' changelog on Kafka, read as far as it is committed: once to its end, or on and on.

Faust's own recovery waits for an offset that a transactional topic may never give (its last one is a marker) and
applies what was undone; and an event of Faust costs what twenty records cost here. So a takeover reads the changelog
itself, and so does whoever follows the owner of a partition to be ready when it dies.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from connectors.kafka_ends import AWAY, known_end
from connectors.ports import Record
from connectors.reader_thread import read_on
from streams.core.failures import EXIT_FAILED, CrawlError

log = logging.getLogger(__name__)

_CALL_S_MAX = 10.0
_RECORDS_MAX = 20_000  # handed on at once
_WAIT_S = 0.2

Batch = Callable[[Sequence[Record], int], None]


def _consumer(settings: Mapping[str, Any], **more: Any) -> Any:
    return Consumer(
        {
            **settings,
            "group.id": "headrace-changelog",  # no member of it: partitions are assigned by hand, nothing is committed
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 20,
            "fetch.queue.backoff.ms": 20,
            "queued.max.messages.kbytes": 65_536,
            "log_level": 3,
            "enable.metrics.push": False,
            **more,
        }
    )


class KafkaChangelog:
    """See `connectors.ports.Changelog`."""

    def __init__(self, settings: Mapping[str, Any], topic: str) -> None:
        self._settings, self._topic = settings, topic

    def read(self, partition: int, after: int | None, batch: Batch) -> None:
        consumer = _consumer(self._settings, **{"enable.partition.eof": True})
        try:
            low, high = self._bounds(consumer, partition)
            if after is not None and after >= high:
                raise CrawlError(
                    f"partition {partition}: needed a local store no further than its changelog, came offset {after} of"
                    f" {high}: it belongs to another cluster, or the topic was made anew; remove the worker's data"
                    " folder and start again",
                    EXIT_FAILED,
                )
            start = OFFSET_BEGINNING if after is None or after + 1 < low else after + 1
            consumer.assign([TopicPartition(self._topic, partition, start)])
            self._to_the_end(consumer, batch)
        finally:
            consumer.close()

    def _bounds(self, consumer: Any, partition: int) -> tuple[int, int]:
        while True:
            try:
                low, high = consumer.get_watermark_offsets(TopicPartition(self._topic, partition), _CALL_S_MAX)
            except KafkaException as error:
                if error.args[0].code() not in AWAY:
                    raise
                log.warning("partition %d: waits for its changelog: %s", partition, error.args[0].str())
            else:
                return low, high

    def _to_the_end(self, consumer: Any, batch: Batch) -> None:
        while True:
            records, last, ended = _taken(consumer.consume(_RECORDS_MAX, _WAIT_S))
            for found in records.values():
                batch(found, last[found[0].partition])
            if ended:
                return


class ChangelogFollower:
    """Follows the owners of some partitions, in a thread of its own, so that their states are at hand here, too."""

    def __init__(self, settings: Mapping[str, Any], topic: str, failed: Callable[[Exception], None]) -> None:
        """`failed`: it cannot go on; called in its thread, for whatever ended it: a standby that stands still would
        be found out at the takeover only."""
        self._settings, self._topic, self._failed = settings, topic, failed
        self._lock = threading.Lock()  # held while records are applied: who lets a partition go waits for that
        self._batches: dict[int, Batch] = {}
        self._last: dict[int, int | None] = {}
        self._changed = False
        self._stopping = threading.Event()
        self._there = threading.Event()  # something to follow
        self._thread: threading.Thread | None = None
        self.lag: dict[int, int] = {}

    def add(self, partition: int, after: int | None, batch: Batch) -> None:
        """Records behind the offset `after` are handed to `batch`, in that thread, until `remove`."""
        with self._lock:
            self._batches[partition], self._last[partition] = batch, after
            self._changed = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="changelog-follower", daemon=True)
                self._thread.start()
        self._there.set()

    def remove(self, partition: int) -> None:
        """When this returns, nothing more of the partition is handed on."""
        with self._lock:
            self._batches.pop(partition, None)
            self._last.pop(partition, None)
            self.lag.pop(partition, None)
            self._changed = True

    def close(self) -> None:
        self._stopping.set()
        self._there.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        read_on(lambda: _consumer(self._settings), self._read_on, self._failed)

    def _read_on(self, consumer: Any) -> None:
        while not self._stopping.is_set():
            self._assign(consumer)
            if not self._batches:
                self._there.wait()
                self._there.clear()
                continue
            self._apply(consumer, consumer.consume(_RECORDS_MAX, _WAIT_S))

    def _assign(self, consumer: Any) -> None:
        with self._lock:
            if not self._changed:
                return
            self._changed = False
            consumer.assign(
                [
                    TopicPartition(self._topic, partition, OFFSET_BEGINNING if last is None else last + 1)
                    for partition, last in self._last.items()
                ]
            )

    def _apply(self, consumer: Any, messages: Sequence[Any]) -> None:
        records, last, _ = _taken(messages)
        with self._lock:
            for partition, found in records.items():
                batch = self._batches.get(partition)
                before = self._last.get(partition)
                if batch is None or (before is not None and last[partition] <= before):
                    continue  # let go meanwhile
                batch(found, last[partition])
                self._last[partition] = last[partition]
                end = known_end(consumer, self._topic, partition)
                if end is not None:
                    self.lag[partition] = max(0, end - 2 - last[partition])  # the last offset is a marker's


def _taken(messages: Sequence[Any]) -> tuple[dict[int, list[Record]], dict[int, int], bool]:
    """(records by partition, offset of the last of each, whether a partition's end was met)."""
    records: dict[int, list[Record]] = {}
    last: dict[int, int] = {}
    ended = False
    for message in messages:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                ended = True
            elif error.code() not in AWAY and not error.retriable():
                raise KafkaException(error)
            continue
        partition = message.partition()
        record = Record(message.topic(), partition, message.key(), message.value())
        records.setdefault(partition, []).append(record)
        last[partition] = message.offset()
    return records, last, ended
