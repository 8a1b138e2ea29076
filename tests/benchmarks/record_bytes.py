"""Bytes on the wire and on disk: each topic's records, host states and URL rows, plain and compressed as Kafka would.

    python -m tests.benchmarks.record_bytes

Records are made of the links of one real site's shape: hosts of some hundred URLs of 60 to 110 characters, digests that
no compression shortens. A batch is what one partition's group holds; zstd level 3, as librdkafka has it.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Sequence

import msgspec
import zstandard

from schemas import codec
from schemas.records import (
    BodyRef,
    DiscoveredUrl,
    FetchLease,
    FetchResult,
    Kind,
    Link,
    Outcome,
    ParsedPage,
    ParseTask,
    Source,
    StoredResult,
)
from streams.core.hosts import Answer, HostState, InFlight, encode_host
from streams.core.rows import Status, UrlRow, Visit, encode_row

SAMPLES = 2_000
WORDS = ("guide", "reference", "archive", "product", "category", "article", "review", "topic", "release", "download")
NOW_MS = 1_790_000_000_000


def main() -> None:
    """Print a table: record, bytes plain, bytes in a compressed batch, microseconds to encode one."""
    dice = random.Random(7)
    print(f"{'record':<16}{'batch':>6}{'plain':>8}{'zstd':>8}{'us':>7}")
    for name, make, batch in _KINDS:
        _show(name, [make(dice) for _ in range(SAMPLES)], batch, codec.encode_batch)
    _show("host state", [host(dice) for _ in range(SAMPLES)], 100, lambda some: b"".join(map(encode_host, some)))
    _show("URL row", [row(dice) for _ in range(SAMPLES)], 50, lambda some: b"".join(map(encode_row, some)))


def _show(
    name: str, records: Sequence[msgspec.Struct], batch: int, encode: Callable[[Sequence[msgspec.Struct]], bytes]
) -> None:
    started = time.process_time()
    values = [encode(records[at : at + batch]) for at in range(0, len(records), batch)]
    us = (time.process_time() - started) / len(records) * 1e6
    packer = zstandard.ZstdCompressor(level=3)
    plain, packed = (sum(map(len, some)) / len(records) for some in (values, [packer.compress(one) for one in values]))
    print(f"{name:<16}{batch:>6}{plain:>8.0f}{packed:>8.0f}{us:>7.1f}")


def url_of(dice: random.Random, host: str | None = None) -> tuple[str, str]:
    """(url, host_key) of a made-up page."""
    host = host or f"https://www.site{dice.randrange(300)}.example"
    path = "/".join(dice.choice(WORDS) for _ in range(dice.randrange(1, 5)))
    return f"{host}/{path}/{dice.choice(WORDS)}-{dice.choice(WORDS)}-{dice.randrange(10**6)}.html", host


def url_id_of(url: str) -> bytes:
    return hashlib.blake2b(url.encode(), digest_size=16).digest()


def body(dice: random.Random) -> BodyRef:
    return BodyRef(f"warc/20260101/{dice.randrange(10**9):09d}.warc.gz", dice.randrange(10**9), dice.randrange(90_000))


def discovered(dice: random.Random, host: str | None = None) -> DiscoveredUrl:
    url, key = url_of(dice, host)
    return DiscoveredUrl(
        url=url, host_key=key, source=Source.LINK, discovered_ms=NOW_MS, parent_id=dice.randbytes(16), depth=3
    )


def lease(dice: random.Random) -> FetchLease:
    url, key = url_of(dice)
    return FetchLease(
        lease_id=dice.randbytes(16),
        host_key=key,
        url_id=url_id_of(url),
        url=url,
        url_version=3,
        kind=Kind.PAGE,
        attempt=0,
        policy_version=1,
        owner_epoch=9,
        not_before_ms=NOW_MS,
        start_by_ms=NOW_MS + 60_000,
        duration_ms_max=120_000,
        etag=f'"{dice.randbytes(8).hex()}"',
    )


def result(dice: random.Random) -> FetchResult:
    url, key = url_of(dice)
    return FetchResult(
        lease_id=dice.randbytes(16),
        host_key=key,
        url_id=url_id_of(url),
        url=url,
        url_version=3,
        kind=Kind.PAGE,
        outcome=Outcome.FETCHED,
        started_ms=NOW_MS,
        finished_ms=NOW_MS + 300,
        status=200,
        address="192.0.2.17",
        etag=f'"{dice.randbytes(8).hex()}"',
        content_type="text/html; charset=utf-8",
        body_bytes=200_000,
        wire_bytes=40_000,
    )


def stored(dice: random.Random) -> StoredResult:
    url, key = url_of(dice)
    place = body(dice)
    return StoredResult(dice.randbytes(16), key, url_id_of(url), 3, dice.randbytes(32), place, place, "text/html")


def task(dice: random.Random) -> ParseTask:
    url, key = url_of(dice)
    return ParseTask(url_id_of(url), key, url, 3, Kind.PAGE, body(dice), NOW_MS, 3, 1, "text/html")


def page(dice: random.Random) -> ParsedPage:
    """One with 100 links, 80 of them to its own host."""
    url, key = url_of(dice)
    links = [Link(url_of(dice, key if number < 80 else None)[0], "a") for number in range(100)]
    return ParsedPage(
        url_id_of(url), key, url, 3, Kind.PAGE, 3, NOW_MS, 1, links=tuple(links), text=body(dice), simhash=1 << 62
    )


def host(dice: random.Random) -> HostState:
    """One with a lease that is being stored."""
    url, key = url_of(dice)
    answer = Answer(200, NOW_MS, 200_000, f'"{dice.randbytes(8).hex()}"', None, "text/html")
    flying = InFlight(url_id_of(url), 3, 0, Kind.PAGE, NOW_MS, NOW_MS, b"\1" * 7, storing=True, answer=answer)
    return HostState(key, NOW_MS, {dice.randbytes(16): flying}, known=900, fetches=500, address="192.0.2.17")


def row(dice: random.Random) -> UrlRow:
    """One that was fetched, parsed and indexed. The URL is a column of its own."""
    place = body(dice)
    visit = Visit(
        NOW_MS,
        200,
        3,
        content_hash=dice.randbytes(32),
        body=place,
        content=place,
        body_bytes=200_000,
        content_type="text/html",
        etag=f'"{dice.randbytes(8).hex()}"',
        simhash=dice.getrandbits(64),
        title=" ".join(dice.choice(WORDS) for _ in range(5)),
        text=body(dice),
    )
    return UrlRow(
        "", Source.LINK, Kind.PAGE, 3, 0, dice.randbytes(16), 128, NOW_MS, Status.FETCHED, b"\1" * 7, 3, visit=visit
    )


def links_to(dice: random.Random) -> DiscoveredUrl:
    return discovered(dice, f"https://www.site{dice.randrange(3)}.example")  # a batch is of one partition


_KINDS: tuple[tuple[str, Callable[[random.Random], msgspec.Struct], int], ...] = (
    ("DiscoveredUrl", links_to, 100),
    ("FetchLease", lease, 10),
    ("FetchResult", result, 10),
    ("StoredResult", stored, 10),
    ("ParseTask", task, 10),
    ("ParsedPage", page, 5),
)

if __name__ == "__main__":
    main()
