"""The real servers of `headrace services`: all come up, answer, keep their data through kill -9, and leave nothing."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from typing import Any

import boto3
from cassandra.cluster import Cluster
from cassandra.concurrent import execute_concurrent_with_args
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from infra.services import catalog, processes
from infra.services.catalog import HOST
from tests.services.conftest import Fleet

ALL = ("kafka", "cassandra", "s3", "opensearch", "connect")
MEMORY_MB_MAX = 4_500
READY_S_MAX = 240  # the promise is 90 s warm and 240 s from empty caches, on a machine that does nothing else


def test_all_answer_in_time_and_stay_small(fleet: Fleet) -> None:
    """One command: all ready, where the catalog says, together under 4.5 GB; a second `up` changes nothing."""
    began = time.monotonic()
    endpoints = fleet.up()
    assert time.monotonic() - began < READY_S_MAX
    assert endpoints == {name: catalog.endpoints()[name] for name in ALL}
    states = fleet.status()
    assert {name: states[name].state for name in ALL} == dict.fromkeys(ALL, "ready")
    assert sum(states[name].rss_mb for name in ALL) < MEMORY_MB_MAX
    fleet.up()
    assert {name: fleet.status()[name].pid for name in ALL} == {name: states[name].pid for name in ALL}


def test_nothing_listens_but_on_this_machine_and_as_named(fleet: Fleet) -> None:
    """The services have no passwords worth the name: a port open to the network would be everybody's."""
    fleet.up()
    pids = {fleet.status()[name].pid for name in ALL}
    named = set(catalog.ports().values())
    for address, port, pid in processes.listeners():
        if pid in pids:
            assert address.startswith("127."), (address, port)
    assert {port for _, port, pid in processes.listeners() if pid in pids} >= named - {
        catalog.ports()["registry"],
        catalog.ports()["registry.management"],
    }


def test_the_plugins_of_connect_hold_our_sink(fleet: Fleet) -> None:
    """The jar was built from the sources of this checkout and is found by its service entry."""
    url = fleet.up("connect")["connect"]
    with urllib.request.urlopen(f"{url}/connector-plugins", timeout=10) as answer:
        assert b"io.headrace.sink.OpenSearchSink" in answer.read()


def test_what_was_acknowledged_survives_kill_9(fleet: Fleet) -> None:
    """After kill -9 of the stores one `up` brings them back with what they held: a topic, a row's table, an object."""
    endpoints = fleet.up()
    admin = AdminClient({"bootstrap.servers": endpoints["kafka"]})
    admin.create_topics([NewTopic("kept", 3, 1)])["kept"].result(30)
    _cql("CREATE KEYSPACE IF NOT EXISTS kept WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    _cql("CREATE TABLE kept.rows (id int PRIMARY KEY)")
    _cql("INSERT INTO kept.rows (id) VALUES (7)")
    _s3().create_bucket(Bucket="kept")
    _s3().put_object(Bucket="kept", Key="one", Body=b"body")
    killed = {name: fleet.status()[name].pid for name in ("kafka", "cassandra", "s3")}
    for pid in killed.values():
        os.kill(pid, signal.SIGKILL)
    fleet.up()
    assert all(fleet.status()[name].pid != pid for name, pid in killed.items())
    topics = admin.list_topics(timeout=30).topics
    assert len(topics["kept"].partitions) == 3
    assert [row.id for row in _cql("SELECT id FROM kept.rows")] == [7]
    assert _s3().get_object(Bucket="kept", Key="one")["Body"].read() == b"body"


def test_all_stay_small_under_load(fleet: Fleet) -> None:
    """Memory grows with work: 100 MB of records, 40,000 rows, 20,000 documents and 64 MB of objects fit, too."""
    endpoints = fleet.up()
    admin = AdminClient({"bootstrap.servers": endpoints["kafka"]})
    admin.create_topics([NewTopic("load", 4, 1)])["load"].result(30)
    producer = Producer({"bootstrap.servers": endpoints["kafka"], "queue.buffering.max.messages": 200_000})
    for _ in range(100_000):
        producer.produce("load", os.urandom(8) * 125)
        producer.poll(0)
    assert producer.flush(120) == 0
    _fill_cassandra(40_000)
    _fill_index(endpoints["opensearch"], 20_000)
    _s3().create_bucket(Bucket="load")
    for number in range(16):
        _s3().put_object(Bucket="load", Key=str(number), Body=bytes(4 << 20))
    states = fleet.status()
    print({name: states[name].rss_mb for name in ALL})
    assert sum(states[name].rss_mb for name in ALL) < MEMORY_MB_MAX


def test_down_leaves_no_process_and_no_port(fleet: Fleet) -> None:
    """What `up` started is gone after `down`, the stores by SIGTERM alone, and its ports can be taken at once."""
    fleet.up()
    pids = [fleet.status()[name].pid for name in ALL]
    fleet.said.clear()
    assert set(fleet.down()) == set(ALL)
    assert not [line for line in fleet.said if "SIGKILL" in line and not line.startswith("connect")]
    assert [pid for pid in pids if processes.identity(pid) is not None] == []
    assert [name for name, port in catalog.ports().items() if not processes.is_free(HOST, port)] == []


def _cql(statement: str) -> list[Any]:
    cluster = Cluster([HOST], port=catalog.ports()["cassandra"])
    try:
        return list(cluster.connect().execute(statement, timeout=60))
    finally:
        cluster.shutdown()


def _fill_cassandra(rows: int) -> None:
    _cql("CREATE KEYSPACE IF NOT EXISTS load WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    _cql("CREATE TABLE IF NOT EXISTS load.rows (part int, id int, body blob, PRIMARY KEY (part, id))")
    cluster = Cluster([HOST], port=catalog.ports()["cassandra"])
    try:
        session = cluster.connect("load")
        insert = session.prepare("INSERT INTO rows (part, id, body) VALUES (?, ?, ?)")
        values = [(number % 100, number, bytes(500)) for number in range(rows)]
        assert all(done.success for done in execute_concurrent_with_args(session, insert, values, concurrency=64))
    finally:
        cluster.shutdown()


def _fill_index(url: str, documents: int) -> None:
    _put(f"{url}/load", b'{"settings":{"number_of_replicas":0}}', "application/json", "PUT")
    for start in range(0, documents, 1_000):
        lines = (
            f'{{"index":{{}}}}\n{{"text":"page {number} {"word " * 50}"}}\n' for number in range(start, start + 1_000)
        )
        answer = _put(f"{url}/load/_bulk", "".join(lines).encode(), "application/x-ndjson", "POST")
        assert not json.loads(answer)["errors"]


def _put(url: str, body: bytes, kind: str, method: str) -> bytes:
    request = urllib.request.Request(url, data=body, headers={"Content-Type": kind}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return bytes(answer.read())


def _s3() -> Any:
    return boto3.client(
        "s3",
        endpoint_url=catalog.endpoints()["s3"],
        aws_access_key_id=catalog.S3_ACCESS_KEY,
        aws_secret_access_key=catalog.S3_SECRET_KEY,
        region_name="us-east-1",
    )
