"""How each service is configured and started. Its files are written anew each time, from `files/` and the ports."""

from __future__ import annotations

import base64
import json
import shutil
import string
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from infra.services import catalog
from infra.services.catalog import HOST, Service
from infra.services.java import Java

__all__ = ["Command", "Place", "cluster_id", "prepare"]

FILES = Path(__file__).resolve().parent / "files"


class Place(NamedTuple):
    """Where one service runs."""

    service: Service
    folder: Path  # its data, log and configuration
    programs: Path  # its bundle
    ports: Mapping[str, int]  # of all services
    java: Java | None
    plugins: Path | None  # Connect's

    @property
    def own(self) -> dict[str, int]:
        return self.service.ports(self.ports)


class Command(NamedTuple):
    """What to run. `first` runs before it, to its end; `environ` comes on top of what is there."""

    argv: list[str]
    environ: Mapping[str, str]
    first: list[str] | None = None


def prepare(place: Place) -> Command:
    """Write the configuration and give the command. The folder exists. Raises `OSError`."""
    scratch = place.folder / "tmp"  # native libraries are unpacked here; what a killed process left goes
    shutil.rmtree(scratch, ignore_errors=True)
    for folder in (scratch, place.folder / "conf"):
        folder.mkdir(parents=True, exist_ok=True)
    return _PREPARE[place.service.name](place)


def cluster_id(folder: Path) -> str | None:
    """The id that Kafka's storage was formatted with; None before that."""
    try:
        lines = (folder / "data" / "meta.properties").read_text(encoding="latin-1").splitlines()
    except FileNotFoundError:
        return None
    return next((line.partition("=")[2] for line in lines if line.startswith("cluster.id=")), None)


def _kafka(place: Place) -> Command:
    config = _write(place, "kafka.properties", folder=str(place.folder), **_texts(place.own))
    java = [*_java(place), *_log4j(place), "-cp", f"{place.programs}/libs/*"]
    first = None
    if cluster_id(place.folder) is None:
        # Half a format has no meta.properties yet but may have the folder.
        made = _new_cluster_id(place.folder)
        first = [*java, "kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", made, "-c", str(config)]
    return Command([*java, "kafka.Kafka", str(config)], {}, first)


def _new_cluster_id(folder: Path) -> str:
    """The id to format with. It is kept: a format whose `up` was killed goes on beside the next one, and both agree."""
    kept = folder / "conf" / "cluster.id"
    if not kept.exists():
        part = kept.with_suffix(".part")
        part.write_text("A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22])  # a leading "-": an option
        part.replace(kept)
    return kept.read_text()


def _connect(place: Place) -> Command:
    kafka, plugins = str(place.ports["kafka"]), str(place.plugins)
    config = _write(place, "connect.properties", kafka=kafka, plugins=plugins, **_texts(place.own))
    java = [*_java(place), *_log4j(place), "-cp", f"{place.programs}/libs/*"]
    return Command([*java, "org.apache.kafka.connect.cli.ConnectDistributed", str(config)], {})


def _cassandra(place: Place) -> Command:
    folder = json.dumps(str(place.folder))[1:-1]  # it stands between quotes in YAML
    config = _write(place, "cassandra.yaml", folder=folder, **_texts(place.own))
    argv = [
        *_java(place),
        f"@{FILES / 'cassandra.options'}",
        f"-javaagent:{next(place.programs.glob('libs/jamm-*.jar'))}",
        f"-Dcassandra.config={config.as_uri()}",
        f"-Dlogback.configurationFile={FILES / 'logback.xml'}",
        f"-Dcassandra.storagedir={place.folder}",
        f"-Dcassandra.logdir={place.folder}",
        f"-Dcassandra.jmx.local.port={place.own['jmx']}",
        "-cp",
        f"{place.folder / 'conf'}:{place.programs}/libs/*",
        "org.apache.cassandra.service.CassandraDaemon",
    ]
    return Command(argv, {})


def _s3(place: Place) -> Command:
    key = {"accessKey": catalog.S3_ACCESS_KEY, "secretKey": catalog.S3_SECRET_KEY}
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    users = {"identities": [{"name": "headrace", "credentials": [key], "actions": actions}]}
    config = place.folder / "conf" / "s3.json"
    config.write_text(json.dumps(users))
    config.chmod(0o600)
    data, own = place.folder / "data", place.own
    data.mkdir(exist_ok=True)
    argv = [
        f"{place.programs}/weed",
        "-logtostderr=true",
        "server",
        f"-ip={HOST}",
        f"-ip.bind={HOST}",  # else it binds every address of the machine
        f"-dir={data}",
        f"-master.port={own['master']}",
        f"-master.port.grpc={own['master.grpc']}",
        "-master.telemetry=false",  # on by default
        "-master.volumeSizeLimitMB=1024",
        "-master.volumePreallocate=false",
        "-master.electionTimeout=1s",
        f"-volume.port={own['volume']}",
        f"-volume.port.grpc={own['volume.grpc']}",
        "-volume.max=50",
        "-volume.preStopSeconds=1",  # 10 by default: for load balancers, of which there are none here
        "-filer",
        f"-filer.port={own['filer']}",
        f"-filer.port.grpc={own['filer.grpc']}",
        "-s3",
        f"-s3.port={own['main']}",
        f"-s3.port.grpc={own['grpc']}",
        f"-s3.config={config}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
    ]
    return Command(argv, {"HOME": str(place.folder)})  # it looks for configuration there, too


def _opensearch(place: Place) -> Command:
    own, folder = place.own, place.folder
    settings = {
        "path.data": str(folder / "data"),
        "path.logs": str(folder / "logs"),
        "cluster.name": "headrace",
        "network.host": HOST,
        "http.port": str(own["main"]),
        "transport.port": str(own["transport"]),
        "discovery.type": "single-node",
        "bootstrap.memory_lock": "false",
        "bootstrap.system_call_filter": "false",
        "cluster.routing.allocation.disk.threshold_enabled": "false",
        "action.auto_create_index": "false",  # made by provisioning, with its mapping; a guessed one would be wrong
        "node.processors": "2",
    }
    argv = [
        *_java(place),
        *_log4j(place),
        "-Djava.security.manager=allow",
        "-Dlog4j2.disable.jmx=true",
        "-Dio.netty.noUnsafe=true",
        "-Dio.netty.allocator.numDirectArenas=0",
        "-Djna.nosys=true",
        "-cp",
        f"{place.programs}/classes:{place.programs}/libs/*",
        "SearchNode",
        str(folder),
        *(f"{key}={value}" for key, value in settings.items()),
    ]
    return Command(argv, {})


def _registry(place: Place) -> Command:
    settings = {
        "quarkus.http.host": HOST,
        "quarkus.http.port": place.own["main"],
        "quarkus.management.host": HOST,
        "quarkus.management.port": place.own["management"],
        "quarkus.otel.sdk.disabled": "true",
        "apicurio.datasource.url": f"jdbc:h2:file:{place.folder}/data/registry",
        "apicurio.datasource.jdbc.initial-size": 2,
        "apicurio.datasource.jdbc.min-size": 2,
        "apicurio.datasource.jdbc.max-size": 20,
        "apicurio.ccompat.max-subjects": 1_000,
        "apicurio.rules.global.compatibility": "BACKWARD",  # clients of the registry's framing ask for it
    }
    options = [f"-D{key}={value}" for key, value in settings.items()]
    native = "--enable-native-access=ALL-UNNAMED"
    return Command([*_java(place), native, *options, "-jar", f"{place.programs}/app/quarkus-run.jar"], {})


_PREPARE: Mapping[str, Callable[[Place], Command]] = {
    "kafka": _kafka,
    "connect": _connect,
    "cassandra": _cassandra,
    "s3": _s3,
    "opensearch": _opensearch,
    "registry": _registry,
}


def _java(place: Place) -> list[str]:
    """Java with a small heap, and with an end rather than a limp when that is full."""
    assert place.java is not None, place.service.name
    return [
        place.java.program,
        "-Xms64m",
        f"-Xmx{place.service.heap_mb}m",
        "-XX:+UseSerialGC",  # for heaps of this size on few cores: less memory, less CPU, pauses of some 10 ms
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:+PerfDisableSharedMem",
        f"-XX:ErrorFile={place.folder}/crash-%p.log",
        f"-Djava.io.tmpdir={place.folder}/tmp",
    ]


def _log4j(place: Place) -> list[str]:
    return [f"-Dlog4j2.configurationFile={FILES / 'log4j2.properties'}"]


def _texts(own: Mapping[str, int]) -> dict[str, str]:
    return {name: str(port) for name, port in own.items()}


def _write(place: Place, name: str, **values: str) -> Path:
    """Fill in a file of `files/`. Java reads .properties as Latin-1 with escapes."""
    properties = name.endswith(".properties")
    if properties:
        values = {key: value.replace("\\", "\\\\") for key, value in values.items()}
    text = string.Template((FILES / name).read_text(encoding="utf-8")).substitute(host=HOST, **values)
    path = place.folder / "conf" / name
    path.write_text(text, encoding="latin-1" if properties else "utf-8", errors="backslashreplace")
    return path
