"""The only place that chooses the route stage's adapters: link router and index, one Faust app from the settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from connectors.bodies_together import BodiesTogether
from connectors.object_store import ObjectStore
from connectors.stage_sender import KafkaSender
from connectors.topic_reader import Place
from infra.provision.kafka_admin import ConfluentAdmin, client_settings
from infra.provision.s3_store import open_client
from infra.settings import Settings
from infra.wiring import policy_of, steady_clock
from infra.wiring_parse import make_reader, partitioning
from schemas.topics import SINK_GROUP
from streams.fleet.metrics import Labels, Metrics
from streams.fleet.route import RouteStage
from streams.fleet.sink_lag import SinkLag
from streams.fleet.stage import Pace, Stage
from streams.fleet.stage_app import Opened, StageApp, stage_app
from streams.fleet.worker import leave

__all__ = ["ROUTE_APP", "open_route", "sink_lag"]

ROUTE_APP = "headrace-route"
TOPIC = "parsed-pages"
INDEX = "index-events"
_READS_MAX = 16  # of the object store at once


class Offsets(Protocol):
    """What is asked of `infra.provision.kafka_admin.ConfluentAdmin`."""

    def committed(self, group: str) -> dict[tuple[str, int], int]: ...

    def bounds(self, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]: ...


PACE = Pace(
    group_ms=50,
    group_messages_max=200,
    groups_max=8,
    open_messages_max=1_600,
    open_bytes_max=64 << 20,
    open_of_partition_max=800,
)


def open_route(settings: Settings) -> StageApp:
    """The app, not started. Raises CrawlError, ServiceAway. The topics are checked by whoever starts a worker."""
    fleet = settings.fleet
    now = steady_clock()
    admin = ConfluentAdmin(fleet)
    index_partitions = admin.partitions()[INDEX]

    async def open_stage(metrics: Metrics) -> Opened:
        objects = ObjectStore(open_client(fleet), fleet.bucket)
        threads = ThreadPoolExecutor(_READS_MAX, thread_name_prefix="texts")
        stage = RouteStage(
            BodiesTogether(objects, threads).read,
            partition_of=partitioning(fleet.partitions),
            index_partitions=index_partitions,
            follow_nofollow=policy_of(settings).follow_nofollow,
            now=now,
            metrics=metrics,
        )

        behind = SinkLag(lambda: sink_lag(admin, index_partitions))
        behind.start()

        async def close() -> None:
            behind.close()
            objects.close()
            threads.shutdown(wait=False, cancel_futures=True)

        def gauges(running: Stage) -> Iterable[tuple[str, Labels, float]]:
            yield "headrace_service_away_seconds", ("s3",), objects.away_s()
            yield from behind.gauges()

        sender = KafkaSender(client_settings(fleet), leave)
        return Opened(stage.work, sender, make_reader(fleet, TOPIC, ROUTE_APP), close, gauges, stage.forget)

    return stage_app(
        ROUTE_APP,
        "route",
        TOPIC,
        pace=PACE,
        now=now,
        data=str(Path(fleet.data).absolute()),
        open_stage=open_stage,
    )


def sink_lag(admin: Offsets, partitions: int) -> int:
    """Records of index-events behind what the sink's group has committed. Raises CrawlError, ServiceAway."""
    committed = admin.committed(SINK_GROUP)
    bounds = admin.bounds([(INDEX, partition) for partition in range(partitions)])
    places = [Place(committed.get(place), *bound) for place, bound in bounds.items()]
    return sum(max(0, place.end - place.next) for place in places)
