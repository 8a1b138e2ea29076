"""A fetcher that costs little: it answers each page's lease at once, by copying bytes of the lease.

    python -m tests.benchmarks.quick_fetcher KAFKA PARTITIONS

A result begins as its lease does (lease_id, host_key, url_id, url, url_version, kind), so does a stored result as far
as url_id. What follows is the same for all but for the times, and so is made once a message. Leases of another kind
than page go through the codec. It reads committed leases and answers each once. To standard output it says once a
second how many it answered.
"""

from __future__ import annotations

import sys
import time
from hashlib import blake2b
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from schemas import registry
from schemas.codec import HEADER_BYTES, MARKER, decode, encode_batch
from schemas.compiled import writer
from schemas.records import BodyRef, FetchLease, FetchResult, Kind, Outcome, StoredResult
from streams.bench.answers import answers

_ID_BYTES = 17  # 16 bytes behind their length
_RECORDS_MAX = 200  # of one message
_TYPE = "text/html; charset=utf-8"


class Answers:
    """To batches of leases, as bytes."""

    def __init__(self) -> None:
        self._lease = registry.newest(FetchLease, batch=True).fingerprint
        self._result = MARKER + registry.newest(FetchResult, batch=True).fingerprint
        self._stored = MARKER + registry.newest(StoredResult, batch=True).fingerprint

    def to(self, value: bytes, now_ms: int) -> tuple[list[bytes], list[bytes], int]:
        """(values of fetch-results, values of stored-results, leases)."""
        parts = None if value[2:HEADER_BYTES] != self._lease else _pages(value, HEADER_BYTES)
        if parts is None:
            leases = decode(value, FetchLease)
            events = answers(leases, now_ms)
            made = [one for one in events if isinstance(one, FetchResult)]
            kept = [one for one in events if isinstance(one, StoredResult)]
            return [encode_batch(made)], [encode_batch(kept)] if kept else [], len(leases)
        result_end, stored_end = _ends(now_ms)
        results, stored = list[bytes](), list[bytes]()
        for head, url_id, at in parts:
            results.append(head + result_end)
            stored.append(value[at:url_id] + b"\2\x40" + blake2b(head, digest_size=32).digest() + stored_end)
        return _batched(self._result, results), _batched(self._stored, stored), len(parts)


def _pages(value: bytes, at: int) -> list[tuple[bytes, int, int]] | None:
    """(its bytes to the kind, end of its url_id, its start) of each lease; None where one is no page's, or no first
    visit's."""
    found = []
    count, at = _long(value, at)
    assert count > 0, "one block, as fastavro writes it"
    for _ in range(count):
        start = at
        at += _ID_BYTES
        size, at = _long(value, at)
        at += size + _ID_BYTES
        url_id = at
        size, at = _long(value, at)
        at += size
        if value[at] != 2 or value[at + 1] != 0:
            return None
        at += 2
        found.append((value[start:at], url_id, start))
        for _ in range(8):  # attempt to redirect_hops
            while value[at] > 127:
                at += 1
            at += 1
        for nullable in (True, True, False, True):  # etag, last_modified, robots_for, permitted_address
            if nullable:
                at += 1
                if not value[at - 1]:
                    continue
            size, at = _long(value, at)
            at += size
        at += 1  # concurrency
        while value[at] > 127:  # delay_ms
            at += 1
        at += 1
    return found


def _long(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = value[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number >> 1 ^ -(number & 1), at
        shift += 7


def _ends(now_ms: int) -> tuple[bytes, bytes]:
    """What follows a result's kind, and a stored result's content_hash."""
    result = FetchResult(
        lease_id=b"",
        host_key="",
        url_id=b"",
        url="",
        url_version=0,
        kind=Kind.PAGE,
        outcome=Outcome.FETCHED,
        started_ms=now_ms,
        finished_ms=now_ms,
        status=200,
        address="192.0.2.1",
        etag='"0123456789ab"',
        content_type=_TYPE,
        body_bytes=50_000,
        wire_bytes=12_000,
    )
    ref = BodyRef("warc/20260101-000000-00001.warc.gz", 123_456, 12_345)
    stored = StoredResult(b"", "", b"", 0, b"", ref, ref, _TYPE)
    return writer(FetchResult)(result)[6:], writer(StoredResult)(stored)[5:]


def _batched(head: bytes, several: list[bytes]) -> list[bytes]:
    return [
        b"".join((head, _count(len(some)), *some, b"\0"))
        for some in (several[at : at + _RECORDS_MAX] for at in range(0, len(several), _RECORDS_MAX))
    ]


def _count(number: int) -> bytes:
    number <<= 1
    return bytes((number,)) if number < 128 else bytes((number & 127 | 128, number >> 7))


def main() -> None:
    """Until it is ended."""
    kafka, partitions = sys.argv[1], int(sys.argv[2])
    consumer: Any = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "quick-fetcher",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
            "enable.metrics.push": False,
        }
    )
    producer: Any = Producer(
        {
            "bootstrap.servers": kafka,
            "linger.ms": 2,
            "acks": "all",
            "compression.type": "lz4",
            "batch.size": 1_000_000,
            "enable.metrics.push": False,
        }
    )
    consumer.assign([TopicPartition("fetch-leases", number, 0) for number in range(partitions)])
    making, answered, told_s = Answers(), 0, time.monotonic()
    while True:
        for message in consumer.consume(100, 0.05):
            if message.error() is not None:
                continue
            results, stored, count = making.to(message.value(), time.time_ns() // 1_000_000)
            answered += count
            for topic, values in (("fetch-results", results), ("stored-results", stored)):
                for value in values:
                    producer.produce(topic, value, partition=message.partition())
        producer.poll(0)
        if time.monotonic() - told_s >= 1:
            told_s = time.monotonic()
            print(answered, flush=True)


if __name__ == "__main__":
    main()
