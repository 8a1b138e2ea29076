"""Records leave in batches of the right partition, bounded, and are counted when the brokers have them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from confluent_kafka import KafkaError

from connectors.producer import BATCH_RECORDS_MAX, HOLD_MS, OUT_BYTES_MAX, BatchProducer, SendRefused
from schemas.codec import decode
from schemas.records import DiscoveredUrl, Kind, ParsedPage, Source
from schemas.topics import partition_for
from streams.core.policy import MESSAGE_BYTES_MAX
from tests.support.fake_kafka import Broker, FakeProducer

TOPIC = "discovered-urls"


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


def seed(number: int, host: int = 0, length: int = 0) -> DiscoveredUrl:
    key = f"https://host{host}.test"
    return DiscoveredUrl(f"{key}/{number}{'x' * length}", key, Source.SEED, 5)


def opened(
    broker: Broker, clock: Clock | None = None, tick: Callable[[], None] = lambda: None, partitions: int = 4
) -> tuple[BatchProducer, FakeProducer]:
    client = FakeProducer(broker)
    return BatchProducer(client, TOPIC, partitions, now_ms=clock or Clock(), tick=tick), client


def test_each_record_goes_to_the_partition_of_its_host() -> None:
    """A URL in another partition would be forwarded at best: every batch holds records of its own partition alone."""
    broker = Broker()
    producer, _ = opened(broker)
    sent = [seed(number, host) for host in range(50) for number in range(20)]
    for one in sent:
        producer.send(one)
    producer.settle()
    arrived: list[DiscoveredUrl] = []
    for partition, value in broker.values(TOPIC):
        batch = decode(value, DiscoveredUrl)
        assert len(batch) <= BATCH_RECORDS_MAX
        assert {partition_for(one.host_key, 4) for one in batch} == {partition}
        arrived += batch
    assert sorted(one.url for one in arrived) == sorted(one.url for one in sent)
    assert producer.counts.acknowledged == producer.counts.taken == 1_000
    assert sum(producer.by_partition.values()) == 1_000
    assert producer.counts.messages == len(broker.values(TOPIC)) < 20


def test_records_of_a_host_keep_their_order() -> None:
    """An operator's second word must not come before the first."""
    broker = Broker()
    producer, _ = opened(broker)
    for number in range(1_000):
        producer.send(seed(number))
    producer.settle()
    urls = [one.url for _, value in broker.values(TOPIC) for one in decode(value, DiscoveredUrl)]
    assert urls == [seed(number).url for number in range(1_000)]


def test_a_message_is_never_too_long() -> None:
    """The broker refuses it for ever: a batch of long records is cut until each message fits."""
    broker = Broker()
    client = FakeProducer(broker)
    producer = BatchProducer(client, "parsed-pages", 4, now_ms=Clock())
    page = ParsedPage(b"i" * 16, "https://a.test", "https://a.test/", 1, Kind.PAGE, 0, 1, 1, title="x" * 100_000)
    for version in range(30):
        producer.send(msgspec.structs.replace(page, url_version=version))
    producer.settle()
    values = [value for _, value in broker.values("parsed-pages")]
    assert all(len(value) <= MESSAGE_BYTES_MAX for value in values)
    assert [one.url_version for value in values for one in decode(value, ParsedPage)] == list(range(30))


def test_a_record_that_no_message_holds_is_refused_alone() -> None:
    """One bad record costs neither its batch nor the run, and it is named."""
    broker = Broker()
    refused: list[tuple[msgspec.Struct, str]] = []
    producer = BatchProducer(
        FakeProducer(broker), "parsed-pages", 4, now_ms=Clock(), on_refused=lambda one, why: refused.append((one, why))
    )
    page = ParsedPage(b"i" * 16, "https://a.test", "https://a.test/", 1, Kind.PAGE, 0, 1, 1)
    long = msgspec.structs.replace(page, title="x" * (MESSAGE_BYTES_MAX + 1))
    surrogate = msgspec.structs.replace(page, title="\ud800")
    for one in (page, long, page, surrogate, page):
        producer.send(one)
    producer.settle()
    assert [one for one, _ in refused] == [long, surrogate]
    assert producer.counts.acknowledged == 3
    assert producer.counts.refused == 2
    assert producer.counts.open == 0


def test_what_is_out_is_bounded_while_the_brokers_are_away() -> None:
    """A million seeds into a broker that is away must not fill the memory: sending waits, and tells."""
    broker = Broker()
    broker.away = True
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(1)
        if len(ticks) > 500:
            broker.away = False

    producer, client = opened(broker, tick=tick)
    client._queue_max = 10**6
    for number in range(60_000):
        producer.send(seed(number, number % 7, length=1_500))
    producer.settle()
    assert len(ticks) > 500
    assert client.queued_most <= OUT_BYTES_MAX
    assert producer.counts.acknowledged == 60_000


def test_a_full_client_is_waited_for() -> None:
    """The client's own queue may be smaller than ours: nothing is dropped for that."""
    broker = Broker()
    client = FakeProducer(broker, queue_max=2)
    producer = BatchProducer(client, TOPIC, 4, now_ms=Clock())
    for number in range(5_000):
        producer.send(seed(number, number % 11))
    producer.settle()
    assert producer.counts.acknowledged == 5_000


def test_held_records_leave_in_time() -> None:
    """With many partitions none fills its batch for long: what is held goes out a second after it came."""
    broker = Broker(partitions=512)
    clock = Clock()
    producer, _ = opened(broker, clock, partitions=512)
    for number in range(256):
        producer.send(seed(number, number))
    assert broker.values(TOPIC) == []
    clock.ms += HOLD_MS
    for number in range(256):
        producer.send(seed(number, number))
    assert sum(len(decode(value, DiscoveredUrl)) for _, value in broker.values(TOPIC)) == 512


def test_held_records_are_bounded_over_all_partitions() -> None:
    """A topic of many partitions must not hold a batch for each: the fullest one goes first."""
    broker = Broker(partitions=1_024)
    producer, _ = opened(broker, partitions=1_024)
    most = 0
    for number in range(60_000):
        producer.send(seed(number, number))
        most = max(most, producer._held_records)
    assert most <= 30_000
    producer.settle()
    assert producer.counts.acknowledged == 60_000


def test_a_refusal_ends_the_sending() -> None:
    """Without leave to write every record would be lost one by one: the first refusal says what to do."""
    broker = Broker()
    broker.refuses = KafkaError.TOPIC_AUTHORIZATION_FAILED
    producer, _ = opened(broker)
    producer.send(seed(1))
    with pytest.raises(SendRefused, match=r"topic discovered-urls, partition \d.*Write and Describe"):
        producer.settle()
    assert producer.counts.acknowledged == 0


def test_silence_is_measured_from_the_last_sign() -> None:
    """Who waits is told only when brokers owe an answer, and for how long they do."""
    broker, clock = Broker(), Clock()
    producer, _ = opened(broker, clock)
    clock.ms += 60_000
    assert producer.waiting_ms() == 0
    broker.away = True
    producer.send(seed(1))
    producer.hand_over()
    clock.ms += 4_000
    assert producer.waiting_ms() == 4_000
    broker.away = False
    producer.settle()
    assert producer.waiting_ms() == 0
