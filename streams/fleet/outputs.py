"""What a turn found becomes records of topics: batches of one partition each, within a message's limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from connectors.ports import Record
from schemas.codec import encode_batch
from schemas.records import DeadLetter
from streams.core import policy as bounds
from streams.core.turn import Turn

BATCH_RECORDS_MAX = 100

R = TypeVar("R", bound=msgspec.Struct)


def of_turn(turn: Turn, partition: int, partition_of: Callable[[str], int]) -> list[Record]:
    """All that becomes visible with the turn. Its hosts are of `partition`; others' are where `partition_of` says."""
    records = batches("fetch-leases", partition, turn.leases, lambda lease: lease.host_key)
    records += batches("parse-tasks", partition, turn.tasks, lambda task: task.host_key)
    records += batches("parsed-pages", partition, turn.withdrawn, lambda page: page.host_key)
    records += batches("dead-letters", partition, turn.dead, lambda letter: letter.host_key)
    records += spread("discovered-urls", turn.found_elsewhere, lambda found: found.host_key, partition_of)
    records += spread("owner-messages", turn.messages_elsewhere, lambda message: message.to_key, partition_of)
    return records


def spread(
    topic: str, several: Iterable[R], key: Callable[[R], str], partition_of: Callable[[str], int]
) -> list[Record]:
    """Batches for whatever partitions they belong to, each in the order given."""
    found: dict[int, list[R]] = {}
    for one in several:
        found.setdefault(partition_of(key(one)), []).append(one)
    return [record for partition, some in found.items() for record in batches(topic, partition, some, key)]


def batches(topic: str, partition: int, several: Sequence[R], key: Callable[[R], str]) -> list[Record]:
    """Batches of one partition, keyed by the first of each."""
    records: list[Record] = []
    for at in range(0, len(several), BATCH_RECORDS_MAX):
        records += _fitting(topic, partition, several[at : at + BATCH_RECORDS_MAX], key)
    return records


def dead_letter(partition: int, *, stage: str, error: str, value: bytes, now_ms: int, topic: str = "") -> Record:
    """A record that nobody can read or decide, whole, for people; `topic`: by which it came, in that partition."""
    letter = DeadLetter(
        stage=stage, host_key="", url="", error=error, attempts=1, failed_ms=now_ms, record=value, topic=topic
    )
    return batches("dead-letters", partition, [letter], lambda one: one.host_key)[0]


def _fitting(topic: str, partition: int, several: Sequence[R], key: Callable[[R], str]) -> list[Record]:
    value = encode_batch(several)
    if len(value) <= bounds.MESSAGE_BYTES_MAX or len(several) == 1:
        return [Record(topic, partition, key(several[0]).encode(), value)]
    half = len(several) // 2
    return [*_fitting(topic, partition, several[:half], key), *_fitting(topic, partition, several[half:], key)]
