"""Partitions whose hosts, URLs and robots.txt are all known, made without Kafka: what a busy owner takes over.

Admission through Kafka takes hours for some million URLs. So each partition's local store is made by the core and the
owner's own commit, over a log that keeps nothing, and the states are then put into the changelog as compaction would
leave them: one record of each, and the mark as the last. The worker's takeover finds its store at the end of it.
"""

from __future__ import annotations

import functools
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Producer

from connectors.ports import Record
from schemas.records import FetchLease
from schemas.topics import OWNER_CHANGELOG
from streams.bench.answers import answers
from streams.bench.population import HOT_BATCH_URLS, Population
from streams.bench.runner import ADMIT_GROUP_URLS, bench_policy
from streams.core import policy as bounds
from streams.core.owner import Owner
from streams.core.rules.scope import Scope, ScopeMode
from streams.fleet import changelog
from streams.fleet.changelog import STATE_FAMILIES, Mark
from streams.fleet.commit import Committer
from streams.fleet.intake import Partitioning
from streams.fleet.local import LocalStore
from streams.fleet.reads import FleetReads
from tests.support.url_state_file import NoUrlState

PROCESSES = 2
EPOCH = 1  # of the owner that left them


class Prepared(msgspec.Struct, frozen=True):
    """What is to be made."""

    hosts: int
    urls_of_host: int  # in the mean
    hot_urls: int
    partitions: int
    delay_ms: int

    def population(self) -> Population:
        return Population(self.hosts, self.hosts * self.urls_of_host + self.hot_urls, self.hot_urls)


class _NoLog:
    """Counts what it is given. See `connectors.ports.OwnerLog`."""

    def __init__(self) -> None:
        self._records = 0

    def fence(self) -> None:
        return

    def transact(self, records: Sequence[Record], *, before_commit: Callable[[], None] = lambda: None) -> int:
        self._records += len(records)
        return self._records - 1

    def close(self) -> None:
        return


def prepare(folder: Path, wanted: Prepared, say: Callable[[str], None]) -> None:
    """The partitions' stores in `folder`, `partition-N` each, as a worker keeps them."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(PROCESSES, wanted.partitions), mp_context=spawn) as pool:
        for line in pool.map(functools.partial(_prepare_one, folder, wanted), range(wanted.partitions)):
            say(line)


def publish(kafka: str, folder: Path, partitions: int) -> int:
    """Put the states of all partitions into their changelogs, and let the stores stand at their ends. How many."""
    return sum(_publish_one(kafka, folder, partition) for partition in range(partitions))


def _prepare_one(folder: Path, wanted: Prepared, partition: int) -> str:
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    now_ms = time.time_ns() // 1_000_000
    store = LocalStore(folder / f"partition-{partition}", now_ms=now_ms)
    reads = FleetReads(store.db, NoUrlState())
    owner = Owner(
        reads,
        bench_policy(wanted.delay_ms),
        Scope(seeds=(), mode=ScopeMode.ANY),
        epoch=EPOCH,
        jitter=random.Random(1).random,
        partition=partition,
    )
    committer = Committer(
        partition,
        store,
        reads,
        _NoLog(),
        NoUrlState(),
        epoch=EPOCH,
        topic=OWNER_CHANGELOG,
        at=lambda step: None,
    )

    def settled(turn: Any) -> Any:
        committer.commit(turn.writes, (), {}, turn.now_ms)
        owner.committed(turn)
        return turn

    settled(owner.adopt(now_ms, close_leases=False))
    admitted = sum(settled(owner.decide(group, now_ms, 0)).counts.admitted for group in _groups(wanted, partition))
    asked, leases = 0, list[FetchLease]()
    while leases := settled(
        owner.decide(answers(leases, now_ms), now_ms, bounds.GROUP_EVENTS_MAX)
    ).leases:  # the clock stands still, so each host is asked for robots.txt alone
        asked += len(leases)
    store.close()
    took = f"{time.monotonic() - began_s:.0f} s, {time.process_time() - began_cpu_s:.0f} s of CPU"
    return f"partition {partition}: {admitted:,} URLs of {asked:,} hosts made in {took}"


def _groups(wanted: Prepared, partition: int) -> Iterator[list[list[Any]]]:
    """Batches of discovered URLs of this partition's hosts."""
    population, where = wanted.population(), Partitioning(wanted.partitions)
    ours = bytearray(population.hosts)
    for host in range(population.hosts):
        ours[host] = where.of(population.host_key(host)) == partition
    group, urls = list[list[Any]](), 0
    for host, start, count in population.plan():
        if not ours[host]:
            continue
        group.append(population.batch(host, start, count, 0))
        urls += count
        if urls >= ADMIT_GROUP_URLS - HOT_BATCH_URLS:
            yield group
            group, urls = [], 0
    yield group


def _publish_one(kafka: str, folder: Path, partition: int) -> int:
    now_ms = time.time_ns() // 1_000_000
    store = LocalStore(folder / f"partition-{partition}", now_ms=now_ms)
    before = store.mark
    assert before is not None, folder
    producer: Any = Producer(
        {
            "bootstrap.servers": kafka,
            "acks": "all",
            "compression.type": "lz4",
            "batch.size": 1_000_000,
            "linger.ms": 50,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    count = 0
    for family in sorted(STATE_FAMILIES):
        for key, value in store.db.scan(family):
            count += 1
            _produce(producer, partition, bytes((family,)) + key, value)
    # Without the redo, which is written: what is at the mark's stamp is all there is.
    mark = Mark(before.epoch, before.version, {}, 0, now_ms, before.before)
    last: list[int] = []
    _produce(producer, partition, *changelog.marked(mark), said=lambda error, message: last.append(message.offset()))
    assert producer.flush(120) == 0
    store.follow([Record(OWNER_CHANGELOG, partition, *changelog.marked(mark))], last[0])
    store.close()
    return count


def _produce(producer: Any, partition: int, key: bytes, value: bytes | None, said: Any = None) -> None:
    while True:
        try:
            producer.produce(OWNER_CHANGELOG, value, key=key, partition=partition, on_delivery=said)
            break
        except BufferError:
            producer.poll(0.5)
    producer.poll(0)
