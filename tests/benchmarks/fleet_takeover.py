"""How long a partition stands still when its worker is killed, joins or leaves, by the number of hosts.

    python -m tests.benchmarks.fleet_takeover [--hosts 1000000] [--partitions 4] [--rows cassandra|file]

One URL a host. One real worker (session 10 s) admits them while little is fetched, then a second one joins, the first
is killed (the second is its warm standby), and at last the second is killed and a third begins on an empty disk. From
the kill to the first grant of the new owner, and of the slowest partition, by a reader of fetch-leases. `--rows file`
keeps URL rows in a file: admission is then not Cassandra's pace, and so is the loading of the first hosts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Producer

from schemas.codec import encode_batch
from schemas.records import DiscoveredUrl, Source
from schemas.topics import partition_for
from tests.benchmarks.fleet_runs import Costs, longest_gap_s, now_ms, say, services
from tests.support.fleet_world import FleetWorld, Worker, until
from tests.support.scripted_fetcher import Answer, Arrived, ScriptedFetcher, judge, repeats
from tests.support.services import Fleet

DELAY_MS = 1_000
LEASES_MAX = 100  # of a partition, each answered after a second
BATCH = 200
HOURS_S = 7_200.0


def main() -> None:
    """Print a line for each thing that happened."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--session", type=int, default=10)
    parser.add_argument("--rows", choices=("cassandra", "file"), default="cassandra")
    with services(parser) as (arguments, fleet, folder):
        kafka = fleet.up("kafka")["kafka"]
        world = FleetWorld(
            kafka,
            folder / "world",
            partitions=arguments.partitions,
            rows=fleet.keyspace("takeover") if arguments.rows == "cassandra" else None,
            delay_ms=DELAY_MS,
            session_s=arguments.session,
            leases_max=LEASES_MAX,
            group_ms=50,
        )
        fetcher = ScriptedFetcher(kafka, world.partitions, lambda url, kind: Answer(body=url.encode(), takes_ms=1_000))
        try:
            Run(world, fetcher, fleet, arguments.hosts).all()
        finally:
            world.close()
            fetcher.stop()


class Run:
    """The steps, in order."""

    def __init__(self, world: FleetWorld, fetcher: ScriptedFetcher, fleet: Fleet, hosts: int) -> None:
        self._world, self._fetcher, self._hosts = world, fetcher, hosts
        self._services = (fleet, ("kafka", "cassandra") if world.order.cassandra else ("kafka",))

    def all(self) -> None:
        world, fetcher = self._world, self._fetcher
        first = world.worker("first")
        fetcher.start()
        self._admit(first)
        second = self._joins("second", [first])
        self._follows(second)
        began_ms = now_ms()
        first.kill()
        self._granted(second, began_ms, "killed, a warm standby takes over")
        began_ms = now_ms()
        second.kill()
        third = world.worker("third")
        self._granted(third, began_ms, "killed, one without any data starts and takes over")
        self._joins("fourth", [third])
        began_ms = now_ms()
        third.terminate()
        third.ended(120)
        self._flows_again(began_ms, "a worker left by SIGTERM")
        leases, pages = repeats(fetcher.log)
        breaches = judge(fetcher.log, DELAY_MS)
        say(
            f"{len(fetcher.log):,} requests; {leases} leases started twice, {pages} asked again in their version,"
            f" {len(breaches)} breaches found by the judge{': ' + breaches[0] if breaches else ''}"
        )

    def _admit(self, worker: Worker) -> None:
        costs = Costs([worker], *self._services)
        began = time.monotonic()
        producer: Any = Producer({"bootstrap.servers": self._world.kafka, "acks": "all", "linger.ms": 20})
        for partition, value in self._seeds():
            while True:
                try:
                    producer.produce("discovered-urls", value, partition=partition)
                    break
                except BufferError:
                    producer.poll(0.5)
            producer.poll(0)
        assert producer.flush(120) == 0
        until(lambda: worker.gauge("headrace_urls_total", 'answer="new"') >= self._hosts, worker.said(5), HOURS_S)
        took = time.monotonic() - began
        say(f"{self._hosts:,} hosts admitted in {took:.0f} s, {self._hosts / took:,.0f}/s; {costs.said()}")

    def _seeds(self) -> Iterator[tuple[int, bytes]]:
        """(partition, batch) of one URL a host."""
        tag = f"t{now_ms():x}"
        batches: dict[int, list[DiscoveredUrl]] = {}
        for number in range(self._hosts):
            host = f"http://h{number}-{tag}.test"
            found = DiscoveredUrl(url=f"{host}/", host_key=host, source=Source.SEED, discovered_ms=now_ms())
            partition = partition_for(host, self._world.partitions)
            batch = batches.setdefault(partition, [])
            batch.append(found)
            if len(batch) == BATCH:
                yield partition, encode_batch(batch)
                batch.clear()
        for partition, batch in batches.items():
            if batch:
                yield partition, encode_batch(batch)

    def _joins(self, name: str, others: list[Worker]) -> Worker:
        """Planned: a worker starts beside others."""
        began_ms = now_ms()
        worker = self._world.worker(name)
        until(worker.owns, f"{name} to own some\n{worker.said()}", 300)
        self._flows_again(began_ms, f"{name} joined")
        return worker

    def _follows(self, worker: Worker) -> None:
        began = time.monotonic()
        wanted = self._world.partitions // 2
        until(lambda: worker.gauge("headrace_partitions_standby") >= wanted, "the standby to catch up", 300)
        say(f"{worker.name} follows {wanted} partitions, caught up after another {time.monotonic() - began:.1f} s")

    def _granted(self, worker: Worker, killed_ms: int, what: str) -> None:
        """From the kill to the first grant of a new owner, and until each partition has had one."""
        epochs = {one.partition: one.epoch for one in self._before(killed_ms)}
        lost = {one for one in epochs if one not in self._owned(worker, killed_ms)}

        def firsts() -> dict[int, int]:
            found: dict[int, int] = {}
            for one in reversed(self._fetcher.arrived):
                if one.at_ms < killed_ms:
                    break
                if one.partition in lost and one.epoch > epochs[one.partition]:
                    found[one.partition] = one.at_ms
            return found

        until(lambda: len(firsts()) == len(lost), f"grants of {sorted(lost)}\n{worker.said()}", 600)
        took = sorted((at_ms - killed_ms) / 1_000 for at_ms in firsts().values())
        say(f"{what}: {len(lost)} partitions, first grant after {took[0]:.1f} s, the last one's after {took[-1]:.1f} s")
        say(f"    {worker.name}: {' | '.join(self._takeovers(worker))}")

    def _owned(self, worker: Worker, at_ms: int) -> set[int]:
        """Those that were its own before, which grant on under their old epoch."""
        lines = [line for line in worker.said(5_000).splitlines() if "owned from epoch" in line]
        return {int(line.partition("partition ")[2].partition(":")[0]) for line in lines}

    def _takeovers(self, worker: Worker) -> list[str]:
        lines = [line for line in worker.said(5_000).splitlines() if "owned from epoch" in line]
        return [line.partition("partition ")[2] for line in lines]

    def _before(self, at_ms: int) -> list[Arrived]:
        return [one for one in self._fetcher.arrived if one.at_ms <= at_ms]

    def _flows_again(self, began_ms: int, what: str) -> None:
        """Once each partition had a lease after everything had settled: how long each stood still at most."""
        settled_ms = now_ms()
        partitions = set(range(self._world.partitions))
        until(
            lambda: {one.partition for one in self._since(settled_ms)} >= partitions,
            f"leases of all partitions\n{self._world.workers[-1].said()}",
            300,
        )
        arrived = self._since(began_ms)
        again = len(arrived) - len({(one.partition, one.epoch, one.lease_id) for one in arrived})
        gaps = longest_gap_s(arrived, began_ms, self._world.partitions)
        say(f"{what}: longest pause of each partition {gaps} s; {len(arrived):,} leases, {again} of them repeats")

    def _since(self, at_ms: int) -> list[Arrived]:
        found = []
        for one in reversed(self._fetcher.arrived):
            if one.at_ms < at_ms:
                break
            found.append(one)
        return found[::-1]


if __name__ == "__main__":
    main()
