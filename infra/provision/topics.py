"""The topics, as `schemas.topics` has them, in a cluster of a given size.

A topic's partition count is for ever: a host's partition is murmur2 of its key modulo the count, so with another count
hosts would go to owners that know neither their delays nor their leases. Only topics whose order means nothing across
partitions may grow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from infra.provision.steps import Step, Verdict, refusal
from schemas.topics import INNER_TOPICS, TOPICS, Cleanup, Topic

__all__ = ["KafkaAdmin", "TopicThere", "config_of", "copies_needed", "plan", "wanted"]

_SEGMENT_MS_MIN = 600_000
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


class TopicThere(msgspec.Struct, frozen=True):
    """A topic as the cluster has it. `config` holds every setting, defaults included, as Kafka writes them."""

    partitions: int
    replication: int
    config: Mapping[str, str]


class KafkaAdmin(Protocol):
    """What we ask of a cluster. All of it raises `ServiceAway`, or `CrawlError` for a refusal of the cluster."""

    def brokers(self) -> int: ...

    def topics(self, names: Sequence[str]) -> Mapping[str, TopicThere]:
        """Those of `names` that exist."""
        ...

    def create(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> None: ...

    def configure(self, name: str, config: Mapping[str, str]) -> None:
        """Set these, leave all others."""
        ...

    def grow(self, name: str, partitions: int) -> None: ...


def wanted() -> tuple[Topic, ...]:
    """All topics of a fleet, in the order of the flow."""
    return (*TOPICS.values(), *INNER_TOPICS.values())


def copies_needed(replication: int) -> int:
    """min.insync.replicas: an acknowledged record stands on more than half of its replicas.

    So an acknowledged record outlives any minority of brokers: of 3, one may be away and writing goes on.
    """
    return replication // 2 + 1


def config_of(topic: Topic, replication: int) -> dict[str, str]:
    """The settings that a topic is made with."""
    config = {
        "cleanup.policy": topic.cleanup.value,
        "retention.ms": str(-1 if topic.retention_ms is None else topic.retention_ms),
        "min.insync.replicas": str(copies_needed(replication)),
        "max.message.bytes": str(topic.message_bytes_max),
        "unclean.leader.election.enable": "false",  # a leader that missed records would hand out their tokens again
    }
    if topic.cleanup is Cleanup.COMPACT:
        # A takeover without a standby reads what compaction has left, so it must come often. It never touches the
        # segment being written: with 1,024 partitions one of Kafka's usual 1 GiB would not be full for weeks.
        config |= {
            "segment.bytes": str(64 << 20),
            "segment.ms": str(6 * _HOUR_MS),
            "min.cleanable.dirty.ratio": "0.2",
            "max.compaction.lag.ms": str(_DAY_MS),
            "delete.retention.ms": str(_DAY_MS),  # a standby away for longer than this would miss deletions
        }
    else:
        # Retention takes whole segments, never the one being written: a quarter of the span bounds the surplus.
        assert topic.retention_ms is not None
        config["segment.ms"] = str(max(_SEGMENT_MS_MIN, topic.retention_ms // 4))
    return config


def plan(admin: KafkaAdmin, *, partitions: int, replication: int) -> Iterator[Step]:
    """What is to be done so that all topics are there. `partitions`: of those that a host's key names."""
    brokers = admin.brokers()
    if replication > brokers:
        yield Step(
            "topics",
            Verdict.REFUSED,
            f"needed {replication} brokers for {replication} copies, the cluster has {brokers}",
            f"add brokers, or set fleet.replication to {brokers} at most (--replication)",
        )
        return
    topics = wanted()
    there = admin.topics([topic.name for topic in topics])
    for topic in topics:
        count = partitions if topic.co_partitioned else min(partitions, topic.partitions)
        found = there.get(topic.name)
        if found is None:
            yield _make(admin, topic, count, replication)
        else:
            yield _compare(admin, topic, found, count, replication)


def _make(admin: KafkaAdmin, topic: Topic, count: int, replication: int) -> Step:
    config = config_of(topic, replication)
    return Step(
        f"topic {topic.name}",
        Verdict.MADE,
        _words(topic, count, replication),
        deed=lambda: admin.create(topic.name, count, replication, config),
    )


def _compare(admin: KafkaAdmin, topic: Topic, found: TopicThere, count: int, replication: int) -> Step:
    thing = f"topic {topic.name}"
    if topic.co_partitioned and found.partitions != count:
        return _wrong_count(thing, found.partitions, count)
    if found.replication < replication:
        return refusal(
            thing,
            needed=f"{_number(replication, 'copy')} of each partition",
            came=str(found.replication),
            remedy=f"add copies with kafka-reassign-partitions.sh, or keep {found.replication}:"
            f" fleet.replication = {found.replication} (--replication)",
        )
    cleanup = _cleanup(found)
    if cleanup != {topic.cleanup.value}:
        return _wrong_cleanup(thing, topic, ",".join(sorted(cleanup)))
    changes = _short_of(config_of(topic, found.replication), found.config)
    grown = not topic.co_partitioned and found.partitions < count
    if not changes and not grown:
        return Step(thing, Verdict.STANDS, _words(topic, found.partitions, found.replication))

    def change() -> None:
        if changes:
            admin.configure(topic.name, changes)
        if grown:
            admin.grow(topic.name, count)

    said = [f"{key} {found.config.get(key, 'unset')} to {value}" for key, value in sorted(changes.items())]
    said += [f"partitions {found.partitions} to {count}"] if grown else []
    return Step(thing, Verdict.CHANGED, ", ".join(said), deed=change)


def _wrong_count(thing: str, found: int, count: int) -> Step:
    return refusal(
        thing,
        needed=_number(count, "partition"),
        came=str(found),
        remedy=f"keep {found}: fleet.partitions = {found} (--partitions {found}). With another count hosts would go to"
        " other owners, who know neither their delays nor their leases; a fleet of another count begins with topics of"
        ' its own ("Another number of partitions" in infra/production/README.md)',
    )


def _wrong_cleanup(thing: str, topic: Topic, found: str) -> Step:
    if topic.cleanup is Cleanup.COMPACT:
        why = (
            "what retention has taken away is lost already. Without its data: delete the topic and provision again;"
            " with it:"
        )
    else:
        why = "compaction keeps one record a key, and drops all others unread; end what reads it, then:"
    return refusal(
        thing,
        needed=f"cleanup.policy {topic.cleanup.value}",
        came=found or "none",
        remedy=f"{why} kafka-configs.sh --alter --topic {topic.name} --add-config cleanup.policy={topic.cleanup.value}",
    )


def _cleanup(found: TopicThere) -> set[str]:
    return {word.strip() for word in found.config.get("cleanup.policy", "").split(",") if word.strip()}


_AT_LEAST = ("retention.ms", "max.message.bytes", "min.insync.replicas")


def _short_of(needed: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    """What has to be set anew. More than needed stands, and so does all that only tunes: an operator's own word."""
    changes = {}
    for key in _AT_LEAST:
        least, has = int(needed[key]), int(found.get(key) or 0)
        if has != -1 and (least == -1 or has < least):  # -1 is "for ever"
            changes[key] = needed[key]
    key = "unclean.leader.election.enable"
    if found.get(key, "false") != needed[key]:
        changes[key] = needed[key]
    return changes


def _words(topic: Topic, partitions: int, replication: int) -> str:
    kept = "compacted" if topic.cleanup is Cleanup.COMPACT else f"kept {_span(topic.retention_ms or 0)}"
    return f"{_number(partitions, 'partition')}, {_number(replication, 'copy')}, {kept}"


def _number(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1] + 'ies' if noun.endswith('y') else noun + 's'}"


def _span(span_ms: int) -> str:
    return f"{span_ms // _DAY_MS} d" if span_ms % _DAY_MS == 0 else f"{span_ms // _HOUR_MS} h"
