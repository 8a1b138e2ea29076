"""One topic, read as a member of a consumer group: Kafka assigns its partitions, and we say what of them is done.

Theory of operation. One thread reads, hands on, commits and keeps the membership, so slow work never costs the group a
rebalance. A partition is read only while its stage has room. What was handed on carries the number of the assignment
under which it came (its term): word of a message that is done counts only while that assignment lasts, so nothing of a
partition that went to another worker and came back can commit past what the other one left undone. Whoever is slower
than a rebalance does its work twice, which every reader of its outputs must bear. An offset that the group did not take
(its broker ended, its coordinator moved) is committed again, until it has it or the assignment is over: of a partition
that nothing more comes to, no later offset would.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from connectors.group_membership import Membership
from connectors.kafka_ends import known_end
from connectors.reader_thread import read_on

__all__ = ["GroupReader", "Input", "Reading"]

log = logging.getLogger(__name__)

COMMIT_S = 1.0  # what a killed worker did since is done again
_MESSAGES_MAX = 500  # taken at once
_WAIT_S = 0.02
_REFUSALS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
}


class Input(NamedTuple):
    """One message. `at_ms`: when it was written. `term`: of the assignment under which it came."""

    partition: int
    offset: int
    value: bytes | None
    at_ms: int
    term: int = 0


class Reading(Protocol):
    """What a stage wants of its reader."""

    @property
    def lag(self) -> Mapping[int, int]:
        """Messages of each partition that were not handed on yet."""
        ...

    def start(self) -> None: ...

    def done(self, partition: int, term: int, next_offset: int) -> None:
        """All before `next_offset` is done. Of a term that is over: nothing happens."""
        ...

    def terms(self) -> Mapping[int, int]:
        """Partition → term of those that are ours now."""
        ...

    def is_member(self) -> bool:
        """Whether the group has dealt its partitions, of which there may be none for us, and has not lost us since."""
        ...

    def close(self) -> None:
        """Commit and leave the group."""
        ...


class GroupReader:
    """`take`, `room` and `failed` are called in the reader's thread."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        group: str,
        *,
        session_s: int,
        take: Callable[[Sequence[Input]], None],
        room: Callable[[int], bool],
        failed: Callable[[Exception], None],
    ) -> None:
        """`room`: whether more of a partition may come. `failed`: reading cannot go on, and no waiting mends it."""
        self._topic, self._take, self._room, self._failed = topic, take, room, failed
        self._membership = Membership()
        self._settings = {
            **settings,
            **self._membership.settings,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",  # who keeps a partition is not disturbed
            "on_commit": self._answered,
            "session.timeout.ms": session_s * 1_000,
            "heartbeat.interval.ms": session_s * 200,
            "fetch.wait.max.ms": 20,
            "fetch.queue.backoff.ms": 20,
            "queued.max.messages.kbytes": 32_768,
            "log_level": 3,
            "enable.metrics.push": False,
        }
        self._lock = threading.Lock()  # over what is done
        self._terms: dict[int, int] = {}
        self._last_term = 0
        self._done: dict[int, int] = {}  # partition → offset to commit
        self._asked: dict[int, int] = {}  # partition → offset of the latest commit, not answered yet
        self._paused: set[int] = set()
        self._top: dict[int, int] = {}
        self._stopping = threading.Event()
        self._committed_s = 0.0
        self._thread = threading.Thread(target=self._run, name=f"reader-{topic}", daemon=True)
        self._lag: dict[int, int] = {}

    @property
    def lag(self) -> Mapping[int, int]:
        return dict(self._lag)

    def start(self) -> None:
        self._thread.start()

    def done(self, partition: int, term: int, next_offset: int) -> None:
        with self._lock:
            if self._terms.get(partition) == term:
                self._done[partition] = next_offset

    def terms(self) -> Mapping[int, int]:
        with self._lock:
            return dict(self._terms)

    def is_member(self) -> bool:
        return self._membership.is_member() and self._thread.is_alive()

    def close(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        read_on(lambda: Consumer(self._settings), self._read_on, self._failed)

    def _read_on(self, consumer: Any) -> None:
        try:
            consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
            while not self._stopping.is_set():
                self.turn(consumer)
        finally:
            self._commit(consumer, asynchronous=False)

    def turn(self, consumer: Any) -> None:
        """Once around: read, hand on, commit when it is time."""
        self._hand_on(consumer.consume(_MESSAGES_MAX, _WAIT_S))
        self._look_at_room(consumer)
        if time.monotonic() - self._committed_s >= COMMIT_S:
            self._commit(consumer, asynchronous=True)
            self._measure(consumer)

    def _assigned(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self._membership.dealt()
        with self._lock:
            for one in partitions:
                self._last_term += 1
                self._terms[one.partition] = self._last_term
        if partitions:
            log.info("%s: partitions %s are ours", self._topic, sorted(one.partition for one in partitions))

    def _revoked(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self._commit(consumer, asynchronous=False)
        self._forget(partitions)

    def _lost(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self._membership.lost()
        self._forget(partitions)

    def _forget(self, partitions: Sequence[Any]) -> None:
        with self._lock:
            for one in partitions:
                self._terms.pop(one.partition, None)
                self._done.pop(one.partition, None)
                self._asked.pop(one.partition, None)
                self._paused.discard(one.partition)
                self._top.pop(one.partition, None)
                self._lag.pop(one.partition, None)

    def _hand_on(self, messages: Sequence[Any]) -> None:
        found = []
        for message in messages:
            error = message.error()
            if error is not None:
                if error.fatal() or error.code() in _REFUSALS:
                    raise KafkaException(error)
                log.warning("%s: %s", self._topic, error.str())
                continue
            partition, offset = message.partition(), message.offset()
            term = self._terms.get(partition)
            if term is not None:
                self._top[partition] = offset
                found.append(Input(partition, offset, message.value(), message.timestamp()[1], term))
        if found:
            self._take(found)

    def _look_at_room(self, consumer: Any) -> None:
        full, free = [], []
        for partition in self._terms:
            has_room = self._room(partition)
            if has_room and partition in self._paused:
                free.append(TopicPartition(self._topic, partition))
                self._paused.discard(partition)
            elif not has_room and partition not in self._paused:
                full.append(TopicPartition(self._topic, partition))
                self._paused.add(partition)
        if full:
            consumer.pause(full)
        if free:
            consumer.resume(free)

    def _commit(self, consumer: Any, *, asynchronous: bool) -> None:
        self._committed_s = time.monotonic()
        with self._lock:
            done, self._done = self._done, {}
            if not asynchronous:
                done, self._asked = self._asked | done, {}
            self._asked |= done
        if not done:
            return
        offsets = [TopicPartition(self._topic, partition, offset) for partition, offset in done.items()]
        try:
            consumer.commit(offsets=offsets, asynchronous=asynchronous)
        except KafkaException as error:  # the brokers are away, or the group has moved on: it is done again
            log.warning("%s: offsets are not committed: %s", self._topic, error.args[0].str())
            self._ask_again(offsets)

    def _answered(self, error: Any, partitions: Sequence[Any] | None) -> None:
        """What came of a commit. Called within the client's calls."""
        offsets = partitions or ()
        refused = [one for one in offsets if error is not None or one.error is not None]
        if refused:
            log.warning("%s: offsets are not committed: %s", self._topic, error or refused[0].error)
            self._ask_again(refused)
        for one in offsets:
            if self._asked.get(one.partition) == one.offset:
                del self._asked[one.partition]

    def _ask_again(self, offsets: Sequence[Any]) -> None:
        """Those that were asked for last, unless more is done by now, or the assignment is over."""
        with self._lock:
            for one in offsets:
                if self._asked.get(one.partition) == one.offset:
                    del self._asked[one.partition]
                    self._done.setdefault(one.partition, one.offset)

    def _measure(self, consumer: Any) -> None:
        for partition in self._terms:
            end, top = known_end(consumer, self._topic, partition), self._top.get(partition)
            self._lag[partition] = 0 if top is None or end is None else max(0, end - 1 - top)
