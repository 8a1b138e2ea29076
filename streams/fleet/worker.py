"""The owner's Faust app: agent, table, what its pages ask, and the keeper behind them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import faust
import msgspec
from confluent_kafka import KafkaException
from rocksdict import DbClosedError

from connectors import owner_page
from connectors.changelog_kafka import ChangelogFollower
from connectors.inbox_kafka import KafkaInbox
from connectors.owner_page import NotTheOwner, OwnerPage
from connectors.ports import Record
from schemas.topics import OWNER_APP, OWNER_PAGES, OWNER_TABLE
from streams.core.failures import EXIT_FAILED, CrawlError
from streams.core.turn import Reads
from streams.fleet.faust_mends import GroupChannel, OwnerTableManager, Patient, check_versions, out_of_group
from streams.fleet.feed import Group, Pace
from streams.fleet.intake import TOPICS
from streams.fleet.keeper import Keeper, Limits
from streams.fleet.metrics import Metrics
from streams.fleet.owner import Ports, Setting
from streams.fleet.table import OwnerTable

log = logging.getLogger(__name__)

STAGE = "owner"
IDLE_S_MAX = 10 * 365 * 86_400.0
"""aiokafka leaves the group, and does not come back, once nobody has read by its consumer for so long. Faust's consumer
reads nothing here, ever (`faust_mends.OwnerRecovery`): by the usual 300 s every owner would be out after five minutes,
and nobody would take over from one that died. A loop that stands still is still found, by its heartbeats."""

Explain = Callable[[int, Reads, str], Sequence[tuple[str, str]]]
"""(partition, its store, URL or host) to (label, sentence), as `infra.explaining` makes them."""


class Worker(msgspec.Struct, frozen=True):
    """How a worker runs. `kafka` is librdkafka's settings for any client, `broker` and `credentials` are Faust's."""

    kafka: Mapping[str, Any]
    broker: str
    credentials: Any
    data: Path
    session_s: int
    standbys: int
    app: str = OWNER_APP
    skip_lost_input: bool = False
    pace: Pace = Pace()
    limits: Limits = Limits()


class OwnerApp(faust.App):
    """Lets its partitions go before anything else of Faust ends."""

    stage = STAGE
    metrics: Metrics
    keeper: Keeper | None = None
    explain: Explain | None = None

    def alive(self) -> str | None:
        """See `streams.fleet.pages.Stage`. What an owner cannot mend by itself ends the worker at once (`leave`)."""
        return None

    def ready(self) -> str | None:
        """Once it has taken over all partitions that it was given; those may be none. Out of its group it is not."""
        if self.keeper is None:
            return "no partitions were dealt to this worker yet"
        waiting = self.keeper.not_taken_over()
        if not waiting:
            return out_of_group(self)
        first = ", ".join(map(str, waiting[:5]))
        return f"{len(waiting)} partitions are being taken over: {first}{', ...' if len(waiting) > 5 else ''}"

    def explainer(self, partition: int) -> tuple[int, owner_page.Explain] | None:
        """See `streams.fleet.pages.Owned`."""
        owner = None if self.keeper is None else self.keeper.owners.get(partition)
        explain = self.explain
        if owner is None or explain is None:
            return None

        def answer(what: str) -> Sequence[tuple[str, str]]:
            try:
                return explain(partition, owner.db, what)
            except DbClosedError as error:
                raise NotTheOwner(f"partition {partition} was let go meanwhile", EXIT_FAILED) from error

        return owner.epoch, answer

    def announcement(self, partition: int, epoch: int, now_ms: int) -> Record:
        """Who owns the partition from this epoch on, and where it is asked: part of its first transaction."""
        page = str(self.conf.canonical_url).rstrip("/")
        key, value = owner_page.announcement(OwnerPage(partition, epoch, page, now_ms))
        return Record(OWNER_PAGES, 0, key, value)

    async def on_stop(self) -> None:
        keeper, self.keeper = self.keeper, None
        if keeper is not None:
            await keeper.close()
        await super().on_stop()


def owner_app(worker: Worker, setting: Setting, ports: Ports, explain: Explain | None = None) -> OwnerApp:
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
        broker_max_poll_interval=IDLE_S_MAX,
        stream_wait_empty=False,
        TableManager=OwnerTableManager,
    )
    metrics = app.metrics = Metrics(STAGE)
    app.explain = explain
    setting = msgspec.structs.replace(setting, announce=app.announcement)
    groups = GroupChannel(app)

    async def hand_on(group: Group) -> None:
        await groups.give(group)
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
        groups.listening.set()
        async for group in stream:
            await _carry_out(app, group)

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
            skip_lost=worker.skip_lost_input,
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
