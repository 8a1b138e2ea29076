"""A Kafka in memory, behind what our adapters use of its clients: topics, delivery reports, transactions, ends."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec
from confluent_kafka import KafkaError, KafkaException

from connectors.owner_page import Explained, NotTheOwner, OwnerPage
from connectors.ports import Epochs
from connectors.topic_reader import Place
from connectors.url_state_memory import MemoryEpochs
from infra.provision.steps import ServiceAway
from infra.settings_fleet import Fleet
from schemas.topics import INNER_TOPICS, TOPICS

NOW_MS = 1_796_000_000_000


class Stored(msgspec.Struct):
    """One message as a partition keeps it; `committed` None: a marker, or a record that was aborted."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    committed: bool = True


class Broker:
    """All topics with so many partitions. `away`: nothing is answered; `refuses`: the code of every report."""

    def __init__(self, partitions: int = 4, *, now_ms: Callable[[], int] = lambda: NOW_MS) -> None:
        self.logs: dict[str, list[list[Stored]]] = {
            name: [[] for _ in range(partitions if topic.co_partitioned else min(partitions, topic.partitions))]
            for name, topic in {**TOPICS, **INNER_TOPICS}.items()
        }
        self.now_ms = now_ms
        self.away = False
        self.refuses: int | None = None
        self.holder: FakeTransactions | None = None
        self.producers: list[FakeProducer] = []

    def append(self, topic: str, partition: int, value: bytes | None, key: bytes | None = None, at_ms: int = 0) -> int:
        log = self.logs[topic][partition]
        log.append(Stored(key, value, at_ms or self.now_ms()))
        return len(log) - 1

    def values(self, topic: str) -> list[tuple[int, bytes]]:
        """(partition, value) of all that a reader sees."""
        return [
            (partition, one.value)
            for partition, log in enumerate(self.logs[topic])
            for one in log
            if one.committed and one.value is not None
        ]


class FakeProducer:
    """Acknowledges at each poll what was produced before, unless the broker is away."""

    def __init__(self, broker: Broker, queue_max: int = 1_000) -> None:
        self._broker, self._queue_max = broker, queue_max
        self.queue: deque[tuple[str, Mapping[str, Any]]] = deque()
        self.polls = 0
        self.queued_most = 0
        self.on_poll: Callable[[int], None] = lambda polls: None
        broker.producers.append(self)

    def produce(self, topic: str, **message: Any) -> None:
        if len(self.queue) >= self._queue_max:
            raise BufferError("Local: Queue full")
        self.queue.append((topic, message))
        self.queued_most = max(self.queued_most, sum(len(one["value"]) for _, one in self.queue))

    def poll(self, timeout: float) -> int:
        self.polls += 1
        self.on_poll(self.polls)
        served = 0
        while self.queue and not self._broker.away:
            topic, message = self.queue.popleft()
            served += 1
            if self._broker.refuses is not None:
                message["on_delivery"](KafkaError(self._broker.refuses), None)
                continue
            offset = self._broker.append(topic, message["partition"], message["value"], message.get("key"))
            message["on_delivery"](None, FakeMessage(topic, message["partition"], offset, None))
        return served

    def purge(self) -> None:
        self.queue.clear()


class FakeTransactions:
    """One transactional id: who opens it last is the only one that can commit."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._open: list[tuple[str, Mapping[str, Any]]] = []
        self.before_commit: Callable[[], None] = lambda: None

    def init_transactions(self, timeout: float) -> None:
        self._broker.holder = self

    def begin_transaction(self) -> None:
        self._open = []

    def produce(self, topic: str, **message: Any) -> None:
        self._open.append((topic, message))

    def commit_transaction(self, timeout: float) -> None:
        self.before_commit()
        if self._broker.holder is not self:
            raise KafkaException(KafkaError(KafkaError._FENCED))
        for topic, message in self._open:
            self._broker.append(topic, message["partition"], message["value"], message.get("key"))
            self._broker.logs[topic][message["partition"]].append(Stored(None, None, self._broker.now_ms(), False))


class FakeMessage:
    """As confluent_kafka.Message, with methods for fields."""

    def __init__(self, topic: str, partition: int, offset: int, stored: Stored | None) -> None:
        self._at, self._stored = (topic, partition, offset), stored

    def topic(self) -> str:
        return self._at[0]

    def partition(self) -> int:
        return self._at[1]

    def offset(self) -> int:
        return self._at[2]

    def error(self) -> KafkaError | None:
        return None if self._stored is not None else KafkaError(KafkaError._PARTITION_EOF)

    def key(self) -> bytes | None:
        assert self._stored is not None
        return self._stored.key

    def value(self) -> bytes | None:
        assert self._stored is not None
        return self._stored.value

    def timestamp(self) -> tuple[int, int]:
        assert self._stored is not None
        return 1, self._stored.timestamp_ms

    def headers(self) -> None:
        return None


class FakeConsumer:
    """Reads partition after partition, says the end of each once, and again after more came."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._places: dict[tuple[str, int], int] = {}
        self._ended: set[tuple[str, int]] = set()
        self.closed = False
        self.on_idle: Callable[[], None] = lambda: None

    def assign(self, partitions: list[Any]) -> None:
        self._ended.clear()
        self._places = {}
        for one in partitions:
            end = len(self._broker.logs[one.topic][one.partition])
            place = one.offset
            if place == -1:
                place = end
            elif place <= -2_000:
                place = max(0, end - (-2_000 - place))
            self._places[one.topic, one.partition] = max(0, place)

    def unassign(self) -> None:
        self._places = {}

    def poll(self, timeout: float) -> FakeMessage | None:
        for (topic, partition), place in self._places.items():
            log = self._broker.logs[topic][partition]
            while place < len(log) and not log[place].committed:
                place += 1
            if place < len(log):
                self._places[topic, partition] = place + 1
                self._ended.discard((topic, partition))
                return FakeMessage(topic, partition, place, log[place])
            self._places[topic, partition] = place
            if (topic, partition) not in self._ended and not self._broker.away:
                self._ended.add((topic, partition))
                return FakeMessage(topic, partition, place, None)
        self.on_idle()
        return None

    def offsets_for_times(self, partitions: list[Any], timeout: float) -> list[Any]:
        for one in partitions:
            log = self._broker.logs[one.topic][one.partition]
            one.offset = next((at for at, stored in enumerate(log) if stored.timestamp_ms >= one.offset), -1)
        return partitions

    def close(self) -> None:
        self.closed = True


class FakeFleet:
    """The verbs' way to a fleet, in memory. `pages` are owners by their address."""

    def __init__(self, broker: Broker | None = None) -> None:
        self.broker = broker or Broker()
        self.consumers: list[FakeConsumer] = []
        self.rows: list[tuple[str, bytes, bytes]] = []  # (host_key, url_id, row)
        self.owners: dict[str, Callable[[OwnerPage, str], Explained]] = {}
        self.numbers: dict[str, dict[str, float]] = {}  # of owners, by their page
        self.places_of: dict[str, dict[int, Place]] = {}
        self.taken = MemoryEpochs()
        self.looks = 0
        self.on_look: Callable[[int], None] = lambda looks: None
        self.on_producer: Callable[[FakeProducer], None] = lambda producer: None
        self.on_consumer: Callable[[FakeConsumer], None] = lambda consumer: None

    def partitions(self, fleet: Fleet) -> dict[str, int]:
        self.looks += 1
        self.on_look(self.looks)
        if self.broker.away:
            raise ServiceAway("kafka", ",".join(fleet.kafka), "Connection refused", "start it")
        return {name: len(logs) for name, logs in self.broker.logs.items()}

    def producer(self, fleet: Fleet, on_error: Callable[[str], None]) -> FakeProducer:
        producer = FakeProducer(self.broker)
        self.on_producer(producer)
        return producer

    def transactions(self, fleet: Fleet, on_error: Callable[[str], None]) -> FakeTransactions:
        return FakeTransactions(self.broker)

    def consumer(self, fleet: Fleet, on_error: Callable[[str], None]) -> FakeConsumer:
        consumer = FakeConsumer(self.broker)
        self.consumers.append(consumer)
        self.on_consumer(consumer)
        return consumer

    @contextlib.contextmanager
    def url_rows(
        self, fleet: Fleet, hosts: Sequence[str], say: Callable[[str], None]
    ) -> Iterator[Iterator[tuple[str, bytes, bytes]]]:
        yield iter([one for one in self.rows if not hosts or one[0] in hosts])

    def owner_numbers(self, page: str) -> dict[str, float]:
        if page not in self.numbers:
            raise NotTheOwner(f"{page}: no worker there")
        return self.numbers[page]

    def places(self, fleet: Fleet, groups: Mapping[str, str]) -> dict[str, dict[int, Place]]:
        return {topic: places for topic, places in self.places_of.items() if topic in groups}

    def epochs(self, fleet: Fleet, say: Callable[[str], None]) -> AbstractContextManager[Epochs]:
        return contextlib.nullcontext(MemoryEpochs(fleet.region, of=self.taken))

    def ask_owner(self, page: OwnerPage, what: str) -> Explained:
        return self.owners[page.page](page, what)
