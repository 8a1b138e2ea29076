"""What the fleet's verbs need of its services. `infra.fleet_clients` provides it; tests bring a fake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from infra.settings_fleet import Fleet

if TYPE_CHECKING:
    from connectors.owner_page import Explained, OwnerPage
    from connectors.policy_ledger import Transactions
    from connectors.ports import Epochs
    from connectors.producer import Client
    from connectors.topic_reader import Consumer, Place

__all__ = ["FleetBackend", "default_fleet_backend", "need_packages"]


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

    def owner_numbers(self, page: str) -> Mapping[str, float]:
        """What the owners at that page count, by metric."""
        ...

    def places(self, fleet: Fleet, groups: Mapping[str, str]) -> Mapping[str, Mapping[int, Place]]:
        """How far each topic is read by its group; `groups`: topic to stage."""
        ...

    def ask_owner(self, page: OwnerPage, what: str) -> Explained: ...

    def epochs(self, fleet: Fleet, say: Callable[[str], None]) -> AbstractContextManager[Epochs]:
        """The numbers of ownership; `say` hears of a store that does not answer, and is waited for."""
        ...


def default_fleet_backend() -> FleetBackend:
    """The real one. A module fits a protocol of functions."""
    need_packages("the fleet's verbs", ("confluent_kafka",))
    from infra import fleet_clients

    return fleet_clients


def need_packages(who: str, names: Sequence[str]) -> None:
    """Raises CrawlError where one is not installed."""
    import importlib.util
    import sys

    from streams.core.failures import EXIT_FAILED, CrawlError

    # Faust, once loaded, is a module of its own making that cannot be looked up.
    missing = [name for name in names if name not in sys.modules and importlib.util.find_spec(name) is None]
    if missing:
        raise CrawlError(
            f"{who}: needed the fleet's packages, and {', '.join(missing)} is not installed; start it by"
            " ./infra/headrace, which adds them, or: pip install 'headrace[fleet]'",
            EXIT_FAILED,
        )
