"""The stores of the fleet, by its settings: where its adapters are chosen."""

from __future__ import annotations

from collections.abc import Callable

from connectors.cassandra_link import CassandraLink
from connectors.epochs_cassandra import CassandraEpochs
from connectors.ports import Epochs, UrlState
from connectors.schema_registry import SchemaRegistry
from connectors.url_state_cassandra import CassandraUrlState
from infra.provision.cassandra_admin import open_cluster
from infra.settings_fleet import Fleet
from infra.wiring import wall_clock_ms

__all__ = ["open_epochs", "open_link", "open_registry", "open_url_state"]


def open_link(fleet: Fleet, say: Callable[[str], None]) -> CassandraLink:
    """The way to Cassandra that URL rows and epochs share; nothing is connected yet. Close it:
    calls that wait for Cassandra then end with `StoreClosed`.

    `say` is told when Cassandra is away, and when it is back.
    """
    return CassandraLink(lambda: open_cluster(fleet), fleet.keyspace, say=say)


def open_url_state(link: CassandraLink) -> UrlState:
    """What is known of each URL."""
    return CassandraUrlState(link)


def open_epochs(link: CassandraLink, *, worker: str, region: str) -> Epochs:
    """The numbers of ownership. `worker` and `region` are noted with those that it takes."""
    return CassandraEpochs(link, owner=worker, region=region, clock=wall_clock_ms)


def open_registry(fleet: Fleet, say: Callable[[str], None]) -> SchemaRegistry | None:
    """Where the schemas of other people's records are looked up; None where no registry is set. Raises CrawlError."""
    if not fleet.registry:
        return None
    return SchemaRegistry(
        fleet.registry,
        user=fleet.registry_user,
        password=fleet.registry_password,
        ca=fleet.registry_ca,
        say=say,
    )
