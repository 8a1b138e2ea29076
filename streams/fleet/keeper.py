"""The partitions of one worker: which of them it owns, which it follows to be ready, which it lets go.

Each has one task that does what is wanted of it, one thing at a time, so a partition is never owned and followed at
once and its local store has one writer. A rebalance that leaves a partition where it is disturbs nothing there: what
protects the partition is the fence, not the pause.

Each region's workers are a group of their own, to which all partitions are assigned. What is at home in another region
(`connectors.ports.Epochs`) is only followed here, as by a standby, until it is moved.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import functools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from connectors.changelog_kafka import ChangelogFollower
from connectors.files import StoreFailed
from connectors.inbox_kafka import KafkaInbox
from connectors.ports import Elsewhere, Fenced, LogUncertain, StoreClosed
from connectors.store_memory import StoreMemory
from streams.core import homes
from streams.core.failures import CrawlError
from streams.fleet.commit import Closed
from streams.fleet.feed import Feed, Group, Pace
from streams.fleet.intake import Partitioning
from streams.fleet.local import LocalStore
from streams.fleet.metrics import Metrics
from streams.fleet.owner import PartitionOwner, Ports, Setting

log = logging.getLogger(__name__)

_CACHE_BYTES = 128 << 20  # of all partitions' local stores
_LOSSES_MAX = 3  # in a row, without a commit between


class Role(enum.Enum):
    """What a worker is to a partition."""

    NONE = "none"
    STANDBY = "standby"
    OWNER = "owner"


class Limits(msgspec.Struct, frozen=True):
    """The worker's own bounds."""

    threads: int = 32  # takeovers and groups at once
    settle_s: float = 10.0  # at the end, for groups under way, before services that are away are waited for no more
    fence_wait_s: float = 15.0  # after a fence: for a rebalance that says who the owner is
    home_look_s: float = 10.0  # between two looks whether a partition of another region was moved here
    own_look_s: float = 60.0  # between two looks of an owner whether it was overtaken


class Keeper:
    """Of one worker. `assign` as Faust says; `close` at the end."""

    def __init__(
        self,
        data: Path,
        setting: Setting,
        ports: Ports,
        *,
        inbox: KafkaInbox,
        follower: ChangelogFollower,
        metrics: Metrics,
        pace: Pace,
        limits: Limits,
        carry_out: Callable[[Group], Awaitable[None]],
        failed: Callable[[BaseException], None],
    ) -> None:
        """`failed`: a partition's task cannot go on, and with it the worker; called in the event loop."""
        self._data, self._setting, self._ports = data, setting, ports
        self._inbox, self._follower, self._metrics = inbox, follower, metrics
        self._pace, self._limits = pace, limits
        self._carry_out, self._failed = carry_out, failed
        self._where = Partitioning(setting.partitions)
        self._threads = ThreadPoolExecutor(limits.threads, thread_name_prefix="owner")
        self._memory = StoreMemory(_CACHE_BYTES)
        self._wanted: dict[int, Role] = {}
        self._changed: dict[int, asyncio.Event] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self.feeds: dict[int, Feed] = {}
        self.owners: dict[int, PartitionOwner] = {}
        self.away: set[int] = set()  # assigned to this worker, and at home in another region

    def assign(self, owned: Collection[int], followed: Collection[int]) -> None:
        """What this worker is to all partitions from now on."""
        roles = {**dict.fromkeys(followed, Role.STANDBY), **dict.fromkeys(owned, Role.OWNER)}
        for partition in {*self._wanted, *roles}:
            role = roles.get(partition, Role.NONE)
            if self._wanted.get(partition, Role.NONE) is role:
                continue
            self._wanted[partition] = role
            self._changed.setdefault(partition, asyncio.Event()).set()
            task = self._tasks.get(partition)
            if role is not Role.NONE and (task is None or task.done()):
                self._tasks[partition] = asyncio.create_task(self._keep(partition), name=f"partition {partition}")

    async def close(self) -> None:
        """Let all go: groups that are under way are settled first."""
        self.assign((), ())
        loop = asyncio.get_running_loop()
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=self._limits.settle_s)
        await loop.run_in_executor(None, self._ports.close)  # what still waits for a service that is away ends
        # Whatever became of one partition's task (its fault was told, a hand-over may have been cut off), all else is
        # closed: a reader left behind keeps this worker in its group, and its partitions from others.
        await asyncio.gather(*tasks, return_exceptions=True)
        await loop.run_in_executor(None, self._inbox.close)
        await loop.run_in_executor(None, self._follower.close)
        self._threads.shutdown()

    def running(self, call: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """The call, under way in a thread."""
        return asyncio.get_running_loop().run_in_executor(self._threads, functools.partial(call, *arguments))

    async def in_thread(self, call: Callable[..., Any], *arguments: Any) -> None:
        await self.running(call, *arguments)

    def not_taken_over(self) -> list[int]:
        """The partitions that are this worker's and whose takeover is not done."""
        there = self.owners.keys() | self.away
        return sorted(one for one, role in self._wanted.items() if role is Role.OWNER and one not in there)

    def gauges(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        """See `streams.fleet.metrics.Gauges`."""
        now_ms = self._setting.now()
        yield "headrace_partitions", (), self._setting.partitions
        yield "headrace_partitions_owned", (), len(self.owners)
        lag = self._follower.lag
        yield "headrace_partitions_standby", (), sum(1 for behind in list(lag.values()) if behind == 0)
        owners = list(self.owners.values())
        yield "headrace_parse_backlog", (), sum(owner.parse_backlog for owner in owners)
        yield "headrace_parse_backlog_max", (), self._setting.tasks_max * len(owners)
        sums: Counter[str] = Counter()
        for owner in owners:
            sums.update({name: int(number) for name, _, number in owner.gauges()})
        for name, number in sums.items():
            yield name, (), number
        # Of all partitions here: one of many that is full stops no crawl.
        stopped = {owner.stopped_by() for owner in owners}
        for limit in ("leases", "parse"):
            yield "headrace_grants_stopped", (limit,), float("" not in stopped and limit in stopped)
        yield "headrace_url_rows_refused_total", (), self._ports.urls.refused
        for service, away_s in self._ports.away_s().items():
            yield "headrace_service_away_seconds", (service,), round(away_s, 1)
        for (topic, partition), behind in list(self._inbox.lag.items()):
            yield "headrace_consumer_lag_records", (topic, str(partition)), behind
        for partition, feed in list(self.feeds.items()):
            since_ms = feed.oldest_wait_ms
            age_ms = 0 if since_ms is None else now_ms - since_ms
            yield "headrace_commit_age_seconds", (str(partition),), age_ms / 1_000

    # --- one partition --------------------------------------------------------------------------------------------

    async def _keep(self, partition: int) -> None:
        """Do what is wanted of it, until nothing is."""
        loop = asyncio.get_running_loop()
        store: LocalStore | None = None
        losses = 0
        try:
            while (role := self._wanted[partition]) is not Role.NONE:
                self._changed[partition].clear()
                if store is None:
                    path = self._data / f"partition-{partition}"
                    opened = functools.partial(LocalStore, path, now_ms=self._setting.now(), memory=self._memory)
                    store = await loop.run_in_executor(self._threads, opened)
                if role is Role.STANDBY:
                    await self._follow(partition, store, self._changed[partition].wait())
                    continue
                if await self._elsewhere(partition):
                    await self._follow(partition, store, self._moved_here(partition))
                    continue
                try:
                    await self._own(partition, store)
                    losses = 0
                except Elsewhere as error:
                    log.warning("partition %d: let go: %s", partition, error)
                except (Fenced, LogUncertain) as error:
                    losses += 1
                    await self._lost(partition, error, losses)
        except (StoreFailed, CrawlError, OSError) as error:
            self._failed(error)
        except Exception as error:  # a fault of ours: it ends the worker, where it can be seen
            self._failed(error)
            raise
        finally:
            if store is not None:
                await loop.run_in_executor(None, store.close)

    async def _follow(self, partition: int, store: LocalStore, until: Awaitable[object]) -> None:
        self._follower.add(partition, store.offset, store.follow)
        log.info("partition %d: followed", partition)
        try:
            await until
        finally:
            await asyncio.get_running_loop().run_in_executor(None, self._follower.remove, partition)

    async def _elsewhere(self, partition: int) -> bool:
        """Whether it is at home in another region. Waits while nobody can say so."""
        try:
            home = await self.running(self._ports.epochs.home, partition)
        except StoreClosed:
            return True  # the worker ends
        return home is not None and home.region != self._setting.region

    async def _overtaken(self, owner: PartitionOwner) -> None:
        """Until another took it by all signs: an owner that has nothing to commit does not meet the fence.

        An epoch is in the record before its owner knows of it, so it must be there at two looks.
        """
        seen = 0
        while seen < 2:
            await asyncio.sleep(self._limits.own_look_s)
            if owner.partition not in self.owners:
                continue  # its takeover is under way
            try:
                home = await self.running(self._ports.epochs.home, owner.partition)
            except StoreClosed:
                return  # the worker ends
            seen = seen + 1 if homes.overtaken(home, self._setting.region, owner.epoch) else 0
        log.warning("partition %d: let go: it was taken, or moved and moved back", owner.partition)

    async def _moved_here(self, partition: int) -> None:
        """Until it is at home here, or wanted otherwise."""
        changed = self._changed[partition]
        log.info("partition %d: at home in another region", partition)
        self.away.add(partition)
        try:
            while not changed.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), self._limits.home_look_s)
                if not changed.is_set() and not await self._elsewhere(partition):
                    return
        finally:
            self.away.discard(partition)

    async def _own(self, partition: int, store: LocalStore) -> None:
        """From the takeover until it is wanted no more. Raises what ends an owner."""
        owner = PartitionOwner(partition, store, self._setting, self._ports, self._metrics, self._where)
        changed = asyncio.create_task(self._changed[partition].wait())
        work = asyncio.create_task(self._work(owner))
        overtaken = asyncio.create_task(self._overtaken(owner))
        try:
            await asyncio.wait((changed, work, overtaken), return_when=asyncio.FIRST_COMPLETED)
            feed = self.feeds.get(partition)
            if feed is not None:
                feed.stop()
            elif not work.done():
                owner.close()  # in the midst of its takeover
            with contextlib.suppress(Closed, StoreClosed):
                await work
            if overtaken.done():
                overtaken.result()
        finally:
            changed.cancel()
            overtaken.cancel()
            owner.close()
            self.feeds.pop(partition, None)
            self.owners.pop(partition, None)
            await asyncio.get_running_loop().run_in_executor(None, owner.release)

    async def _work(self, owner: PartitionOwner) -> None:
        await self.in_thread(owner.take_over)
        partition = owner.partition
        feed = Feed(
            owner,
            self._pace,
            now=self._setting.now,
            carry_out=self._carry_out,
            in_thread=self.in_thread,
            applied=lambda positions: self._applied(partition, positions),
        )
        self.feeds[partition], self.owners[partition] = feed, owner
        self._inbox.add(partition, feed.reader())
        try:
            if self._wanted[partition] is Role.OWNER:
                await feed.run()
        finally:
            await asyncio.get_running_loop().run_in_executor(None, self._inbox.remove, partition)

    def _applied(self, partition: int, positions: dict[str, int]) -> None:
        self._inbox.applied(partition, positions)
        self._setting.at("noted")

    async def _lost(self, partition: int, error: Exception, losses: int) -> None:
        """Another began, as far as the broker knows. Where a rebalance says so, too, it is let go; else taken back."""
        self._metrics.count("headrace_owner_fenced_total")
        if self._wanted[partition] is not Role.OWNER:
            return  # handed over in the midst of a group
        if await self._elsewhere(partition):
            log.warning("partition %d: moved to another region: %s", partition, error)
            return
        log.warning("partition %d: lost: %s", partition, error)
        if losses > _LOSSES_MAX:
            raise CrawlError(f"partition {partition}: needed to own it, lost it {losses} times in a row ({error})")
        try:
            await asyncio.wait_for(self._changed[partition].wait(), self._limits.fence_wait_s)
        except TimeoutError:
            log.warning("partition %d: no rebalance took it away: it is taken over again", partition)
