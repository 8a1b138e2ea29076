"""The fleet's smaller parts: the changelog's records, outputs within a message's limit, numbers for Prometheus."""

from __future__ import annotations

import re

import pytest

from connectors.ports import UrlWrite
from schemas.codec import decode
from schemas.records import DeadLetter, FetchLease, Kind
from streams.core import policy as bounds
from streams.core.rows import rank
from streams.core.turn import Family, Turn
from streams.fleet import changelog, outputs
from streams.fleet.changelog import Mark
from streams.fleet.intake import Taken
from streams.fleet.metrics import Metrics

MARK = Mark(epoch=3, version=7, positions={"fetch-results": 12}, redo=2, written_ms=5, before=(3, 6))


def test_a_changelog_is_taken_apart_as_it_was_written() -> None:
    """States come back as writes, deletions as deletions, and the index is no part of it."""
    writes = [
        (Family.HOST, b"h", b"state"),
        (Family.RULES, b"h", None),
        (Family.QUEUE, b"q", b""),
        (Family.URL, b"u", b"r"),
    ]
    read = changelog.take_apart([*changelog.states(writes), changelog.marked(MARK)])
    assert read.writes == writes[:2]
    assert read.mark == MARK


def test_redo_is_split_and_comes_back_whole() -> None:
    """A transaction of many rows does not make a record that no broker takes."""
    rows = [UrlWrite("http://a.test", bytes((number,)) * 16, b"x" * 100_000) for number in range(40)] + [
        UrlWrite("http://a.test", b"z" * 16, None)
    ]
    entries = changelog.redo(rows, (3, 7))
    assert all(len(value or b"") <= bounds.MESSAGE_BYTES_MAX + 100_000 for _, value in entries)
    assert len(entries) > 3
    parts = changelog.take_apart(entries).redo
    assert [row for number in range(len(parts)) for row in changelog.decode_redo(parts[number]).rows] == rows


def letter(size: int) -> DeadLetter:
    return DeadLetter("fetch", "http://a.test", "http://a.test/", "error", 1, 0, b"x" * size)


def test_large_records_are_sent_in_smaller_batches() -> None:
    """A hundred records that come with the bytes of their senders would be more than a message may hold."""
    letters = [letter(90_000) for _ in range(30)]
    records = outputs.batches("dead-letters", 3, letters, lambda one: one.host_key)
    assert all(len(record.value or b"") <= bounds.MESSAGE_BYTES_MAX for record in records)
    assert [one for record in records for one in decode(record.value or b"", DeadLetter)] == letters
    assert {record.partition for record in records} == {3}


def test_numbers_of_a_turn_are_shown() -> None:
    """An alarm rests on these names: each line is one that Prometheus reads, with its stage."""
    metrics = Metrics("owner", lambda: [("headrace_commit_age_seconds", ("4",), 2.5)])
    turn = Turn(1_000)
    turn.counts.admitted = 3
    turn.counts.lost, turn.counts.patterns_paused = 2, 1
    turn.waits += [(rank(255, 0), 700), (rank(128, 3), 20), (rank(10, 0), 0)]
    turn.robots_ages_ms.append(7_200_000)
    turn.leases.append(FetchLease(b"l", "http://a.test", b"u", "http://a.test/", 1, Kind.PAGE, 0, 0, 1, 0, 0, 1_000))
    metrics.turn(4, turn, Taken(oldest_found_ms=500, dead=1), 1_300)
    page = metrics.page()
    assert 'headrace_commit_age_seconds{stage="owner",partition="4"} 2.5' in page
    assert 'headrace_leases_total{stage="owner",kind="page"} 1' in page
    assert 'headrace_urls_total{stage="owner",answer="new"} 3' in page
    assert 'headrace_admission_seconds_bucket{stage="owner",le="1.0"} 1' in page
    assert 'headrace_admission_seconds_bucket{stage="owner",le="0.5"} 0' in page
    assert 'headrace_leases_lost_total{stage="owner"} 2' in page
    assert 'headrace_trap_patterns_paused_total{stage="owner"} 1' in page
    assert 'headrace_eligibility_lag_seconds_bucket{stage="owner",priority="high",le="1.0"} 1' in page
    assert 'headrace_eligibility_lag_seconds_bucket{stage="owner",priority="high",le="0.5"} 0' in page
    assert 'headrace_eligibility_lag_seconds_count{stage="owner",priority="normal"} 1' in page
    assert 'headrace_eligibility_lag_seconds_count{stage="owner",priority="low"} 1' in page
    assert 'headrace_robots_age_seconds_bucket{stage="owner",le="21600.0"} 1' in page
    assert 'headrace_robots_age_seconds_bucket{stage="owner",le="3600.0"} 0' in page
    assert all(re.fullmatch(r"# .*|\w+\{.*\} \S+", line) for line in page.splitlines())


def test_a_labels_text_cannot_break_the_page() -> None:
    """An error's text comes from the world and may hold quotes and line ends."""
    metrics = Metrics("owner")
    metrics.count("headrace_dead_letters_total", labels=('a"b\n',))
    assert 'error="a\\"b\\n"' in metrics.page()


@pytest.mark.parametrize("name", ["headrace_commit_age_seconds"])
def test_a_gauge_is_not_counted(name: str) -> None:
    """A number that goes up and down would be wrong as a counter."""
    with pytest.raises(AssertionError):
        Metrics("owner").count(name, labels=("1",))
