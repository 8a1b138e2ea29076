"""From a URL's discovery until it is durable, at so many discovered URLs a second over so many hosts.

    python -m tests.benchmarks.fleet_admission [--rate 2000] [--hosts 10000] [--seconds 60] [--fetches 100]

New URLs only, in random order of hosts, sent every 50 ms in one message a partition, as the link router does; beside
them some fetches a second go on. Durable is what stands in the owner's committed transaction (infra/decisions/0061):
an outside reader of the changelog takes the time when it reads the URL's row there, so its own delay is in the figure.
At the end all rows are looked for in Cassandra.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from schemas.codec import encode_batch
from schemas.records import DiscoveredUrl, Source
from schemas.topics import OWNER_CHANGELOG, partition_for
from streams.core.rules.urls import url_id
from streams.fleet import changelog
from tests.benchmarks.fleet_runs import Costs, now_ms, percentiles, say, services
from tests.support.fleet_world import FleetWorld, until
from tests.support.scripted_fetcher import Answer, ScriptedFetcher
from tests.support.services import Fleet

EVERY_S = 0.05


class DurableTimes:
    """Reads the changelog as others see it; `at_ms` by url_id: when a row was first seen."""

    def __init__(self, kafka: str, partitions: int) -> None:
        self.at_ms: dict[bytes, int] = {}
        self._stopping = threading.Event()
        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": "durable-times",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 5,
            }
        )
        self._consumer.assign([TopicPartition(OWNER_CHANGELOG, partition, 0) for partition in range(partitions)])
        self._thread = threading.Thread(target=self._run, name="durable-times", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            messages = [one for one in self._consumer.consume(1_000, 0.02) if one.error() is None]
            at_ms = now_ms()
            for one in messages:  # one by one: several transactions' rows lie under the same keys
                for value in changelog.take_apart([(one.key(), one.value())]).redo.values():
                    for row in changelog.decode_redo(value).rows:
                        self.at_ms.setdefault(row.url_id, at_ms)
        self._consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


class Sender:
    """Discovers new URLs of all hosts at a rate."""

    def __init__(self, world: FleetWorld, hosts: int) -> None:
        self._world = world
        tag = f"t{now_ms():x}"
        self.hosts = [f"http://h{number}-{tag}.test" for number in range(hosts)]
        self._partition_of = {host: partition_for(host, world.partitions) for host in self.hosts}
        self._producer: Any = Producer({"bootstrap.servers": world.kafka, "acks": "all", "linger.ms": 0})
        self.sent_ms: dict[bytes, int] = {}
        self._numbers = dict.fromkeys(self.hosts, 0)

    def send(self, hosts: Sequence[str], *, timed: bool = True) -> None:
        at_ms = now_ms()
        batches: dict[int, list[DiscoveredUrl]] = {}
        for host in hosts:
            self._numbers[host] += 1
            url = f"{host}/page-{self._numbers[host]}.html"
            found = DiscoveredUrl(url=url, host_key=host, source=Source.LINK, discovered_ms=at_ms, depth=1)
            batches.setdefault(self._partition_of[host], []).append(found)
            if timed:
                self.sent_ms[url_id(url)] = at_ms
        for partition, batch in batches.items():
            for at in range(0, len(batch), 200):
                self._producer.produce("discovered-urls", encode_batch(batch[at : at + 200]), partition=partition)
        self._producer.poll(0)

    def at_rate(self, rate: float, seconds: float) -> None:
        """Open loop: what is late is sent at once, under the time at which it was."""
        dice, pause = random.Random(1), threading.Event()
        began, sent = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            due = int(passed * rate)
            if due > sent:
                self.send(dice.choices(self.hosts, k=due - sent))
                sent = due
            pause.wait(EVERY_S)
        assert self._producer.flush(60) == 0


def main() -> None:
    """Print the latencies and what it cost."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--fetches", type=int, default=100, help="a second, beside it")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--group-ms", type=int, default=50)
    with services(parser) as (arguments, fleet, folder):
        kafka = fleet.up("kafka")["kafka"]
        world = FleetWorld(
            kafka,
            folder / "world",
            partitions=arguments.partitions,
            rows=fleet.keyspace("admission"),
            delay_ms=1_000,
            session_s=10,
            group_ms=arguments.group_ms,
            leases_max=max(1, arguments.fetches // arguments.partitions),  # each is answered after a second
        )
        fetcher = ScriptedFetcher(kafka, world.partitions, lambda url, kind: Answer(body=url.encode(), takes_ms=1_000))
        durable = DurableTimes(kafka, world.partitions)
        try:
            _run(arguments, fleet, world, fetcher, durable)
        finally:
            world.close()
            durable.stop()
            fetcher.stop()


def _run(
    arguments: argparse.Namespace, fleet: Fleet, world: FleetWorld, fetcher: ScriptedFetcher, durable: DurableTimes
) -> None:
    workers = [world.worker(f"w{number}") for number in range(arguments.workers)]
    until(lambda: all(worker.owns() for worker in workers), workers[0].said(), 120)
    fetcher.start()
    sender = Sender(world, arguments.hosts)
    sender.send(sender.hosts, timed=False)
    until(lambda: len(durable.at_ms) >= arguments.hosts, f"the hosts to be known\n{workers[0].said()}", 300)
    say(f"{arguments.hosts:,} hosts are known")
    costs, fetched = Costs(workers, fleet, ("kafka", "cassandra")), len(fetcher.log)
    sender.at_rate(arguments.rate, arguments.seconds)
    said = costs.said()
    fetches = (len(fetcher.log) - fetched) / arguments.seconds
    until(lambda: sender.sent_ms.keys() <= durable.at_ms.keys(), f"all to be durable\n{workers[0].said()}", 300)
    took = [(durable.at_ms[one] - sent_ms) / 1_000 for one, sent_ms in sender.sent_ms.items()]
    say(f"{len(took) / arguments.seconds:,.0f} URLs/s, {fetches:.0f} fetches/s")
    say(f"discovery to durable: {percentiles(took)}")
    say(said)
    wanted = len(took) + arguments.hosts
    until(lambda: world.count_rows(sender.hosts) >= wanted, "all rows to be in Cassandra", 300)
    say(f"{wanted:,} rows are in Cassandra")


if __name__ == "__main__":
    main()
