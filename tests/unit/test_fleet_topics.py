"""`headrace topics` and `headrace dead-letters --fleet`: what lies in a topic, readable, and sent again."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
import pytest

from connectors.topic_reader import Message
from schemas.codec import decode, encode, encode_batch
from schemas.records import (
    BodyRef,
    DeadLetter,
    DiscoveredUrl,
    FetchLease,
    FetchResult,
    HostPolicy,
    Kind,
    Outcome,
    OwnerMessage,
    OwnerMessageKind,
    ParseTask,
    RobotsAnswer,
    RobotsDecision,
    Source,
)
from schemas.topics import OWNER_CHANGELOG, TOPICS, partition_for
from streams.cli import main
from streams.cli.fleet.readable import entries, json_of, line_of
from tests.support.fake_engine import NOW_MS, Captured
from tests.support.fake_kafka import Broker, FakeConsumer, FakeFleet
from tests.support.samples import SAMPLES

MINUTE_MS = 60_000


def url(number: int, host: str = "https://a.test") -> DiscoveredUrl:
    return DiscoveredUrl(f"{host}/{number}", host, Source.LINK, NOW_MS)


def put(broker: Broker, records: Sequence[msgspec.Struct], topic: str, at_ms: int = NOW_MS) -> tuple[int, int]:
    """A batch in the partition of its first record's host: where it lies."""
    partition = partition_for(getattr(records[0], TOPICS[topic].key), 4)
    return partition, broker.append(topic, partition, encode_batch(records), at_ms=at_ms)


def run(fleet: FakeFleet, *words: str, code: int = 0) -> Captured:
    shell = Captured(fleet=fleet)
    assert main(list(words), shell) == code, shell.said
    return shell


def test_tail_shows_the_last_records_of_all_partitions_in_time() -> None:
    """The newest ones, wherever they lie and however they were batched, the newest last."""
    fleet = FakeFleet()
    for number in range(0, 100, 5):
        host = f"https://h{number % 7}.test"
        put(fleet.broker, [url(number + at, host) for at in range(5)], "discovered-urls", NOW_MS + number)
    shell = run(fleet, "topics", "tail", "discovered-urls", "-n", "7", "--json")
    rows = [json.loads(line) for line in shell.printed.splitlines()]
    assert [row["record"]["url"].rpartition("/")[2] for row in rows] == [str(number) for number in range(93, 100)]
    assert fleet.consumers[-1].closed


def test_tail_looks_as_far_back_as_it_must() -> None:
    """One busy partition holds all of the newest; a first look of a few messages each would miss them."""
    fleet = FakeFleet()
    for host in range(20):
        put(fleet.broker, [url(0, f"https://h{host}.test")], "discovered-urls", NOW_MS - MINUTE_MS)
    for number in range(40):
        put(fleet.broker, [url(number)], "discovered-urls", NOW_MS + number)
    shell = run(fleet, "topics", "tail", "discovered-urls", "-n", "30", "--json")
    found = [json.loads(line)["record"]["url"] for line in shell.printed.splitlines()]
    assert found == [url(number).url for number in range(10, 40)]


def test_tail_is_readable() -> None:
    """A line has place, time, what it is about and the fields that say something; defaults are left out."""
    fleet = FakeFleet()
    result = FetchResult(
        b"\1" * 16,
        "https://a.test",
        b"\2" * 16,
        "https://a.test/x",
        3,
        Kind.PAGE,
        Outcome.FAILED,
        NOW_MS,
        NOW_MS + 40,
        status=404,
        error="not found",
    )
    partition, offset = put(fleet.broker, [result], "fetch-results")
    shell = run(fleet, "topics", "tail", "fetch-results")
    assert shell.printed == (
        f"{partition}-{offset}-0  2026-11-30 00:53:20Z  https://a.test/x  lease_id={'01' * 16} url_id={'02' * 16}"
        " url_version=3 kind=page outcome=failed started_ms=2026-11-30T00:53:20Z finished_ms=2026-11-30T00:53:20Z"
        ' status=404 error="not found"\n'
    )


@pytest.mark.parametrize("record", SAMPLES)
def test_every_record_can_be_shown(record: msgspec.Struct) -> None:
    """Each kind of record, with every field set, gives one line and JSON that holds all fields."""
    kind = type(record)
    message = Message("fetch-results", 1, 2, NOW_MS, None, encode(record))
    [entry] = entries(message)
    assert "\n" not in line_of(message, entry)
    fields = json.loads(msgspec.json.encode(json_of(message, entry)))
    assert set(fields["record"]) == set(kind.__struct_fields__)
    assert fields["kind"] == kind.__name__


@pytest.mark.parametrize(
    ("topic", "value", "shown"),
    [
        ("discovered-urls", b'{"url": "https://a.test/x"}', "https://a.test/x  source=seed"),
        ("discovered-urls", b"garbage", "needed a JSON object"),
        ("discovered-urls", b"\xc3\x01" + b"\0" * 20, "needed a schema version that this build knows"),
        (
            "host-policies",
            b'{"host_key": "a.test", "policy_version": 0, "paused": true}',
            "a.test  policy_version=0 paused=yes",
        ),
        ("index-events", b'{"url": "https://a.test/"}', '{"url":"https://a.test/"}'),
        ("index-events", None, "deletes what its key names"),
        ("wake-ups", b"", "0 bytes"),
        (OWNER_CHANGELOG, b'{"x', "3 bytes: 7b 22 78"),
    ],
)
def test_what_is_none_of_our_records_is_shown_as_it_is(topic: str, value: bytes | None, shown: str) -> None:
    """Other people's JSON, documents, tombstones and garbage: a line each, never an end of the showing."""
    message = Message(topic, 0, 7, NOW_MS, b"key", value)
    [entry] = entries(message)
    assert shown in line_of(message, entry)
    json_of(message, entry)


def test_tail_of_a_host_reads_its_partition_alone() -> None:
    """One host's records among those of others in its partition."""
    fleet = FakeFleet()
    put(fleet.broker, [url(1), url(2)], "discovered-urls")
    for number in range(50):
        put(fleet.broker, [url(0, f"https://h{number}.test")], "discovered-urls")
    shell = run(fleet, "topics", "tail", "discovered-urls", "--host", "https://a.test", "--json")
    assert [json.loads(line)["record"]["url"] for line in shell.printed.splitlines()] == [url(1).url, url(2).url]


def test_tail_since_and_from_the_beginning() -> None:
    """A span of time, or everything, in the order of each partition."""
    fleet = FakeFleet()
    put(fleet.broker, [url(1)], "discovered-urls", NOW_MS - 60 * MINUTE_MS)
    put(fleet.broker, [url(2)], "discovered-urls", NOW_MS - 5 * MINUTE_MS)
    since = run(fleet, "topics", "tail", "discovered-urls", "--since", "10min").printed
    assert "https://a.test/2" in since
    assert "https://a.test/1" not in since
    assert run(fleet, "topics", "tail", "discovered-urls", "--from-beginning").printed.count("\n") == 2


def test_tail_follows_until_interrupted() -> None:
    """What comes later is shown once, what was shown is not shown again, and Ctrl-C is a good end."""
    fleet = FakeFleet()
    put(fleet.broker, [url(1)], "discovered-urls")
    idles: list[int] = []

    def watch(consumer: FakeConsumer) -> None:
        def on_idle() -> None:
            idles.append(1)
            if len(idles) > 2:
                raise KeyboardInterrupt
            put(fleet.broker, [url(1 + len(idles))], "discovered-urls")

        consumer.on_idle = on_idle

    fleet.on_consumer = watch
    shell = run(fleet, "topics", "tail", "discovered-urls", "--follow", "--json")
    found = [json.loads(line)["record"]["url"] for line in shell.printed.splitlines()]
    assert found == [url(1).url, url(2).url, url(3).url]


@pytest.mark.parametrize(
    ("words", "sentence", "code"),
    [
        (["tail"], "needed a TOPIC", 2),
        (["tail", "fetch-result"], "did you mean fetch-results?", 2),
        (["tail", "zzz"], "needed the topic zzz", 1),
        (["head", "fetch-results"], "needed list or tail", 2),
        (["tail", "fetch-results", "--partition", "9"], "needed 0 to 3, came 9", 2),
        (["tail", "fetch-results", "--since", "x"], "needed a span", 2),
        (["tail", "fetch-results", "-n", "3", "--from-beginning"], "came two", 2),
        (["tail", "fetch-results", "--host", "a.test"], "needed scheme and name", 2),
    ],
)
def test_a_mistake_is_one_line(words: list[str], sentence: str, code: int) -> None:
    """Who, what was needed, what came, what to do."""
    assert sentence in run(FakeFleet(), "topics", *words, code=code).said


def test_topics_are_listed_with_what_is_there() -> None:
    """A topic that is missing is seen at once."""
    fleet = FakeFleet()
    del fleet.broker.logs["parse-tasks"]
    printed = run(fleet, "topics").printed
    assert "parse-tasks                     not there         ParseTask" in printed
    assert "fetch-leases                    4 partitions      FetchLease     frontier -> fetch" in printed


def letter(record: bytes, stage: str = "parse", *, url: str = "https://a.test/x", topic: str = "") -> DeadLetter:
    return DeadLetter(stage, "https://a.test", url, "broken", 1, NOW_MS, record, topic=topic)


TASK = ParseTask(b"i" * 16, "https://a.test", "https://a.test/x", 1, Kind.PAGE, BodyRef("s", 0, 1), NOW_MS, 0, 1)
LEASE = FetchLease(b"l" * 16, "https://a.test", b"i" * 16, "https://a.test/x", 1, Kind.PAGE, 0, 0, 1, 0, 1, 1)


def test_dead_letters_of_the_fleet_are_listed_shown_and_sent_again() -> None:
    """The record goes back, as it was, to the topic of its kind, and nowhere else."""
    fleet = FakeFleet()
    partition, offset = put(fleet.broker, [letter(encode(TASK)), letter(encode(url(4)), "admit")], "dead-letters")
    listed = run(fleet, "dead-letters", "--fleet").printed.splitlines()
    assert [line.split()[0] for line in listed] == [f"{partition}-{offset}-0", f"{partition}-{offset}-1"]
    shown = run(fleet, "dead-letters", "--fleet", "show", f"{partition}-{offset}-1").printed
    assert "stage     admit" in shown
    shell = run(fleet, "dead-letters", "--fleet", "requeue", f"{partition}-{offset}-0")
    assert shell.printed == "1 record sent again to parse-tasks\n"
    assert [decode(value, ParseTask) for _, value in fleet.broker.values("parse-tasks")] == [(TASK,)]
    assert fleet.broker.values("discovered-urls") == []
    run(fleet, "dead-letters", "--fleet", "requeue", "--all")
    assert [decode(value, DiscoveredUrl) for _, value in fleet.broker.values("discovered-urls")] == [(url(4),)]


@pytest.mark.parametrize(
    ("record", "stage", "why"),
    [
        (encode(LEASE), "fetch-start", "a lease is started at most once"),
        (b"\0\1", "admit", "its record cannot be read"),
        (encode(HostPolicy("*", 0, paused=True)), "admit", "no topic takes a HostPolicy"),
    ],
)
def test_a_letter_that_must_not_be_sent_again_says_why(record: bytes, stage: str, why: str) -> None:
    """A lease sent twice would be a second request; what cannot be read would only die again."""
    fleet = FakeFleet()
    put(fleet.broker, [letter(record, stage)], "dead-letters")
    shell = run(fleet, "dead-letters", "--fleet", "requeue", "--all", code=1)
    assert "1 letter not sent:" in shell.printed
    assert why in shell.printed
    assert all(not fleet.broker.values(name) for name in TOPICS if name != "dead-letters")


@pytest.mark.parametrize(
    ("topic", "value"),
    [
        ("discovered-urls", b'{"url": "https://a.test/"}'),
        ("discovered-urls", b"\0\0\0\0\7framed"),
        ("parse-tasks", encode(TASK)),
        ("host-policies", b'{"host_key": "*", "policy_version": 0, "paused": true}'),
    ],
)
def test_a_message_goes_back_as_it_was(topic: str, value: bytes) -> None:
    """What could not be read then (no registry was set, an older worker) may be now: the very bytes, to the partition
    that they were in, and under a key of their own where a topic is compacted."""
    fleet = FakeFleet()
    partition, offset = put(fleet.broker, [letter(value, "admit", topic=topic)], "dead-letters")
    shell = run(fleet, "dead-letters", "--fleet", "requeue", "--all")
    assert shell.printed == f"1 record sent again to {topic}\n"
    assert fleet.broker.values(topic) == [(partition, value)]
    [sent] = fleet.broker.logs[topic][partition]
    assert sent.key == (f"requeued {partition}-{offset}-0".encode() if topic == "host-policies" else None)


@pytest.mark.parametrize(
    ("topic", "why"),
    [("fetch-leases", "a lease is started at most once"), ("of-tomorrow", "this version knows no topic of-tomorrow")],
)
def test_a_message_of_no_use_stays(topic: str, why: str) -> None:
    """Also a lease that nobody could read is one; the stage fetch names a URL that was given up, or a message."""
    fleet = FakeFleet()
    put(fleet.broker, [letter(b"\xc3\1x", "fetch", url="", topic=topic)], "dead-letters")
    assert why in run(fleet, "dead-letters", "--fleet", "requeue", "--all", code=1).printed
    assert not fleet.broker.values("owner-messages")


def test_a_url_that_was_given_up_is_asked_of_its_owner() -> None:
    """Its record is no input of any stage: the owner, who rests it, is asked to try it anew."""
    fleet = FakeFleet()
    put(fleet.broker, [letter(b"", "fetch")], "dead-letters")
    shell = run(fleet, "dead-letters", "--fleet", "requeue", "--all")
    assert shell.printed == "1 record sent again to owner-messages\n"
    [(partition, value)] = fleet.broker.values("owner-messages")
    assert partition == partition_for("https://a.test", 4)
    assert decode(value, OwnerMessage) == (
        OwnerMessage("https://a.test", "operator", OwnerMessageKind.REQUEUE, "https://a.test/x"),
    )


def test_a_key_that_is_none_is_named() -> None:
    """A mistyped key is not passed over."""
    fleet = FakeFleet()
    put(fleet.broker, [letter(encode(TASK))], "dead-letters")
    assert "needed a key such as 3-1041-0" in run(fleet, "dead-letters", "--fleet", "show", "zz", code=2).said
    assert "no such key: 0-99-0" in run(fleet, "dead-letters", "--fleet", "requeue", "0-99-0", code=2).said


def test_robots_answers_are_readable() -> None:
    """Records within records are shown, bytes in hex."""
    answer = RobotsAnswer(RobotsDecision.PARSE_RULES, rules=b"\1\2", sitemaps=("https://a.test/s.xml",))
    result = FetchResult(
        b"\1" * 16,
        "https://a.test",
        b"\2" * 16,
        "https://a.test/robots.txt",
        1,
        Kind.ROBOTS,
        Outcome.FETCHED,
        1,
        2,
        robots=answer,
    )
    message = Message("fetch-results", 0, 0, NOW_MS, None, encode(result))
    [entry] = entries(message)
    assert "robots=(decision=parse_rules rules=0102" in line_of(message, entry)
    assert json_of(message, entry)["record"]["robots"]["rules"] == "0102"
