"""Parse and route stages on real services: bodies laid down, tasks sent, workers that come, go and are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from connectors.bodies_s3 import S3Bodies
from connectors.object_store import ObjectStore
from connectors.ports import Response
from connectors.segments_s3 import S3Segments, Spool
from infra.provision.bucket import plan
from infra.provision.s3_store import BotoStore, open_client
from infra.provision.topics import config_of, wanted
from infra.settings_fleet import Fleet
from schemas.codec import decode, encode_batch
from schemas.records import BodyRef, Kind, ParsedPage, ParseTask
from schemas.topics import TOPICS, partition_for
from streams.core.rules.urls import host_key, url_id
from tests.support.fleet_world import until
from tests.support.stage_worker import TOLD

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
FETCHED_MS = 1_796_000_000_000
_DEED_S_MAX = 60.0


class Event(msgspec.Struct, frozen=True):
    """One index event as a reader finds it."""

    key: str
    version: int
    value: bytes | None


class StageWorld:
    """Of one test: whatever another left in the topics is gone."""

    def __init__(self, at: Mapping[str, str], folder: Path) -> None:
        self.fleet = Fleet(kafka=(at["kafka"],), s3_endpoint=at["s3"], bucket="stages-test", partitions=PARTITIONS)
        self.folder = folder
        self._kafka = at["kafka"]
        self.workers: list[StageWorker] = []
        self._admin: Any = AdminClient({"bootstrap.servers": self._kafka})
        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": self._kafka,
                "group.id": "stage-world",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "log_level": 3,
            }
        )
        self._make_topics()
        for step in plan(BotoStore(self.fleet), bucket=self.fleet.bucket):
            assert step is not None
        self.objects = ObjectStore(open_client(self.fleet), self.fleet.bucket)
        self.bodies = S3Bodies(self.objects)

    def worker(self, stage: str, name: str) -> StageWorker:
        made = StageWorker(self, stage, name)
        self.workers.append(made)
        return made

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        self._consumer.close()
        self.objects.close()

    def store(self, pages: Mapping[str, bytes], *, name: str = "test") -> list[ParseTask]:
        """The bodies in a segment, and what has them parsed."""
        spool = Spool(self.folder / f"spool-{name}")
        segments = S3Segments(self.objects, spool, worker=name, epoch=os.getpid())
        tasks = []
        for url, body in pages.items():
            headers = ((b"Content-Type", b"text/html"),)
            response = Response(url, "203.0.113.1", 200, "OK", "1.1", headers, body, "", FETCHED_MS)
            tasks.append(task_of(url, segments.append_response(url, response, bytes(32), None)))
        segments.sync()
        spool.close()
        return tasks

    def send(self, tasks: list[ParseTask], *, batch: int = 20) -> None:
        """As `publish`, to be parsed."""
        self.publish("parse-tasks", tasks, batch=batch)

    def publish(self, topic: str, records: Sequence[ParseTask | ParsedPage], *, batch: int = 20) -> None:
        """To the partitions of their hosts, acknowledged when this returns."""
        producer: Any = Producer({"bootstrap.servers": self._kafka, "acks": "all"})
        by_partition: dict[int, list[ParseTask | ParsedPage]] = {}
        for one in records:
            by_partition.setdefault(partition_for(one.host_key, PARTITIONS), []).append(one)
        for partition, several in by_partition.items():
            for at in range(0, len(several), batch):
                producer.produce(topic, encode_batch(several[at : at + batch]), partition=partition)
        assert producer.flush(30) == 0

    def read(self, topic: str) -> list[Any]:
        """All records of a topic; of index-events `Event`s, in the order of each partition."""
        partitions = PARTITIONS
        consumer = self._consumer
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        found: list[Any] = []
        ended: set[int] = set()
        while len(ended) < partitions:
            for message in consumer.consume(1_000, 0.2):
                if message.error() is not None:
                    ended.add(message.partition())
                elif topic == "index-events":
                    version = int(dict(message.headers())["doc_version"])
                    found.append(Event(message.key().decode(), version, message.value()))
                elif message.value() is not None:
                    record = TOPICS[topic].record
                    assert record is not None
                    found += decode(message.value(), record)
        consumer.unassign()
        return found

    def lag(self, group: str, topic: str) -> int:
        """Messages that the group has not committed."""
        consumer: Any = Consumer({"bootstrap.servers": self._kafka, "group.id": group, "enable.auto.commit": False})
        try:
            places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
            committed = {one.partition: max(0, one.offset) for one in consumer.committed(places, timeout=15)}
            ends = {one.partition: consumer.get_watermark_offsets(one, timeout=15)[1] for one in places}
        except KafkaException:  # the brokers have just come back
            return 1
        finally:
            consumer.close()
        return sum(end - committed[partition] for partition, end in ends.items())

    def text(self, ref: BodyRef) -> str:
        return self.bodies.read(ref).decode()

    def _make_topics(self) -> None:
        admin = self._admin
        names = [topic.name for topic in wanted()]
        there = [name for name in names if name in admin.list_topics(timeout=15).topics]
        if there:
            for future in admin.delete_topics(there, operation_timeout=_DEED_S_MAX).values():
                future.result(_DEED_S_MAX)
        until(lambda: not set(names) & set(admin.list_topics(timeout=15).topics), "the topics to be gone")
        made = [NewTopic(one.name, PARTITIONS, 1, config=config_of(one, 1)) for one in wanted()]
        for future in admin.create_topics(made, operation_timeout=_DEED_S_MAX).values():
            future.result(_DEED_S_MAX)


class StageWorker:
    """One process."""

    def __init__(self, world: StageWorld, stage: str, name: str) -> None:
        self.name = name
        data = world.folder / name
        data.mkdir(parents=True, exist_ok=True)
        self.log = world.folder / f"{name}.log"
        fleet = world.fleet
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")},
            TOLD: stage,
            "PYTHONPATH": str(ROOT),
            "HEADRACE_FLEET__KAFKA": fleet.kafka[0],
            "HEADRACE_FLEET__S3_ENDPOINT": fleet.s3_endpoint,
            "HEADRACE_FLEET__BUCKET": fleet.bucket,
            "HEADRACE_FLEET__PARTITIONS": str(fleet.partitions),
            "HEADRACE_FLEET__DATA": str(data),
            "HEADRACE_FLEET__SESSION_S": "6",
            "HEADRACE_CRAWL__WORKERS": "1",
        }
        command = [
            sys.executable,
            "-m",
            "faust",
            "-A",
            "tests.support.stage_worker",
            "worker",
            "-l",
            "info",
            "--without-web",
        ]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                command, cwd=data, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )

    def kill(self) -> None:
        """kill -9; its parser ends with its socket."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def ended(self, within_s: float = 60.0) -> int:
        """Terminated, and its exit code."""
        self.process.send_signal(signal.SIGTERM)
        until(lambda: self.process.poll() is not None, f"{self.name} to end\n{self.said()}", within_s)
        return int(self.process.returncode)

    def said(self, lines: int = 60) -> str:
        return "\n".join(self.log.read_text("utf-8", errors="replace").splitlines()[-lines:])


def task_of(url: str, content: BodyRef) -> ParseTask:
    return ParseTask(url_id(url), host_key(url), url, 1, Kind.PAGE, content, FETCHED_MS, 0, 1, "text/html")


def now_and_then(holds: Callable[[], bool], every_s: float = 0.5) -> Callable[[], bool]:
    """Looked at no more often than that: each look makes clients of its own."""
    looked_s = 0.0

    def look() -> bool:
        nonlocal looked_s
        if time.monotonic() - looked_s < every_s:
            return False
        found = holds()
        looked_s = time.monotonic()
        return found

    return look


def repeats(several: list[Any]) -> int:
    """How many of them are there more than once."""
    return sum(number - 1 for number in Counter(several).values())
