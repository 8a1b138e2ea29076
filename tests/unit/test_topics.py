"""Records reach the owner that Kafka's own clients would choose, and every topic has one reader."""

from __future__ import annotations

import importlib.util

import msgspec
import pytest

from schemas import registry
from schemas.topics import TOPICS, Cleanup, Group, murmur2, partition_for
from schemas.url_rows import UrlRecord
from streams import topology

# From Kafka's own test, org.apache.kafka.common.utils.UtilsTest.testMurmur2 (signed 32-bit values).
KAFKA_VECTORS = [
    ("21", -973932308),
    ("foobar", -790332482),
    ("a-little-bit-long-string", -985981536),
    ("a-little-bit-longer-string", -1486304829),
    ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    ("abc", 479470107),
]


@pytest.mark.parametrize(("key", "signed"), KAFKA_VECTORS)
def test_murmur2_is_kafkas(key: str, signed: int) -> None:
    """Another digest would send a host to two owners: ours and the one that a Java producer chooses."""
    assert murmur2(key.encode()) == signed & 0xFFFF_FFFF
    assert partition_for(key, 1_024) == (signed & 0x7FFF_FFFF) % 1_024


def test_partitions_are_even() -> None:
    """Hosts spread over the owners, so that none does another's work."""
    counts = [0] * 16
    for number in range(16_000):
        counts[partition_for(f"https://host{number}.example", 16)] += 1
    assert min(counts) > 850
    assert max(counts) < 1_150


def test_every_topic_has_one_reader_and_known_names() -> None:
    """A topic read twice moves tokens twice; a topic read by none loses URLs."""
    assert topology.check() == ()


def replaced(name: str, **changes: object) -> tuple[topology.Stage, ...]:
    """The flow with one stage changed."""
    return tuple(msgspec.structs.replace(one, **changes) if one.name == name else one for one in topology.STAGES)


@pytest.mark.parametrize(
    ("stages", "sentence"),
    [
        (replaced("parse", inbox=("parse-taks",)), "topic 'parse-taks' is not in schemas.topics"),
        (replaced("index", inbox=("parsed-pages",)), "parsed-pages is read by route and index"),
        (replaced("parse", group=Group.ROUTE), "topic parse-tasks belongs to group parse, parse is of route"),
        (replaced("complete", inbox=("stored-results",)), "topic fetch-results is read by no stage"),
        (replaced("fetch", outbox=("fetch-leases",)), "stage fetch writes fetch-leases, whose producers are frontier"),
    ],
)
def test_a_wrong_flow_is_named(stages: tuple[topology.Stage, ...], sentence: str) -> None:
    """The check at start must say which stage and which topic do not fit."""
    assert any(sentence in wrong for wrong in topology.check(stages)), topology.check(stages)


def test_topics_carry_known_records() -> None:
    """The value of each topic has a schema, but for JSON documents and the empty wake-up; keys are fields of it."""
    for topic in TOPICS.values():
        if topic.record is not None:
            assert topic.key in topic.record.__struct_fields__, topic.name
            assert topic.record in registry.RECORDS or topic.group is Group.SINK, topic.name
    assert {topic.record for topic in TOPICS.values()} >= set(registry.RECORDS) - {UrlRecord}  # that one is a table's


def test_a_compacted_topic_holds_one_key_a_value() -> None:
    """Compaction keeps the last value of a key: in a batch it would throw other hosts' policies away."""
    for topic in TOPICS.values():
        assert not (topic.cleanup is Cleanup.COMPACT and topic.batched), topic.name


def test_every_stage_has_its_room() -> None:
    """The contents page leads to a module that is there."""
    for one in topology.STAGES:
        assert importlib.util.find_spec(one.room) is not None, one.name


def test_stages_are_found_by_name() -> None:
    """Runners look stages up by name; a misspelt one must stop them at once."""
    assert topology.stage("parse").inbox == ("parse-tasks",)
    with pytest.raises(AssertionError, match="known: admit"):
        topology.stage("prase")
