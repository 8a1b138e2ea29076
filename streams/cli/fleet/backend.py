"""What the fleet's verbs need of its services. `infra.fleet_clients` provides it; tests bring a fake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from infra.settings_fleet import Fleet

if TYPE_CHECKING:
    from connectors.owner_page import Explained, OwnerPage
    from connectors.policy_ledger import Transactions
    from connectors.producer import Client
    from connectors.topic_reader import Consumer

__all__ = ["FleetBackend", "default_fleet_backend"]


class FleetBackend(Protocol):
    """All of these raise `CrawlError` with a sentence for people. `on_error` hears of brokers that do not answer."""

    def partitions(self, fleet: Fleet) -> Mapping[str, int]:
        """Of every topic that there is."""
        ...

    def producer(self, fleet: Fleet, on_error: Callable[[str], None]) -> Client: ...

    def transactions(self, fleet: Fleet, on_error: Callable[[str], None]) -> Transactions: ...

    def consumer(self, fleet: Fleet, on_error: Callable[[str], None]) -> Consumer: ...

    def url_rows(
        self, fleet: Fleet, hosts: Sequence[str], say: Callable[[str], None]
    ) -> AbstractContextManager[Iterator[tuple[str, bytes, bytes]]]:
        """(host_key, url_id, row) of these hosts or of all; `say` is told when Cassandra is away."""
        ...

    def ask_owner(self, page: OwnerPage, what: str) -> Explained: ...


def default_fleet_backend() -> FleetBackend:
    """The real one. A module fits a protocol of functions."""
    import importlib.util

    from streams.core.failures import EXIT_FAILED, CrawlError

    if importlib.util.find_spec("confluent_kafka") is None:
        raise CrawlError(
            "the fleet's verbs need its packages, and confluent_kafka is not installed; start them by ./infra/headrace,"
            " which adds them, or: pip install 'headrace[fleet]'",
            EXIT_FAILED,
        )
    from infra import fleet_clients

    return fleet_clients
