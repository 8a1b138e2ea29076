"""The fetcher: leases in, one request each, results out at once, bodies to the store in the same process.

Theory of operation. The reader's thread tells what is ours and hands records on; all else runs on one event loop. The
rules of what may be started when are `streams.core.starting`, which this carries out: a step after every event and at
the instants that it names. A request is a task of its own; its result is on its way to the owner before its body is
stored. Results and announcements are gathered for some milliseconds, batched by partition, and given to a producer
that repeats them until the brokers have them.

Everything is bounded: leases that wait and results that are not sent (`streams.core.policy`), requests by the setting,
bodies by the spool. Beyond any bound nothing is started; leases run out, their owner is told, and grants them again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from connectors.lease_reader import LeaseReader, Received
from connectors.ports import Fetched, StoreClosed, Web
from connectors.stage_sender import Output, Sender
from schemas.codec import BadRecord, decode, encode
from schemas.records import FetchLease, FetchResult, Outcome, StoredResult
from streams.core import fetch as rules
from streams.core import policy as bounds
from streams.core.failures import CrawlError
from streams.core.manners import Watch
from streams.core.starting import UNOWNED, Starter
from streams.fleet import outputs
from streams.fleet.fetch_store import Store
from streams.fleet.metrics import Labels, Metrics

__all__ = ["Fetcher", "FleetWeb", "Pace"]

log = logging.getLogger(__name__)

TOPIC = "fetch-leases"


class FleetWeb(Web, Protocol):
    """Of one fetcher of several: a host's connections must not stay open here when another asks it."""

    def keep_only(self, ours: Callable[[str], bool]) -> None:
        """Close what is open to hosts that are not `ours`, by host_key: at once, or when its request has ended."""
        ...


class Pace(msgspec.Struct, frozen=True):
    """How much at once."""

    fetches_max: int = 256
    waiting_max: int = bounds.LEASES_WAITING_MAX
    unsent_max: int = bounds.RESULTS_UNSENT_MAX
    gather_ms: int = 10  # of results, for one batch
    stop_ms: int = bounds.FETCHER_STOP_MS


class Fetcher:
    """Of one worker, for one event loop. `begin` once the reader and the store are there; `close` in good order."""

    def __init__(
        self,
        web: FleetWeb,
        sender: Sender,
        pace: Pace,
        *,
        partition_of: Callable[[str], int],
        now: Callable[[], int],
        metrics: Metrics,
        failed: Callable[[BaseException], None],
    ) -> None:
        """`now`: the clock of leases, UTC in ms. `failed`: the worker cannot go on."""
        self._web, self._sender, self._pace = web, sender, pace
        self._partition_of, self._now, self._metrics, self._failed = partition_of, now, metrics, failed
        self._loop = asyncio.get_running_loop()
        self._starter = Starter(fetches_max=pace.fetches_max, waiting_max=pace.waiting_max)
        self._watch = Watch()
        self._reader: LeaseReader | None = None
        self._store: Store | None = None
        self._requests: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._results: list[FetchResult] = []
        self._letters: list[Output] = []
        self._sending: asyncio.Task[None] | None = None
        self._unsent: set[asyncio.Future[None]] = set()  # sent and not acknowledged
        self._stopping = False
        self.owned: set[int] = set()

    def begin(self, reader: LeaseReader, store: Store) -> None:
        self._reader, self._store = reader, store
        reader.start()

    def may_start(self) -> bool:
        """Whether nobody else can have our leases, at this moment."""
        return self._reader is not None and self._reader.fresh()

    def has_room(self) -> bool:
        """Whether more leases are wanted. Any thread may ask."""
        return self._starter.has_room()

    # --- what the reader tells, on the loop -----------------------------------------------------------------------

    def assigned(self, ends: Mapping[int, int]) -> None:
        self.owned |= ends.keys()
        for partition, end in ends.items():
            self._starter.assigned(partition, end)

    def revoked(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self.owned.discard(partition)
            self._starter.revoked(partition)
        self._web.keep_only(self._is_ours)

    def lost(self, partitions: Iterable[int]) -> None:
        self.revoked(partitions)
        self._drop(self._starter.lapse())

    def _is_ours(self, host_key: str) -> bool:
        return self._partition_of(host_key) in self.owned

    def take(self, records: Sequence[Received]) -> None:
        """Records of leases, in the order in which they came; they are acknowledged already."""
        for partition, offset, value in records:
            try:
                leases = decode(value or b"", FetchLease)
            except BadRecord as error:
                self._give_up(partition, value or b"", str(error))
                continue
            strange = [lease for lease in leases if not rules.is_lease(lease)]
            if strange:  # the topic is open to whoever has its password
                for lease in strange:
                    self._give_up(partition, encode(lease), f"no owner grants this: {lease.url[:200]!r}")
                leases = tuple(lease for lease in leases if rules.is_lease(lease))
            self._drop(self._starter.take(partition, offset, leases, fresh=self.may_start()))
        self.step()

    def step(self) -> None:
        """Start what may be started, and tell the owners what came too late."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stopping or self._store is None:
            return
        now_ms = self._now()
        room = len(self._results) < self._pace.unsent_max and self._store.has_room()
        step = self._starter.step(now_ms, fresh=self.may_start(), room=room)
        self._drop(step.dropped)
        for lease in step.expired:
            self._metrics.count("headrace_leases_expired_total")
            self._post(rules.expired(lease, now_ms=now_ms))
        for lease in step.start:
            task = self._loop.create_task(self._request(lease))
            self._requests.add(task)
            task.add_done_callback(self._ended)
        next_ms = self._starter.next_ms()
        if next_ms is not None:
            # Looked at now and then in any case: of room in the spool no event tells.
            wait_ms = min(max(1, next_ms - now_ms), bounds.HEARTBEAT_MS)
            self._timer = self._loop.call_later(wait_ms / 1_000, self.step)

    # --- requests -------------------------------------------------------------------------------------------------

    async def _request(self, lease: FetchLease) -> None:
        try:
            fetched = await self._web.fetch(lease)
        finally:
            self._starter.finished(lease.host_key)
        if fetched.result.error == UNOWNED:
            self._drop(1)
            return
        self._count(lease, fetched.result)
        self._post(fetched.result)
        if fetched.result.outcome is not Outcome.EXPIRED:
            self._keep(lease, fetched)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self._failed(error)
        self.step()

    def _keep(self, lease: FetchLease, fetched: Fetched) -> None:
        assert self._store is not None
        self._store.keep(lease, fetched)

    def _count(self, lease: FetchLease, result: FetchResult) -> None:
        if result.outcome is Outcome.EXPIRED:
            self._metrics.count("headrace_leases_expired_total")
        else:
            self._metrics.count("headrace_fetches_total", 1, (result.outcome.value, str(result.status)))
            self._metrics.count("headrace_fetch_bytes_total", result.wire_bytes)
            broken = self._watch.see(lease, result)
            if broken is not None:
                log.critical(
                    "fetch: %s was asked against its %s, under lease %s", lease.url, broken, lease.lease_id.hex()
                )
                self._metrics.count("headrace_policy_violations_total", 1, (broken,))

    def _drop(self, number: int) -> None:
        """Leases of which nothing may be said."""
        if number:
            self._metrics.count("headrace_leases_expired_total", number)

    # --- sending --------------------------------------------------------------------------------------------------

    async def announce(self, stored: Sequence[StoredResult]) -> None:
        """These bodies are durable."""
        await self._send(outputs.spread("stored-results", stored, lambda one: one.host_key, self._partition_of))

    def _post(self, result: FetchResult) -> None:
        self._results.append(result)
        self._send_soon()

    def _give_up(self, partition: int, value: bytes, error: str) -> None:
        """A record that is no lease: whole, for people."""
        log.error("fetch: a record of %s, partition %d, is given up: %s", TOPIC, partition, error)
        self._metrics.count("headrace_dead_letters_total", 1, ("bad_record",))
        letter = outputs.dead_letter(
            partition, stage="fetch", error=error, value=value, now_ms=self._now(), topic=TOPIC
        )
        self._letters.append(Output(*letter))
        self._send_soon()

    def _send_soon(self) -> None:
        if self._sending is None:
            self._sending = self._loop.create_task(self._send_gathered())
            self._sending.add_done_callback(self._sent)

    async def _send_gathered(self) -> None:
        await asyncio.sleep(self._pace.gather_ms / 1_000)
        while self._results or self._letters:
            results, self._results = self._results, []
            letters, self._letters = self._letters, []
            await self._send(outputs.spread("fetch-results", results, lambda one: one.host_key, self._partition_of))
            await self._send(letters)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)
        elif self._results or self._letters:
            self._send_soon()

    async def _send(self, records: Sequence[tuple[str, int, bytes | None, bytes | None]] | Sequence[Output]) -> None:
        if not records:
            return
        acknowledged = await self._sender.send([Output(*one) for one in records])
        self._unsent.add(acknowledged)
        acknowledged.add_done_callback(self._unsent.discard)

    # --- the end --------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Leave the group, finish the requests, bring the segments, announce them: within `pace.stop_ms`.

        Leases that wait are given back. What the time does not suffice for is left to be leased again.
        """
        self._stopping = True
        try:
            async with asyncio.timeout(self._pace.stop_ms / 1_000):
                if self._reader is not None:
                    await self._loop.run_in_executor(None, self._reader.close)
                for lease in self._starter.give_back(fresh=self.may_start()):
                    self._post(rules.expired(lease, now_ms=self._now()))
                while self._requests:
                    await asyncio.wait(self._requests)
                if self._store is not None:
                    await self._store.close()
                while self._sending is not None:
                    await asyncio.wait([self._sending])
                while self._unsent:
                    await asyncio.wait(self._unsent)
        except TimeoutError:
            log.warning("fetch: ends before all is done: %d requests are given up", len(self._requests))
        except (StoreClosed, CrawlError) as error:
            log.warning("fetch: ends before all is stored: %s", error)
        for task in self._requests:
            task.cancel()

    # --- what people see ------------------------------------------------------------------------------------------

    def gauges(self) -> Iterable[tuple[str, Labels, float]]:
        if self._reader is None or self._store is None:
            return
        for partition, lag in sorted(dict(self._reader.lag).items()):
            yield "headrace_consumer_lag_records", (TOPIC, str(partition)), lag
        silence_s = self._reader.silence_s()
        for partition in sorted(self.owned):
            yield "headrace_commit_age_seconds", (str(partition),), silence_s
        yield "headrace_store_backlog_bytes", (), self._store.backlog_bytes()
        yield "headrace_store_backlog_bytes_max", (), self._store.backlog_bytes_max
