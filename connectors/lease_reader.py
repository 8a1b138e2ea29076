"""fetch-leases as a member of the fetchers' group: what is ours from when on, and whether it still is.

Theory of operation. Kafka assigns the partitions. Each is read from its end as asked for after the assignment: what
lies before may have been started by whoever had it, and is left to expire. A record that was handed on is acknowledged
at once, whatever becomes of it: a lease is started at most once.

What the group knows of us is learnt by the commits of our positions, one every fifth of a session, one under way at a
time. Kafka's coordinator takes a commit for a heartbeat of the member that makes it, and refuses it from one that it
has taken for gone. So from the moment before a commit was sent that then went well, others may get our partitions only
when a session has passed. `fresh` says whether that is so now, by a clock that goes on while the process stands still.
(A client's own heartbeats tell nobody how they went.)
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
from streams.core.failures import EXIT_FAILED, CrawlError

__all__ = ["LeaseReader", "Received", "Receiver", "boot_clock"]

log = logging.getLogger(__name__)

_MESSAGES_MAX = 500  # taken at once
_WAIT_S = 0.02
_END_S_MAX = 5.0  # for one look at a partition's end
_BEATS_A_SESSION = 5
_REFUSALS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
}
_LOST = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


class Received(NamedTuple):
    """One record."""

    partition: int
    offset: int
    value: bytes | None


class Receiver(Protocol):
    """Who is told, in the reader's thread, in this order of events."""

    def assigned(self, ends: Mapping[int, int]) -> None:
        """These partitions are ours, from these offsets on."""
        ...

    def revoked(self, partitions: Sequence[int]) -> None:
        """Given up in good order: nobody else has them yet."""
        ...

    def lost(self, partitions: Sequence[int]) -> None:
        """Somebody else may have them by now."""
        ...

    def received(self, records: Sequence[Received]) -> None: ...

    def room(self) -> bool:
        """Whether more records are wanted."""
        ...

    def failed(self, error: Exception) -> None:
        """Reading has ended, and no waiting mends it."""
        ...


def boot_clock() -> float:
    """Seconds that pass also while a machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class LeaseReader:
    """One member of the group, in a thread of its own from `start` to `close`."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        group: str,
        receiver: Receiver,
        *,
        session_s: float,
        clock: Callable[[], float] = boot_clock,
        make_consumer: Callable[[dict[str, Any]], Any] = Consumer,
    ) -> None:
        """`settings`: librdkafka's, for any client."""
        self._topic, self._receiver, self._session_s, self._clock = topic, receiver, session_s, clock
        self._make_consumer = make_consumer
        self._membership = Membership()
        self._settings = {
            **settings,
            **self._membership.settings,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,  # the last offsets may be marks of transactions, which no reader is given
            "partition.assignment.strategy": "cooperative-sticky",  # who keeps a partition is not disturbed
            "session.timeout.ms": int(session_s * 1_000),
            "heartbeat.interval.ms": int(session_s * 200),
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 10,
            "queued.max.messages.kbytes": 16_384,
            "on_commit": self._answered,
            "log_level": 3,
            "enable.metrics.push": False,
        }
        self._next: dict[int, int] = {}  # partition → offset of what comes next
        self._paused = False
        self._asked_s: float | None = None  # of the commit that is under way
        self._beat_s = 0.0  # when the next one is due
        self._lock = threading.Lock()  # over the two below
        self._good_s = float("-inf")
        self._term = self._asked_term = 0  # rises when partitions are lost: an answer from before is nothing then
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease-reader", daemon=True)
        self.lag: dict[int, int] = {}

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Leave the group: others get our partitions at once."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def is_alive(self) -> bool:
        """Whether it reads: a thread that has ended is a fault of ours."""
        return self._thread.is_alive()

    def is_member(self) -> bool:
        """Whether the group has dealt its partitions, of which there may be none for us, and has not lost us since."""
        return self._membership.is_member() and self.is_alive()

    def fresh(self) -> bool:
        """Whether nobody else can have our partitions."""
        return self.silence_s() < self._session_s

    def silence_s(self) -> float:
        """Since the group last knew us; without end when it does not."""
        with self._lock:
            return self._clock() - self._good_s

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        read_on(lambda: self._make_consumer(self._settings), self._read_on, self._receiver.failed)

    def _read_on(self, consumer: Any) -> None:
        consumer.subscribe([self._topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose)
        while not self._stopping.is_set():
            self.turn(consumer)

    def turn(self, consumer: Any) -> None:
        """Once around: beat, read, hand on."""
        if self._clock() >= self._beat_s and self._asked_s is None and self._next:
            self._beat(consumer)
        self._hand_on(consumer.consume(_MESSAGES_MAX, _WAIT_S))
        self._look_at_room(consumer)

    def _beat(self, consumer: Any) -> None:
        now_s = self._clock()
        self._beat_s = now_s + self._session_s / _BEATS_A_SESSION
        offsets = [TopicPartition(self._topic, partition, offset) for partition, offset in self._next.items()]
        self._asked_s, self._asked_term = now_s, self._term
        try:
            consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            self._asked_s = None
            log.warning("leases: positions cannot be committed: %s", error.args[0].str())
        for partition, offset in self._next.items():
            end = known_end(consumer, self._topic, partition)
            if end is not None:
                self.lag[partition] = max(0, end - offset)

    def _answered(self, error: Any, partitions: Sequence[Any]) -> None:
        """What came of the commit that was under way. Called within the client's calls."""
        asked_s, self._asked_s = self._asked_s, None
        refused = error or next((one.error for one in partitions or () if one.error is not None), None)
        if refused is not None:
            log.warning("leases: the group does not take our positions: %s", refused)
        elif asked_s is not None:
            with self._lock:
                if self._asked_term == self._term:
                    self._good_s = asked_s

    def _assign(self, consumer: Any, partitions: Sequence[Any]) -> None:
        ends = {one.partition: self._end(consumer, one.partition) for one in partitions}
        if self._stopping.is_set():
            return
        consumer.incremental_assign([TopicPartition(self._topic, one, end) for one, end in ends.items()])
        if self._paused and ends:
            consumer.pause([TopicPartition(self._topic, one) for one in ends])
        self._membership.dealt()
        self._next.update(ends)
        self._beat_s = 0.0
        if ends:
            log.info("leases: partitions %s are ours", sorted(ends))
            self._receiver.assigned(ends)

    def _end(self, consumer: Any, partition: int) -> int:
        """The offset of the next record, as the broker says now; asked for until it answers."""
        while not self._stopping.is_set():
            try:
                _, high = consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=_END_S_MAX)
            except KafkaException as error:
                log.warning("leases: the end of partition %d is not known: %s", partition, error.args[0].str())
                continue
            return int(high)
        return 0

    def _revoke(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self._receiver.revoked(self._forget(partitions))

    def _lose(self, consumer: Any, partitions: Sequence[Any]) -> None:
        with self._lock:
            self._good_s = float("-inf")
            self._term += 1
        self._membership.lost()
        log.warning("leases: partitions are lost: another may have them")
        self._receiver.lost(self._forget(partitions))

    def _forget(self, partitions: Sequence[Any]) -> list[int]:
        numbers = [one.partition for one in partitions]
        for one in numbers:
            self._next.pop(one, None)
            self.lag.pop(one, None)
        return numbers

    def _hand_on(self, messages: Sequence[Any]) -> None:
        found = []
        for message in messages:
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                self._is_at(message.partition(), message.offset())
                continue
            if error is not None:
                self._refuse(message, error)
                continue
            received = Received(message.partition(), message.offset(), message.value())
            self._is_at(received.partition, received.offset + 1)
            found.append(received)
        if found:
            self._receiver.received(found)

    def _is_at(self, partition: int, offset: int) -> None:
        if partition in self._next:
            self._next[partition] = max(self._next[partition], offset)

    def _refuse(self, message: Any, error: KafkaError) -> None:
        """Raises for what no waiting mends."""
        if error.code() in _LOST:
            raise CrawlError(
                f"topic {self._topic} partition {message.partition()}: needed the records behind our position, they are"
                f" gone ({error.str()}); the worker ends, and another start begins at the end",
                EXIT_FAILED,
            )
        if error.fatal() or error.code() in _REFUSALS:
            raise KafkaException(error)
        log.warning("leases: %s", error.str())

    def _look_at_room(self, consumer: Any) -> None:
        full = not self._receiver.room()
        if full == self._paused or not self._next:
            return
        places = [TopicPartition(self._topic, one) for one in self._next]
        if full:
            consumer.pause(places)
        else:
            consumer.resume(places)
        self._paused = full
