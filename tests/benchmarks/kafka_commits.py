"""What an owner's commit costs the broker, beside what lies in it: transactions a second of its CPU.

    python -m tests.benchmarks.kafka_commits --broker-pid PID

Each commit writes one host state and one position to the changelog and one lease, in one transaction of the producer
that names the partition. `headrace provision --partitions N` first. The topics keep what is written.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import Producer

from infra.provision.kafka_admin import client_settings
from infra.settings import load
from schemas.topics import OWNER_CHANGELOG


def main() -> None:
    """Print commits a second, and a second of the broker's CPU, for one and for many partitions at once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--broker-pid", type=int, required=True)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=8.0)
    arguments = parser.parse_args()
    producers = [_producer(partition) for partition in range(arguments.partitions)]
    for records in (1, 100):
        began, cpu = time.monotonic(), cpu_s(arguments.broker_pid)
        own = time.process_time()
        until = began + arguments.seconds
        with ThreadPoolExecutor(len(producers)) as pool:
            runs = [pool.submit(_commit, one, number, records, until) for number, one in enumerate(producers)]
            commits = sum(run.result() for run in runs)
        wall, broker = time.monotonic() - began, cpu_s(arguments.broker_pid) - cpu
        print(
            f"{records:>4} records a commit: {commits / wall:,.0f} commits/s, {commits / broker:,.0f} a second of the"
            f" broker's CPU, {(time.process_time() - own) / commits * 1e6:,.0f} us of the client's each"
        )


def _producer(partition: int) -> Producer:
    producer = Producer(
        client_settings(load().fleet) | {"transactional.id": f"headrace-bench-{partition}", "linger.ms": 0}
    )
    producer.init_transactions(30)
    return producer


def _commit(producer: Producer, partition: int, records: int, until: float) -> int:
    state, lease, commits = os.urandom(231), os.urandom(91), 0
    while time.monotonic() < until:
        producer.begin_transaction()
        for number in range(records):
            producer.produce(OWNER_CHANGELOG, state, key=b"host%d" % number, partition=partition)
            producer.produce("fetch-leases", lease, partition=partition)
        producer.produce(OWNER_CHANGELOG, b"1", key=b"position", partition=partition)
        producer.commit_transaction(30)
        commits += 1
    return commits


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
