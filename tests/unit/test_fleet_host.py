"""`headrace host --fleet`: a word reaches every owner that it is about, once, in one order; and can be read back."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from connectors.policy_ledger import PolicyLedger, folded
from connectors.topic_reader import TopicReader
from infra.settings_fleet import Fleet
from schemas.codec import decode, encode
from schemas.records import HostPolicy
from schemas.topics import partition_for
from streams.cli import main
from streams.core.failures import CrawlError
from streams.core.host_policy import Policies
from tests.support.fake_engine import NOW_MS, Captured
from tests.support.fake_kafka import Broker, FakeFleet, FakeTransactions

TOPIC = "host-policies"
HOST = "https://a.test"


def run(fleet: FakeFleet, *words: str, code: int = 0, now_ms: int = NOW_MS) -> Captured:
    shell = Captured(fleet=fleet, now_ms=lambda: now_ms)
    fleet.broker.now_ms = lambda: now_ms
    assert main(["host", "--fleet", *words], shell) == code, shell.said
    return shell


def words(broker: Broker) -> list[tuple[int, HostPolicy]]:
    """(partition, word) of all that readers see."""
    return [(partition, decode(value, HostPolicy)[0]) for partition, value in broker.values(TOPIC)]


def test_a_word_on_one_host_goes_to_its_owner() -> None:
    """Another partition's owner has no use for it, and its number is an instant."""
    fleet = FakeFleet()
    shell = run(fleet, HOST, "--delay", "5s", "--pause")
    [(partition, policy)] = words(fleet.broker)
    assert partition == partition_for(HOST, 4)
    assert (policy.host_key, policy.delay_ms, policy.paused, policy.policy_version) == (HOST, 5_000, True, NOW_MS)
    assert policy.request_id
    assert "said to its owner" in shell.said
    assert f"version {NOW_MS:,}" in shell.printed or f"version {NOW_MS}" in shell.printed


@pytest.mark.parametrize("key", ["*", "*.a.test", "a.test", "a.test:8443"])
def test_a_word_on_several_hosts_goes_to_every_partition(key: str) -> None:
    """Any owner may have such a host: all of them have the very same word, by one number and one id."""
    fleet = FakeFleet()
    run(fleet, key, "--pause")
    found = words(fleet.broker)
    assert sorted(partition for partition, _ in found) == [0, 1, 2, 3]
    assert len({encode(policy) for _, policy in found}) == 1


def test_words_have_rising_numbers_even_where_clocks_disagree() -> None:
    """An operator whose clock is behind says the later word: its number is the higher one all the same."""
    fleet = FakeFleet()
    run(fleet, "*", "--pause")
    run(fleet, HOST, "--delay", "2s", now_ms=NOW_MS - 60_000)
    run(fleet, HOST, "--delay", "3s", now_ms=NOW_MS - 60_000)
    numbers = sorted({policy.policy_version for _, policy in words(fleet.broker)})
    assert numbers == [NOW_MS, NOW_MS + 1, NOW_MS + 2]


def test_two_words_on_one_host_have_keys_of_their_own() -> None:
    """Compaction keeps the last value of a key: the first word must not vanish before a late owner has read it."""
    fleet = FakeFleet()
    run(fleet, HOST, "--delay", "2s")
    run(fleet, HOST, "--pause")
    keys = [one.key for one in fleet.broker.logs[TOPIC][partition_for(HOST, 4)] if one.committed]
    assert len(set(keys)) == 2
    assert all(key is not None and key.startswith(HOST.encode() + b" ") for key in keys)


def ledger(broker: Broker, open_transactions: Callable[[], FakeTransactions]) -> PolicyLedger:
    reader = TopicReader(FakeFleet(broker).consumer(Fleet(), lambda why: None), "kafka:9092")
    return PolicyLedger(reader, 4, address="kafka:9092", now_ms=lambda: NOW_MS, open_transactions=open_transactions)


def test_an_operator_who_was_fenced_begins_again() -> None:
    """Of two who speak at one moment both are heard, one after the other: the later number counts the earlier."""
    broker = Broker()
    other = ledger(broker, lambda: FakeTransactions(broker))
    opened: list[FakeTransactions] = []

    def open_one() -> FakeTransactions:
        client = FakeTransactions(broker)
        if not opened:

            def first() -> None:
                other.say(HostPolicy("*", 0, delay_ms=9_000))

            client.before_commit = first
        opened.append(client)
        return client

    said = ledger(broker, open_one).say(HostPolicy("*", 0, paused=True))
    assert len(opened) == 2
    assert {(policy.policy_version, policy.paused) for _, policy in words(broker)} == {
        (NOW_MS, None),
        (NOW_MS + 1, True),
    }
    assert said.policy_version == NOW_MS + 1


def test_operators_without_end_are_told() -> None:
    """After some tries the command ends, with nothing said."""
    broker = Broker()

    def open_one() -> FakeTransactions:
        client = FakeTransactions(broker)
        client.before_commit = lambda: setattr(broker, "holder", None)
        return client

    with pytest.raises(CrawlError, match="other operators came between 5 times; nothing was changed"):
        ledger(broker, open_one).say(HostPolicy("*", 0, paused=True))
    assert words(broker) == []


def test_a_refusal_of_the_brokers_names_what_is_needed() -> None:
    """An operator without leave learns which."""
    broker = Broker()

    def open_one() -> FakeTransactions:
        client = FakeTransactions(broker)

        def refuse() -> None:
            raise KafkaException(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))

        client.before_commit = refuse
        return client

    with pytest.raises(CrawlError, match="transactional id headrace-operator"):
        ledger(broker, open_one).say(HostPolicy("*", 0, paused=True))


def test_what_was_said_is_shown_with_its_history() -> None:
    """The topic is the ledger: what holds for a host, nearer words over farther ones, and how it came to that."""
    fleet = FakeFleet()
    run(fleet, "*", "--delay", "2s")
    run(fleet, HOST, "--pause", now_ms=NOW_MS + 1_000)
    run(fleet, "https://other.test", "--pause", now_ms=NOW_MS + 2_000)
    shell = run(fleet, HOST, now_ms=NOW_MS + 3_000)
    assert shell.printed.startswith(f"{HOST}\n")
    assert "other.test" not in shell.printed
    assert shell.printed.index("delay 2000 ms") < shell.printed.index("changes:")
    listed = run(fleet, "--list", "--json").printed.splitlines()
    assert [json.loads(line)["key"] for line in listed] == ["*", HOST, "https://other.test"]
    assert run(fleet, "--list").printed.count("other.test") >= 1


def test_a_strangers_word_counts_too() -> None:
    """Other people's JSON, without number or id, is a word like ours, by the time of its message; garbage is said."""
    fleet = FakeFleet()
    partition = partition_for(HOST, 4)
    fleet.broker.append(TOPIC, partition, b'{"host_key": "https://a.test", "policy_version": 0, "delay_ms": 7000}')
    fleet.broker.append(TOPIC, partition, b"garbage")
    shell = run(fleet, HOST, now_ms=NOW_MS + 3_000)
    assert "delay 7000 ms" in shell.printed
    assert "1 message of host-policies cannot be read" in shell.said


def test_a_numbered_word_is_taken_after_its_keys_exception_ended() -> None:
    """An owner counts an exception's end itself; a word said before, and read after, must not be dropped for that."""
    owner = Policies()
    first = HostPolicy(HOST, 100, delay_ms=1, until_ms=5, request_id="a")
    assert owner.change(first, 1) is not None
    [ended] = owner.end_exceptions(10)
    assert ended.policy.policy_version == 101
    second = owner.change(HostPolicy(HOST, 101, paused=True, request_id="b"), 11)
    assert second is not None
    assert second.policy.policy_version == 102
    assert owner.standings[HOST].word().paused is True
    assert owner.change(HostPolicy(HOST, 101, paused=True, request_id="b"), 12) is None


def test_folding_ends_exceptions_in_their_time() -> None:
    """What a reader makes of the ledger is what an owner made of it: an exception ends before a later word."""
    fleet = FakeFleet()
    run(fleet, HOST, "--delay", "1s", "--until", "1h")
    run(fleet, HOST, "--concurrency", "2", now_ms=NOW_MS + 7_200_000)
    reader = TopicReader(fleet.consumer(Fleet(), lambda why: None), "kafka:9092")
    found = PolicyLedger(
        reader, 4, address="kafka:9092", now_ms=lambda: NOW_MS, open_transactions=lambda: FakeTransactions(fleet.broker)
    ).words()
    policies, changes = folded(found, NOW_MS + 7_300_000)
    assert policies.standings[HOST].exception is None
    assert policies.standings[HOST].word().concurrency == 2
    assert [change.policy.until_ms is not None for change in changes] == [True, True, False]
    assert msgspec.structs.asdict(changes[0].policy)["delay_ms"] == 1_000


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "needed a HOST"),
        (["news", HOST, "--pause"], "needed no folder beside it"),
        (["https://a.test/path", "--pause"], "needed a host such as"),
        ([HOST, "--pause", "--show"], "--show changes nothing"),
    ],
)
def test_a_mistake_says_nothing(words: list[str], sentence: str) -> None:
    """One line, and no owner hears of it."""
    fleet = FakeFleet()
    shell = run(fleet, *words, code=2)
    assert sentence in shell.said
    assert fleet.broker.values(TOPIC) == []
