"""The services as data: versions, artifacts, ports, credentials, memory. `infra/compose.yaml` is held to it by a test.

Ports are fixed, on 127.0.0.1. `HEADRACE_PORTS` changes them: `+500` moves all, `kafka=9092` or `s3.filer=8888` names
one, separated by commas (`+500,kafka=9092`). A gRPC twin of SeaweedFS lies at +10000 unless it is named itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from infra.services.errors import ServiceError

__all__ = [
    "BUCKET",
    "HOST",
    "KEYSPACE",
    "PAGES_INDEX",
    "PORTS",
    "S3_ACCESS_KEY",
    "S3_SECRET_KEY",
    "SERVICES",
    "Bundle",
    "Service",
    "chosen",
    "endpoint",
    "endpoints",
    "ports",
]

HOST = "127.0.0.1"

S3_ACCESS_KEY = "headrace"
S3_SECRET_KEY = "headrace-secret"
BUCKET = "headrace"
KEYSPACE = "headrace"
PAGES_INDEX = "pages"

KAFKA = "4.4.0"
CASSANDRA = "5.0.8"
SEAWEEDFS = "4.48"
OPENSEARCH = "2.19.6"
REGISTRY = "3.3.3"

PORTS: Mapping[str, int] = {
    "kafka": 19092,
    "kafka.controller": 19093,
    "cassandra": 19042,
    "cassandra.storage": 17000,
    "cassandra.jmx": 17199,
    "s3": 18333,
    "s3.grpc": 28333,
    "s3.master": 19333,
    "s3.master.grpc": 29333,
    "s3.volume": 18080,
    "s3.volume.grpc": 28080,
    "s3.filer": 18888,
    "s3.filer.grpc": 28888,
    "connect": 18083,
    "opensearch": 19200,
    "opensearch.transport": 19300,
    "registry": 18081,
    "registry.management": 18082,
}


class Bundle(NamedTuple):
    """What is fetched as one. `maven` lists `group:artifact:version[:type:classifier]`, `wheel` names a lock."""

    name: str
    version: str
    maven: tuple[str, ...] = ()
    wheel: str = ""
    download_mb: int = 0  # said before it is fetched


class Service(NamedTuple):
    """One server process. `java` is the first and last major version that it runs on, None when it needs none.

    `stop_s` is how long it may take to end after SIGTERM, before SIGKILL.
    """

    name: str
    title: str
    bundle: Bundle
    java: tuple[int, int] | None
    heap_mb: int
    stop_s: float = 40.0  # SeaweedFS waits 15 s for subscribers of its own
    needs: tuple[str, ...] = ()
    optional: bool = False  # started only when named

    def ports(self, taken: Mapping[str, int]) -> dict[str, int]:
        """Of all ports those of this service, by the last part of their name; its own name is `main`."""
        own = {name: port for name, port in taken.items() if name.partition(".")[0] == self.name}
        return {name.partition(".")[2] or "main": port for name, port in own.items()}


_KAFKA = Bundle(
    "kafka",
    KAFKA,
    maven=(
        f"org.apache.kafka:kafka_2.13:{KAFKA}",
        f"org.apache.kafka:kafka-tools:{KAFKA}",
        f"org.apache.kafka:connect-runtime:{KAFKA}",
        f"org.apache.kafka:connect-json:{KAFKA}",
        f"org.apache.kafka:connect-transforms:{KAFKA}",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5",  # Kafka names no logging backend of its own
    ),
    download_mb=54,
)
_CASSANDRA = Bundle("cassandra", CASSANDRA, maven=(f"org.apache.cassandra:cassandra-all:{CASSANDRA}",), download_mb=67)
_SEAWEEDFS = Bundle("seaweedfs", SEAWEEDFS, wheel="seaweedfs.txt", download_mb=48)
_OPENSEARCH = Bundle(
    "opensearch",
    OPENSEARCH,
    maven=(
        f"org.opensearch:opensearch:{OPENSEARCH}",
        f"org.opensearch.plugin:transport-netty4-client:{OPENSEARCH}",
        f"org.opensearch.plugin:analysis-common:{OPENSEARCH}",
        f"org.opensearch.plugin:lang-painless:{OPENSEARCH}",
        "org.apache.logging.log4j:log4j-core:2.25.4",
    ),
    download_mb=46,
)
_REGISTRY = Bundle(
    "registry", REGISTRY, maven=(f"io.apicurio:apicurio-registry-app:{REGISTRY}:tar.gz:all",), download_mb=159
)

_LATEST = 99  # no release is known that it refuses

SERVICES: Mapping[str, Service] = {
    service.name: service
    for service in (
        Service("kafka", "Kafka", _KAFKA, java=(17, _LATEST), heap_mb=512),
        Service("cassandra", "Cassandra", _CASSANDRA, java=(17, 17), heap_mb=512),
        Service("s3", "SeaweedFS (S3)", _SEAWEEDFS, java=None, heap_mb=0),
        # OpenSearch 2 asks for the security manager, which Java 24 no longer has.
        Service("opensearch", "OpenSearch", _OPENSEARCH, java=(17, 23), heap_mb=512),
        # It ends in 2 s or never: Connect and its Jetty both stop the web server, and may wait for each other (0082).
        Service("connect", "Kafka Connect", _KAFKA, java=(17, _LATEST), heap_mb=384, stop_s=10.0, needs=("kafka",)),
        Service("registry", "Apicurio Registry", _REGISTRY, java=(21, _LATEST), heap_mb=256, optional=True),
    )
}


def chosen(names: Iterable[str]) -> tuple[Service, ...]:
    """The services of `names` and what they need, in an order to start them; without names all but the optional."""
    wanted = list(names) or [service.name for service in SERVICES.values() if not service.optional]
    for name in wanted:
        if name not in SERVICES:
            raise ServiceError(f'no service "{name}"; there are: {", ".join(SERVICES)}', usage=True)
        wanted += [need for need in SERVICES[name].needs if need not in wanted]
    return tuple(service for service in SERVICES.values() if service.name in wanted)


def ports(environ: Mapping[str, str] = os.environ) -> dict[str, int]:
    """Every port by its name, as `HEADRACE_PORTS` has it. Raises `ServiceError` for a word that is none."""
    given = [word.strip() for word in environ.get("HEADRACE_PORTS", "").split(",") if word.strip()]
    shift = 0
    named: dict[str, int] = {}
    for word in given:
        name, equals, number = word.partition("=")
        if word.startswith("+") and word[1:].isdecimal():
            shift = int(word[1:])
        elif equals and name in PORTS and number.isdecimal():
            named[name] = int(number)
        else:
            raise ServiceError(
                f'HEADRACE_PORTS: needed words such as +500 or kafka=9092, came "{word}"; names: {", ".join(PORTS)}',
                usage=True,
            )
    taken = {name: named.get(name, port + shift) for name, port in PORTS.items()}
    users: dict[int, str] = {}
    for name, port in taken.items():
        if not 1_024 <= port <= 65_535:
            raise ServiceError(f"HEADRACE_PORTS: needed ports from 1024 to 65535, came {port} for {name}", usage=True)
        if port in users:
            raise ServiceError(f"HEADRACE_PORTS: {name} and {users[port]} both have {port}", usage=True)
        users[port] = name
    return taken


def endpoints(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Where each service is reached: `host:port` for Kafka and Cassandra, a URL for what speaks HTTP."""
    taken = ports(environ)
    return {name: endpoint(name, taken[name]) for name in SERVICES}


def endpoint(name: str, port: int) -> str:
    """Where the service is reached on that port."""
    return f"{HOST}:{port}" if name in ("kafka", "cassandra") else f"http://{HOST}:{port}"
