"""The owner's transactions on Kafka: a transactional producer whose id names the partition.

`init_transactions` of a new owner fences the one before, whatever that one is doing: its transaction is undone, and
any later one of it is refused. A transaction is tried again from the start when Kafka says that it was undone, and for
as long as the brokers are away. What became of a commit is known, or the owner must recover: nothing is guessed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from connectors.ports import Fenced, LogUncertain, Record

log = logging.getLogger(__name__)

_CALL_S_MAX = 15.0  # of one call; then it is made again
_TRANSACTION_MS_MAX = 60_000  # open for longer, the broker undoes it: longer than brokers are away as a rule
_ABORTS_MAX = 100  # of one transaction in a row; brokers that are away take a minute each
_FENCED = {
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
}


class KafkaOwnerLog:
    """See `connectors.ports.OwnerLog`."""

    def __init__(self, settings: Mapping[str, Any], app: str, partition: int) -> None:
        """`settings`: librdkafka's, for any client. `app`: with the partition it names the producer."""
        self._partition = partition
        self._producer: Any = Producer(
            {
                **settings,
                "transactional.id": f"{app}-{partition}",
                "transaction.timeout.ms": _TRANSACTION_MS_MAX,
                "message.timeout.ms": _TRANSACTION_MS_MAX,
                "linger.ms": 5,
                "compression.type": "lz4",
                "batch.num.messages": 10_000,
                "batch.size": 1_000_000,
                "message.max.bytes": 4_000_000,
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 262_144,
                "log_level": 3,
                "enable.metrics.push": False,
            }
        )

    def fence(self) -> None:
        while True:
            try:
                self._producer.init_transactions(_CALL_S_MAX)
                return
            except KafkaException as error:
                cause = error.args[0]
                if not cause.retriable():
                    raise self._meant(cause) from error
                log.warning("partition %d: waits to begin its transactions: %s", self._partition, cause.str())

    def transact(self, records: Sequence[Record], *, before_commit: Callable[[], None] = lambda: None) -> int:
        for _ in range(_ABORTS_MAX):
            offset = self._once(records, before_commit)
            if offset is not None:
                return offset
        raise LogUncertain(f"partition {self._partition}: a transaction was undone {_ABORTS_MAX} times")

    def close(self) -> None:
        self._producer = None  # its last reference: the client's threads end

    def _once(self, records: Sequence[Record], before_commit: Callable[[], None]) -> int | None:
        """The last record's offset; None when the transaction was undone and is to be tried again."""
        delivered: list[int] = []

        def last_delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                delivered.append(message.offset())

        producer = self._producer
        try:
            producer.begin_transaction()
            self._produce_all(records, last_delivered)
            while producer.flush(_CALL_S_MAX):
                log.warning("partition %d: waits for the brokers to take a transaction", self._partition)
            before_commit()
            self._commit()
        except KafkaException as error:
            cause = error.args[0]
            if not cause.txn_requires_abort():
                raise self._meant(cause) from error
            log.warning("partition %d: a transaction is undone and made again: %s", self._partition, cause.str())
            self._abort()
            return None
        assert delivered, "a committed transaction's records are delivered"
        return delivered[0]

    def _produce_all(self, records: Sequence[Record], last_delivered: Callable[[KafkaError | None, Any], None]) -> None:
        produce, done, last = self._producer.produce, 0, len(records) - 1
        while done <= last:
            try:
                for topic, partition, key, value in records[done:last]:
                    produce(topic, value, key, partition)
                    done += 1
                topic, partition, key, value = records[last]
                produce(topic, value, key, partition, last_delivered)
                return
            except BufferError:  # the client holds as much as it may: let some of it go out
                self._producer.poll(0.1)

    def _commit(self) -> None:
        while True:
            try:
                self._producer.commit_transaction(_CALL_S_MAX)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def _abort(self) -> None:
        while True:
            try:
                self._producer.abort_transaction(_CALL_S_MAX)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise self._meant(error.args[0]) from error

    def _meant(self, cause: KafkaError) -> Exception:
        said = f"partition {self._partition}: {cause.str()}"
        fenced = cause.code() in _FENCED or cause.fatal()  # a client that is unusable has nothing to guess about
        return Fenced(said) if fenced else LogUncertain(said)
