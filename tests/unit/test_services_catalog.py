"""Which services there are, where they listen, and what `HEADRACE_PORTS` makes of that."""

from __future__ import annotations

import pytest

from infra.services import catalog
from infra.services.errors import ServiceError
from streams.cli.services import EXAMPLES


def test_the_endpoints_are_those_that_all_parts_agree_on() -> None:
    """Provisioning, workers and the compose file find the services there without a word of configuration."""
    assert catalog.endpoints({}) == {
        "kafka": "127.0.0.1:19092",
        "cassandra": "127.0.0.1:19042",
        "s3": "http://127.0.0.1:18333",
        "opensearch": "http://127.0.0.1:19200",
        "connect": "http://127.0.0.1:18083",
        "registry": "http://127.0.0.1:18081",
    }


def test_no_port_lies_where_the_system_takes_ports_for_connections() -> None:
    """Linux gives outgoing connections ports from 32768; a service there would fail to start now and then."""
    assert max(catalog.PORTS.values()) < 32_768
    assert len(set(catalog.PORTS.values())) == len(catalog.PORTS)
    assert {name.partition(".")[0] for name in catalog.PORTS} == set(catalog.SERVICES)


def test_ports_move_together_or_one_by_one() -> None:
    """Two sets of services, a test run's and a person's, live side by side."""
    moved = catalog.ports({"HEADRACE_PORTS": "+1000, s3.filer=9999"})
    assert moved["kafka"] == 20092
    assert moved["s3.filer"] == 9999
    assert {moved[name] - port for name, port in catalog.PORTS.items() if name != "s3.filer"} == {1000}
    assert catalog.endpoints({"HEADRACE_PORTS": "kafka=9092"})["kafka"] == "127.0.0.1:9092"


def test_the_shift_that_help_and_errors_name_meets_no_port_of_the_unshifted() -> None:
    """At +1000 `s3` would lie where another set of services has `s3.master`, and the remedy would fail again."""
    assert "HEADRACE_PORTS=+500" in EXAMPLES
    moved = catalog.ports({"HEADRACE_PORTS": "+500"})
    assert not set(moved.values()) & set(catalog.PORTS.values())


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("kafak=9092", 'needed words such as .* came "kafak=9092"; names: kafka, kafka.controller'),
        ("kafka:9092", 'came "kafka:9092"'),
        ("+60000", "needed ports from 1024 to 65535, came 79092 for kafka"),
        ("kafka=80", "came 80 for kafka"),
        ("s3=19092", "s3 and kafka both have 19092"),
    ],
)
def test_a_wrong_word_for_ports_is_refused(given: str, complaint: str) -> None:
    """A misread word would start a service where nobody looks for it."""
    with pytest.raises(ServiceError, match=complaint):
        catalog.ports({"HEADRACE_PORTS": given})


def test_without_names_all_but_the_optional_are_chosen() -> None:
    """The registry needs another Java and is used by few; it comes when it is named."""
    assert [service.name for service in catalog.chosen([])] == ["kafka", "cassandra", "s3", "opensearch", "connect"]
    assert [service.name for service in catalog.chosen(["registry", "connect"])] == ["kafka", "connect", "registry"]


def test_all_heaps_together_leave_room_under_the_promise() -> None:
    """Everything together stays under 4.5 GB: a JVM takes its heap and, at most, as much again; S3 450 MB."""
    heaps = sum(service.heap_mb for service in catalog.SERVICES.values() if not service.optional)
    assert 2 * heaps + 450 < 4_500
