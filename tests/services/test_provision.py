"""Provisioning against the real services: made once, then it stands; what does not fit is refused and left as it is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from infra.provision import topics
from infra.provision.cassandra_admin import DriverAdmin
from infra.provision.connector import PAGES_SINK
from infra.provision.everything import PARTS, provision
from infra.provision.kafka_admin import ConfluentAdmin
from infra.provision.rest import HttpRest
from infra.provision.steps import ServiceAway, Step, Verdict
from infra.settings_fleet import Fleet
from schemas.topics import OWNER_CHANGELOG
from tests.services.conftest import Fleet as Services

CONNECTOR = msgspec.json.decode(PAGES_SINK.read_bytes())["name"]


@pytest.fixture(scope="module")
def settings(fleet: Services) -> Iterator[Fleet]:
    """The services of this run as settings, with a keyspace, a bucket and an index of this module's own."""
    at = fleet.up("kafka", "cassandra", "s3", "opensearch", "connect")
    yield Fleet(
        kafka=(at["kafka"],),
        cassandra=(at["cassandra"],),
        s3_endpoint=at["s3"],
        connect=at["connect"],
        opensearch=at["opensearch"],
        keyspace="provision_test",
        bucket="provision-test",
        index="provision-test",
    )
    HttpRest("connect", at["connect"]).request("DELETE", f"/connectors/{CONNECTOR}")


def changed(settings: Fleet, **values: Any) -> Fleet:
    """The settings with some of them replaced."""
    return msgspec.structs.replace(settings, **values)


def run(settings: Fleet, *only: str) -> dict[str, Step]:
    """One run; every step by its thing. A part that failed fails the test."""
    steps = {}
    for _, said in provision(settings, only):
        assert isinstance(said, Step), said
        steps[said.thing] = said
    return steps


def verdicts(steps: Mapping[str, Step]) -> set[Verdict]:
    """What all of them came to."""
    return {step.verdict for step in steps.values()}


def as_it_is(settings: Fleet) -> tuple[Any, ...]:
    """All that a run could change, as the services tell it: topics' settings, tables, mapping, connector."""
    with contextlib.closing(DriverAdmin(settings)) as cassandra:
        tables = cassandra.replication(settings.keyspace), cassandra.tables(settings.keyspace)
    there = ConfluentAdmin(settings).topics([topic.name for topic in topics.wanted()])
    index = HttpRest("opensearch", settings.opensearch).request("GET", f"/{settings.index}")
    sink = HttpRest("connect", settings.connect).request("GET", f"/connectors/{CONNECTOR}")
    return there, tables, index, sink


def test_twice_changes_nothing(settings: Fleet) -> None:
    """A start script calls it each time: the second run finds all of it standing, and the services say the same."""
    first = run(settings)
    assert {step.thing for step in first.values() if step.verdict is Verdict.REFUSED} == set()
    before = as_it_is(settings)
    second = run(settings)
    assert list(second) == list(first)
    assert verdicts(second) == {Verdict.STANDS}
    assert as_it_is(settings) == before


def test_topics_are_as_asked(settings: Fleet) -> None:
    """What the broker made is what the schema says, not what its own defaults are."""
    run(settings, "topics")
    there = ConfluentAdmin(settings).topics([topic.name for topic in topics.wanted()])
    for topic in topics.wanted():
        found = there[topic.name]
        asked = topics.config_of(topic, 1)
        assert {key: found.config[key] for key in asked} == asked, topic.name
        assert found.partitions == settings.partitions or not topic.co_partitioned
    assert there[OWNER_CHANGELOG].config["cleanup.policy"] == "compact"


def test_a_wrong_partition_count_refuses(settings: Fleet) -> None:
    """Hosts would go to other owners: nothing is made or grown, and the remedy names the count that is there."""
    run(settings, "topics")
    before = ConfluentAdmin(settings).topics([topic.name for topic in topics.wanted()])
    steps = run(changed(settings, partitions=8), "topics")
    refused = steps["topic discovered-urls"]
    assert refused.verdict is Verdict.REFUSED
    assert "--partitions 4" in refused.remedy
    assert verdicts(steps) <= {Verdict.REFUSED, Verdict.LEFT, Verdict.STANDS}
    assert ConfluentAdmin(settings).topics([topic.name for topic in topics.wanted()]) == before


def test_a_topic_that_lost_its_retention_is_mended(settings: Fleet) -> None:
    """Kafka takes our change of a setting as it is meant: that one, and no other goes back to its default."""
    run(settings, "topics")
    admin = ConfluentAdmin(settings)
    admin.configure("owner-messages", {"retention.ms": "1000", "segment.ms": "654321"})
    assert run(settings, "topics")["topic owner-messages"].detail == "retention.ms 1000 to 604800000"
    config = admin.topics(["owner-messages"])["owner-messages"].config
    assert (config["retention.ms"], config["segment.ms"]) == ("604800000", "654321")


def test_a_topic_that_is_not_compacted_refuses(settings: Fleet) -> None:
    """A changelog under retention forgets hosts; the real broker's wording of the policy is understood."""
    run(settings, "topics")
    admin = ConfluentAdmin(settings)
    admin.configure(OWNER_CHANGELOG, {"cleanup.policy": "compact,delete"})
    try:
        refused = run(settings, "topics")[f"topic {OWNER_CHANGELOG}"]
    finally:
        admin.configure(OWNER_CHANGELOG, {"cleanup.policy": "compact"})
    assert refused.verdict is Verdict.REFUSED
    assert "is there with compact,delete" in refused.detail


def test_a_keyspace_of_other_replication_refuses(settings: Fleet) -> None:
    """SimpleStrategy knows no datacenters; Cassandra's own wording of a replication is understood."""
    other = changed(settings, keyspace="provision_simple")
    with contextlib.closing(DriverAdmin(other)) as cassandra:
        cassandra.execute(
            f"CREATE KEYSPACE IF NOT EXISTS {other.keyspace}"
            " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': '1'}"
        )
        steps = run(other, "keyspace")
        assert cassandra.tables(other.keyspace) == {}
        cassandra.execute(f"DROP KEYSPACE {other.keyspace}")
    assert steps[f"keyspace {other.keyspace}"].verdict is Verdict.REFUSED
    assert "is there with SimpleStrategy: replication_factor 1" in steps[f"keyspace {other.keyspace}"].detail


def test_a_table_with_a_time_to_live_refuses_and_a_missing_column_is_added(settings: Fleet) -> None:
    """Rows that expire are URLs forgotten; a column of a later version is added in place."""
    other = changed(settings, keyspace="provision_shape")
    run(other, "keyspace")
    with contextlib.closing(DriverAdmin(other)) as cassandra:
        cassandra.execute(f"ALTER TABLE {other.keyspace}.url_state WITH default_time_to_live = 60")
        refused = run(other, "keyspace")["table url_state"]
        cassandra.execute(f"ALTER TABLE {other.keyspace}.url_state WITH default_time_to_live = 0")
        cassandra.execute(f"ALTER TABLE {other.keyspace}.owner_epoch DROP region")
        added = run(other, "keyspace")["table owner_epoch"]
        again = run(other, "keyspace")
        cassandra.execute(f"DROP KEYSPACE {other.keyspace}")
    assert (refused.verdict, added.verdict) == (Verdict.REFUSED, Verdict.CHANGED)
    assert added.detail == "columns added: region text"
    assert verdicts(again) == {Verdict.STANDS}


def test_a_mapping_that_differs_refuses(settings: Fleet) -> None:
    """OpenSearch would refuse documents, or find none of them: the index is named, and left as it is."""
    rest = HttpRest("opensearch", settings.opensearch)
    other = changed(settings, index="provision-other")
    rest.request("PUT", f"/{other.index}", {"mappings": {"properties": {"url": {"type": "text"}}}})
    try:
        refused = run(other, "index")[f"index {other.index}"]
    finally:
        rest.request("DELETE", f"/{other.index}")
    assert refused.verdict is Verdict.REFUSED
    assert "properties.url.type keyword" in refused.detail


def test_an_index_gains_fields_and_settings(settings: Fleet) -> None:
    """What OpenSearch can change in place is changed in place, once."""
    rest = HttpRest("opensearch", settings.opensearch)
    other = changed(settings, index="provision-older")
    run(other, "index")
    whole = rest.request("GET", f"/{other.index}").body[other.index]["mappings"]
    older = {name: field for name, field in whole["properties"].items() if name != "language"}
    rest.request("DELETE", f"/{other.index}")
    rest.request("PUT", f"/{other.index}", {"mappings": {**whole, "properties": older}})
    try:
        step = run(other, "index")[f"index {other.index}"]
        again = run(other, "index")
    finally:
        rest.request("DELETE", f"/{other.index}")
    assert step.verdict is Verdict.CHANGED
    assert "fields added: language" in step.detail
    assert verdicts(again) == {Verdict.STANDS}


def test_wrong_keys_are_said_as_such(settings: Fleet) -> None:
    """A store that is there and shuts us out is no store that is away; the remedy names the keys."""
    [(_, error)] = provision(changed(settings, s3_secret_key="wrong"), ["bucket"])
    assert isinstance(error, ServiceAway)
    assert "a refusal" in str(error)
    assert "fleet.s3_secret_key" in str(error) or "s3_secret_key" in str(error)


def test_a_dry_run_makes_nothing(settings: Fleet) -> None:
    """What would be made is said part by part, and the real services have none of it afterwards."""
    other = changed(settings, keyspace="provision_dry", bucket="provision-dry", index="provision-dry")
    for part in ("keyspace", "bucket", "index"):
        said = [step for _, step in provision(other, [part], dry_run=True)]
        assert all(isinstance(step, Step) and step.verdict is Verdict.MADE for step in said), said
        again = [step for _, step in provision(other, [part], dry_run=True)]
        assert again == said
    assert set(PARTS) == {"topics", "keyspace", "bucket", "index", "connector"}
