"""When a service truly answers: asked by the client that will use it, not by a port that opens.

`ask(name, ...)` returns when it does and raises `NotReadyError` with the reason while it does not. Clients are loaded
at the first question, so that `down` and `logs` do not pay for them.
"""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any

from infra.services import catalog
from infra.services.catalog import HOST
from infra.services.commands import cluster_id

__all__ = ["SINK_CLASS", "NotReadyError", "ask"]

SINK_CLASS = "io.headrace.sink.OpenSearchSink"
PATIENCE_S = 5.0  # for one answer

# Straight to this machine, whatever proxy the environment names for the outside.
_HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NotReadyError(Exception):
    """Why it does not answer yet."""


def ask(name: str, ports: Mapping[str, int], folder: Path) -> None:
    """One question to the service `name`, whose data is in `folder`; `ports` are all services'."""
    _ASK[name](ports, folder)


def _kafka(ports: Mapping[str, int], folder: Path) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    quiet = logging.getLogger("headrace.services.kafka")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    admin = AdminClient({"bootstrap.servers": f"{HOST}:{ports['kafka']}", "log_level": 0}, logger=quiet)
    try:
        answer = admin.list_topics(timeout=PATIENCE_S)
    except KafkaException as error:
        raise NotReadyError(error.args[0].str()) from error
    if answer.cluster_id != cluster_id(folder):
        raise NotReadyError(f"cluster {answer.cluster_id} answers there, ours is {cluster_id(folder)}")


def _cassandra(ports: Mapping[str, int], folder: Path) -> None:
    from cassandra import DriverException, OperationTimedOut
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
    from cassandra.policies import RoundRobinPolicy

    logging.getLogger("cassandra").setLevel(logging.CRITICAL)  # it reports each refused connection by itself
    profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=PATIENCE_S)
    cluster = Cluster(
        [HOST],
        port=ports["cassandra"],
        protocol_version=5,
        connect_timeout=PATIENCE_S,
        control_connection_timeout=PATIENCE_S,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
    )
    try:
        row = cluster.connect().execute("SELECT cluster_name FROM system.local").one()
    except (NoHostAvailable, DriverException, OperationTimedOut, OSError) as error:
        raise NotReadyError(f"no driver connection: {error}") from error
    finally:
        cluster.shutdown()
    if row.cluster_name != "headrace":
        raise NotReadyError(f"cluster {row.cluster_name} answers there")


def _s3(ports: Mapping[str, int], folder: Path) -> None:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    # A list is answered by the gateway alone; objects need a volume server that the master knows of.
    topology = _get(ports["s3.master"], "/dir/status")["Topology"]
    if not topology.get("Max"):
        raise NotReadyError("the master knows no volume server yet")
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{HOST}:{ports['s3']}",
        aws_access_key_id=catalog.S3_ACCESS_KEY,
        aws_secret_access_key=catalog.S3_SECRET_KEY,
        region_name="us-east-1",
        config=Config(
            connect_timeout=PATIENCE_S,
            read_timeout=PATIENCE_S,
            retries={"total_max_attempts": 1},
            proxies={},
            s3={"addressing_style": "path"},
        ),
    )
    try:
        client.list_buckets()
    except (BotoCoreError, ClientError) as error:
        raise NotReadyError(f"no list of buckets: {error}") from error
    finally:
        client.close()


def _connect(ports: Mapping[str, int], folder: Path) -> None:
    _get(ports["connect"], "/connectors")  # answered once the worker has joined its group
    plugins = [plugin["class"] for plugin in _get(ports["connect"], "/connector-plugins")]
    if SINK_CLASS not in plugins:
        raise NotReadyError(f"it answers without our sink {SINK_CLASS}")


def _opensearch(ports: Mapping[str, int], folder: Path) -> None:
    health = _get(ports["opensearch"], "/_cluster/health?wait_for_status=yellow&timeout=2s")
    if health["cluster_name"] != "headrace" or health["status"] == "red":
        raise NotReadyError(f"cluster {health['cluster_name']} is {health['status']}")


def _registry(ports: Mapping[str, int], folder: Path) -> None:
    _get(ports["registry"], "/apis/ccompat/v7/subjects")


_ASK: Mapping[str, Callable[[Mapping[str, int], Path], None]] = {
    "kafka": _kafka,
    "cassandra": _cassandra,
    "s3": _s3,
    "connect": _connect,
    "opensearch": _opensearch,
    "registry": _registry,
}


def _get(port: int, path: str) -> Any:
    """The JSON that is answered."""
    url = f"http://{HOST}:{port}{path}"
    try:
        with _HTTP.open(url, timeout=PATIENCE_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        error.close()
        raise NotReadyError(f"{url} answers {error.code}") from error
    except urllib.error.URLError as error:
        raise NotReadyError(f"{url}: {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise NotReadyError(f"{url}: {error}") from error
