"""The compose file and the launcher describe the same services, so that it holds without Docker at hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.services import catalog

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "infra" / "docker"
FILES = ROOT / "infra" / "services" / "files"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "infra" / "compose.yaml").read_text())
BESIDE = {"sink", "prometheus", "grafana"}  # no counterpart in the launcher


def properties(path: Path) -> dict[str, str]:
    lines = (line for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return dict(line.split("=", 1) for line in lines)


def published() -> dict[str, str]:
    """What is reached from outside: `address:port` to the service and port within."""
    found = {}
    for name, service in COMPOSE["services"].items():
        for entry in service.get("ports", ()):
            outside, _, inside = entry.rpartition(":")
            found[outside] = f"{name}:{inside}"
    return found


def test_the_same_services_are_there() -> None:
    """A service of one way of starting that the other lacks would be missed by half of the users."""
    assert set(COMPOSE["services"]) == set(catalog.SERVICES) | BESIDE
    optional = {name for name, service in COMPOSE["services"].items() if service.get("profiles")}
    assert optional == {service.name for service in catalog.SERVICES.values() if service.optional}


def test_versions_agree() -> None:
    """What is tested without Docker is what runs with it."""
    tags = {name: service["image"].rpartition(":")[2] for name, service in COMPOSE["services"].items()}
    assert {name: tags[name] for name in catalog.SERVICES} == {
        service.name: service.bundle.version for service in catalog.SERVICES.values()
    }
    assert all(re.match(r"v?[0-9]+\.[0-9]+", tags[name]) for name in BESIDE), "no tag that moves"


def test_endpoints_agree_and_stay_on_this_machine() -> None:
    """Provisioning and workers need no other configuration, and nothing is offered to the network."""
    outside = published()
    assert all(place.startswith(f"{catalog.HOST}:") for place in outside)
    for name in catalog.SERVICES:
        assert f"{catalog.HOST}:{catalog.PORTS[name]}" in outside, name
    # Connect shares OpenSearch's network, so that the connector's configuration is right there, too.
    assert COMPOSE["services"]["connect"]["network_mode"] == "service:opensearch"
    assert COMPOSE["services"]["opensearch"]["environment"]["http.port"] == str(catalog.PORTS["opensearch"])


def test_kafka_tells_its_clients_the_published_address() -> None:
    """A broker that advertises another address than the one published is found and then lost."""
    environment = COMPOSE["services"]["kafka"]["environment"]
    assert f"HOST://{catalog.endpoints({})['kafka']}" in environment["KAFKA_ADVERTISED_LISTENERS"]


def test_kafka_s_settings_agree() -> None:
    """Topics, transactions and segments behave alike; listeners and folders alone differ."""
    environment = COMPOSE["services"]["kafka"]["environment"]
    ours = properties(FILES / "kafka.properties")
    here = {key: value for key, value in ours.items() if "$" not in value}
    theirs = {key: environment.get("KAFKA_" + key.upper().replace(".", "_")) for key in here}
    different = {key for key in here if here[key] != theirs[key]}
    assert different == {
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "num.network.threads",
        "num.io.threads",
    }
    assert environment["KAFKA_HEAP_OPTS"].endswith(f"-Xmx{catalog.SERVICES['kafka'].heap_mb}m")


def test_connect_s_settings_and_topics_agree() -> None:
    """The same group, the same three topics, the same converters: a connector made by one way fits the other."""
    ours, theirs = properties(FILES / "connect.properties"), properties(DOCKER / "connect.properties")
    assert ours.keys() == theirs.keys()
    different = {key for key in ours if ours[key] != theirs[key]}
    assert different == {key for key in ours if "$" in ours[key]}
    assert theirs["listeners"].endswith(f":{catalog.PORTS['connect']}")
    assert (
        "./docker/connect.properties:/etc/headrace/connect.properties:ro" in COMPOSE["services"]["connect"]["volumes"]
    )


def test_credentials_agree() -> None:
    """One key opens the store, however it was started."""
    key = json.loads((DOCKER / "s3.json").read_bytes())["identities"][0]["credentials"][0]
    assert key == {"accessKey": catalog.S3_ACCESS_KEY, "secretKey": catalog.S3_SECRET_KEY}
    assert "-master.telemetry=false" in COMPOSE["services"]["s3"]["command"]


def test_what_is_mounted_is_there() -> None:
    """Docker makes an empty folder of a file that is missing, and the service starts without its configuration."""
    for name, service in COMPOSE["services"].items():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (ROOT / "infra" / source).exists() or source == "../connectors/sink", name
            else:
                assert source in COMPOSE["volumes"], name
        for needed in service.get("depends_on", ()):
            assert needed in COMPOSE["services"], name


def test_connect_waits_for_what_it_needs() -> None:
    """It ends itself without a broker, and serves nothing without our sink."""
    needs = COMPOSE["services"]["connect"]["depends_on"]
    assert {need: needs[need]["condition"] for need in needs} == {
        "kafka": "service_healthy",
        "opensearch": "service_healthy",
        "sink": "service_completed_successfully",
    }
    for name in {*catalog.SERVICES} - {"registry"}:
        assert COMPOSE["services"][name]["healthcheck"]["test"], name


@pytest.mark.parametrize("path", [*DOCKER.rglob("*.yml"), *DOCKER.rglob("*.json")], ids=lambda path: path.name)
def test_the_mounted_files_can_be_read(path: Path) -> None:
    """A comma too much is found here, not in a container's log."""
    assert yaml.safe_load(path.read_text()) if path.suffix == ".yml" else json.loads(path.read_bytes())


def test_grafana_finds_prometheus() -> None:
    """Data source, dashboards and the address that Prometheus listens on name each other rightly."""
    source = yaml.safe_load((DOCKER / "grafana" / "datasources" / "prometheus.yml").read_text())["datasources"][0]
    address = source["url"].removeprefix("http://")
    assert f"--web.listen-address={address}" in COMPOSE["services"]["prometheus"]["command"]
    for path in (DOCKER / "grafana" / "dashboards").glob("*.json"):
        for panel in json.loads(path.read_bytes())["panels"]:
            assert panel["datasource"]["uid"] == source["uid"], (path.name, panel["title"])
