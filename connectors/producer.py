"""Records to one topic of the fleet: batches of one partition, which we name, acknowledged by every in-sync copy.

Theory of operation. A record is held with others of its partition until there are BATCH_RECORDS_MAX of them, HOLD_MS
have passed, or its sender says that nothing more comes for now (`hand_over`). A batch is encoded, cut in halves while
it is longer than a message may be, and given to the client, which repeats it without duplicates (idempotence) until the
brokers acknowledge it, for as long as they are away. What is held and what is out are both bounded: `send` waits for
room, and calls `tick` while it does, so that somebody can be told.

Counted are records, and those as acknowledged only that a delivery report named. A refusal of the brokers (no leave to
write, no such topic) ends the sending: all that follows would meet it, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Protocol

import msgspec

from schemas.codec import BadRecord, encode_batch
from schemas.topics import TOPICS, partition_for
from streams.core.failures import EXIT_FAILED, CrawlError
from streams.core.policy import MESSAGE_BYTES_MAX

__all__ = ["BATCH_RECORDS_MAX", "PRODUCER_SETTINGS", "BatchProducer", "Client", "SendRefused", "Sent"]

BATCH_RECORDS_MAX = 300
HELD_RECORDS_MAX = 30_000  # of all partitions; some 1 KB each
HOLD_MS = 1_000  # while records come fast: with 1,024 partitions a shorter hold would make batches of one or two
OUT_BYTES_MAX = 32 << 20  # encoded and not acknowledged
_POLL_S = 0.1
_LOOK_RECORDS = 256  # sent between two looks at the clock and the client's reports

# Beside the addresses and keys of `infra.provision.kafka_admin.client_settings`.
PRODUCER_SETTINGS: Mapping[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "message.timeout.ms": 0,  # no end: a broker that is away loses nothing
    "compression.type": "zstd",
    "linger.ms": 20,
    "queue.buffering.max.kbytes": 2 * OUT_BYTES_MAX >> 10,
    "message.max.bytes": 1_000_000,
    "log_level": 0,  # what matters comes as an error
}


class Client(Protocol):
    """What is used of `confluent_kafka.Producer`."""

    def produce(self, topic: str, **message: Any) -> None:
        """Raises BufferError when its queue is full."""
        ...

    def poll(self, timeout: float) -> int:
        """Hand delivery reports to their callbacks, for `timeout` s at most."""
        ...

    def purge(self) -> None:
        """Forget what is not acknowledged."""
        ...


class SendRefused(CrawlError):
    """The brokers do not take what we send, whenever we send it."""


class Sent(msgspec.Struct):
    """Counts of records, but for `messages` and `bytes` (values of acknowledged ones)."""

    taken: int = 0
    acknowledged: int = 0
    refused: int = 0  # could not be written
    messages: int = 0
    bytes: int = 0

    @property
    def open(self) -> int:
        """Taken, and neither acknowledged nor refused."""
        return self.taken - self.acknowledged - self.refused


class BatchProducer:
    """The way to one batched topic. For one thread; delivery reports come within its calls."""

    def __init__(
        self,
        client: Client,
        topic: str,
        partitions: int,
        *,
        now_ms: Callable[[], int],
        tick: Callable[[], None] = lambda: None,
        on_refused: Callable[[msgspec.Struct, str], None] = lambda record, why: None,
    ) -> None:
        """`partitions`: as many as the topic has. `on_refused`: a record that no schema holds, and why."""
        assert partitions > 0
        self.counts = Sent()
        self.by_partition: Counter[int] = Counter()
        self.last_offset: dict[int, int] = {}  # of each partition's acknowledged messages
        self.heard_ms = now_ms()  # when the brokers last acknowledged anything, or nothing was out
        self._client, self._topic, self._now_ms, self._tick, self._on_refused = client, topic, now_ms, tick, on_refused
        self._key, self._batched = TOPICS[topic].key, TOPICS[topic].batched
        self._partition_of = lru_cache(maxsize=100_000)(partial(partition_for, partitions=partitions))
        self._held: dict[int, list[msgspec.Struct]] = {}
        self._held_records = 0
        self._looks = 0
        self._held_since_ms = 0
        self._out_bytes = 0
        self._failure: SendRefused | None = None

    def send(self, record: msgspec.Struct) -> None:
        """Take a record. Waits while too much is out; raises SendRefused once the brokers refused something."""
        assert self._batched, self._topic
        partition = self._partition_of(getattr(record, self._key))
        held = self._held.setdefault(partition, [])
        held.append(record)
        if not self._held_records:
            self._held_since_ms = self._now_ms()
        self._held_records += 1
        self.counts.taken += 1
        if len(held) >= BATCH_RECORDS_MAX:
            self._release(partition)
        elif self._held_records >= HELD_RECORDS_MAX:
            self._release(max(self._held, key=lambda one: len(self._held[one])))
        self._looks += 1
        if self._looks % _LOOK_RECORDS == 0:
            self._serve(0)
            if self._held_records and self._now_ms() - self._held_since_ms >= HOLD_MS:
                self.hand_over()

    def send_message(self, partition: int, key: bytes | None, value: bytes) -> None:
        """A message as it was, counted as one record. Waits and raises as `send` does."""
        self.counts.taken += 1
        self._produce(partition, value, 1, key)
        self._serve(0)

    def hand_over(self) -> None:
        """Give all that is held to the client: nothing more comes for now."""
        for partition in list(self._held):
            self._release(partition)
        self._serve(0)

    def settle(self) -> None:
        """Hand over, and return when all of it is acknowledged, however long the brokers are away."""
        self.hand_over()
        while self.counts.open:
            self._serve(_POLL_S)

    def wait(self) -> None:
        """A moment, in which the client is served and `tick` called."""
        self._serve(_POLL_S)

    def abandon(self) -> None:
        """Forget what is held and what is not acknowledged; the brokers may have some of it."""
        self._held.clear()
        self._held_records = 0
        self._client.purge()
        self._client.poll(_POLL_S)

    def waiting_ms(self) -> int:
        """How long the brokers have said nothing although something is out."""
        return self._now_ms() - self.heard_ms if self._out_bytes else 0

    def _release(self, partition: int) -> None:
        batch = self._held.pop(partition)
        self._held_records -= len(batch)
        self._hand(partition, batch)

    def _hand(self, partition: int, batch: Sequence[msgspec.Struct]) -> None:
        """One message, or two halves where that would be too long or holds a record that cannot be written."""
        try:
            value = encode_batch(batch)
            problem = "" if len(value) <= MESSAGE_BYTES_MAX else f"needed {MESSAGE_BYTES_MAX:,} bytes at most"
        except BadRecord as error:
            value, problem = b"", str(error)
        if not problem:
            self._produce(partition, value, len(batch))
        elif len(batch) > 1:
            middle = len(batch) // 2
            self._hand(partition, batch[:middle])
            self._hand(partition, batch[middle:])
        else:
            self.counts.refused += 1
            self._on_refused(batch[0], problem)

    def _produce(self, partition: int, value: bytes, records: int, key: bytes | None = None) -> None:
        while self._out_bytes and self._out_bytes + len(value) > OUT_BYTES_MAX:
            self._serve(_POLL_S)
        if not self._out_bytes:
            self.heard_ms = self._now_ms()
        named = {} if key is None else {"key": key}
        report = partial(self._reported, partition, len(value), records)
        while True:
            try:
                self._client.produce(self._topic, value=value, partition=partition, on_delivery=report, **named)
                break
            except BufferError:
                self._serve(_POLL_S)
        self._out_bytes += len(value)

    def _reported(self, partition: int, length: int, records: int, error: Any, message: Any) -> None:
        """A delivery report: one message is acknowledged, or will never be."""
        self._out_bytes -= length
        self.heard_ms = self._now_ms()
        if error is None:
            self.counts.acknowledged += records
            self.counts.messages += 1
            self.counts.bytes += length
            self.by_partition[partition] += records
            self.last_offset[partition] = max(message.offset(), self.last_offset.get(partition, -1))
        elif self._failure is None:
            self._failure = SendRefused(
                f"kafka, topic {self._topic}, partition {partition}: needed an acknowledgement of {records:,} records,"
                f" got: {error.str()}; the user needs Write and Describe on the topic, and headrace provision --only"
                " topics shows whether it is as it should be",
                EXIT_FAILED,
            )

    def _serve(self, timeout_s: float) -> None:
        self._client.poll(timeout_s)
        self._tick()
        if self._failure is not None:
            raise self._failure
