"""An owner's worker for tests: `faust -A tests.support.fleet_worker worker`, told by the environment what to do.

It differs from the real one in that it may end, or stand still, at a step of its commit: as a machine would, without a
word; and where no Cassandra is named, URL rows and epochs lie in a file that its workers share.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from connectors.changelog_kafka import KafkaChangelog
from connectors.owner_log_kafka import KafkaOwnerLog
from connectors.ports import Epochs, UrlState
from infra.settings_fleet import Fleet
from infra.wiring import steady_clock
from infra.wiring_fleet import open_epochs, open_link, open_url_state
from schemas.topics import OWNER_APP, OWNER_CHANGELOG
from streams.collector import quiet_collector
from streams.core.policy import BudgetPolicy, CrawlPolicy, Politeness
from streams.core.rules.scope import Scope, ScopeMode
from streams.fleet.feed import Pace
from streams.fleet.keeper import Limits
from streams.fleet.owner import Ports, Setting
from streams.fleet.pages import serve
from streams.fleet.worker import OwnerApp, Worker, owner_app
from tests.support.url_state_file import FileUrlState, NoUrlState

log = logging.getLogger(__name__)

TOLD = "FLEET_WORKER"  # the environment's variable
KILLED = 77  # its exit code at a step


class Order(msgspec.Struct, frozen=True):
    """What a worker is told."""

    kafka: str
    data: str
    rows: str  # the file of URL rows and epochs, where no Cassandra is named
    keeps_rows: bool = True  # False: no row is written anywhere, only the epochs are in that file
    cassandra: str = ""  # host:port
    keyspace: str = ""
    region: str = ""
    partitions: int = 4
    delay_ms: int = 100
    leases_max: int = 10_000
    duration_ms: int = 120_000  # of one fetch
    app: str = "tests.support.fleet_worker"  # the module that is run
    tasks_max: int = 10_000
    address_concurrency: int | None = None
    address_delay_ms: int | None = None
    new_per_day: int | None = None
    session_s: int = 6
    standbys: int = 1
    group_ms: int = 20
    end_at: str = ""  # a step
    stop_at: str = ""  # a step: it is stopped there (SIGSTOP)
    after: int = 0  # so many times it passes that step


class Steps:
    """Counts the steps that are passed, and ends the process at the one that was told."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._left = order.after
        self._lock = threading.Lock()

    def __call__(self, step: str) -> None:
        if step not in (self._order.end_at, self._order.stop_at):
            return
        with self._lock:
            self._left -= 1
            due = self._left == -1
        if due and step == self._order.end_at:
            os._exit(KILLED)
        if due:
            os.kill(os.getpid(), signal.SIGSTOP)


def build(order: Order) -> OwnerApp:
    kafka = {"bootstrap.servers": order.kafka, "client.id": "headrace"}
    urls, epochs, close = _stores(order)
    politeness = Politeness(
        delay_ms=order.delay_ms,
        address_concurrency=order.address_concurrency,
        address_delay_ms=order.address_delay_ms,
    )
    policy = CrawlPolicy(
        politeness=politeness, budget=BudgetPolicy(new_per_day=order.new_per_day), duration_ms_max=order.duration_ms
    )
    setting = Setting(
        policy=policy,
        scope=Scope(seeds=(), mode=ScopeMode.ANY),
        partitions=order.partitions,
        leases_max=order.leases_max,
        tasks_max=order.tasks_max,
        changelog_topic=OWNER_CHANGELOG,
        now=steady_clock(),
        jitter=random.SystemRandom().random,
        at=Steps(order),
        region=order.region,
    )
    ports = Ports(
        urls=urls,
        epochs=epochs,
        close=close,
        changelog=KafkaChangelog(kafka, OWNER_CHANGELOG),
        open_log=lambda partition: KafkaOwnerLog(kafka, OWNER_APP, partition),
    )
    worker = Worker(
        app=f"{OWNER_APP}-{order.region}" if order.region else OWNER_APP,
        kafka=kafka,
        broker=f"kafka://{order.kafka}",
        credentials=None,
        data=Path(order.data),
        session_s=order.session_s,
        standbys=order.standbys,
        pace=Pace(group_ms=order.group_ms),
        limits=Limits(threads=8, fence_wait_s=2.0 * order.session_s, home_look_s=1.0, own_look_s=1.0),
    )
    return owner_app(worker, setting, ports)


def _stores(order: Order) -> tuple[UrlState, Epochs, Callable[[], None]]:
    """(URL rows, epochs, how they are closed)."""
    if not order.cassandra:
        rows = FileUrlState(Path(order.rows), order.region)
        return rows if order.keeps_rows else NoUrlState(), rows, lambda: None
    link = open_link(Fleet(cassandra=(order.cassandra,), keyspace=order.keyspace), log.warning)
    return open_url_state(link), open_epochs(link, worker=Path(order.data).name, region=order.region), link.close


if TOLD in os.environ:
    app = build(msgspec.json.decode(os.environ[TOLD], type=Order))
    serve(app, [app])  # the pages that the carrier serves for the real one
    quiet_collector()
