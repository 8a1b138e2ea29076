"""A message of an input topic becomes events, or goes on to the partition that it belongs to, or to the dead letters.

discovered-urls and host-policies are also written by others: as plain JSON, in a registry's framing, to any partition.
A URL of theirs need not be in normal form and need not name its host. What cannot be read is a dead letter by itself;
what came with it in other messages goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from connectors.inbox_kafka import Message
from connectors.ports import Record
from schemas import foreign
from schemas.codec import MARKER, BadRecord, decode, encode
from schemas.records import DiscoveredUrl, FetchResult, HostPolicy, OwnerMessage, StoredResult
from schemas.topics import partition_for
from streams.core.owner import Event
from streams.core.rules.urls import host_key, normalize
from streams.fleet import outputs

TOPICS = ("host-policies", "fetch-results", "stored-results", "owner-messages", "wake-ups", "discovered-urls")
"""In the order in which a group takes them: what ends work goes ahead of what begins it."""

_KEYS_MAX = 65_536

R = TypeVar("R", bound=msgspec.Struct)


class Taken(msgspec.Struct):
    """What a group of messages came to."""

    events: list[Event] = msgspec.field(default_factory=list)
    onward: list[Record] = msgspec.field(default_factory=list)  # forwards and dead letters
    forwarded: int = 0  # records
    dead: int = 0  # messages
    oldest_found_ms: int | None = None  # of the discovered URLs: when the first was discovered


class Partitioning:
    """Which partition a host_key or a group belongs to, remembered for those named lately."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._known: dict[str, int] = {}

    def of(self, key: str) -> int:
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _KEYS_MAX:
                self._known.clear()
            found = self._known[key] = partition_for(key, self._partitions)
        return found


class Intake:
    """Of one partition."""

    def __init__(self, partition: int, partitioning: Partitioning, resolver: foreign.Resolver | None = None) -> None:
        """`resolver`: of a schema registry, where one is set. What it raises is passed on: the group is tried again."""
        self._partition, self._partition_of = partition, partitioning.of
        self._resolver = resolver

    def take(self, messages: Sequence[Message], now_ms: int) -> Taken:
        taken = Taken()
        for message in messages:
            if message.value is None:
                continue  # a wake-up, or what compaction left of a policy
            try:
                self._take(taken, message, message.value, now_ms)
            except BadRecord as error:
                self.give_up(taken, message, str(error), now_ms)
        return taken

    def give_up(self, taken: Taken, message: Message, error: str, now_ms: int) -> None:
        """The message goes to the dead letters, as it came."""
        taken.dead += 1
        taken.onward.append(
            outputs.dead_letter(
                self._partition,
                stage=_STAGES[message.topic],
                error=error,
                value=message.value or b"",
                now_ms=now_ms,
                topic=message.topic,
            )
        )

    def _take(self, taken: Taken, message: Message, value: bytes, now_ms: int) -> None:
        topic = message.topic
        if topic == "discovered-urls":
            self._discovered(taken, value, now_ms)
        elif topic == "host-policies":
            said = foreign.decode_foreign(value, HostPolicy, now_ms=now_ms, resolver=self._resolver)
            taken.events += self._ours_of_hosts(taken, said, message)
        elif topic == "fetch-results":
            taken.events += self._ours(taken, topic, decode(value, FetchResult), lambda one: one.host_key)
        elif topic == "stored-results":
            taken.events += self._ours(taken, topic, decode(value, StoredResult), lambda one: one.host_key)
        elif topic == "owner-messages":
            taken.events += self._ours(taken, topic, decode(value, OwnerMessage), lambda one: one.to_key)

    def _discovered(self, taken: Taken, value: bytes, now_ms: int) -> None:
        """A URL that is none is a dead letter by itself: the others of its message go on."""
        found = foreign.decode_foreign(value, DiscoveredUrl, now_ms=now_ms, resolver=self._resolver)
        if value[:2] != MARKER:
            found = tuple(self._settled(taken, one, now_ms) for one in found)
        ours = self._ours(taken, "discovered-urls", [one for one in found if one.url], lambda one: one.host_key)
        if ours:
            oldest_ms = min(one.discovered_ms for one in ours)
            taken.oldest_found_ms = min(oldest_ms, taken.oldest_found_ms or oldest_ms)
            taken.events.append(ours)

    def _settled(self, taken: Taken, found: DiscoveredUrl, now_ms: int) -> DiscoveredUrl:
        """A stranger's, in normal form and with the host_key that belongs to it; without a URL when it is none."""
        url = normalize(found.url)
        if url is not None:
            return msgspec.structs.replace(found, url=url, host_key=host_key(url))
        taken.dead += 1
        error = f"reading DiscoveredUrl: needed an http or https URL with a host, came {found.url[:200]!r}; correct it"
        taken.onward.append(
            outputs.dead_letter(
                self._partition,
                stage="admit",
                error=error,
                value=encode(found),
                now_ms=now_ms,
                topic="discovered-urls",
            )
        )
        return msgspec.structs.replace(found, url="")

    def _ours(self, taken: Taken, topic: str, several: Sequence[R], key: Callable[[R], str]) -> list[R]:
        ours = [one for one in several if self._partition_of(key(one)) == self._partition]
        if len(ours) < len(several):
            others = [one for one in several if self._partition_of(key(one)) != self._partition]
            taken.forwarded += len(others)
            taken.onward += outputs.spread(topic, others, key, self._partition_of)
        return ours

    def _ours_of_hosts(self, taken: Taken, said: Sequence[HostPolicy], message: Message) -> list[HostPolicy]:
        """A word on one host belongs to its owner. One on several hosts is sent to every partition, so it is ours.

        A word goes on under the key that names it (`connectors.policy_ledger`): compaction keeps the last value of a
        key, and must not drop the earlier of two words on one host. A stranger's is named by where it lay.
        """
        ours = []
        for at, one in enumerate(said):
            place = self._partition_of(one.host_key) if "://" in one.host_key else self._partition
            if place == self._partition:
                ours.append(one)
            else:
                request_id = one.request_id or f"{message.at_ms:015d}-{self._partition}-{message.offset}-{at}"
                one = msgspec.structs.replace(one, request_id=request_id)
                taken.forwarded += 1
                taken.onward.append(
                    Record("host-policies", place, f"{one.host_key} {request_id}".encode(), encode(one))
                )
        return ours


_STAGES = {
    "discovered-urls": "admit",
    "host-policies": "admit",
    "owner-messages": "admit",
    "fetch-results": "complete",
    "stored-results": "complete",
    "wake-ups": "frontier",
}
