"""Kafka's clients for the verbs that speak to a fleet, as the settings want them: addresses, TLS, SASL.

The one place where an operator's command gets a client; `streams.cli.fleet.backend` says what the verbs count on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from connectors import owner_page
from connectors.owner_page import Explained, OwnerPage
from connectors.policy_ledger import LEDGER_SETTINGS
from connectors.ports import Epochs
from connectors.producer import PRODUCER_SETTINGS
from connectors.topic_reader import CONSUMER_SETTINGS, Place
from infra.provision.kafka_admin import ConfluentAdmin, client_settings
from infra.settings_fleet import Fleet
from schemas.topics import Group, is_group_of
from streams.core.failures import EXIT_FAILED, CrawlError

__all__ = [
    "ask_owner",
    "consumer",
    "epochs",
    "owner_numbers",
    "partitions",
    "places",
    "producer",
    "transactions",
    "url_rows",
]

OnError = Callable[[str], None]


def partitions(fleet: Fleet) -> dict[str, int]:
    """Partitions of every topic. Raises ServiceAway."""
    return ConfluentAdmin(fleet).partitions()


def producer(fleet: Fleet, on_error: OnError) -> Any:
    """For `connectors.producer.BatchProducer`. `on_error`: the client's own words on brokers that do not answer."""
    return _open(Producer, fleet, PRODUCER_SETTINGS, on_error)


def transactions(fleet: Fleet, on_error: OnError) -> Any:
    """For `connectors.policy_ledger.PolicyLedger`."""
    return _open(Producer, fleet, LEDGER_SETTINGS, on_error)


def consumer(fleet: Fleet, on_error: OnError) -> Any:
    """For `connectors.topic_reader.TopicReader`."""
    return _open(Consumer, fleet, CONSUMER_SETTINGS, on_error)


@contextlib.contextmanager
def url_rows(
    fleet: Fleet, hosts: Sequence[str], say: Callable[[str], None]
) -> Iterator[Iterator[tuple[str, bytes, bytes]]]:
    """(host_key, url_id, row) of these hosts or of all."""
    from connectors.url_walk import UrlWalk
    from infra.wiring_fleet import open_link

    link = open_link(fleet, say)
    try:
        yield UrlWalk(link).rows(hosts)
    finally:
        link.close()


def ask_owner(page: OwnerPage, what: str) -> Explained:
    """Raises NotTheOwner, UsageError or CrawlError."""
    return owner_page.ask(page, what)


def owner_numbers(page: str) -> Mapping[str, float]:
    """Raises NotTheOwner or CrawlError."""
    return owner_page.numbers(page)


def places(fleet: Fleet, groups: Mapping[str, str]) -> dict[str, dict[int, Place]]:
    """How far each topic is read by its group (topic to stage), by partition. Raises CrawlError."""
    admin = ConfluentAdmin(fleet)
    there = admin.partitions()
    asked = [(topic, partition) for topic in groups for partition in range(there.get(topic, 0))]
    bounds = admin.bounds(asked)
    committed: dict[tuple[str, int], int] = {}
    for name in admin.groups():
        stage = next((one for one in set(groups.values()) if is_group_of(name, Group(one))), None)
        if stage is None:
            continue
        for place, offset in admin.committed(name).items():
            if groups.get(place[0]) == stage:
                committed[place] = max(offset, committed.get(place, 0))
    found: dict[str, dict[int, Place]] = {}
    for place in asked:
        found.setdefault(place[0], {})[place[1]] = Place(committed.get(place), *bounds[place])
    return found


@contextlib.contextmanager
def epochs(fleet: Fleet, say: OnError) -> Iterator[Epochs]:
    """The numbers of ownership, in Cassandra. `say` hears of a cluster that does not answer, and is waited for."""
    from infra.wiring_fleet import open_epochs, open_link

    link = open_link(fleet, say)
    try:
        yield open_epochs(link, worker="operator", region=fleet.region)
    finally:
        link.close()


def _open(kind: Callable[[dict[str, Any]], Any], fleet: Fleet, own: Mapping[str, Any], on_error: OnError) -> Any:
    def heard(error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # it follows the reasons, and says less
            on_error(error.str().partition(" (after ")[0])

    settings: dict[str, Any] = client_settings(fleet) | dict(own) | {"error_cb": heard}
    try:
        return kind(settings)
    except KafkaException as error:
        # Raised before anything is sent: a certificate that cannot be read, a mechanism that is not built in.
        raise CrawlError(
            f"kafka at {','.join(fleet.kafka)}: needed settings that its client takes, got: {error.args[0].str()};"
            " see the section fleet of headrace settings",
            EXIT_FAILED,
        ) from error
