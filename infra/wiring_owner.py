"""The only place that chooses a fleet worker's adapters: an owner's Faust app from the settings."""

from __future__ import annotations

import logging
import random
import socket
import ssl
from pathlib import Path
from typing import Any

import faust
import msgspec

from connectors.cassandra_link import CassandraLink
from connectors.changelog_kafka import KafkaChangelog
from connectors.owner_log_kafka import KafkaOwnerLog
from connectors.schema_registry import SchemaRegistry
from infra.explaining import Explainer
from infra.provision.kafka_admin import client_settings
from infra.settings import Settings
from infra.settings_fleet import Fleet, KafkaSecurity
from infra.wiring import policy_of, steady_clock
from infra.wiring_fleet import open_epochs, open_link, open_registry, open_url_state
from schemas.topics import OWNER_APP, OWNER_CHANGELOG
from streams.core.budget import share
from streams.core.failures import EXIT_FAILED, CrawlError
from streams.core.rules.scope import Scope, ScopeMode
from streams.core.turn import Reads
from streams.fleet.feed import Pace
from streams.fleet.owner import Ports, Setting
from streams.fleet.worker import Explain, OwnerApp, Worker, owner_app

__all__ = ["faust_credentials", "open_owner"]

log = logging.getLogger(__name__)


def open_owner(settings: Settings) -> OwnerApp:
    """The app of an owner's worker, not started; `streams.app` names it to Faust. Raises CrawlError."""
    fleet = settings.fleet
    link = open_link(fleet, log.warning)
    registry = open_registry(fleet, log.warning)
    services: dict[str, CassandraLink | SchemaRegistry] = {"cassandra": link}
    if registry is not None:
        services["registry"] = registry
    kafka = client_settings(fleet)

    def close() -> None:
        for service in services.values():
            service.close()

    setting = Setting(
        policy=policy_of(settings),
        scope=Scope(
            seeds=(),
            mode=ScopeMode.ANY,  # seeds come by topic and belong to their owners: patterns and depth bound a fleet
            depth_max=settings.crawl.depth_max,
            include=settings.crawl.include,
            exclude=settings.crawl.exclude,
        ),
        partitions=fleet.partitions,
        leases_max=fleet.leases_max,
        tasks_max=fleet.parse_backlog_max,
        changelog_topic=OWNER_CHANGELOG,
        now=steady_clock(),
        jitter=random.SystemRandom().random,
        region=fleet.region,
        resolver=registry,
    )
    ports = Ports(
        urls=open_url_state(link),
        epochs=open_epochs(link, worker=socket.gethostname(), region=fleet.region),
        changelog=KafkaChangelog(kafka, OWNER_CHANGELOG),
        open_log=lambda partition: KafkaOwnerLog(kafka, OWNER_APP, partition),
        close=close,
        away_s=lambda: {one: service.away_s() for one, service in services.items()},
    )
    worker = Worker(
        # Each region's workers share its partitions out among themselves; the producers' ids are the same everywhere.
        app=f"{OWNER_APP}-{fleet.region}" if fleet.region else OWNER_APP,
        kafka=kafka,
        broker=";".join(f"kafka://{server}" for server in fleet.kafka),
        credentials=faust_credentials(fleet),
        data=Path(fleet.data).absolute(),
        session_s=fleet.session_s,
        standbys=fleet.standbys,
        skip_lost_input=fleet.skip_lost_input,
        pace=Pace(group_ms=fleet.group_ms),
    )
    return owner_app(worker, setting, ports, _explain(setting))


def _explain(setting: Setting) -> Explain:
    """By the code that explains a folder. A partition has its part of the crawl's daily budget."""

    def explain(partition: int, db: Reads, what: str) -> list[tuple[str, str]]:
        policy = msgspec.structs.replace(
            setting.policy, budget=share(setting.policy.budget, partition, setting.partitions)
        )
        return Explainer(db, policy, setting.scope, other_ports=False).explain(what, setting.now())

    return explain


def faust_credentials(fleet: Fleet) -> Any:
    """What Faust's own client logs in with; None where the brokers ask for nothing."""
    security = fleet.kafka_security
    context = _tls(fleet) if security in (KafkaSecurity.SSL, KafkaSecurity.SASL_SSL) else None
    if security in (KafkaSecurity.SASL_PLAINTEXT, KafkaSecurity.SASL_SSL):
        return faust.SASLCredentials(
            username=fleet.kafka_user,
            password=fleet.kafka_password,
            ssl_context=context,
            mechanism=fleet.kafka_sasl_mechanism.value.upper(),
        )
    return None if context is None else faust.SSLCredentials(context)


def _tls(fleet: Fleet) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=fleet.kafka_ca or None)
        if fleet.kafka_certificate:
            context.load_cert_chain(fleet.kafka_certificate, fleet.kafka_key or None, fleet.kafka_key_password or None)
    except (OSError, ssl.SSLError) as error:
        raise CrawlError(
            f"kafka: needed certificates that can be read, got: {error}; see fleet.kafka_ca, fleet.kafka_certificate"
            " and fleet.kafka_key",
            EXIT_FAILED,
        ) from error
    return context
