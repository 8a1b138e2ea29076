"""The Faust app of the fetch stage: agent, metrics, and an orderly end.

Faust gives it the agent, the worker and the pages; it speaks to no broker itself (`streams.fleet.stage_app` says why).
Membership and input are the lease reader's, whose group is the app's id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from connectors.lease_reader import LeaseReader, Received
from connectors.object_store import ObjectStore
from streams.fleet.faust_mends import GroupChannel, Patient
from streams.fleet.fetch import Fetcher
from streams.fleet.metrics import Metrics
from streams.fleet.stage_app import StageApp
from streams.fleet.worker import leave

__all__ = ["STAGE", "FetchApp", "Opened", "Tell", "fetch_app"]

STAGE = "fetch"
_AWAY_S_MAX = 60.0  # of the store, before the worker is said not to be ready


class Opened(msgspec.Struct):
    """What a fetcher is made of, once the event loop runs. `close` comes after the fetcher's own end."""

    fetcher: Fetcher
    reader: LeaseReader
    objects: ObjectStore
    close: Callable[[], Awaitable[None]]


class FetchApp(StageApp):
    """`alive` and `ready`: None when well, else a sentence."""

    opened: Opened | None = None

    def alive(self) -> str | None:
        opened = self.opened
        if opened is not None and self.ended is not None and not opened.reader.is_alive():
            return "the thread that reads fetch-leases has ended; see the log, and start the worker anew"
        return None

    def ready(self) -> str | None:
        opened = self.opened
        if opened is None:
            return "it has not begun yet"
        if not opened.reader.is_member():
            return "it is not a member of its group now"
        if opened.fetcher.owned and not opened.reader.fresh():
            return f"its group has not heard of it for {opened.reader.silence_s():.0f} s: it starts nothing"
        if opened.objects.away_s() > _AWAY_S_MAX:
            return f"the object store has not answered for {opened.objects.away_s():.0f} s: bodies wait in the spool"
        return None


class Tell:
    """Takes the reader's word from its thread to the event loop; records go through the app's agent."""

    def __init__(self, fetcher: Fetcher, hand_on: Callable[[Sequence[Received]], None]) -> None:
        self._fetcher, self._hand_on = fetcher, hand_on
        self._soon = asyncio.get_running_loop().call_soon_threadsafe

    def assigned(self, ends: Mapping[int, int]) -> None:
        self._soon(self._fetcher.assigned, ends)

    def revoked(self, partitions: Sequence[int]) -> None:
        self._soon(self._fetcher.revoked, partitions)

    def lost(self, partitions: Sequence[int]) -> None:
        self._soon(self._fetcher.lost, partitions)

    def received(self, records: Sequence[Received]) -> None:
        self._soon(self._hand_on, records)

    def room(self) -> bool:
        return self._fetcher.has_room()

    def failed(self, error: Exception) -> None:
        leave(error)


def fetch_app(
    app_id: str,
    *,
    data: str,
    open_fetcher: Callable[[Metrics, Callable[[Sequence[Received]], None]], Awaitable[Opened]],
) -> FetchApp:
    """The app, not started. Raises CrawlError for versions of Faust that were never looked at.

    `data`: Faust's own folder, which stays empty. `open_fetcher`: called once, when the event loop runs, with where
    records are handed to.
    """
    app = FetchApp.made(app_id, STAGE, data)
    records = GroupChannel(app)
    waiting: asyncio.Queue[Sequence[Received]] = asyncio.Queue()  # short: whoever takes them starts no work in line

    @app.agent(records, supervisor_strategy=Patient, name="fetch-leases")
    async def take(stream: Any) -> None:
        """Takes leases as they come; their requests are tasks."""
        records.listening.set()
        async for received in stream:
            if app.opened is not None:
                app.opened.fetcher.take(received)

    async def feed() -> None:
        while True:
            await records.give(await waiting.get())

    async def begin() -> None:
        feeding = asyncio.create_task(feed())
        opened = app.opened = await open_fetcher(app.metrics, waiting.put_nowait)
        app.metrics.gauges = lambda: [
            *opened.fetcher.gauges(),
            ("headrace_service_away_seconds", ("s3",), opened.objects.away_s()),
        ]

        async def end() -> None:
            await opened.fetcher.close()
            feeding.cancel()
            await opened.close()

        app.ended = end

    app.begin = begin
    return app
