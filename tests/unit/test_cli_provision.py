"""`headrace provision`: what a person and a script are told, and with which exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.provision import everything, topics
from infra.provision.steps import ServiceAway, Step, carry_out
from infra.settings_fleet import Fleet
from streams.cli import main
from tests.support.fake_clusters import FakeKafka
from tests.support.fake_engine import Captured


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    """A cluster in place of the real one; the bucket's store is away, all other parts have nothing to do."""
    cluster = FakeKafka(brokers=3)

    def on_topics(fleet: Fleet, dry_run: bool) -> Iterator[Step]:
        plan = topics.plan(cluster, partitions=fleet.partitions, replication=fleet.replication)
        yield from carry_out(plan, dry_run=dry_run)

    def away(fleet: Fleet, dry_run: bool) -> Iterator[Step]:
        if fleet.s3_endpoint:
            raise ServiceAway("s3", fleet.s3_endpoint, "nothing", "start it")
        yield from ()

    def nothing(fleet: Fleet, dry_run: bool) -> Iterator[Step]:
        yield from ()

    for name in everything.PARTS:
        monkeypatch.setitem(everything.PARTS, name, {"topics": on_topics, "bucket": away}.get(name, nothing))
    return cluster


def test_made_then_stands(kafka: FakeKafka) -> None:
    """A script may call it before every start: exit code 0, and the second time nothing is done."""
    first, second = Captured(), Captured()
    assert main(["provision", "--only", "topics"], first) == 0
    assert "made          topic discovered-urls                   4 partitions, 1 copy, kept 3 d\n" in first.printed
    assert first.said == "14 made\n"
    assert main(["provision", "--only", "topics"], second) == 0
    assert second.said == "14 stands\n"


def test_sizes_come_from_flags_settings_and_environment(kafka: FakeKafka, tmp_path: Path) -> None:
    """A count that was not heard is a fleet of the wrong size for ever."""
    config = tmp_path / "fleet.toml"
    config.write_text("[fleet]\npartitions = 16\nreplication = 3\n")
    shell = Captured()
    assert main(["provision", "--only", "topics", "--config", str(config), "--partitions", "8"], shell) == 0
    assert "8 partitions, 3 copies" in shell.printed


def test_it_goes_where_the_services_were_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """`services up` and `provision` under one HEADRACE_PORTS mean the same servers; a setting of one's own wins."""
    asked: list[Fleet] = []

    def look(fleet: Fleet, dry_run: bool) -> Iterator[Step]:
        asked.append(fleet)
        yield from ()

    monkeypatch.setitem(everything.PARTS, "topics", look)
    environ = {"HEADRACE_PORTS": "+1000,s3=9000", "HEADRACE_FLEET__CONNECT": "http://connect:1"}
    assert main(["provision", "--only", "topics"], Captured(environ=environ)) == 0
    (fleet,) = asked
    assert (fleet.kafka, fleet.cassandra) == (("127.0.0.1:20092",), ("127.0.0.1:20042",))
    assert (fleet.s3_endpoint, fleet.opensearch) == ("http://127.0.0.1:9000", "http://127.0.0.1:20200")
    assert fleet.connect == "http://connect:1"


def test_a_refusal_is_exit_code_1_with_the_remedy_below(kafka: FakeKafka) -> None:
    """A start script must stop there, and a person must see what to do without searching."""
    main(["provision", "--only", "topics", "--partitions", "8"], Captured())
    shell = Captured()
    assert main(["provision", "--only", "topics"], shell) == 1
    lines = shell.printed.splitlines()
    assert lines[0].startswith("refused       topic discovered-urls ")
    assert lines[1].strip().startswith("keep 8: fleet.partitions = 8 (--partitions 8).")
    assert shell.printed.count("keep 8: ") == 1  # eleven topics, one remedy
    assert "repeat" in shell.said


def test_a_service_that_is_away_ends_its_part_only(kafka: FakeKafka) -> None:
    """What could be made is made; what is away is named with its address, and the exit code says that something is."""
    shell = Captured()
    assert main(["provision"], shell) == 1
    assert "headrace: s3 at http://127.0.0.1:18333: needed an answer, got nothing; start it\n" in shell.said
    assert "1 part failed" in shell.said
    assert kafka.kept


def test_a_dry_run_changes_nothing_and_says_so(kafka: FakeKafka) -> None:
    """Before a production cluster is touched, a person wants to see what would be."""
    shell = Captured()
    assert main(["provision", "--only", "topics", "--dry-run"], shell) == 0
    assert "would make    topic discovered-urls" in shell.printed
    assert "nothing was changed" in shell.said
    assert kafka.deeds == []


def test_json_is_one_object_a_line(kafka: FakeKafka) -> None:
    """Scripts read verdicts and remedies without knowing our columns."""
    main(["provision", "--only", "topics", "--partitions", "8"], Captured())
    shell = Captured()
    assert main(["provision", "--only", "topics,bucket", "--json"], shell) == 1
    rows = [json.loads(line) for line in shell.printed.splitlines()]
    assert {row["verdict"] for row in rows} == {"refused", "stands", "failed"}
    assert all("remedy" in row for row in rows if row["verdict"] == "refused")


def test_an_unknown_part_is_refused() -> None:
    """A mistyped part must not come out as "nothing to do"."""
    shell = Captured()
    assert main(["provision", "--only", "topics,tables"], shell) == 2
    assert 'no part "tables"; known: topics, keyspace, bucket, index, connector' in shell.said
