"""`headrace replay --fleet`: which stored bodies are asked for, and that nothing else is."""

from __future__ import annotations

import signal

import pytest

from connectors.topic_reader import Place
from schemas.codec import decode
from schemas.records import BodyRef, Kind, ParseTask, Source
from schemas.topics import partition_for
from streams.cli import main
from streams.core.failures import EXIT_INTERRUPTED
from streams.core.policy import EXTRACTOR_VERSION
from streams.core.rows import Status, UrlRow, Visit, encode_row
from streams.core.rules.urls import host_key, url_id
from tests.support.fake_engine import Captured
from tests.support.fake_kafka import FakeFleet

BODY = BodyRef("warc/x.warc.gz", 7, 70)
OLD, TODAY = EXTRACTOR_VERSION + 1, EXTRACTOR_VERSION  # an extractor that is not today's


def fleet_of(*rows: tuple[str, int, BodyRef | None]) -> FakeFleet:
    """URL, extractor that read it (0: none yet), content."""
    fleet = FakeFleet()
    for url, extractor, content in rows:
        visit = Visit(5, 200, 4, content_version=3, content=content, extractor_version=extractor, robots_tags=("none",))
        row = UrlRow(url, Source.LINK, Kind.PAGE, 2, 0, b"", 128, 1, status=Status.FETCHED, visit=visit)
        fleet.rows.append((host_key(url), url_id(url), encode_row(row)))
    return fleet


def gone(url: str) -> tuple[str, bytes, bytes]:
    """A URL that has no content any more, although its old body lies stored."""
    visit = Visit(5, 410, 4, content_version=4, content=BODY)
    row = UrlRow(url, Source.LINK, Kind.PAGE, 2, 0, b"", 128, 1, status=Status.GONE, visit=visit)
    return host_key(url), url_id(url), encode_row(row)


def replay(fleet: FakeFleet, *words: str, code: int = 0) -> Captured:
    shell = Captured(fleet=fleet)
    assert main(["replay", *words], shell) == code, shell.said
    return shell


def tasks(fleet: FakeFleet) -> list[tuple[int, ParseTask]]:
    return [(at, task) for at, value in fleet.broker.values("parse-tasks") for task in decode(value, ParseTask)]


def test_bodies_that_another_extractor_read_are_asked_for() -> None:
    """Protects a replay from reading what today's extractor read, what waits to be read, and what has no body."""
    fleet = fleet_of(
        ("https://a.test/old", OLD, BODY),
        ("https://a.test/today", TODAY, BODY),
        ("https://a.test/waits", 0, BODY),
        ("https://a.test/none", OLD, None),
    )
    shell = replay(fleet, "--fleet")
    ((partition, task),) = tasks(fleet)
    assert partition == partition_for("https://a.test", 4)
    assert (task.url, task.url_version, task.content) == ("https://a.test/old", 3, BODY)
    assert (task.extractor_version, task.kept, task.robots_tags) == (TODAY, False, ("none",))
    assert "4 URLs looked at" in shell.printed
    assert "1 acknowledged by parse-tasks" in shell.printed


def test_again_asks_for_all_that_was_read() -> None:
    """Protects the ways to fill an index that was lost and to close tasks that were: by the same extractor, anew."""
    fleet = fleet_of(
        ("https://a.test/1", TODAY, BODY), ("https://b.test/2", TODAY, BODY), ("https://b.test/3", 0, BODY)
    )
    fleet.rows.append(gone("https://b.test/gone"))
    assert "--again reads them anew" in replay(fleet, "--fleet").said
    replay(fleet, "--fleet", "--again", "b.test")
    assert [(task.url, task.kept) for _, task in tasks(fleet)] == [
        ("https://b.test/2", False),
        ("https://b.test/3", False),
    ]


def test_a_later_extractor_is_named_by_its_version() -> None:
    """Protects the order of documents: what is read again goes under the version that is asked for."""
    fleet = fleet_of(("https://a.test/1", TODAY, BODY))
    replay(fleet, "--fleet", "--extractor-version", "7")
    assert [task.extractor_version for _, task in tasks(fleet)] == [7]


def test_a_dry_run_sends_nothing() -> None:
    """Protects a fleet from a look at how much there is to do."""
    fleet = fleet_of(("https://a.test/1", OLD, BODY))
    assert "1 would be read anew" in replay(fleet, "--fleet", "--dry-run").printed
    assert tasks(fleet) == []


def test_a_large_replay_stays_near_the_parsers() -> None:
    """All of a large store's tasks at once stood before fresh pages for hours, whose owners then granted nothing."""
    fleet = fleet_of(*((f"https://h{number % 5}.test/{number}", OLD, BODY) for number in range(60)))
    parsed = dict.fromkeys(range(4), 0)  # messages of each partition, and as many tasks of each as it has
    ahead: list[int] = []

    def parse(polls: int) -> None:
        """One message of each partition, now and then."""
        logs = fleet.broker.logs["parse-tasks"]
        sent = [(at, offset) for at, log in enumerate(logs) for offset in range(len(log))]
        waiting = [decode(logs[at][offset].value or b"", ParseTask) for at, offset in sent if offset >= parsed[at]]
        ahead.append(sum(map(len, waiting)))
        if polls % 20 == 0:
            for at, log in enumerate(logs):
                parsed[at] = min(parsed[at] + 1, len(log))
        fleet.places_of["parse-tasks"] = {at: Place(parsed[at], 0, len(log)) for at, log in enumerate(logs)}

    fleet.on_producer = lambda producer: setattr(producer, "on_poll", parse)
    replay(fleet, "--fleet", "--ahead", "10")
    assert len(tasks(fleet)) == 60
    assert 5 <= max(ahead) <= 10


def test_a_replay_that_waits_for_parsers_can_be_ended() -> None:
    """Without parsers, or brokers, it waits for ever: the first Ctrl-C ends it, and what was asked for stands."""
    fleet = fleet_of(*((f"https://a.test/{number}", OLD, BODY) for number in range(60)))

    def end(polls: int) -> None:
        if polls == 40:
            signal.raise_signal(signal.SIGINT)

    fleet.on_producer = lambda producer: setattr(producer, "on_poll", end)
    replay(fleet, "--fleet", "--ahead", "10", code=EXIT_INTERRUPTED)
    assert len(tasks(fleet)) == 10


@pytest.mark.parametrize("words", [["x.test"], ["--fleet", "a b"], ["--fleet", "--extractor-version", "0"]])
def test_bad_words_are_said_in_a_line(words: list[str]) -> None:
    """Protects people from a replay of something else than they meant."""
    shell = replay(fleet_of(), *words, code=2)
    assert "needed" in shell.said
