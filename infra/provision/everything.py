"""The parts against the real services, in the order in which they need one another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

from infra.provision import bucket, connector, index, keyspace, topics
from infra.provision.rest import HttpRest
from infra.provision.steps import Step, carry_out
from infra.settings_fleet import Fleet
from streams.core.failures import EXIT_FAILED, CrawlError

__all__ = ["PARTS", "provision"]


def provision(
    fleet: Fleet, only: Iterable[str] = (), *, dry_run: bool = False
) -> Iterator[tuple[str, Step | CrawlError]]:
    """(part, what became of one thing of it), in order; an error ends its part, and the others go on.

    `only`: parts by name; none named: all. With `dry_run` nothing is changed.
    """
    chosen = tuple(only) or tuple(PARTS)
    for name, part in PARTS.items():
        if name not in chosen:
            continue
        try:
            for step in part(fleet, dry_run):
                yield name, step
        except CrawlError as error:
            yield name, error


def _topics(fleet: Fleet, dry_run: bool) -> Iterator[Step]:
    with _fleet_packages():
        from infra.provision.kafka_admin import ConfluentAdmin
    admin = ConfluentAdmin(fleet)
    yield from carry_out(
        topics.plan(admin, partitions=fleet.partitions, replication=fleet.replication), dry_run=dry_run
    )


def _keyspace(fleet: Fleet, dry_run: bool) -> Iterator[Step]:
    with _fleet_packages():
        from infra.provision.cassandra_admin import DriverAdmin
    with contextlib.closing(DriverAdmin(fleet)) as admin:
        steps = keyspace.plan(
            admin,
            keyspace=fleet.keyspace,
            replication=fleet.replication,
            datacenters=fleet.cassandra_datacenters,
        )
        yield from carry_out(steps, dry_run=dry_run)


def _bucket(fleet: Fleet, dry_run: bool) -> Iterator[Step]:
    with _fleet_packages():
        from infra.provision.s3_store import BotoStore
    yield from carry_out(bucket.plan(BotoStore(fleet), bucket=fleet.bucket), dry_run=dry_run)


def _index(fleet: Fleet, dry_run: bool) -> Iterator[Step]:
    rest = HttpRest(
        "opensearch",
        fleet.opensearch,
        user=fleet.opensearch_user,
        password=fleet.opensearch_password,
        ca=fleet.opensearch_ca,
    )
    steps = index.plan(rest, index=fleet.index, shards=fleet.index_shards, replicas=fleet.index_replicas)
    yield from carry_out(steps, dry_run=dry_run)


def _connector(fleet: Fleet, dry_run: bool) -> Iterator[Step]:
    rest = HttpRest(
        "connect", fleet.connect, user=fleet.connect_user, password=fleet.connect_password, ca=fleet.connect_ca
    )
    yield from carry_out(connector.plan(rest, fleet), dry_run=dry_run)


@contextlib.contextmanager
def _fleet_packages() -> Iterator[None]:
    """Around the import of a module that stands on one of the fleet's packages."""
    try:
        yield
    except ImportError as error:
        raise CrawlError(
            f"needed the fleet's packages, got: {error}; ./infra/headrace provision sets them up, or: pip install"
            " 'headrace[fleet]'",
            EXIT_FAILED,
        ) from error


PARTS: dict[str, Callable[[Fleet, bool], Iterator[Step]]] = {
    "topics": _topics,
    "keyspace": _keyspace,
    "bucket": _bucket,
    "index": _index,
    "connector": _connector,  # last: it reads a topic and writes to the index
}
