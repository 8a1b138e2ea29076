"""The Faust app of a stage without a table: agent, metrics, and an orderly end.

Faust gives it the agents, the worker and the pages; it speaks to no broker itself. Membership, input and offsets are
the reader's (`connectors.group_reader`), whose group is the app's id, so one stage is one group. The reader feeds
groups into a channel, and the agent carries them out, several at once (`streams.fleet.stage` has the steps).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Self

import faust
import msgspec
from faust.app.base import BootStrategy

from connectors.group_reader import Reading
from connectors.stage_sender import Sender
from streams.fleet.faust_mends import GroupChannel, Patient, check_versions
from streams.fleet.metrics import Labels, Metrics
from streams.fleet.stage import Pace, Stage, Work
from streams.fleet.worker import leave

__all__ = ["Opened", "StageApp", "stage_app"]


class Opened(msgspec.Struct):
    """What a stage is made of, once the event loop runs."""

    work: Work
    sender: Sender
    make_reader: Callable[[Stage], Reading]
    close: Callable[[], Awaitable[None]]
    gauges: Callable[[Stage], Iterable[tuple[str, Labels, float]]] = lambda stage: ()
    renewed: Callable[[], None] = lambda: None  # see `Stage`


class _WithoutKafka(BootStrategy):
    """No consumer, producer, conductor and tables of Faust's own."""

    enable_kafka = False


class StageApp(faust.App):
    """`alive` and `ready`: None when well, else a sentence."""

    BootStrategy = _WithoutKafka
    stage: str
    metrics: Metrics
    running: Stage | None = None
    reader: Reading | None = None
    ended: Callable[[], Awaitable[None]] | None = None
    begin: Callable[[], Awaitable[None]] | None = None

    @classmethod
    def made(cls, app_id: str, stage: str, data: str) -> Self:
        """Not started, and without agents. Raises CrawlError for versions of Faust that were never looked at."""
        check_versions()
        app = cls(
            app_id,
            broker="kafka://",  # never spoken to
            store="memory://",
            datadir=data,
            autodiscover=False,
            topic_allow_declare=False,
            topic_disable_leader=True,
            web_enabled=False,  # its pages are the worker's
            stream_wait_empty=False,
        )
        app.stage, app.metrics = stage, Metrics(stage)
        return app

    def alive(self) -> str | None:
        return None  # whatever ends the reader or the gathering ends the process

    def ready(self) -> str | None:
        reader = self.reader
        if reader is None:
            return "it has not begun yet"
        if not reader.is_member():
            return "it is not a member of its group now"
        return None

    async def on_start(self) -> None:
        """Faust's own would make a consumer, to show it in a graph."""
        self.finalize()

    async def on_started(self) -> None:
        assert self.begin is not None
        await self.begin()
        await super().on_started()

    async def on_stop(self) -> None:
        ended, self.ended = self.ended, None
        if ended is not None:
            await ended()
        await super().on_stop()


def stage_app(
    app_id: str,
    stage: str,
    topic: str,
    *,
    pace: Pace,
    now: Callable[[], int],
    data: str,
    open_stage: Callable[[Metrics], Awaitable[Opened]],
) -> StageApp:
    """The app, not started. Raises CrawlError for versions of Faust that were never looked at.

    `data`: Faust's own folder, which stays empty. `open_stage`: called once, when the event loop runs.
    """
    app = StageApp.made(app_id, stage, data)
    groups = GroupChannel(app)

    @app.agent(groups, concurrency=pace.groups_max, supervisor_strategy=Patient, name=f"{stage}-groups")
    async def carry_out(stream: Any) -> None:
        """Carries out groups. What fails in one is the stage's to settle."""
        groups.listening.set()
        async for group in stream:
            if app.running is not None:
                await app.running.carry(group)

    async def begin() -> None:
        opened = await open_stage(app.metrics)
        running = Stage(
            stage,
            topic,
            opened.work,
            opened.sender,
            pace,
            now=now,
            metrics=app.metrics,
            carry_out=groups.give,
            failed=leave,
            renewed=opened.renewed,
        )
        app.running, app.reader = running, opened.make_reader(running)
        app.metrics.gauges = lambda: [*running.gauges(), *opened.gauges(running)]
        running.start(app.reader)

        async def end() -> None:
            await running.close()
            opened.sender.close()
            await opened.close()

        app.ended = end

    app.begin = begin
    return app
