"""The settings of the fleet: where its services are, by which keys they let us in, and how much of all there is.

The defaults are the services that `headrace services up` starts on this machine. A secret is best given by the
environment (`HEADRACE_FLEET__KAFKA_PASSWORD`); no crawl's folder keeps any setting of this section.
"""

from __future__ import annotations

import enum
import ipaddress
import re
from urllib.parse import urlsplit

import msgspec

from infra.settings_values import Given, SettingsError, nearest
from schemas.topics import PARTITIONS_SMALL, WORKER_GROUPS
from streams.core.policy import SPOOL_BYTES_MAX

__all__ = ["SECTION", "STAGES", "Fleet", "KafkaSecurity", "SaslMechanism", "host_port"]

SECTION = "fleet"
STAGES = tuple(group.value for group in WORKER_GROUPS)


class KafkaSecurity(enum.Enum):
    """Kafka's security.protocol."""

    PLAINTEXT = "plaintext"
    SSL = "ssl"
    SASL_PLAINTEXT = "sasl_plaintext"
    SASL_SSL = "sasl_ssl"


class SaslMechanism(enum.Enum):
    """Kafka's sasl.mechanism, of those that go by user and password."""

    PLAIN = "plain"
    SCRAM_SHA_256 = "scram-sha-256"
    SCRAM_SHA_512 = "scram-sha-512"


class Fleet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The services of a fleet. Paths of certificates are PEM files; an empty one is not used."""

    kafka: tuple[str, ...] = ("127.0.0.1:19092",)
    kafka_security: KafkaSecurity = KafkaSecurity.PLAINTEXT
    kafka_sasl_mechanism: SaslMechanism = SaslMechanism.SCRAM_SHA_512
    kafka_user: str = ""
    kafka_password: str = ""
    kafka_ca: str = ""
    kafka_certificate: str = ""
    kafka_key: str = ""
    kafka_key_password: str = ""
    cassandra: tuple[str, ...] = ("127.0.0.1:19042",)
    cassandra_user: str = ""
    cassandra_password: str = ""
    cassandra_tls: bool = False
    cassandra_ca: str = ""
    cassandra_certificate: str = ""
    cassandra_key: str = ""
    cassandra_datacenter: str = ""
    cassandra_datacenters: tuple[str, ...] = ()
    keyspace: str = "headrace"
    s3_endpoint: str = "http://127.0.0.1:18333"
    s3_region: str = "us-east-1"
    s3_access_key: str = "headrace"
    s3_secret_key: str = "headrace-secret"
    s3_ca: str = ""
    bucket: str = "headrace"
    connect: str = "http://127.0.0.1:18083"
    connect_user: str = ""
    connect_password: str = ""
    connect_ca: str = ""
    opensearch: str = "http://127.0.0.1:19200"
    opensearch_user: str = ""
    opensearch_password: str = ""
    opensearch_ca: str = ""
    index: str = "pages"
    index_shards: int = 1
    index_replicas: int = 0
    region: str = ""
    partitions: int = PARTITIONS_SMALL
    replication: int = 1
    stages: tuple[str, ...] = STAGES
    data: str = "fleet-data"
    web_bind: str = "127.0.0.1"
    web_port: int = 6066
    web_host: str = ""
    registry: str = ""
    registry_user: str = ""
    registry_password: str = ""
    registry_ca: str = ""
    session_s: int = 10
    standbys: int = 1
    group_ms: int = 50
    leases_max: int = 10_000
    skip_lost_input: bool = False
    parse_backlog_max: int = 10_000
    seal_s: int = 10
    spool_bytes_max: int = SPOOL_BYTES_MAX


def host_port(text: str) -> tuple[str, int] | None:
    """`HOST:PORT` or `[ADDR]:PORT` taken apart; None when it is neither."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/@\[\]]+)):([0-9]{1,5})", text, re.ASCII)
    if match is None or not 0 < int(match.group(3)) < 65_536:
        return None
    return match.group(1) or match.group(2), int(match.group(3))


def _check_server_port(text: str, one: Given) -> None:
    """A broker or a node. Raises SettingsError."""
    if host_port(text) is None:
        needed = "HOST:PORT or [ADDR]:PORT, such as kafka1.example.org:9092"
        raise SettingsError(one.where, "not a server", needed=needed, came=text)


def _check_url(text: str, one: Given) -> None:
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        plain = not (parts.username or parts.password or parts.query or parts.fragment)
    except ValueError:
        good = plain = False
    if not good:
        needed = "http:// or https:// with a host, such as https://search.example.org:9200"
        raise SettingsError(one.where, "not a URL of a service", needed=needed, came=text)
    if not plain:
        # Not shown: a password may stand in it.
        needed = f"a URL without user, query and fragment; the user has settings of its own ({one.name}_user)"
        raise SettingsError(one.where, "more than an address", needed=needed, came="one with more")


def _check_endpoint(text: str, one: Given) -> None:
    if text:
        _check_url(text, one)


def _check_keyspace(text: str, one: Given) -> None:
    if re.fullmatch(r"[a-z][a-z0-9_]{0,47}", text) is None:
        needed = "a lower-case letter, then letters, digits and _, 48 at most"
        raise SettingsError(one.where, "not a keyspace", needed=needed, came=text)


def _check_region(text: str, one: Given) -> None:
    if re.fullmatch(r"[A-Za-z0-9._-]{0,64}", text) is None:
        raise SettingsError(one.where, "not a region", needed="letters, digits, ., _ and -, 64 at most", came=text)


def _check_bucket(text: str, one: Given) -> None:
    if re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", text) is None:
        needed = "3 to 63 of a-z, 0-9, . and -, with a letter or digit at both ends"
        raise SettingsError(one.where, "not a bucket", needed=needed, came=text)


def _check_index(text: str, one: Given) -> None:
    if re.fullmatch(r"[a-z0-9][a-z0-9_.-]{0,254}", text) is None:
        needed = "lower-case letters, digits, _, . and -, with a letter or digit first"
        raise SettingsError(one.where, "not an index", needed=needed, came=text)


def _check_stage(text: str, one: Given) -> None:
    if text not in STAGES:
        needed = f"some of {', '.join(STAGES)}"
        raise SettingsError(one.where, "no such stage", needed=needed, came=text, remedy=nearest(text, STAGES))


def _check_bind(text: str, one: Given) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError as error:
        needed = "an address of this machine, or 0.0.0.0 or :: for all of them"
        raise SettingsError(one.where, "not an address", needed=needed, came=text) from error


def _check_web_host(text: str, one: Given) -> None:
    if text and host_port(f"{text}:1") is None:
        needed = "a name, an address, or [ADDR] of IPv6, without a port"
        raise SettingsError(one.where, "not a host", needed=needed, came=text)


TEXT_CHECKS = {
    "web_bind": _check_bind,
    "web_host": _check_web_host,
    "registry": _check_endpoint,
    "keyspace": _check_keyspace,
    "region": _check_region,
    "s3_endpoint": _check_endpoint,
    "bucket": _check_bucket,
    "connect": _check_url,
    "opensearch": _check_url,
    "index": _check_index,
}
ENTRY_CHECKS = {
    "fleet.kafka": _check_server_port,
    "fleet.cassandra": _check_server_port,
    "fleet.stages": _check_stage,
}
RANGES = {  # least, most
    "fleet.web_port": (1, 65_535),
    "fleet.partitions": (1, 16_384),
    "fleet.replication": (1, 15),
    "fleet.session_s": (6, 300),
    "fleet.standbys": (0, 14),
    "fleet.group_ms": (5, 5_000),
    "fleet.leases_max": (1, 1_000_000),
    "fleet.parse_backlog_max": (1, 1_000_000),
    "fleet.seal_s": (1, 300),
    "fleet.spool_bytes_max": (1 << 20, 1 << 50),
    "fleet.index_shards": (1, 1_024),
    "fleet.index_replicas": (0, 15),
}
MEANINGS = {
    "fleet.kafka": "brokers to begin with, HOST:PORT",
    "fleet.kafka_security": "plaintext, ssl, sasl_plaintext or sasl_ssl",
    "fleet.kafka_sasl_mechanism": "plain, scram-sha-256 or scram-sha-512; where kafka_security is one of sasl",
    "fleet.kafka_user": "user for SASL",
    "fleet.kafka_password": "password for SASL",
    "fleet.kafka_ca": "PEM file of the authority that signed the brokers' certificates; none: the system's",
    "fleet.kafka_certificate": "PEM file of our own certificate, where brokers ask for one",
    "fleet.kafka_key": "PEM file of the key to it",
    "fleet.kafka_key_password": "password of that key",
    "fleet.cassandra": "nodes to begin with, HOST:PORT",
    "fleet.cassandra_user": "user; none: no login",
    "fleet.cassandra_password": "password",
    "fleet.cassandra_tls": "speak TLS",
    "fleet.cassandra_ca": "PEM file of the cluster's own authority; none: the system's, and addresses are checked",
    "fleet.cassandra_certificate": "PEM file of our own certificate, where nodes ask for one",
    "fleet.cassandra_key": "PEM file of the key to it",
    "fleet.cassandra_datacenter": "datacenter that is asked first; none: that of the first node that answers",
    "fleet.cassandra_datacenters": "datacenters that hold a copy, fleet.replication times each; none: the one asked",
    "fleet.keyspace": "keyspace of the fleet's tables",
    "fleet.s3_endpoint": "URL of the object store; empty: Amazon's, by region",
    "fleet.s3_region": "region of the bucket",
    "fleet.s3_access_key": "access key; empty: by AWS's own ways (environment, profile, the instance's role)",
    "fleet.s3_secret_key": "secret key to it",
    "fleet.s3_ca": "PEM file of the authority that signed the store's certificate; none: the usual ones",
    "fleet.bucket": "bucket for bodies, texts and the fetch log",
    "fleet.connect": "URL of Kafka Connect's REST",
    "fleet.connect_user": "user for basic authentication; none: no login",
    "fleet.connect_password": "password",
    "fleet.connect_ca": "PEM file of the authority that signed Connect's certificate; none: the system's",
    "fleet.opensearch": "URL of OpenSearch, as we and the sink reach it",
    "fleet.opensearch_user": "user for basic authentication; none: no login",
    "fleet.opensearch_password": "password",
    "fleet.opensearch_ca": "PEM file of its authority, at this path on Connect's machines, too; none: the system's",
    "fleet.index": "index of the documents",
    "fleet.index_shards": "primary shards of the index, for ever; a shard holds some ten million pages well",
    "fleet.index_replicas": "copies of each shard beside the first",
    "fleet.region": "region of this worker, where a fleet has several: it owns partitions that are at home there",
    "fleet.partitions": "partitions of the topics, for ever: with others hosts change owners; large fleets: 1024",
    "fleet.stages": "what a worker runs: owner, fetch, parse, route; a large fleet has workers of one stage each",
    "fleet.data": "a worker's own folder for its local stores, each needs one; it rules, not Faust's --datadir",
    "fleet.web_bind": "address on which a worker serves its pages: live, ready, metrics, explain; no login is asked",
    "fleet.web_port": "port of those pages; each worker of a machine needs one of its own",
    "fleet.web_host": "by which name others reach them; none: web_bind, or this machine's name where that is all",
    "fleet.registry": "URL of a schema registry, for what others write in its framing; empty: none",
    "fleet.registry_user": "user for basic authentication; none: no login",
    "fleet.registry_password": "password",
    "fleet.registry_ca": "PEM file of the authority that signed the registry's certificate; none: the system's",
    "fleet.session_s": "seconds without a heartbeat after which a worker is taken for gone",
    "fleet.standbys": "workers that follow each partition to take it over at once",
    "fleet.group_ms": "how long a partition gathers input for one commit while there is much of it; large fleets: 500",
    "fleet.skip_lost_input": "an owner goes on without input that retention took unread; infra/production/README.md",
    "fleet.leases_max": "leases in flight of one partition",
    "fleet.parse_backlog_max": "stored pages of one partition that wait to be parsed; beyond, nothing is granted",
    "fleet.seal_s": "seconds from a segment's first body until it goes to S3, and its pages to the parsers",
    "fleet.spool_bytes_max": "bodies that wait on a fetcher's disk for S3; beyond, it starts nothing",
    "fleet.replication": "copies of a partition in Kafka and of a row in a datacenter of Cassandra; large fleets: 3",
}
