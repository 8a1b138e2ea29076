"""The fleet's verbs against a real Kafka: what is sent arrives where its owner reads, and what is read is what lies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from connectors.owner_page import Explained, OwnerPage, announcement
from connectors.policy_ledger import PolicyLedger, Transactions
from connectors.topic_reader import BEGINNING, CONSUMER_SETTINGS, Message, TopicReader
from infra import fleet_clients
from infra.provision.everything import provision
from infra.provision.kafka_admin import client_settings
from infra.provision.steps import Step
from infra.services import catalog
from infra.services.fetch import fetch
from infra.services.java import find_java
from infra.settings_fleet import Fleet
from infra.wiring import wall_clock_ms
from schemas.codec import decode
from schemas.records import DiscoveredUrl, HostPolicy, Kind
from schemas.topics import OWNER_PAGES, partition_for
from streams.cli import main
from tests.services.conftest import Fleet as Services
from tests.support.fake_engine import NOW_MS, Captured

KEYS = [f"https://h{number}.example:{8_000 + number}" for number in range(200)] + ["https://münchen.test", "*"]


@pytest.fixture(scope="module")
def settings(fleet: Services) -> Fleet:
    """A broker with the fleet's topics."""
    at = fleet.up("kafka")
    settings = Fleet(kafka=(at["kafka"],))
    assert all(isinstance(said, Step) for _, said in provision(settings, ["topics"]))
    return settings


def run(settings: Fleet, *words: str, code: int = 0, stdin: bytes = b"") -> Captured:
    """One command with the real clients."""
    shell = Captured(stdin=stdin, environ={"HEADRACE_FLEET__KAFKA": ",".join(settings.kafka)}, fleet=fleet_clients)
    assert main(list(words), shell) == code, shell.said
    return shell


def messages(settings: Fleet, topic: str) -> list[Message]:
    """All that lies in a topic, as a committed-only reader sees it."""
    consumer = Consumer(client_settings(settings) | dict(CONSUMER_SETTINGS))
    reader = TopicReader(consumer, "kafka")
    try:
        partitions = fleet_clients.partitions(settings)[topic]
        return list(reader.read(topic, dict.fromkeys(range(partitions), BEGINNING)))
    finally:
        reader.close()


def test_kafkas_own_producers_choose_our_partitions(settings: Fleet) -> None:
    """Java's default partitioner, and librdkafka's murmur2, put a keyed record where we name the partition."""
    topic = "wake-ups"
    producer = Producer(client_settings(settings) | {"partitioner": "murmur2_random"})
    for key in KEYS:
        producer.produce(topic, key=key.encode(), value=b"c")
    assert producer.flush(30) == 0
    lines = "".join(f"{key}\tjava\n" for key in KEYS)
    java(settings, topic, lines)
    seen = [(one.key or b"", one.value, one.partition) for one in messages(settings, topic)]
    assert sorted(value or b"" for _, value, _ in seen) == [b"c"] * len(KEYS) + [b"java"] * len(KEYS)
    assert {(key, partition) for key, _, partition in seen} == {
        (key.encode(), partition_for(key, settings.partitions)) for key in KEYS
    }


def java(settings: Fleet, topic: str, lines: str) -> None:
    """Kafka's own console producer, by whose client's partitioner the world sends."""
    service = catalog.SERVICES["kafka"]
    assert service.java is not None
    programs = fetch([service.bundle], os.environ, print)[service.bundle.name]
    program = find_java(service.title, service.java, os.environ).program
    done = subprocess.run(
        [
            *(program, "-Dfile.encoding=UTF-8", "-Xmx128m", "-cp", f"{programs}/libs/*"),
            "org.apache.kafka.tools.ConsoleProducer",
            *("--bootstrap-server", settings.kafka[0], "--topic", topic, "--reader-property", "parse.key=true"),
        ],
        input=lines.encode(),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()


def test_seeds_arrive_with_their_owners(settings: Fleet, tmp_path: Path) -> None:
    """Every seed is in its host's partition, acknowledged and counted; what is refused is told and not there."""
    file = tmp_path / "seeds.txt"
    hosts = [f"https://s{number}.test" for number in range(300)]
    file.write_text("".join(f"{host}/{page}\n" for host in hosts for page in range(10)) + "mailto:x@y\n")
    shell = run(settings, "seeds", str(file), "--json", code=1)
    summary = json.loads(shell.printed.splitlines()[-1])
    assert (summary["read"], summary["acknowledged"], summary["refused"], summary["open"]) == (3_001, 3_000, 1, 0)
    found = [
        (one.partition, tuple(url for url in decode(one.value or b"", DiscoveredUrl) if url.host_key in hosts))
        for one in messages(settings, "discovered-urls")
    ]
    urls = [url.url for _, batch in found for url in batch]
    assert sorted(urls) == sorted(f"{host}/{page}" for host in hosts for page in range(10))
    for partition, batch in found:
        assert {partition_for(url.host_key, settings.partitions) for url in batch} <= {partition}
    by_partition = {str(partition): 0 for partition in range(settings.partitions)}
    for partition, batch in found:
        by_partition[str(partition)] += len(batch)
    assert summary["by_partition"] == by_partition


def test_a_sitemap_by_file_and_by_url(settings: Fleet, tmp_path: Path) -> None:
    """Entries of a file go as pages, a sitemap's URL as a sitemap that the crawl is to fetch."""
    file = tmp_path / "s.xml"
    file.write_text(
        '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
        "<url><loc>https://map.test/1</loc></url><url><loc>https://map.test/2</loc></url></urlset>"
    )
    run(settings, "sitemap", str(file), "https://map.test/index.xml")
    found = [
        (url.url, url.kind)
        for one in messages(settings, "discovered-urls")
        for url in decode(one.value or b"", DiscoveredUrl)
        if url.host_key == "https://map.test"
    ]
    assert sorted(found, key=lambda one: one[0]) == [
        ("https://map.test/1", Kind.PAGE),
        ("https://map.test/2", Kind.PAGE),
        ("https://map.test/index.xml", Kind.SITEMAP),
    ]


def test_tail_shows_what_was_sent_last(settings: Fleet) -> None:
    """The newest records of a real topic, readable, and none of its readers was disturbed."""
    run(settings, "seeds", "-", stdin=b"https://tail.test/1\nhttps://tail.test/2\nhttps://tail.test/3\n")
    rows = [
        json.loads(line)
        for line in run(settings, "topics", "tail", "discovered-urls", "-n", "3", "--json").printed.splitlines()
    ]
    assert [row["record"]["url"] for row in rows] == [f"https://tail.test/{number}" for number in (1, 2, 3)]
    line = run(settings, "topics", "tail", "discovered-urls", "-n", "1").printed
    assert line.startswith(f"{rows[2]['place']}  ")
    assert "https://tail.test/3  source=seed" in line
    assert "owner-pages" in run(settings, "topics").printed


def test_a_word_on_many_reaches_every_partition_at_once(settings: Fleet) -> None:
    """One transaction, one number; the ledger is read past its markers; an operator who comes later counts on."""
    run(settings, "host", "--fleet", "*.verbs.test", "--delay", "3s")
    run(settings, "host", "--fleet", "https://h.verbs.test", "--pause")
    words = [(one.partition, decode(one.value or b"", HostPolicy)[0]) for one in messages(settings, "host-policies")]
    on_many = [(partition, policy) for partition, policy in words if policy.host_key == "*.verbs.test"]
    assert sorted(partition for partition, _ in on_many) == list(range(settings.partitions))
    assert len({policy.policy_version for _, policy in on_many}) == 1
    [(partition, one)] = [(partition, policy) for partition, policy in words if "h.verbs" in policy.host_key]
    assert partition == partition_for("https://h.verbs.test", settings.partitions)
    assert one.policy_version > on_many[0][1].policy_version
    shown = run(settings, "host", "--fleet", "https://h.verbs.test").printed
    assert "delay 3000 ms" in shown
    assert "paused" in shown


def test_a_fenced_operator_begins_again(settings: Fleet) -> None:
    """The broker itself fences the first of two operators; both words stand in the end, in one order."""

    def opened(before: list[str]) -> PolicyLedger:
        consumer = Consumer(client_settings(settings) | dict(CONSUMER_SETTINGS))
        reader = TopicReader(consumer, "kafka")

        def transactions() -> Transactions:
            client: Transactions = fleet_clients.transactions(settings, lambda why: None)
            if before:
                return Overtaken(client, settings, before.pop())
            return client

        return PolicyLedger(
            reader, settings.partitions, address="kafka", now_ms=lambda: NOW_MS, open_transactions=transactions
        )

    said = opened(["https://other.verbs.test"]).say(HostPolicy("https://mine.verbs.test", 0, paused=True))
    words = [decode(one.value or b"", HostPolicy)[0] for one in messages(settings, "host-policies")]
    other = next(one for one in words if one.host_key == "https://other.verbs.test")
    assert [one for one in words if one.host_key == "https://mine.verbs.test"] == [said]
    assert said.policy_version > other.policy_version


class Overtaken:
    """A transactional client whose commit comes after another operator's whole word."""

    def __init__(self, client: Transactions, settings: Fleet, key: str) -> None:
        self._client, self._settings, self._key = client, settings, key

    def init_transactions(self, timeout: float) -> None:
        self._client.init_transactions(timeout)

    def begin_transaction(self) -> None:
        self._client.begin_transaction()

    def produce(self, topic: str, **message: Any) -> None:
        self._client.produce(topic, **message)

    def commit_transaction(self, timeout: float) -> None:
        run(self._settings, "host", "--fleet", self._key, "--pause")
        self._client.commit_transaction(timeout)


def test_the_owner_is_found_by_its_record(settings: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compacted topic names the page of each partition's owner; the highest epoch counts."""
    mine = partition_for("https://h.test", settings.partitions)
    producer = Producer(client_settings(settings))
    for epoch in (1, 3, 2):
        key, value = announcement(OwnerPage(mine, epoch, f"http://127.0.0.1:{epoch}", NOW_MS))
        producer.produce(OWNER_PAGES, key=key, value=value, partition=0)
    assert producer.flush(30) == 0
    asked: list[OwnerPage] = []

    def ask(page: OwnerPage, what: str) -> Explained:
        asked.append(page)
        return Explained(page.partition, page.epoch, (("now", f"{what}: ready to be asked"),))

    monkeypatch.setattr(fleet_clients, "ask_owner", ask)
    assert "ready to be asked" in run(settings, "explain", "--fleet", "https://h.test/x").printed
    assert [(page.partition, page.epoch) for page in asked] == [(mine, 3)]


def test_a_broker_that_goes_away_is_waited_for(settings: Fleet, fleet: Services) -> None:
    """Killed under a feed that goes on: the command says so, waits, and every line is there in the end, once."""
    reading, writing = os.pipe()
    shell = Captured(
        environ={"HEADRACE_FLEET__KAFKA": ",".join(settings.kafka)}, fleet=fleet_clients, now_ms=wall_clock_ms
    )
    shell._stdin = os.fdopen(reading, "rb")
    codes: list[int] = []
    feed = threading.Thread(target=lambda: codes.append(main(["seeds", "-"], shell)))
    feed.start()

    def write(first: int, count: int) -> None:
        os.write(writing, "".join(f"https://away{at}.test/\n" for at in range(first, first + count)).encode())

    def arrived() -> list[str]:
        batches = [decode(one.value or b"", DiscoveredUrl) for one in messages(settings, "discovered-urls")]
        return sorted(url.url for batch in batches for url in batch if url.host_key.startswith("https://away"))

    write(0, 500)
    until(lambda: len(arrived()) == 500)
    fleet.down("kafka")
    write(500, 500)
    until(lambda: "has acknowledged nothing for" in shell.said)
    fleet.up("kafka")
    os.close(writing)
    feed.join(120)
    assert codes == [0], shell.said
    assert "kafka answers again" in shell.said
    assert "1,000 lines read: 1,000 URLs acknowledged" in shell.printed
    assert arrived() == sorted(f"https://away{at}.test/" for at in range(1_000))


def test_ctrl_c_ends_a_feed_with_all_of_it_acknowledged(settings: Fleet) -> None:
    """A real signal to a real process that waits for its pipe: what was read is there, and where to go on is named."""
    process = subprocess.Popen(
        [sys.executable, "-m", "streams.cli", "seeds", "-"],
        env={**os.environ, "HEADRACE_FLEET__KAFKA": ",".join(settings.kafka)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write("".join(f"https://stop{at}.test/\n" for at in range(100)).encode())
    process.stdin.flush()

    def arrived() -> int:
        batches = [decode(one.value or b"", DiscoveredUrl) for one in messages(settings, "discovered-urls")]
        return sum(url.host_key.startswith("https://stop") for batch in batches for url in batch)

    until(lambda: arrived() == 100)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout as out, process.stderr as err:
        assert out.read().decode().startswith("100 lines read: 100 URLs acknowledged by discovered-urls")
        assert "go on with: --from-line 101" in err.read().decode()
    process.stdin.close()


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    """Look until it is so, with a bound."""
    end = time.monotonic() + seconds
    waiting = threading.Event()
    while not holds():
        assert time.monotonic() < end, "it did not come to that in time"
        waiting.wait(0.2)
