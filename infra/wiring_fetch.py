"""The only place that chooses a fetcher's adapters: its Faust app from the settings."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from connectors.fetchlog_s3 import S3FetchLog
from connectors.files import StoreFailed
from connectors.lease_reader import LeaseReader, Received
from connectors.object_store import ObjectStore
from connectors.ports import StoreClosed
from connectors.segments_s3 import S3Segments, Spool
from connectors.stage_sender import KafkaSender
from infra.provision.kafka_admin import client_settings
from infra.provision.s3_store import open_client
from infra.settings import Settings, user_agent_header
from infra.web import open_web, version
from infra.wiring import steady_clock, wall_clock_ms
from streams.fleet.fetch import TOPIC, Fetcher, Pace
from streams.fleet.fetch_app import FetchApp, Opened, Tell, fetch_app
from streams.fleet.fetch_store import Keeping, Store
from streams.fleet.intake import Partitioning
from streams.fleet.metrics import Metrics
from streams.fleet.worker import leave

__all__ = ["FETCH_APP", "open_fetch", "open_objects"]

log = logging.getLogger(__name__)

FETCH_APP = "headrace-fetch"  # the Faust app's id, which is its consumer group
SPOOL = "fetch-spool"


def open_fetch(settings: Settings) -> FetchApp:
    """The app of a fetcher, not started. Raises CrawlError for versions of Faust that were never looked at."""
    fleet = settings.fleet
    data = Path(fleet.data).absolute()
    spool = Spool(data / SPOOL)

    async def open_fetcher(metrics: Metrics, hand_on: Callable[[Sequence[Received]], None]) -> Opened:
        return _open(settings, spool, metrics, hand_on)

    return fetch_app(FETCH_APP, data=str(data), open_fetcher=open_fetcher)


def open_objects(settings: Settings) -> ObjectStore:
    """The fleet's bucket, for segments, single records and the fetch log. Nothing is connected yet; close it."""
    return ObjectStore(open_client(settings.fleet), settings.fleet.bucket)


def _open(settings: Settings, spool: Spool, metrics: Metrics, hand_on: Callable[[Sequence[Received]], None]) -> Opened:
    """Called on the event loop."""
    fleet, now = settings.fleet, steady_clock()
    kafka = client_settings(fleet)
    objects = open_objects(settings)
    worker, epoch = secrets.token_hex(6), wall_clock_ms() // 1_000  # nobody else's, ever
    info = (
        ("software", f"Headrace/{version()}"),
        ("http-header-user-agent", user_agent_header(settings.crawl, version())),
    )
    segments = S3Segments(
        objects, spool, worker=worker, epoch=epoch, info=info, segment_bytes_max=settings.store.segment_bytes_max
    )
    fetch_log = S3FetchLog(objects, spool.folder, worker=worker, epoch=epoch)
    keeping = Keeping(
        seal_ms=fleet.seal_s * 1_000,
        spool_bytes_max=fleet.spool_bytes_max,
    )
    sender = KafkaSender(kafka, leave)
    threads = ThreadPoolExecutor(keeping.uploads_max + 4, thread_name_prefix="store")
    reader: LeaseReader | None = None

    def may_start() -> bool:
        return reader is not None and reader.fresh()

    web = open_web(settings, now, may_start)
    fetcher = Fetcher(
        web,
        sender,
        Pace(fetches_max=settings.crawl.fetch_concurrency),
        partition_of=Partitioning(fleet.partitions).of,
        now=now,
        metrics=metrics,
        failed=leave,
    )
    reader = LeaseReader(kafka, TOPIC, FETCH_APP, Tell(fetcher, hand_on), session_s=fleet.session_s)
    store = Store(
        segments,
        fetch_log,
        keeping,
        threads=threads,
        announce=fetcher.announce,
        metrics=metrics,
        failed=leave,
    )
    threads.submit(_recover, segments, fetch_log, spool.remains())
    fetcher.begin(reader, store)

    async def close() -> None:
        objects.close()
        await web.close()
        sender.close()
        threads.shutdown(wait=True, cancel_futures=True)
        fetch_log.close()
        spool.close()

    return Opened(fetcher=fetcher, reader=reader, objects=objects, close=close)


def _recover(segments: S3Segments, fetch_log: S3FetchLog, remains: Sequence[str]) -> None:
    """What a killed process left: in the background, since the store may be away."""
    try:
        rows = fetch_log.recover(frozenset(remains))
        ended = segments.recover()
    except StoreClosed:
        return
    except StoreFailed as error:
        leave(error)
        return
    if rows or ended:
        log.info("fetch: a former worker left %d segments, which are removed, and %d rows of the log", ended, rows)
