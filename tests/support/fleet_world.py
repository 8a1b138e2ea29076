"""A fleet for tests on a real Kafka: topics made anew, workers that are started, killed and stopped, seeds, rows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from connectors.cassandra_link import CassandraLink
from connectors.ports import Epochs, UrlState
from infra.provision.topics import config_of, wanted
from infra.settings_fleet import Fleet
from infra.wiring_fleet import open_epochs, open_link, open_url_state
from schemas.codec import decode, encode_batch
from schemas.records import DiscoveredUrl, Source
from schemas.topics import partition_for
from streams.core.rows import UrlRow, decode_row
from streams.core.rules.urls import host_key
from tests.support.fleet_worker import TOLD, Order
from tests.support.ports import free_port
from tests.support.url_state_file import FileUrlState

ROOT = Path(__file__).parents[2]
_DEED_S_MAX = 60.0
_LOOK_S = 0.05
_ROWS_OF_A_HOST_MAX = 100_000


def until(holds: Callable[[], bool], what: str | Callable[[], str], within_s: float = 60.0) -> None:
    """Wait for it, and fail with what was waited for."""
    end_s = time.monotonic() + within_s
    while not holds():
        late = time.monotonic() >= end_s
        assert not late, f"not within {within_s:.0f} s: {what if isinstance(what, str) else what()}"
        wait = getattr(time, "sleep")  # noqa: B009
        wait(_LOOK_S)


def remove_topics(kafka: str) -> Any:
    """Whatever another test left in our topics is gone with them. The client that did it."""
    admin: Any = AdminClient({"bootstrap.servers": kafka})
    names = {topic.name for topic in wanted()}
    there = names & set(admin.list_topics(timeout=15).topics)
    if there:
        for future in admin.delete_topics(sorted(there), operation_timeout=_DEED_S_MAX).values():
            future.result(_DEED_S_MAX)
    until(lambda: not names & set(admin.list_topics(timeout=15).topics), "the topics to be gone")
    return admin


class FleetWorld:
    """Of one test: whatever another left in the topics is gone.

    URL rows and epochs lie in Cassandra where `rows` names it, and others' lie there, too: hosts need names that no
    other world has. Without it they lie in a file.
    """

    def __init__(
        self, kafka: str, folder: Path, *, partitions: int = 4, rows: Fleet | None = None, **order: Any
    ) -> None:
        self.kafka, self.folder, self.partitions = kafka, folder, partitions
        folder.mkdir(parents=True, exist_ok=True)
        self.order = Order(kafka=kafka, data="", rows=str(folder / "rows.sqlite"), partitions=partitions, **order)
        self._link: CassandraLink | None = None
        self.epochs: Epochs
        self._urls: UrlState
        if rows is None:
            self._urls = self.epochs = FileUrlState(Path(self.order.rows), self.order.region)
        else:
            self.order = msgspec.structs.replace(self.order, cassandra=rows.cassandra[0], keyspace=rows.keyspace)
            self._link = open_link(rows, print)
            self._urls = open_url_state(self._link)
            self.epochs = open_epochs(self._link, worker="test", region=self.order.region)
        self.workers: list[Worker] = []
        self._hosts: set[str] = set()
        self._make_topics()
        for partition in range(partitions):
            home = self.epochs.home(partition)
            if home is not None and home.region != self.order.region:
                self.epochs.move(partition, self.order.region)

    def worker(self, name: str = "a", **order: Any) -> Worker:
        """Started; `name` is its folder, which a later one of the same name finds again.

        With rows in Cassandra and no step to end at it is the real one, `streams.app`; else
        `tests.support.fleet_worker`.
        """
        told = msgspec.structs.replace(self.order, data=str(self.folder / name), **order)
        Path(told.data).mkdir(parents=True, exist_ok=True)
        made = Worker(name, told, self.folder / f"{name}.log")
        self.workers.append(made)
        return made

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        if self._link is not None:
            self._link.close()

    def seed(self, urls: Iterable[str]) -> None:
        """Named by the partition that each belongs to."""
        now_ms = time.time_ns() // 1_000_000
        found = [
            DiscoveredUrl(url=url, host_key=host_key(url), source=Source.SEED, discovered_ms=now_ms) for url in urls
        ]
        by_partition: dict[int, list[DiscoveredUrl]] = {}
        self._hosts.update(one.host_key for one in found)
        for one in found:
            by_partition.setdefault(partition_for(one.host_key, self.partitions), []).append(one)
        for partition, several in by_partition.items():
            self.send(
                "discovered-urls",
                [(partition, encode_batch(several[at : at + 100])) for at in range(0, len(several), 100)],
            )

    def send(self, topic: str, records: Sequence[tuple[int, bytes | None]]) -> None:
        """(partition, value) each, acknowledged when this returns."""
        producer: Any = Producer({"bootstrap.servers": self.kafka, "acks": "all"})
        for partition, value in records:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(30) == 0

    def rows(self) -> dict[str, UrlRow]:
        """The URL table, by URL: of the hosts that were seeded."""
        found: dict[str, UrlRow] = {}
        for host in self._hosts:
            rows = [decode_row(raw) for _, raw in self._urls.scan(host, b"", _ROWS_OF_A_HOST_MAX)]
            assert len(rows) < _ROWS_OF_A_HOST_MAX
            found |= {row.url: row for row in rows}
        return found

    def count_rows(self, hosts: Iterable[str]) -> int:
        """How many rows these hosts have in the URL table."""
        with ThreadPoolExecutor(16) as threads:
            return sum(threads.map(lambda host: len(self._urls.scan(host, b"", _ROWS_OF_A_HOST_MAX)), hosts))

    def read(self, topic: str, kind: type[msgspec.Struct]) -> list[Any]:
        """All records of a topic, as a reader of committed data finds them."""
        consumer: Any = Consumer(
            {
                "bootstrap.servers": self.kafka,
                "group.id": "fleet-world",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(self.partitions)])
        found: list[Any] = []
        ended: set[int] = set()
        while len(ended) < self.partitions:
            for message in consumer.consume(1_000, 0.2):
                if message.error() is not None:
                    ended.add(message.partition())
                elif message.value() is not None:
                    found += decode(message.value(), kind)
        consumer.close()
        return found

    def _make_topics(self) -> None:
        admin = remove_topics(self.kafka)
        made = [NewTopic(one.name, self.partitions, 1, config=config_of(one, 1)) for one in wanted()]
        for future in admin.create_topics(made, operation_timeout=_DEED_S_MAX).values():
            future.result(_DEED_S_MAX)


class Worker:
    """One process."""

    def __init__(self, name: str, order: Order, log: Path) -> None:
        self.name, self.order, self.log = name, order, log
        self.port = free_port()
        app, told = _told(order, self.port)
        command = [sys.executable, "-m", "faust", "-A", app, "worker", "-l", "info"]
        command += ["--web-bind", "127.0.0.1", "--web-port", str(self.port), "--web-host", "127.0.0.1"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                command,
                cwd=order.data,
                env={**environment, "PYTHONPATH": str(ROOT), **told},
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
            )

    def ended(self, within_s: float = 60.0) -> int:
        """Its exit code, once it has ended by itself."""
        until(lambda: self.process.poll() is not None, f"worker {self.name} to end\n{self.said()}", within_s)
        return int(self.process.returncode)

    def stopped(self) -> bool:
        """Whether it stands still (SIGSTOP)."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text("utf-8")
        return stat.rpartition(")")[2].split()[0] == "T"

    def wake(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        self.process.terminate()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def owns(self) -> bool:
        """Whether it took any partition over."""
        return "owned from epoch" in self.said(1_000)

    def gauge(self, name: str, labels: str = "") -> float:
        """The sum of a metric's numbers on its page, of those lines that have `labels` in them; 0 without a page."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return 0.0
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name) and labels in line)

    def said(self, lines: int = 60) -> str:
        return "\n".join(self.log.read_text("utf-8", errors="replace").splitlines()[-lines:])


def _told(order: Order, port: int) -> tuple[str, dict[str, str]]:
    """(module of the app, what its environment says)."""
    if not order.cassandra or order.end_at or order.stop_at or order.region:
        return order.app, {TOLD: msgspec.json.encode(order).decode()}
    fleet: dict[str, object] = {
        "kafka": order.kafka,
        "cassandra": order.cassandra,
        "keyspace": order.keyspace,
        "data": order.data,
        "partitions": order.partitions,
        "leases_max": order.leases_max,
        "parse_backlog_max": order.tasks_max,
        "session_s": order.session_s,
        "standbys": order.standbys,
        "group_ms": order.group_ms,
        "stages": "owner",
        "web_port": port,
    }
    told = {f"HEADRACE_FLEET__{name.upper()}": str(value) for name, value in fleet.items()}
    policy = {
        "POLITENESS__DELAY_MS": order.delay_ms,
        "POLITENESS__ADDRESS_CONCURRENCY": order.address_concurrency,
        "POLITENESS__ADDRESS_DELAY_MS": order.address_delay_ms,
        "BUDGET__NEW_PER_DAY": order.new_per_day,
    }
    told |= {f"HEADRACE_{name}": str(value) for name, value in policy.items() if value is not None}
    return "streams.app", told
