"""Operators' words on the topic host-policies: each is said once, in one order, to every partition that it is about.

Theory of operation. A word on one host (`https://example.org`) goes to that host's partition; one on a name, `*.name`
or `*` may match hosts anywhere and goes to every partition, all of them in one transaction: every owner has it, or
nobody has. All operators share one transactional id. Whoever opens it fences who had it before, then reads what was
said so far, and only then numbers its own word: so words have one order, and no two have one number. An operator who
was fenced meanwhile has said nothing, and begins again.

The number (`policy_version`) is the instant in ms, or one more than the last word's where clocks disagree. It is the
same in all partitions, and above the small steps by which an owner itself counts (an exception's end, another
configuration), so the fetch log names one number for one word everywhere.

A word is a change, not a state: compaction must not drop the earlier of two on one host before a late owner has read
it. So a message's key names the word (`host_key`, a blank, `request_id`), and the ledger keeps all of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec
from confluent_kafka import KafkaError, KafkaException

from connectors.topic_reader import BEGINNING, TopicReader
from schemas.codec import BadRecord, encode
from schemas.foreign import decode_foreign
from schemas.records import HostPolicy
from schemas.topics import partition_for
from streams.core.failures import EXIT_FAILED, CrawlError
from streams.core.host_policy import Change, Policies, is_host

__all__ = ["LEDGER_SETTINGS", "TOPIC", "PolicyLedger", "Transactions", "Word", "folded"]

TOPIC = "host-policies"
TRIES_MAX = 5  # against other operators who speak at the same moment
_ANSWER_S_MAX = 30.0

LEDGER_SETTINGS: Mapping[str, Any] = {
    "transactional.id": "headrace-operator",
    "transaction.timeout.ms": 60_000,
    "message.timeout.ms": 30_000,
    "log_level": 0,
}


class Transactions(Protocol):
    """What is used of a transactional `confluent_kafka.Producer`. All of it raises KafkaException."""

    def init_transactions(self, timeout: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def produce(self, topic: str, **message: Any) -> None: ...

    def commit_transaction(self, timeout: float) -> None: ...


class Word(msgspec.Struct, frozen=True):
    """A change as it lies in the topic, and when it was said."""

    policy: HostPolicy
    said_ms: int


class PolicyLedger:
    """The words of one fleet. `open_transactions` gives a new client for each try."""

    def __init__(
        self,
        reader: TopicReader,
        partitions: int,
        *,
        address: str,
        now_ms: Callable[[], int],
        open_transactions: Callable[[], Transactions],
    ) -> None:
        self.unreadable = 0  # messages of others, seen by the last `words`
        self._reader, self._partitions, self._address = reader, partitions, address
        self._now_ms, self._open = now_ms, open_transactions

    def words(self, about: str | None = None) -> list[Word]:
        """All that was said, the oldest first; with a host's key only what lies in its partition."""
        where = self._where(about) if about is not None else range(self._partitions)
        found: dict[object, Word] = {}
        self.unreadable = 0
        for message in self._reader.read(TOPIC, dict.fromkeys(where, BEGINNING)):
            if message.value is None:
                continue
            try:
                policies = decode_foreign(message.value, HostPolicy, now_ms=message.timestamp_ms)
            except BadRecord:
                self.unreadable += 1
                continue
            for at, policy in enumerate(policies):
                name = policy.request_id or (message.partition, message.offset, at)
                found.setdefault(name, Word(policy, message.timestamp_ms))
        return sorted(found.values(), key=lambda word: word.policy.policy_version or word.said_ms)

    def say(self, policy: HostPolicy) -> HostPolicy:
        """Make a change known to every owner that it is about. As it was numbered; raises CrawlError."""
        request_id = f"{self._now_ms():015d}-{secrets.token_hex(4)}"
        for _ in range(TRIES_MAX):
            client = self._open()
            try:
                client.init_transactions(_ANSWER_S_MAX)
                last = max((word.policy.policy_version for word in self.words()), default=0)
                version = max(self._now_ms(), last + 1)
                said = msgspec.structs.replace(policy, policy_version=version, request_id=request_id)
                client.begin_transaction()
                for partition in self._where(policy.host_key):
                    key = f"{said.host_key} {request_id}".encode()
                    client.produce(TOPIC, key=key, value=encode(said), partition=partition)
                client.commit_transaction(_ANSWER_S_MAX)
                return said
            except KafkaException as error:
                if not _is_fenced(error):
                    raise self._failed(error) from error
        raise CrawlError(
            f"kafka at {self._address}: needed the word on {policy.host_key} said, but other operators came between"
            f" {TRIES_MAX} times; nothing was changed; repeat it",
            EXIT_FAILED,
        )

    def _where(self, key: str) -> Iterable[int]:
        return [partition_for(key, self._partitions)] if is_host(key) else range(self._partitions)

    def _failed(self, error: KafkaException) -> CrawlError:
        return CrawlError(
            f"kafka at {self._address}: needed the word said to every owner, got: {error.args[0].str()}; it is not"
            " certain that nothing was changed: headrace host --fleet HOST shows what holds. The user needs Write on"
            " the topic host-policies and Write on the transactional id headrace-operator",
            EXIT_FAILED,
        )


def folded(words: Iterable[Word], now_ms: int) -> tuple[Policies, list[Change]]:
    """What the words come to now, and each as a change with its number, the oldest first."""
    policies = Policies()
    changes: list[Change] = []
    for word in words:
        changes += policies.end_exceptions(word.said_ms)
        change = policies.change(word.policy, word.said_ms)
        if change is not None:
            changes.append(change)
    changes += policies.end_exceptions(now_ms)
    return policies, changes


def _is_fenced(error: KafkaException) -> bool:
    """Whether another operator opened the transactional id after us."""
    return error.args[0].code() in _FENCED


_FENCED = (
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.CONCURRENT_TRANSACTIONS,
)
