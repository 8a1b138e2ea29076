"""The topics as data: what each carries, by which key, in how many partitions, for how long, from whom to whom.

A value is a batch of up to some hundreds of records of one partition, in Avro's single-object encoding
(`schemas.codec`); index-events are JSON, one a message. Our producers name the partition themselves: librdkafka's
default partitioner disagrees with Kafka's on nearly every key.
"""

from __future__ import annotations

import enum

import msgspec

from schemas import records

PARTITIONS = 1_024  # fixed when the topics are provisioned: another number sends hosts to other owners
PARTITIONS_SMALL = 4  # for tests and single machines
_DAY_MS = 86_400_000
_BULK_MS = 3 * _DAY_MS  # links, pages and documents are nine tenths of the disk, and can be made again from the bodies

OWNER_APP = "headrace-owner"  # the owner's Faust app id, which is its consumer group
OWNER_TABLE = "hosts"
OWNER_CHANGELOG = f"{OWNER_APP}-{OWNER_TABLE}-changelog"  # as Faust names a table's changelog
INDEX_DEAD_LETTERS = "index-dead-letters"
OWNER_PAGES = "owner-pages"

# Our batches end at 900 KiB (`MESSAGE_BYTES_MAX`); this is Kafka's own default, said aloud: a broker's may differ.
MESSAGE_BYTES = 1_048_588
DOCUMENT_BYTES_MAX = 2 * MESSAGE_BYTES  # the sink takes documents of 1 MiB; a refused one has its reason as headers
PARTITIONS_INDEX = 64  # bounds the sink's tasks, 1,500 documents/s each; may grow at any time


class Group(enum.Enum):
    """A consumer group, which is also a Faust app: adding parsers never rebalances owners."""

    OWNER = "owner"
    FETCH = "fetch"  # with store in the same process
    PARSE = "parse"
    ROUTE = "route"  # link router and index
    SINK = "sink"  # Kafka Connect
    OPERATOR = "operator"  # people: list, show, requeue


WORKER_GROUPS = (Group.OWNER, Group.FETCH, Group.PARSE, Group.ROUTE)
"""Those that our workers run, in the order of the flow."""

APP_PREFIX = "headrace-"
"""A stage's Faust app id is this and its group's name, and so is its consumer group; further consumers of the stage
carry more after another dash."""
SINK_GROUP = "connect-headrace-pages"  # as Connect names the group of the connector headrace-pages


def is_group_of(name: str, group: Group) -> bool:
    """Whether a consumer group of Kafka is one of ours, of that stage."""
    if group is Group.SINK:
        return name == SINK_GROUP
    own = APP_PREFIX + group.value
    return name == own or name.startswith(f"{own}-")


class Cleanup(enum.Enum):
    """Kafka's cleanup.policy."""

    DELETE = "delete"
    COMPACT = "compact"


class Topic(msgspec.Struct, frozen=True):
    """One topic. `retention_ms` None keeps records for ever (what compaction leaves of them)."""

    name: str
    key: str  # the field of the record that names the partition
    record: type[msgspec.Struct] | None  # None: the value is empty, or not one of our records
    producers: tuple[str, ...]  # stages by name, or others
    group: Group  # the one group that reads it
    partitions: int = PARTITIONS
    cleanup: Cleanup = Cleanup.DELETE
    retention_ms: int | None = 7 * _DAY_MS
    foreign_json: bool = False  # a reader also takes other people's plain JSON and a registry's framing
    batched: bool = True
    co_partitioned: bool = True  # a host's records lie in the partition of that number: the count can never change
    message_bytes_max: int = MESSAGE_BYTES  # of a record batch, as the broker takes it


TOPICS = {
    topic.name: topic
    for topic in (
        Topic(
            name="discovered-urls",
            key="host_key",
            record=records.DiscoveredUrl,
            producers=("seed producer", "sitemap producer", "route", "admit", "complete"),
            group=Group.OWNER,
            retention_ms=_BULK_MS,
            foreign_json=True,
        ),
        Topic(
            name="fetch-leases",
            key="host_key",
            record=records.FetchLease,
            producers=("frontier",),
            group=Group.FETCH,
            retention_ms=_DAY_MS,  # a lease lives minutes; older ones are never started
        ),
        Topic(
            name="fetch-results",
            key="host_key",
            record=records.FetchResult,
            producers=("fetch",),
            group=Group.OWNER,
        ),
        Topic(
            name="stored-results",
            key="host_key",
            record=records.StoredResult,
            producers=("store",),
            group=Group.OWNER,
        ),
        Topic(
            name="parse-tasks",
            key="host_key",
            record=records.ParseTask,
            producers=("complete", "replay"),
            group=Group.PARSE,
        ),
        Topic(
            name="parsed-pages",
            key="host_key",
            record=records.ParsedPage,
            producers=("parse", "complete"),  # of complete: that a URL has no content any more
            group=Group.ROUTE,
            retention_ms=_BULK_MS,
        ),
        Topic(
            name="index-events",
            key="url_id",
            record=records.IndexEvent,
            producers=("index",),
            group=Group.SINK,
            retention_ms=_BULK_MS,
            batched=False,  # one document a message; a null value deletes
            co_partitioned=False,  # documents carry their version, so their order over partitions means nothing
            partitions=PARTITIONS_INDEX,
            message_bytes_max=DOCUMENT_BYTES_MAX,
        ),
        Topic(
            name="host-policies",
            key="host_key",  # "*" is written to every partition
            record=records.HostPolicy,
            producers=("operator",),
            group=Group.OWNER,
            cleanup=Cleanup.COMPACT,
            retention_ms=None,
            foreign_json=True,
            # A value is one change, and its message's key names that change: compaction, which keeps the last value of
            # a key, must not drop the earlier of two changes to one host before a late owner has read it.
            batched=False,
        ),
        Topic(
            name="owner-messages",
            key="to_key",
            record=records.OwnerMessage,
            producers=("admit", "frontier", "complete", "parse", "operator"),
            group=Group.OWNER,
        ),
        Topic(
            name="wake-ups",
            key="partition",
            record=None,
            producers=("timer",),
            group=Group.OWNER,
            retention_ms=3_600_000,
            batched=False,
        ),
        Topic(
            name="dead-letters",
            key="host_key",
            record=records.DeadLetter,
            producers=("admit", "fetch", "store", "complete", "parse", "route"),
            group=Group.OPERATOR,
            retention_ms=30 * _DAY_MS,
            message_bytes_max=2 * MESSAGE_BYTES,  # holds a record as it came, which may have been as large as any
        ),
    )
}

# What is no stage's inbox or outbox, and still has to be there before the first worker.
INNER_TOPICS = {
    topic.name: topic
    for topic in (
        # Host states, robots rules, redo of URL rows and input positions: what an owner knows after a takeover. Read by
        # the table that it backs, and by that table's standby.
        Topic(
            name=OWNER_CHANGELOG,
            key="host_key",
            record=None,
            producers=("owner",),
            group=Group.OWNER,
            cleanup=Cleanup.COMPACT,
            retention_ms=None,
            batched=False,  # a record is one key of the table
        ),
        # Who owns each partition, and where it is asked (`connectors.owner_page`).
        Topic(
            name=OWNER_PAGES,
            key="partition",
            record=None,
            producers=("owner",),
            group=Group.OPERATOR,
            cleanup=Cleanup.COMPACT,
            retention_ms=None,
            batched=False,
            co_partitioned=False,
            partitions=1,  # one small record an owner: read whole in a moment
        ),
        # Documents that the index refused, by the sink, with the reason in their headers.
        Topic(
            name=INDEX_DEAD_LETTERS,
            key="url_id",
            record=None,
            producers=("sink",),
            group=Group.OPERATOR,
            retention_ms=30 * _DAY_MS,
            batched=False,
            co_partitioned=False,
            partitions=PARTITIONS_SMALL,
            message_bytes_max=DOCUMENT_BYTES_MAX,
        ),
    )
}


def partition_for(host_key: str, partitions: int) -> int:
    """The partition of a key, as Kafka's Java producer chooses it: murmur2 of the UTF-8, sign dropped, modulo."""
    assert partitions > 0
    return (murmur2(host_key.encode()) & 0x7FFF_FFFF) % partitions


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit MurmurHash2 (`org.apache.kafka.common.utils.Utils.murmur2`), as an unsigned number.

    Austin Appleby's function with seed 0x9747b28c, little-endian words of four bytes, the rest mixed in at the end.
    """
    multiplier, mask = 0x5BD1E995, 0xFFFF_FFFF
    length = len(data)
    whole = length & ~3
    digest = 0x9747B28C ^ length
    for word in memoryview(data)[:whole].cast("I") if _LITTLE_ENDIAN else _words(data[:whole]):
        word = word * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        digest = digest * multiplier & mask ^ word
    rest = data[whole:]
    if rest:
        digest = (digest ^ int.from_bytes(rest, "little")) * multiplier & mask
    digest = (digest ^ digest >> 13) * multiplier & mask
    return digest ^ digest >> 15


def _words(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]


_LITTLE_ENDIAN = memoryview(b"\1\0\0\0").cast("I")[0] == 1
