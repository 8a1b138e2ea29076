"""The only place that chooses the parse stage's adapters: its Faust app from the settings."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path

from connectors.bodies_together import BodiesTogether
from connectors.group_reader import GroupReader
from connectors.object_store import ObjectStore
from connectors.parser_pool import ParserPool
from connectors.segments_s3 import S3Segments, Spool
from connectors.stage_sender import KafkaSender
from infra.provision.kafka_admin import client_settings
from infra.provision.s3_store import open_client
from infra.settings import Settings, product_token, user_agent_header
from infra.settings_fleet import Fleet
from infra.web import version
from infra.wiring import parse_limits, steady_clock, wall_clock_ms
from schemas.topics import partition_for
from streams.fleet.metrics import Labels, Metrics
from streams.fleet.parse import ParseStage
from streams.fleet.stage import Pace, Stage
from streams.fleet.stage_app import Opened, StageApp, stage_app
from streams.fleet.texts import SegmentTexts
from streams.fleet.worker import leave

__all__ = ["PARSE_APP", "READS_MAX", "make_reader", "open_parse", "partitioning"]

PARSE_APP = "headrace-parse"
TOPIC = "parse-tasks"
SPOOL = "parse-spool"
PACE = Pace(groups_max=24, open_messages_max=48, open_of_partition_max=24)
"""A message is a hundred tasks at most. Work goes on while the messages before wait for their segment."""

READS_MAX = 16  # of the object store at once
_KEYS_MAX = 100_000


def open_parse(settings: Settings) -> StageApp:
    """The app, not started. Raises CrawlError. The topics are checked by whoever starts a worker."""
    fleet = settings.fleet
    data = Path(fleet.data).absolute()
    spool = Spool(data / SPOOL)
    now = steady_clock()

    async def open_stage(metrics: Metrics) -> Opened:
        return _opened(settings, spool, now, metrics)

    return stage_app(
        PARSE_APP,
        "parse",
        TOPIC,
        pace=PACE,
        now=now,
        data=str(data),
        open_stage=open_stage,
    )


def partitioning(partitions: int) -> Callable[[str], int]:
    """Which partition a host_key belongs to, remembered for those named lately."""
    return lru_cache(maxsize=_KEYS_MAX)(partial(partition_for, partitions=partitions))


def make_reader(fleet: Fleet, topic: str, group: str) -> Callable[[Stage], GroupReader]:
    """Of a stage's input."""
    return lambda stage: GroupReader(
        client_settings(fleet),
        topic,
        group,
        session_s=fleet.session_s,
        take=stage.take,
        room=stage.room,
        failed=leave,
    )


def _opened(settings: Settings, spool: Spool, now: Callable[[], int], metrics: Metrics) -> Opened:
    fleet, workers = settings.fleet, settings.crawl.workers or max(1, (os.cpu_count() or 1) - 1)
    objects = ObjectStore(open_client(fleet), fleet.bucket)
    segments = S3Segments(
        objects,
        spool,
        worker=secrets.token_hex(6),  # nobody else's, ever
        epoch=wall_clock_ms() // 1_000,
        info=(
            ("software", f"Headrace/{version()}"),
            ("http-header-user-agent", user_agent_header(settings.crawl, version())),
        ),
        segment_bytes_max=settings.store.segment_bytes_max,
    )
    texts = SegmentTexts(segments)
    pool = ParserPool(workers=workers, limits=parse_limits(settings), product_token=product_token(settings.crawl))
    threads = ThreadPoolExecutor(READS_MAX, thread_name_prefix="bodies")
    threads.submit(segments.recover)
    stage = ParseStage(
        pool,
        BodiesTogether(objects, threads).read,
        texts,
        partition_of=partitioning(fleet.partitions),
        chunks_max=workers + 1,  # one on its way from the store while the others are at the parsers
        now=now,
        metrics=metrics,
    )

    async def close() -> None:
        objects.close()
        texts.close()
        await pool.close()
        threads.shutdown(wait=False, cancel_futures=True)
        spool.close()

    def gauges(running: Stage) -> Iterable[tuple[str, Labels, float]]:
        yield "headrace_parser_deaths_total", (), pool.deaths
        yield "headrace_service_away_seconds", ("s3",), objects.away_s()

    sender = KafkaSender(client_settings(fleet), leave)
    return Opened(stage.work, sender, make_reader(fleet, TOPIC, PARSE_APP), close, gauges, stage.forget)
