"""An owner's input: what is not its own goes on, what cannot be read goes to the dead letters, each as it came."""

from __future__ import annotations

import msgspec

from connectors.inbox_kafka import Message
from schemas.codec import decode, encode
from schemas.records import DeadLetter, HostPolicy
from schemas.topics import partition_for
from streams.fleet.intake import Intake, Partitioning, Taken

PARTITIONS = 4
NOW_MS = 1_750_000_000_000
OURS = next(f"https://h{number}.test" for number in range(99) if partition_for(f"https://h{number}.test", 4) == 1)
OTHERS = next(f"https://h{number}.test" for number in range(99) if partition_for(f"https://h{number}.test", 4) == 2)


def take(*messages: tuple[str, bytes]) -> Taken:
    """By the owner of partition 1."""
    return Intake(1, Partitioning(PARTITIONS)).take(
        [Message(topic, 10 + at, value, NOW_MS + at) for at, (topic, value) in enumerate(messages)], NOW_MS
    )


def test_a_word_goes_on_under_its_own_name() -> None:
    """Two words on one host that were sent to the wrong partition: compaction keeps the last value of a key, and a
    host that was paused and then given a delay must stay paused."""
    pause = HostPolicy(OTHERS, 5, paused=True, request_id="000-ab")
    stranger = msgspec.json.encode(
        [{"host_key": OTHERS, "policy_version": 0, "delay_ms": delay_ms} for delay_ms in (1, 2)]
    )
    taken = take(("host-policies", encode(pause)), ("host-policies", stranger))
    assert (taken.events, taken.forwarded, taken.dead) == ([], 3, 0)
    assert {(record.topic, record.partition) for record in taken.onward} == {("host-policies", 2)}
    keys = [record.key or b"" for record in taken.onward]
    assert keys[0] == f"{OTHERS} 000-ab".encode()
    assert len(set(keys)) == 3
    for record in taken.onward:
        [policy] = decode(record.value or b"", HostPolicy)
        assert record.key == f"{policy.host_key} {policy.request_id}".encode()
    # Its name is where and when it lay: a repeat has the same one, a topic made anew gives others.
    assert take(("host-policies", encode(pause)), ("host-policies", stranger)).onward == taken.onward


def test_a_word_on_one_of_ours_or_on_many_is_ours() -> None:
    """A word on several hosts lies in every partition, so it is nobody's to forward."""
    taken = take(("host-policies", encode(HostPolicy(OURS, 1))), ("host-policies", encode(HostPolicy("*.test", 2))))
    assert [event.host_key for event in taken.events if isinstance(event, HostPolicy)] == [OURS, "*.test"]
    assert taken.onward == []


def test_a_letter_says_by_which_topic_its_message_came() -> None:
    """An operator who has mended the cause sends the very bytes again, and needs to know where."""
    taken = take(("discovered-urls", b"\0\0\0\0\7x"), ("fetch-results", b"junk"), ("host-policies", b"{"))
    letters = [decode(record.value or b"", DeadLetter)[0] for record in taken.onward]
    assert [(one.topic, one.stage, one.record) for one in letters] == [
        ("discovered-urls", "admit", b"\0\0\0\0\7x"),
        ("fetch-results", "complete", b"junk"),
        ("host-policies", "admit", b"{"),
    ]
    assert {record.partition for record in taken.onward} == {1}


def test_a_strangers_url_that_is_none_is_a_letter_by_itself() -> None:
    """The others of its message are admitted."""
    taken = take(("discovered-urls", msgspec.json.encode([{"url": "mailto:a@b"}, {"url": OURS + "/x"}])))
    assert [found.url for event in taken.events if isinstance(event, list) for found in event] == [OURS + "/x"]
    [letter] = [decode(record.value or b"", DeadLetter)[0] for record in taken.onward]
    assert (letter.topic, letter.stage) == ("discovered-urls", "admit")
    assert "mailto:a@b" in letter.error
