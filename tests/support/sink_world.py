"""The services around the sink as a test handles them: Kafka by its client, Connect and OpenSearch over REST."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.sink_records import DOCUMENT_BYTES_MAX, Event

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 4
_PAGE_ROWS = 2_000
_LIMIT_S = 180.0

Place = tuple[int, int]  # partition, offset
Answer = TypeVar("Answer")


class Document(msgspec.Struct, frozen=True):
    """A document as the index holds it. `seq_no` changes with every write to it, whatever that writes."""

    version: int
    source: Mapping[str, Any]
    seq_no: int


def until(what: str, ask: Callable[[], Answer | None], limit_s: float = _LIMIT_S) -> Answer:
    """Asks until there is an answer other than None and False. AssertionError after the limit."""
    end = time.monotonic() + limit_s
    pause = threading.Event()
    while True:
        answer = ask()
        if answer is not None and answer is not False:
            return answer
        assert time.monotonic() < end, f"{what}: not within {limit_s} s"
        pause.wait(0.1)


class Rest:
    """JSON over HTTP."""

    def __init__(self, base: str) -> None:
        self.base = base.rstrip("/")

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and body; (0, reason) when nobody answers."""
        request = urllib.request.Request(self.base + path, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")
        except OSError as error:
            return 0, str(error)

    def do(self, method: str, path: str, body: object = None) -> Any:
        """The body of a good answer. AssertionError for any other."""
        status, answer = self.ask(method, path, body)
        assert 200 <= status < 300, f"{method} {self.base}{path}: {status} {answer}"
        return answer


class Index:
    """An index made as provisioning makes it, by `schemas/pages-index.json`."""

    def __init__(self, opensearch: str, name: str) -> None:
        self.name = name
        self._rest = Rest(opensearch)

    def make(self) -> None:
        """The index, empty."""
        self._rest.do("PUT", f"/{self.name}", json.loads((ROOT / "schemas" / "pages-index.json").read_text("utf-8")))

    def drop(self) -> None:
        """Takes it away."""
        self._rest.do("DELETE", f"/{self.name}")

    def documents(self) -> dict[str, Document]:
        """All documents by id."""
        self._rest.do("POST", f"/{self.name}/_refresh")
        found: dict[str, Document] = {}
        query: dict[str, Any] = {"size": _PAGE_ROWS, "version": True, "seq_no_primary_term": True, "sort": ["url_id"]}
        while hits := self._rest.do("POST", f"/{self.name}/_search", query)["hits"]["hits"]:
            assert not found.keys() & {hit["_id"] for hit in hits}
            for hit in hits:
                found[hit["_id"]] = Document(hit["_version"], hit["_source"], hit["_seq_no"])
            query["search_after"] = hits[-1]["sort"]
        assert len(found) == self.count()
        return found

    def count(self) -> int:
        """The number of documents; what was written since the last refresh may lack."""
        return int(self._rest.do("GET", f"/{self.name}/_count")["count"])

    def writes(self) -> int:
        """How many operations changed the index since it was made, deletes of nothing included."""
        shards = self._rest.do("GET", f"/{self.name}/_stats?level=shards")["indices"][self.name]["shards"]
        return sum(copy["seq_no"]["max_seq_no"] + 1 for copies in shards.values() for copy in copies)

    def written(self) -> int | None:
        """As `writes`; None while OpenSearch does not answer."""
        status, _ = self._rest.ask("GET", f"/{self.name}/_count")
        return self.writes() if status == 200 else None


class Connector:
    """A connector as the shipped configuration says, with names and addresses of the test."""

    def __init__(self, connect: str, opensearch: str, name: str, *, topic: str, index: str) -> None:
        self.name = name
        self.dead_letters = f"{name}-dead"
        self._rest = Rest(connect)
        shipped = json.loads((ROOT / "connectors" / "sink" / "pages-sink.json").read_text("utf-8"))["config"]
        self.config: dict[str, str] = shipped | {
            "topics": topic,
            "connection.url": opensearch,
            "index": index,
            "document.bytes.max": str(DOCUMENT_BYTES_MAX),
            "errors.deadletterqueue.topic.name": self.dead_letters,
        }

    def start(self) -> None:
        """Makes it, and waits until every task runs."""
        status, answer = self._rest.ask("PUT", f"/connectors/{self.name}/config", self.config)
        assert status in (200, 201), answer
        self.await_tasks(int(self.config["tasks.max"]))

    def stop(self) -> float:
        """Ends its tasks and keeps its offsets. How long the tasks took, in seconds."""
        begin = time.monotonic()
        self._rest.do("PUT", f"/connectors/{self.name}/stop")
        self.await_tasks(0)
        return time.monotonic() - begin

    def resume(self) -> None:
        """Begins again where it stopped."""
        self._rest.do("PUT", f"/connectors/{self.name}/resume")
        self.await_tasks(int(self.config["tasks.max"]))

    def forget_offsets(self) -> None:
        """It begins at the beginning when it is resumed. It has to be stopped."""
        self._rest.do("DELETE", f"/connectors/{self.name}/offsets")

    def delete(self) -> None:
        """Takes it away, if it is there."""
        self._rest.ask("DELETE", f"/connectors/{self.name}")

    def await_tasks(self, count: int) -> None:
        """Until so many run. AssertionError when one failed."""

        def as_wanted() -> bool:
            status, answer = self._rest.ask("GET", f"/connectors/{self.name}/status")
            if status != 200:
                return False
            tasks = answer["tasks"]
            failed = [task["trace"] for task in tasks if task["state"] == "FAILED"]
            assert not failed, failed[0]
            return [task["state"] for task in tasks] == ["RUNNING"] * count

        until(f"{count} tasks of {self.name}", as_wanted)


class Broker:
    """Topics, what is sent to them and how far a connector's group has read them."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def make_topic(self, topic: str, partitions: int = PARTITIONS) -> None:
        """A topic, empty."""
        self._admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)

    def drop_topic(self, topic: str) -> None:
        """Takes a topic away, and waits until no broker knows it."""
        self._admin.delete_topics([topic])[topic].result(30)
        until(f"{topic} gone", lambda: topic not in self._admin.list_topics(timeout=10).topics)

    def send(self, topic: str, events: Sequence[Event]) -> list[Place]:
        """Sends in order, synced; the place of each."""
        places: list[Place | None] = [None] * len(events)

        def note(number: int) -> Callable[[KafkaError | None, Message], None]:
            def delivered(error: KafkaError | None, message: Message) -> None:
                assert error is None, error
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                places[number] = (partition, offset)

            return delivered

        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "partitioner": "murmur2_random", "enable.idempotence": True}
        )
        for number, event in enumerate(events):
            producer.produce(
                topic, key=event.key, value=event.value, headers=list(event.headers), on_delivery=note(number)
            )
            producer.poll(0)
        assert producer.flush(60) == 0
        done = [place for place in places if place is not None]
        assert len(done) == len(events)
        return done

    def await_read(self, connector: str, topic: str) -> None:
        """Until the connector's group has committed the end of every partition."""
        ends = {partition: end for partition, (_, end) in self._bounds(topic).items() if end}

        def read() -> bool:
            asked = ConsumerGroupTopicPartitions(f"connect-{connector}")
            group = self._admin.list_consumer_group_offsets([asked])[asked.group_id].result(30)
            committed = {p.partition: p.offset for p in group.topic_partitions if p.topic == topic and p.offset > 0}
            return committed == ends

        until(f"{connector} at the end of {topic}", read)

    def dead_letters(self, topic: str) -> Counter[Place]:
        """The places of the records reported there, as Connect notes them in headers."""
        bounds = self._bounds(topic)
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "nobody", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, partition, low) for partition, (low, _) in bounds.items()])
        wanted = sum(high - low for low, high in bounds.values())
        found: Counter[Place] = Counter()
        end = time.monotonic() + _LIMIT_S
        while found.total() < wanted:
            assert time.monotonic() < end
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                headers: dict[str, Any] = dict(message.headers() or ())
                found[int(headers["__connect.errors.partition"]), int(headers["__connect.errors.offset"])] += 1
        consumer.close()
        return found

    def _bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """First and next offset by partition."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "nobody"})
        partitions: Iterable[int] = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        bounds = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30) for p in partitions}
        consumer.close()
        return {partition: (low, high) for partition, (low, high) in bounds.items()}
