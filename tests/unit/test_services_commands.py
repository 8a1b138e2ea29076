"""What each service is started with: our ports, this machine alone, a small heap."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.services import catalog
from infra.services.catalog import HOST, SERVICES
from infra.services.commands import Command, Place, cluster_id, prepare
from infra.services.java import Java

PORTS = catalog.ports({"HEADRACE_PORTS": "+1111"})


def prepared(name: str, folder: Path) -> tuple[Command, str]:
    """The command, and all that it was given: its words and every file of its configuration."""
    programs = folder / "programs"
    (programs / "libs").mkdir(parents=True, exist_ok=True)
    (programs / "libs" / "jamm-1.jar").touch()
    service = SERVICES[name]
    java = Java(Path("/jdk"), service.java[0]) if service.java else None
    place = Place(service, folder / name, programs, PORTS, java, folder / "plugins")
    place.folder.mkdir(exist_ok=True)
    command = prepare(place)
    files = [path.read_text(errors="replace") for path in (place.folder / "conf").iterdir()]
    return command, "\n".join([*command.argv, *files])


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_takes_its_ports_and_no_default(tmp_path: Path, name: str) -> None:
    """A port that is set in the catalog alone would leave the service where nobody looks, or in the way of another."""
    _, given = prepared(name, tmp_path / "a folder")
    for port in SERVICES[name].ports(PORTS).values():
        assert str(port) in given
    for part, port in catalog.PORTS.items():
        assert str(port) not in given, part


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_keeps_to_this_machine_and_to_its_heap(tmp_path: Path, name: str) -> None:
    """Nothing listens for the network, and everything together stays small."""
    command, given = prepared(name, tmp_path)
    assert HOST in given
    assert "0.0.0.0" not in given
    assert "$" not in given.replace("${", "").replace("$sparse", "")
    if SERVICES[name].java:
        assert command.argv[0] == "/jdk/bin/java"
        assert f"-Xmx{SERVICES[name].heap_mb}m" in command.argv
        assert f"-Djava.io.tmpdir={tmp_path / name}/tmp" in command.argv


def test_kafka_s_storage_is_formatted_once(tmp_path: Path) -> None:
    """A second format would be refused, and a format that was cut off is done again."""
    first, _ = prepared("kafka", tmp_path)
    assert first.first is not None
    assert "--ignore-formatted" in first.first
    (tmp_path / "kafka" / "data").mkdir()
    assert prepared("kafka", tmp_path)[0].first is not None
    (tmp_path / "kafka" / "data" / "meta.properties").write_text("version=1\ncluster.id=Aabc\nnode.id=1\n")
    assert prepared("kafka", tmp_path)[0].first is None
    assert cluster_id(tmp_path / "kafka") == "Aabc"


def test_a_format_that_is_tried_again_has_the_same_id(tmp_path: Path) -> None:
    """A killed `up` leaves its format at work; the next one beside it must not find the storage to be another's."""
    first, again = (prepared("kafka", tmp_path)[0].first for _ in range(2))
    assert first is not None
    assert first == again
    (tmp_path / "other").mkdir()
    other = prepared("kafka", tmp_path / "other")[0].first
    assert other is not None
    assert other[other.index("-t") + 1] != first[first.index("-t") + 1]


def test_what_a_killed_service_unpacked_is_taken_away(tmp_path: Path) -> None:
    """Native libraries are unpacked at every start; after many kills they would fill the disk."""
    (tmp_path / "s3" / "tmp").mkdir(parents=True)
    (tmp_path / "s3" / "tmp" / "libjna.so").touch()
    prepared("s3", tmp_path)
    assert not list((tmp_path / "s3" / "tmp").iterdir())


def test_the_store_knows_our_credentials_and_tells_nobody(tmp_path: Path) -> None:
    """The key that provisioning uses opens it; its telemetry, on by default, is off."""
    command, _ = prepared("s3", tmp_path)
    config = tmp_path / "s3" / "conf" / "s3.json"
    key = json.loads(config.read_bytes())["identities"][0]["credentials"][0]
    assert key == {"accessKey": catalog.S3_ACCESS_KEY, "secretKey": catalog.S3_SECRET_KEY}
    assert "-master.telemetry=false" in command.argv


def test_a_folder_with_odd_letters_reaches_java_whole(tmp_path: Path) -> None:
    """Java reads .properties as Latin-1; a letter outside it is written as an escape that means the same."""
    folder = tmp_path / "Müller 水"
    prepared("kafka", folder)
    text = (folder / "kafka" / "conf" / "kafka.properties").read_bytes()
    assert "/Müller ".encode("latin-1") + b"\\u6c34/kafka/data" in text
