"""Provisioning makes what is missing, touches nothing that stands, and refuses what would move hosts or lose rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from infra.provision import bucket, connector, index, keyspace, topics
from infra.provision.cql import CRAWL_CQL, Table, table_of, tables
from infra.provision.steps import Step, Verdict, carry_out
from infra.settings_fleet import Fleet
from schemas.topics import INDEX_DEAD_LETTERS, INNER_TOPICS, OWNER_CHANGELOG, TOPICS
from streams.core.failures import CrawlError
from tests.support.fake_clusters import FakeCassandra, FakeConnect, FakeKafka, FakeOpenSearch, FakeStore

INDEX = {
    "settings": {"index": {"gc_deletes": "7d"}, "analysis": {"analyzer": {"page": {"type": "standard"}}}},
    "mappings": {
        "dynamic": False,
        "properties": {
            "url": {"type": "keyword", "index": True},
            "title": {"type": "text", "fields": {"raw": {"type": "keyword", "ignore_above": 256}}},
            "text": {"type": "text", "norms": True},
        },
    },
}
SINK = {
    "name": "headrace-pages",
    "config": {"connector.class": "io.headrace.sink.OpenSearchSink", "topics": "index-events", "tasks.max": 2},
}


def verdicts(steps: list[Step]) -> set[Verdict]:
    """What all of them came to."""
    return {step.verdict for step in steps}


def of(steps: list[Step], thing: str) -> Step:
    """The step of that thing."""
    return next(step for step in steps if step.thing == thing)


def on_topics(kafka: FakeKafka, partitions: int = 4, replication: int = 1, *, dry_run: bool = False) -> list[Step]:
    """One run over the topics."""
    return list(carry_out(topics.plan(kafka, partitions=partitions, replication=replication), dry_run=dry_run))


def on_tables(
    cassandra: FakeCassandra, replication: int = 1, datacenters: tuple[str, ...] = (), cql: str | None = None
) -> list[Step]:
    """One run over keyspace and tables."""
    plan = keyspace.plan(cassandra, keyspace="headrace", replication=replication, datacenters=datacenters, cql=cql)
    return list(carry_out(plan))


def on_index(search: FakeOpenSearch, shards: int = 1, replicas: int = 0, document: Any = None) -> list[Step]:
    """One run over the index."""
    plan = index.plan(search, index="pages", shards=shards, replicas=replicas, document=document or INDEX)
    return list(carry_out(plan))


def on_connector(connect: FakeConnect, fleet: Fleet | None = None) -> list[Step]:
    """One run over the connector; waiting takes no time."""
    return list(carry_out(connector.plan(connect, fleet or Fleet(), document=SINK, pause=lambda _: None)))


# --- topics -------------------------------------------------------------------------------------------------------


def test_topics_are_made_once() -> None:
    """A second run that changed anything would reset what an operator tuned, or restart a stream."""
    kafka = FakeKafka()
    assert verdicts(on_topics(kafka)) == {Verdict.MADE}
    assert set(kafka.kept) == {*TOPICS, *INNER_TOPICS}
    kafka.deeds.clear()
    assert verdicts(on_topics(kafka)) == {Verdict.STANDS}
    assert kafka.deeds == []


def test_the_changelog_is_compacted_and_beside_the_inbox() -> None:
    """A changelog that retention cuts forgets hosts; one of another count hands a host's state to another owner."""
    kafka = FakeKafka()
    on_topics(kafka, partitions=32)
    changelog = kafka.kept[OWNER_CHANGELOG]
    assert changelog.config["cleanup.policy"] == "compact"
    assert changelog.config["retention.ms"] == "-1"
    assert int(changelog.config["segment.bytes"]) <= 64 << 20
    inbox = {topic.name for topic in topics.wanted() if topic.group.value == "owner"}
    assert {kafka.kept[name].partitions for name in inbox} == {32}


def test_a_wrong_partition_count_refuses_all_topics() -> None:
    """Hosts would go to other owners; and topics made beside the refused one would have to go again."""
    kafka = FakeKafka()
    kafka.create("fetch-results", 8, 1, topics.config_of(TOPICS["fetch-results"], 1))
    kafka.deeds.clear()
    steps = on_topics(kafka)
    refused = of(steps, "topic fetch-results")
    assert refused.verdict is Verdict.REFUSED
    assert refused.detail == "needed 4 partitions, is there with 8"
    assert "--partitions 8" in refused.remedy
    assert "other owners" in refused.remedy
    assert verdicts(steps) == {Verdict.REFUSED, Verdict.LEFT}
    assert kafka.deeds == []


def test_index_topics_may_grow_but_never_shrink() -> None:
    """Documents carry their versions, so more sink tasks must not need a new fleet."""
    kafka = FakeKafka()
    on_topics(kafka, partitions=1)
    for name in [name for name in kafka.kept if name not in ("index-events", INDEX_DEAD_LETTERS)]:
        del kafka.kept[name]
    steps = on_topics(kafka, partitions=128)
    assert of(steps, "topic index-events").verdict is Verdict.CHANGED
    assert (kafka.kept["index-events"].partitions, kafka.kept[INDEX_DEAD_LETTERS].partitions) == (64, 4)
    assert verdicts(on_topics(kafka, partitions=128)) == {Verdict.STANDS}


@pytest.mark.parametrize(
    ("name", "cleanup", "words"),
    [
        (OWNER_CHANGELOG, "delete", "lost already"),
        (OWNER_CHANGELOG, "compact,delete", "lost already"),
        ("host-policies", "delete", "lost already"),
        ("discovered-urls", "compact", "drops all others"),
    ],
)
def test_another_cleanup_is_refused(name: str, cleanup: str, words: str) -> None:
    """Retention forgets hosts without a word, and compaction forgets URLs."""
    kafka = FakeKafka()
    on_topics(kafka)
    kafka.set(name, cleanup_policy=cleanup)
    refused = of(on_topics(kafka), f"topic {name}")
    assert refused.verdict is Verdict.REFUSED
    assert f"is there with {','.join(sorted(cleanup.split(',')))}" in refused.detail
    assert words in refused.remedy
    assert f"--topic {name} --add-config cleanup.policy=" in refused.remedy


@pytest.mark.parametrize(
    ("key", "less", "needed"),
    [
        ("retention.ms", "1000", "604800000"),
        ("max.message.bytes", "1000", "1048588"),
        ("min.insync.replicas", "1", "2"),
        ("unclean.leader.election.enable", "true", "false"),
    ],
)
def test_settings_that_lose_records_are_mended(key: str, less: str, needed: str) -> None:
    """A batch that does not fit, or an acknowledged record on one disk only, stops or loses a crawl later."""
    kafka = FakeKafka(brokers=3)
    on_topics(kafka, replication=3)
    kafka.set("stored-results", **{key.replace(".", "_"): less})
    steps = on_topics(kafka, replication=3)
    assert of(steps, "topic stored-results").detail == f"{key} {less} to {needed}"
    assert kafka.kept["stored-results"].config[key] == needed
    assert verdicts(on_topics(kafka, replication=3)) == {Verdict.STANDS}


@pytest.mark.parametrize(
    "config", [{"retention_ms": "-1"}, {"max_message_bytes": "9000000"}, {"segment_ms": "5"}, {"compression_type": "x"}]
)
def test_an_operators_own_word_stands(config: dict[str, str]) -> None:
    """More than needed is no fault, and what only tunes is not ours to set back."""
    kafka = FakeKafka()
    on_topics(kafka)
    kafka.set("dead-letters", **config)
    assert verdicts(on_topics(kafka)) == {Verdict.STANDS}


def test_copies_need_brokers_and_are_not_taken_for_there() -> None:
    """A fleet that believes in three copies and has one loses it all with a disk."""
    steps = on_topics(FakeKafka(brokers=2), replication=3)
    assert [step.verdict for step in steps] == [Verdict.REFUSED]
    assert "needed 3 brokers for 3 copies, the cluster has 2" in steps[0].detail
    kafka = FakeKafka(brokers=3)
    on_topics(kafka, replication=1)
    refused = of(on_topics(kafka, replication=3), "topic fetch-leases")
    assert refused.detail == "needed 3 copies of each partition, is there with 1"
    assert "kafka-reassign-partitions.sh" in refused.remedy


def test_most_copies_must_have_a_record() -> None:
    """With three copies one broker may be away, and an acknowledged record outlives it."""
    assert [topics.copies_needed(copies) for copies in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]


def test_segments_close_well_before_retention_ends() -> None:
    """Retention takes whole segments: one that is open for a week keeps an hour's wake-ups for a week."""
    for topic in topics.wanted():
        config = topics.config_of(topic, 3)
        if topic.retention_ms is not None:
            assert int(config["segment.ms"]) * 2 <= topic.retention_ms


def test_a_dry_run_says_the_same_and_does_nothing() -> None:
    """Who asks first what would happen must get the truth, and nothing else."""
    kafka = FakeKafka()
    said = on_topics(kafka, dry_run=True)
    assert kafka.deeds == []
    assert [(step.thing, step.verdict, step.detail) for step in said] == [
        (step.thing, step.verdict, step.detail) for step in on_topics(kafka)
    ]


# --- keyspace and tables ------------------------------------------------------------------------------------------


def test_tables_are_made_once() -> None:
    """The keyspace comes before its tables, and a second run executes nothing."""
    cassandra = FakeCassandra()
    assert verdicts(on_tables(cassandra)) == {Verdict.MADE}
    assert set(cassandra.kept) == {"url_state", "url_state_paxos", "owner_epoch"}
    assert cassandra.keyspaces["headrace"] == {"class": "NetworkTopologyStrategy", "datacenter1": "1"}
    cassandra.deeds.clear()
    assert verdicts(on_tables(cassandra)) == {Verdict.STANDS}
    assert cassandra.deeds == []


def test_other_replication_is_refused_with_the_repair() -> None:
    """ALTER alone leaves empty replicas, which answer that they know no URL."""
    cassandra = FakeCassandra({"a": 3, "b": 3})
    on_tables(cassandra, replication=3, datacenters=("a",))
    refused = of(on_tables(cassandra, replication=3, datacenters=("a", "b")), "keyspace headrace")
    assert refused.verdict is Verdict.REFUSED
    assert "ALTER KEYSPACE headrace WITH replication = {'class': 'NetworkTopologyStrategy', 'a': '3', 'b': '3'}" in (
        refused.remedy
    )
    assert "repair --full headrace" in refused.remedy


@pytest.mark.parametrize(("nodes", "datacenters"), [({"a": 2}, ()), ({"a": 3}, ("a", "elsewhere"))])
def test_copies_need_nodes(nodes: dict[str, int], datacenters: tuple[str, ...]) -> None:
    """A keyspace with more copies than nodes takes no write at quorum."""
    cassandra = FakeCassandra(nodes)
    steps = on_tables(cassandra, replication=3, datacenters=datacenters)
    assert verdicts(steps) == {Verdict.REFUSED}
    assert cassandra.deeds == []


URLS = Table(
    "url_state",
    {"host_key": "text", "bucket": "tinyint", "url_id": "blob", "url": "text", "state": "blob"},
    ("host_key", "bucket"),
    ("url_id",),
)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Table("url_state", URLS.columns, ("host_key",), ("url_id",)), "key ((host_key, bucket), url_id)"),
        (Table("url_state", {**URLS.columns, "bucket": "int"}, URLS.partition_key, URLS.clustering), "bucket tinyint"),
        (Table("url_state", URLS.columns, URLS.partition_key, URLS.clustering, 60), "no time to live"),
    ],
)
def test_a_table_of_another_shape_is_refused(found: Table, words: str) -> None:
    """Rows would be looked for where they are not, or vanish by themselves."""
    cassandra = FakeCassandra()
    on_tables(cassandra)
    cassandra.kept["url_state"] = found
    refused = of(on_tables(cassandra), "table url_state")
    assert refused.verdict is Verdict.REFUSED
    assert words in refused.detail
    assert refused.remedy


def test_a_column_of_a_later_version_is_added() -> None:
    """A new version of Headrace must not need a new keyspace for one more column."""
    cassandra = FakeCassandra()
    on_tables(cassandra)
    later = CRAWL_CQL.read_text().replace("    state    blob,", "    state    blob,\n    crc bigint,")
    changed = of(on_tables(cassandra, cql=later), "table url_state")
    assert (changed.verdict, changed.detail) == (Verdict.CHANGED, "columns added: crc bigint")
    assert verdicts(on_tables(cassandra, cql=later)) == {Verdict.STANDS}


def test_the_tables_are_as_their_laws_say() -> None:
    """One cell changes, all others are the URL's own, nothing expires and hints live: else rows mix or vanish."""
    plain, paxos, epoch = tables(CRAWL_CQL.read_text())
    assert plain == table_of(plain.create)
    assert (plain.columns, plain.partition_key, plain.clustering) == (URLS.columns, URLS.partition_key, URLS.clustering)
    assert set(paxos.columns) - set(plain.columns) == {"stamp"}
    assert epoch.partition_key == ("partition_id",)
    for table in (plain, paxos, epoch):
        assert "default_time_to_live = 0" in table.create
        assert "gc_grace_seconds = 864000" in table.create
        assert "TimeWindow" not in table.create


# --- bucket -------------------------------------------------------------------------------------------------------


def test_the_bucket_is_made_once_and_another_s_is_refused() -> None:
    """A bucket of somebody else's would be found out at the first upload, with a fetch lost."""
    store = FakeStore(others=["taken"])
    first, second = (list(carry_out(bucket.plan(store, bucket="mine"))) for _ in range(2))
    assert (verdicts(first), verdicts(second)) == ({Verdict.MADE}, {Verdict.STANDS})
    assert store.buckets == {"mine": True}
    refused = list(carry_out(bucket.plan(store, bucket="taken")))
    assert verdicts(refused) == {Verdict.REFUSED}
    assert "fleet.bucket" in refused[0].remedy


# --- index --------------------------------------------------------------------------------------------------------


def test_the_index_is_made_once() -> None:
    """OpenSearch words an answer in its own way; what differs in words alone must not be changed each time."""
    search = FakeOpenSearch()
    assert verdicts(on_index(search, shards=3, replicas=1)) == {Verdict.MADE}
    assert (search.settings["number_of_shards"], search.settings["gc_deletes"]) == ("3", "7d")
    search.deeds.clear()
    assert verdicts(on_index(search, shards=3, replicas=1)) == {Verdict.STANDS}
    assert search.deeds == []


def with_field(path: str, field: Any) -> dict[str, Any]:
    """The index's document with one field set."""
    properties = {**INDEX["mappings"]["properties"], path: field}  # type: ignore[dict-item]
    return {**INDEX, "mappings": {**INDEX["mappings"], "properties": properties}}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (with_field("url", {"type": "text"}), "properties.url.type text, is there with keyword"),
        (with_field("text", {"type": "text", "analyzer": "page"}), "properties.text.analyzer page"),
        ({**INDEX, "mappings": {**INDEX["mappings"], "dynamic": "strict"}}, "dynamic strict"),
    ],
)
def test_a_mapping_that_differs_is_refused(document: dict[str, Any], words: str) -> None:
    """A field keeps the type it was made with: documents would be refused, or found by nobody."""
    search = FakeOpenSearch()
    on_index(search)
    search.deeds.clear()
    refused = of(on_index(search, document=document), "index pages")
    assert refused.verdict is Verdict.REFUSED
    assert words in refused.detail
    assert "fleet.index" in refused.remedy
    assert search.deeds == []


def test_fields_are_added_and_settings_changed_in_place() -> None:
    """What OpenSearch can change without a new index is changed, also a field below a field."""
    search = FakeOpenSearch()
    on_index(search)
    title = {"type": "text", "fields": {"raw": {"type": "keyword", "ignore_above": 256}, "exact": {"type": "keyword"}}}
    document = with_field("title", title)
    document["mappings"]["properties"]["site"] = {"type": "keyword"}
    changed = of(on_index(search, replicas=2, document=document), "index pages")
    assert changed.detail == "number_of_replicas 0 to 2, fields added: title.exact, site"
    assert search.mappings["properties"]["title"] == title
    assert verdicts(on_index(search, replicas=2, document=document)) == {Verdict.STANDS}


def test_another_number_of_shards_and_an_alias_are_refused() -> None:
    """Shards are for ever, and a sink that writes to an alias writes to what it happens to mean."""
    search = FakeOpenSearch()
    on_index(search)
    refused = of(on_index(search, shards=5), "index pages")
    assert refused.detail == "needed number_of_shards 5, is there with 1"
    search.name, search.alias = "pages-1", "pages"
    refused = of(on_index(search), "index pages")
    assert refused.remedy == "name the index itself: fleet.index = pages-1"


# --- connector ----------------------------------------------------------------------------------------------------


def test_the_connector_is_made_once_and_runs() -> None:
    """Made means that its tasks run, also while Connect still shares out its work."""
    connect = FakeConnect(busy=3)
    assert verdicts(on_connector(connect)) == {Verdict.MADE}
    assert connect.starting == 0
    assert connect.config is not None
    assert connect.config["connection.url"] == Fleet().opensearch
    assert connect.config["tasks.max"] == "2"
    connect.deeds.clear()
    assert verdicts(on_connector(connect)) == {Verdict.STANDS}
    assert connect.deeds == []


def test_a_changed_connector_says_what_but_no_password() -> None:
    """A password in a log is a password lost."""
    connect = FakeConnect()
    on_connector(connect)
    fleet = Fleet(opensearch_user="u", opensearch_password="s3cret", index="pages2")
    changed = on_connector(connect, fleet)[0]
    assert changed.verdict is Verdict.CHANGED
    assert "index pages to pages2" in changed.detail
    assert "connection.password changed" in changed.detail
    assert "s3cret" not in changed.detail
    assert verdicts(on_connector(connect, fleet)) == {Verdict.STANDS}


def test_a_plugin_that_is_missing_is_said() -> None:
    """Connect answers with a page of class names; a person needs to know which jar goes where."""
    with pytest.raises(CrawlError, match=r"needed connector headrace-pages.*Failed to find any class.*plugin\.path"):
        on_connector(FakeConnect(plugin=False))


def test_a_task_that_fails_is_no_success() -> None:
    """Connect takes a configuration and only then finds that it cannot work."""
    connect = FakeConnect(trace="java.lang.X: task\n\tat a.B\nCaused by: java.net.ConnectException: refused")
    with pytest.raises(CrawlError, match=r"got: failed: java\.net\.ConnectException: refused"):
        on_connector(connect)
    refused = on_connector(connect)[0]
    assert refused.verdict is Verdict.REFUSED
    assert "/connectors/headrace-pages/restart?includeTasks=true" in refused.remedy


def test_one_refusal_stops_its_part_only_there() -> None:
    """Every step comes out, in order: what was refused, what stands, and what was left for later."""
    done: list[str] = []

    def steps() -> Iterator[Step]:
        yield Step("a", Verdict.MADE, deed=lambda: done.append("a"))
        yield Step("b", Verdict.REFUSED)
        yield Step("c", Verdict.STANDS)

    assert [step.verdict for step in carry_out(steps())] == [Verdict.LEFT, Verdict.REFUSED, Verdict.STANDS]
    assert done == []
