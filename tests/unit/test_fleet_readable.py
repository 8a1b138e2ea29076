"""Topics whose values are none of our records, as `headrace topics tail` shows them."""

from __future__ import annotations

from connectors.ports import UrlWrite
from connectors.topic_reader import Message
from schemas.records import Kind, Source
from schemas.topics import OWNER_CHANGELOG
from streams.cli import main
from streams.cli.fleet.readable import entries, line_of
from streams.core.hosts import HostState, encode_host
from streams.core.rows import UrlRow, encode_row
from streams.core.rules.urls import host_id
from streams.core.turn import Family, Write
from streams.fleet import changelog
from streams.fleet.changelog import Mark
from tests.support.fake_engine import NOW_MS, Captured
from tests.support.fake_kafka import FakeFleet


def test_an_owners_changelog_is_readable() -> None:
    """States by their family, a host by its name and numbers, rows by their URLs, and where the owner stands."""
    fleet = FakeFleet()
    host, key = HostState("https://a.test", known=3), host_id("https://a.test")
    row = UrlRow("https://a.test/x", Source.SEED, Kind.PAGE, 0, 0, b"", 128, NOW_MS)
    writes: list[Write] = [
        (Family.HOST, key, encode_host(host)),
        (Family.RULES, key, None),
        (Family.OWNER, b"b", b"xy"),
    ]
    records = [
        *changelog.states(writes),
        *changelog.redo([UrlWrite("https://a.test", b"u" * 16, encode_row(row))], (2, 7)),
        changelog.marked(Mark(epoch=2, version=7, positions={"fetch-results": 41}, redo=1, written_ms=NOW_MS)),
    ]
    for name, value in records:
        fleet.broker.append(OWNER_CHANGELOG, 1, value, name)
    lines = tail_of(fleet).splitlines()
    for line, words in zip(
        lines,
        (
            ('"family":"host"', '"host_key":"https://a.test"', '"known":3'),
            ('"family":"rules"', '"deleted":true'),
            ('"family":"owner"', '"bytes":2'),
            ('"urls":["https://a.test/x"]', '"stamp":[2,7]'),
            ('"mark":', '"positions":{"fetch-results":41}', '"epoch":2'),
        ),
        strict=True,
    ):
        assert all(word in line for word in words), line


def test_a_documents_version_is_shown() -> None:
    """Which of two index events of a page stands is told by its header alone."""
    message = Message("index-events", 0, 5, NOW_MS, b"id", b'{"title": "x"}', (("doc_version", b"1048576"),))
    [entry] = entries(message)
    assert "doc_version=1048576" in line_of(message, entry)


def tail_of(fleet: FakeFleet) -> str:
    shell = Captured(fleet=fleet)
    assert main(["topics", "tail", OWNER_CHANGELOG], shell) == 0, shell.said
    return shell.printed
