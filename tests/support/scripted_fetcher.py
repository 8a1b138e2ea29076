"""A fetcher that stands in for the web: it reads leases, answers by a table, and keeps a log of its own. It also
stands in for the parse stage, as far as owners hear of that.

It is the outside judge's source: what it started, when, under which lease. Like a real one it starts nothing before
`not_before` and nothing past `start_by`.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition

from schemas.codec import decode, encode_batch
from schemas.records import (
    BodyRef,
    FetchLease,
    FetchResult,
    Kind,
    Link,
    Outcome,
    OwnerMessage,
    ParsedPage,
    ParseTask,
    RobotsAnswer,
    RobotsDecision,
    StoredResult,
)
from schemas.topics import partition_for
from streams.core.tasks import parsed_message

EXTRA_MS = 5  # what two clocks of one machine may differ by, read at different moments


class Started(msgspec.Struct, frozen=True):
    """One request that was made."""

    at_ms: int
    host_key: str
    url: str
    url_version: int
    kind: Kind
    lease_id: bytes
    permitted: str | None  # the only address that the lease permits; "": it only finds the address, and asks nothing


class Arrived(msgspec.Struct, frozen=True, array_like=True):
    """One lease that came."""

    at_ms: int
    partition: int
    epoch: int  # its owner's
    lease_id: bytes


class Answer(msgspec.Struct, frozen=True):
    """What the scripted web says to one URL. `body` empty: none is stored."""

    status: int = 200
    body: bytes = b""
    redirect_to: str = ""
    robots_hop_to: str = ""
    takes_ms: int = 5
    address: str = "203.0.113.1"


class ScriptedFetcher:
    """Runs in a thread from `start` to `stop`."""

    def __init__(self, kafka: str, partitions: int, web: Callable[[str, Kind], Answer]) -> None:
        self._kafka, self._partitions, self._web = kafka, partitions, web
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scripted-fetcher", daemon=True)
        self._due: list[tuple[int, int, FetchLease, Started]] = []  # (when it is answered, number, ...)
        self.log: list[Started] = []
        self.arrived: list[Arrived] = []
        self.dropped = 0
        self.leases = 0
        self.parsed = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        consumer: Any = Consumer(
            {
                "bootstrap.servers": self._kafka,
                "group.id": "scripted-fetcher",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 5,
            }
        )
        producer: Any = Producer({"bootstrap.servers": self._kafka, "linger.ms": 2, "acks": "all"})
        topics = ("fetch-leases", "parse-tasks")
        consumer.assign([TopicPartition(topic, number, 0) for topic in topics for number in range(self._partitions)])
        while not self._stopping.is_set():
            for message in consumer.consume(500, 0.02):
                if message.error() is not None:
                    continue
                at_ms, partition = time.time_ns() // 1_000_000, message.partition()
                if message.topic() == "parse-tasks":
                    self._parse(producer, message)
                else:
                    for lease in decode(message.value(), FetchLease):
                        self.arrived.append(Arrived(at_ms, partition, lease.owner_epoch, lease.lease_id))
                        self._take(lease)
            self._answer(producer)
            producer.poll(0)
        producer.flush(10)
        consumer.close()

    def _parse(self, producer: Any, message: Any) -> None:
        """Stands in for the parse stage: the owner would grant nothing more while bodies wait."""
        told = [parsed_of(task) for task in decode(message.value(), ParseTask)]
        self.parsed += len(told)
        producer.produce("owner-messages", encode_batch(told), partition=message.partition())

    def _take(self, lease: FetchLease) -> None:
        self.leases += 1
        now_ms = time.time_ns() // 1_000_000
        if now_ms > lease.start_by_ms:
            self.dropped += 1
            return
        at_ms = max(now_ms, lease.not_before_ms)
        answer = self._web(lease.url, lease.kind)
        started = Started(
            at_ms,
            lease.host_key,
            lease.url,
            lease.url_version,
            lease.kind,
            lease.lease_id,
            lease.permitted_address,
        )
        self.log.append(started)
        heapq.heappush(self._due, (at_ms + answer.takes_ms, len(self.log), lease, started))

    def _answer(self, producer: Any) -> None:
        now_ms = time.time_ns() // 1_000_000
        results: dict[int, list[FetchResult]] = {}
        stored: dict[int, list[StoredResult]] = {}
        while self._due and self._due[0][0] <= now_ms:
            finished_ms, _, lease, started = heapq.heappop(self._due)
            answer = self._web(lease.url, lease.kind)
            partition = partition_for(lease.host_key, self._partitions)
            results.setdefault(partition, []).append(result_of(lease, answer, started.at_ms, finished_ms))
            if is_stored(lease, answer):
                stored.setdefault(partition, []).append(stored_of(lease, answer))
        for topic, batches in (("fetch-results", results), ("stored-results", stored)):
            for partition, several in batches.items():
                producer.produce(topic, encode_batch(several), partition=partition)


def result_of(lease: FetchLease, answer: Answer, started_ms: int, finished_ms: int) -> FetchResult:
    robots, outcome, target, error = None, Outcome.FETCHED, None, ""
    if lease.permitted_address is not None and lease.permitted_address != answer.address:
        outcome, error = Outcome.EXPIRED, "address_changed"  # it looked the name up, and asked nothing
    elif lease.kind is Kind.ROBOTS:
        decision = RobotsDecision.HOP if answer.robots_hop_to else RobotsDecision.ALLOW_ALL
        robots, target = RobotsAnswer(decision=decision), answer.robots_hop_to or None
    elif answer.redirect_to:
        outcome, target = Outcome.REDIRECT, answer.redirect_to
    elif answer.status >= 400:
        outcome = Outcome.FAILED
    return FetchResult(
        lease_id=lease.lease_id,
        host_key=lease.host_key,
        url_id=lease.url_id,
        url=lease.url,
        url_version=lease.url_version,
        kind=lease.kind,
        outcome=outcome,
        started_ms=started_ms,
        finished_ms=finished_ms,
        status=0 if error else answer.status,
        error=error,
        address=answer.address,
        redirect_target=target,
        robots=robots,
        robots_for=lease.robots_for,
        body_bytes=0 if error else len(answer.body),
    )


def is_stored(lease: FetchLease, answer: Answer) -> bool:
    """Whether a body follows the result."""
    asked = lease.permitted_address is None or lease.permitted_address == answer.address
    return bool(answer.body) and asked and lease.kind is not Kind.ROBOTS


def stored_of(lease: FetchLease, answer: Answer) -> StoredResult:
    ref = BodyRef(f"segments/{lease.lease_id.hex()}", 0, len(answer.body))
    return StoredResult(
        lease_id=lease.lease_id,
        host_key=lease.host_key,
        url_id=lease.url_id,
        url_version=lease.url_version,
        content_hash=hashlib.sha256(answer.body).digest(),
        body=ref,
        content=ref,
    )


def judge_address(log: Sequence[Started], delay_ms: int) -> list[str]:
    """Of hosts that all lie at one address, where one request at a time is permitted: starts that were too soon after
    the one before, a sentence each. A lease that only finds the address asks nothing."""
    asked = sorted((one for one in log if one.permitted != ""), key=lambda started: started.at_ms)
    return [
        f"the address was asked {before.url} and, {one.at_ms - before.at_ms} ms later, {one.url}"
        for before, one in itertools.pairwise(asked)
        if one.at_ms - before.at_ms < delay_ms - EXTRA_MS
    ]


def repeats(log: Sequence[Started]) -> tuple[int, int]:
    """(leases that were started more than once, pages and robots.txt asked for again in the version they had)."""
    leases = Counter(one.lease_id for one in log)
    asked = Counter((one.url, one.url_version, one.kind) for one in log)
    return sum(times - 1 for times in leases.values()), sum(times - 1 for times in asked.values())


def parsed_of(task: ParseTask) -> OwnerMessage:
    """What the parse stage tells the owner: a title and a fingerprint that follow from the URL."""
    page = ParsedPage(
        url_id=task.url_id,
        host_key=task.host_key,
        url=task.url,
        url_version=task.url_version,
        kind=task.kind,
        depth=task.depth,
        fetched_ms=task.fetched_ms,
        extractor_version=task.extractor_version,
        title=task.url,
        simhash=int.from_bytes(task.url_id[:8], "big"),
        links=(Link(task.host_key + "/linked", "a"),),
    )
    return parsed_message(page)


def judge(log: Sequence[Started], delay_ms: int) -> list[str]:
    """What the log shows that must never be, a sentence each."""
    wrong = []
    for lease_id, times in Counter(one.lease_id for one in log).items():
        if times > 1:
            wrong.append(f"lease {lease_id.hex()} was started {times} times")
    last: dict[str, Started] = {}
    for one in sorted(log, key=lambda started: started.at_ms):
        before = last.get(one.host_key)
        if before is not None and one.at_ms - before.at_ms < delay_ms - EXTRA_MS:
            wrong.append(f"{one.host_key} was asked {before.url} and, {one.at_ms - before.at_ms} ms later, {one.url}")
        last[one.host_key] = one
    for (url, version, kind), times in Counter((one.url, one.url_version, one.kind) for one in log).items():
        if times > 1:
            wrong.append(f"{kind.value} {url} was asked {times} times in version {version}")
    return wrong
