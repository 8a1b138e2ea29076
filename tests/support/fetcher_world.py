"""A fetcher in memory: a web that answers when it is told to, a store that may be away, a group that may be lost."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import msgspec

from connectors.fetchlog_s3 import S3FetchLog
from connectors.lease_reader import LeaseReader, Received
from connectors.object_store import ObjectStore
from connectors.ports import Fetched, Response
from connectors.segments_s3 import S3Segments, Spool
from connectors.stage_sender import Output
from schemas.codec import decode_any, encode_batch
from schemas.records import FetchLease, FetchResult, Kind, Outcome, StoredResult
from schemas.topics import partition_for
from streams.core import fetch as rules
from streams.core.fetch import Exchange
from streams.core.http1 import Head
from streams.fleet.fetch import Fetcher, Pace
from streams.fleet.fetch_store import Keeping, Store
from streams.fleet.metrics import Metrics
from tests.support.fake_s3 import BUCKET, FakeS3

PARTITIONS = 4
WITHIN_S = 20.0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class FakeWeb:
    """Answers each lease with its URL as body, once `open` is set. `running` is who has not been answered."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.asked: list[FetchLease] = []
        self.running: list[FetchLease] = []
        self.body: Callable[[FetchLease], bytes] = lambda lease: lease.url.encode()
        self.unowned: set[bytes] = set()
        self.ours: Callable[[str], bool] = lambda host_key: True
        self.changed: Callable[[], None] = lambda: None

    async def fetch(self, lease: FetchLease) -> Fetched:
        if lease.lease_id in self.unowned:
            return Fetched(msgspec.structs.replace(rules.expired(lease, now_ms=now_ms()), error="unowned"))
        self.asked.append(lease)
        self.running.append(lease)
        self.changed()
        started_ms = now_ms()
        await self.open.wait()
        self.running.remove(lease)
        body = self.body(lease)
        head = Head(200, "OK", "1.1", ((b"Content-Type", b"text/html"), (b"X-Robots-Tag", b"noarchive")))
        exchange = Exchange(started_ms, now_ms(), address="203.0.113.1", head=head, body=body, wire_bytes=len(body))
        result = rules.outcome(lease, exchange, conditional=False)
        return Fetched(
            result,
            Response(lease.url, exchange.address, 200, "OK", "1.1", head.headers, body, "", exchange.finished_ms),
        )

    def keep_only(self, ours: Callable[[str], bool]) -> None:
        self.ours = ours

    async def close(self) -> None:
        """Nothing is open."""


class FakeSender:
    """Acknowledges at once, unless `away`."""

    def __init__(self) -> None:
        self.sent: list[Output] = []
        self.away = False
        self.open: list[asyncio.Future[None]] = []
        self.changed: Callable[[], None] = lambda: None

    async def send(self, outputs: Sequence[Output]) -> asyncio.Future[None]:
        acknowledged = asyncio.get_running_loop().create_future()
        self.sent += outputs
        if self.away:
            self.open.append(acknowledged)
        else:
            acknowledged.set_result(None)
        self.changed()
        return acknowledged

    def come_back(self) -> None:
        self.away = False
        for one in self.open:
            one.set_result(None)

    def close(self) -> None:
        """Nothing is open."""


class FakeReader:
    """A member of the group, as long as `good`."""

    def __init__(self) -> None:
        self.good = self.member = True
        self.started = self.closed = False
        self.lag: dict[int, int] = {0: 7}

    def start(self) -> None:
        self.started = True

    def close(self) -> None:
        self.closed = True

    def is_alive(self) -> bool:
        return self.started and not self.closed

    def is_member(self) -> bool:
        return self.member

    def fresh(self) -> bool:
        return self.good

    def silence_s(self) -> float:
        return 0.0 if self.good else 100.0


class FetcherWorld:
    """One fetcher after another on the same store and spool."""

    def __init__(self, folder: Path, s3: FakeS3 | None = None) -> None:
        self._folder = folder
        self.s3 = s3 or FakeS3()
        self.failures: list[BaseException] = []
        self._offsets = itertools.count(100)
        self._epochs = itertools.count(1)

    def open(
        self, *, pace: Pace | None = None, keeping: Keeping | None = None, segment_bytes_max: int = 1 << 30
    ) -> None:
        """Within a running loop."""
        self._changes = asyncio.Event()
        loop = asyncio.get_running_loop()
        self.web, self.sender, self.reader, self.metrics = FakeWeb(), FakeSender(), FakeReader(), Metrics("fetch")
        self.web.changed = self.sender.changed = self._changes.set
        self.objects = ObjectStore(self.s3, BUCKET, part_bytes=2_000, pause=self._pause)
        self.spool = Spool(self._folder / "spool")
        self.remains = self.spool.remains()
        epoch = next(self._epochs)
        self.segments = S3Segments(
            self.objects, self.spool, worker="w", epoch=epoch, segment_bytes_max=segment_bytes_max
        )
        self.log = S3FetchLog(self.objects, self.spool.folder, worker="w", epoch=epoch)
        self.threads = ThreadPoolExecutor(8)
        self.fetcher = Fetcher(
            self.web,
            self.sender,
            pace or Pace(gather_ms=1),
            partition_of=lambda key: partition_for(key, PARTITIONS),
            now=now_ms,
            metrics=self.metrics,
            failed=self.failures.append,
        )
        self.store = Store(
            self.segments,
            self.log,
            keeping or Keeping(seal_ms=20),
            threads=self.threads,
            announce=self.fetcher.announce,
            metrics=self.metrics,
            failed=self.failures.append,
        )
        self._loop = loop
        self.s3.before = lambda operation: self._poke()
        self.fetcher.begin(cast(LeaseReader, self.reader), self.store)
        self.fetcher.assigned(dict.fromkeys(range(PARTITIONS), 100))

    def _poke(self) -> None:
        self._loop.call_soon_threadsafe(self._changes.set)

    def _pause(self, seconds: float) -> None:
        self._poke()
        self.objects._closing.wait(0.01)

    def take(self, *leases: FetchLease) -> None:
        """Each in a record of its own, in the partition of its host."""
        for one in leases:
            value = encode_batch([one])
            self.fetcher.take([Received(partition_for(one.host_key, PARTITIONS), next(self._offsets), value)])

    def sent(self, kind: type[Any]) -> list[Any]:
        """Records of that kind, in order; each lay in its host's partition."""
        found = []
        for one in self.sender.sent:
            for record in decode_any(one.value or b""):
                if isinstance(record, kind):
                    key = getattr(record, "host_key", "")
                    assert not key or one.partition == partition_for(key, PARTITIONS)
                    found.append(record)
        return found

    def results(self) -> list[FetchResult]:
        return self.sent(FetchResult)

    def stored(self) -> list[StoredResult]:
        return self.sent(StoredResult)

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Looks after every event, and some times a second."""
        end_s = time.monotonic() + WITHIN_S
        while not holds():
            assert time.monotonic() < end_s, f"not within {WITHIN_S:.0f} s: {what}; failures: {self.failures}"
            self._changes.clear()
            await asyncio.wait([asyncio.ensure_future(self._changes.wait())], timeout=0.02)
        assert self.failures == []

    def kill(self) -> None:
        """As SIGKILL would, with the end of the loop: what is in memory is gone, the spool stays."""
        self._let_go()

    async def close(self) -> None:
        """As SIGTERM would."""
        await self.fetcher.close()
        self._let_go()

    def _let_go(self) -> None:
        self.objects.close()
        self.threads.shutdown(wait=True, cancel_futures=True)
        self.log.close()
        self.spool.close()


def lease(
    number: int,
    *,
    host: str = "",
    kind: Kind = Kind.PAGE,
    start_in_ms: int = 0,
    start_within_ms: int = 60_000,
    concurrency: int = 1,
) -> FetchLease:
    """`host` empty: one of its own."""
    host = host or f"http://h{number}.example"
    return FetchLease(
        lease_id=number.to_bytes(16, "big"),
        host_key=host,
        url_id=number.to_bytes(16, "big"),
        url=f"{host}/{number}",
        url_version=1,
        kind=kind,
        attempt=0,
        policy_version=3,
        owner_epoch=1,
        not_before_ms=now_ms() + start_in_ms,
        start_by_ms=now_ms() + start_in_ms + start_within_ms,
        duration_ms_max=10_000,
        concurrency=concurrency,
        delay_ms=1_500,
    )


def fetched(results: Sequence[FetchResult]) -> list[int]:
    """Numbers of the leases that were fetched."""
    return sorted(int.from_bytes(one.lease_id, "big") for one in results if one.outcome is Outcome.FETCHED)
