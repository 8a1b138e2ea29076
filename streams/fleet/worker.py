"""The owner's Faust app: agent, table, pages, and the keeper behind them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import faust
import msgspec
from confluent_kafka import KafkaException

from connectors.changelog_kafka import ChangelogFollower
from connectors.inbox_kafka import KafkaInbox
from schemas.topics import OWNER_APP, OWNER_TABLE
from streams.core.failures import EXIT_FAILED, CrawlError
from streams.fleet.faust_mends import GroupChannel, OwnerTableManager, Patient, check_versions
from streams.fleet.feed import Group, Pace
from streams.fleet.intake import TOPICS
from streams.fleet.keeper import Keeper, Limits
from streams.fleet.metrics import Metrics
from streams.fleet.owner import Ports, Setting
from streams.fleet.table import OwnerTable

log = logging.getLogger(__name__)

STAGE = "owner"


class Worker(msgspec.Struct, frozen=True):
    """How a worker runs. `kafka` is librdkafka's settings for any client, `broker` and `credentials` are Faust's."""

    kafka: Mapping[str, Any]
    broker: str
    credentials: Any
    data: Path
    session_s: int
    standbys: int
    app: str = OWNER_APP
    pace: Pace = Pace()
    limits: Limits = Limits()


class OwnerApp(faust.App):
    """Lets its partitions go before anything else of Faust ends."""

    keeper: Keeper | None = None

    async def on_stop(self) -> None:
        keeper, self.keeper = self.keeper, None
        if keeper is not None:
            await keeper.close()
        await super().on_stop()


def owner_app(worker: Worker, setting: Setting, ports: Ports) -> OwnerApp:
    """The app, not started. Raises CrawlError for versions of Faust that were never looked at."""
    check_versions()
    app = OwnerApp(
        worker.app,
        broker=worker.broker,
        broker_credentials=worker.credentials,
        store="memory://",
        datadir=str(worker.data),
        autodiscover=False,
        topic_partitions=setting.partitions,
        topic_allow_declare=False,  # they are provisioned, with settings of their own
        topic_disable_leader=True,
        table_standby_replicas=worker.standbys,
        broker_session_timeout=float(worker.session_s),
        broker_heartbeat_interval=worker.session_s / 5,
        broker_max_poll_interval=300.0,
        stream_wait_empty=False,
        TableManager=OwnerTableManager,
    )
    metrics = Metrics(STAGE)
    groups = GroupChannel(app)
    listening = asyncio.Event()

    async def hand_on(group: Group) -> None:
        await listening.wait()  # a channel that nobody listens to swallows what is put
        await groups.put(cast(Any, group))
        await group.done

    def assign(owned: Any, followed: Any) -> None:
        if app.keeper is None:
            app.keeper = _keeper(worker, setting, ports, metrics, hand_on)
            metrics.gauges = app.keeper.gauges
        app.keeper.assign(owned, followed)

    app.tables.add(
        OwnerTable(
            app,
            name=OWNER_TABLE,
            partitions=setting.partitions,
            assign=assign,
            changelog=setting.changelog_topic,
        )
    )

    @app.agent(groups, concurrency=min(setting.partitions, worker.limits.threads), supervisor_strategy=Patient)
    async def owner(stream: Any) -> None:
        """Carries out groups, one of a partition at a time. What fails in one is its feed's to settle."""
        listening.set()
        async for group in stream:
            await _carry_out(app, group)

    @app.page("/metrics")
    async def show_metrics(web: Any, request: Any) -> Any:
        return web.text(metrics.page(), content_type="text/plain")

    return app


async def _carry_out(app: OwnerApp, group: Group) -> None:
    keeper = app.keeper
    if keeper is None:
        group.settle(asyncio.CancelledError())
        return
    running = keeper.running(group.owner.run, group.messages)
    # Settled by the end of the work, whatever becomes of the actor that waits for it.
    running.add_done_callback(lambda done: group.settle(done.exception()))
    await asyncio.wait([running])


def _keeper(worker: Worker, setting: Setting, ports: Ports, metrics: Metrics, hand_on: Any) -> Keeper:
    return Keeper(
        worker.data,
        setting,
        ports,
        inbox=KafkaInbox(
            worker.kafka,
            TOPICS,
            f"{worker.app}-input",
            leave,
        ),
        follower=ChangelogFollower(worker.kafka, setting.changelog_topic, leave),
        metrics=metrics,
        pace=worker.pace,
        limits=worker.limits,
        carry_out=hand_on,
        failed=leave,
    )


def leave(error: BaseException) -> None:
    """The worker cannot go on: it ends at once, as a crash would, which is what everything here is made for."""
    if isinstance(error, (CrawlError, KafkaException)):
        log.critical("worker: ends: %s", error)
    else:
        log.critical("worker: ends", exc_info=error)
    logging.shutdown()
    os._exit(error.exit_code if isinstance(error, CrawlError) else EXIT_FAILED)
