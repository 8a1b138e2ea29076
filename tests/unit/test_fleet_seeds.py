"""`headrace seeds` and `headrace sitemap`: what reaches the topic, what is refused, and what a person is told."""

from __future__ import annotations

import gzip
import json
import os
import threading
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from schemas.codec import decode
from schemas.records import DiscoveredUrl, Kind, Source
from streams.cli import main
from streams.cli.fleet import sending
from streams.cli.fleet.clients import Interrupts
from streams.cli.fleet.seed_lines import LINE_BYTES_MAX, numbered_lines
from tests.support.fake_engine import NOW_MS, Captured
from tests.support.fake_kafka import FakeFleet, FakeProducer

TOPIC = "discovered-urls"


def sent(fleet: FakeFleet) -> list[DiscoveredUrl]:
    """All that arrived, by URL."""
    records = [one for _, value in fleet.broker.values(TOPIC) for one in decode(value, DiscoveredUrl)]
    return sorted(records, key=lambda one: one.url)


def run(*words: str, code: int = 0, stdin: bytes = b"", fleet: FakeFleet | None = None) -> tuple[Captured, FakeFleet]:
    fleet = fleet or FakeFleet()
    shell = Captured(stdin=stdin, fleet=fleet)
    assert main(list(words), shell) == code, shell.said
    return shell, fleet


def test_seeds_of_a_file_arrive_with_all_that_an_owner_needs(tmp_path: Path) -> None:
    """Normal form, host, source and hint are made here: an owner takes the record as it is."""
    file = tmp_path / "seeds.txt"
    file.write_text("HTTPS://A.test/x#top  # a comment\n\n# nothing\nb.test/docs\nhttps://a.test/sitemap.xml.gz\n")
    shell, fleet = run("seeds", str(file))
    assert sent(fleet) == [
        DiscoveredUrl(
            "https://a.test/sitemap.xml.gz",
            "https://a.test",
            Source.SITEMAP,
            NOW_MS,
            priority_hint=192,
            kind=Kind.SITEMAP,
        ),
        DiscoveredUrl("https://a.test/x", "https://a.test", Source.SEED, NOW_MS, priority_hint=192),
        DiscoveredUrl("https://b.test/docs", "https://b.test", Source.SEED, NOW_MS, priority_hint=192),
    ]
    assert "3 lines read: 3 URLs acknowledged by discovered-urls at 127.0.0.1:19092" in shell.printed
    assert ", 0 refused" in shell.printed


def test_refused_lines_are_summed_by_reason_with_their_places(tmp_path: Path) -> None:
    """A million lines with bad ones among them: the good are sent, the bad are counted, shown and kept in a file."""
    file = tmp_path / "seeds.txt"
    lines = ["https://a.test/", "mailto:x@y.test", "foo", "bar", "https://bad host/", "baz", "qux", "https://b.test/"]
    file.write_bytes("\n".join(lines).encode() + b"\nhttps://\xff.test\nhttps://c.test/" + b"x" * 5_000 + b"\n")
    refused = tmp_path / "refused.tsv"
    shell, fleet = run("seeds", str(file), "--refused", str(refused), code=1)
    assert [one.url for one in sent(fleet)] == ["https://a.test/", "https://b.test/"]
    assert "10 lines read: 2 URLs acknowledged" in shell.printed
    assert ", 8 refused\nrefused:\n  4  no web address, and no name with a dot in it\n" in shell.printed
    assert f"      {file} line 3: foo\n" in shell.printed
    assert "      and 1 more\n" in shell.printed
    assert "  1  the scheme mailto:\n" in shell.printed
    assert "  1  not UTF-8\n" in shell.printed
    assert "  1  longer than 2,083 bytes\n" in shell.printed
    rows = [line.split("\t") for line in refused.read_text().splitlines()]
    assert [row[0] for row in rows] == [f"{file} line {number}" for number in (2, 3, 4, 5, 6, 7, 9, 10)]
    assert all(len(row) == 3 for row in rows)


def test_a_script_reads_the_account_as_json() -> None:
    """The same numbers by names, on stdout alone."""
    shell, _ = run("seeds", "-", "--json", code=1, stdin=b"https://a.test/\nfoo\n")
    summary = json.loads(shell.printed.splitlines()[-1])
    assert summary["event"] == "summary"
    assert (summary["read"], summary["acknowledged"], summary["refused"], summary["open"]) == (2, 1, 1, 0)
    assert sum(summary["by_partition"].values()) == 1
    assert summary["reasons"][0]["first"] == [
        {"where": "stdin line 2", "text": "foo", "reason": "no web address, and no name with a dot in it"}
    ]


def test_a_dry_run_needs_no_fleet() -> None:
    """What would be refused is known before anything is set up, and nothing is sent."""
    fleet = FakeFleet()
    fleet.broker.away = True
    shell, _ = run("seeds", "-", "--dry-run", stdin=b"a.test\nb.test\n", fleet=fleet)
    assert shell.printed == "2 lines read: 2 URLs would be sent, 0 refused\n"
    assert fleet.looks == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["seeds", "nowhere.txt"], "no such file"),
        (["seeds", "-", "-"], "stdin can be read once"),
        (["seeds", "mailto:x@y.test"], "is no web address"),
        (["seeds", "a.test", "--from-line", "2"], "needed one file alone"),
        (["seeds", "a.test", "--wait", "soon"], "needed a span"),
        (["sitemap", "nowhere.xml"], "no such file"),
        (["sitemap", "https://a.test/s.xml", "--url", "https://a.test/"], "needed one FILE"),
    ],
)
def test_a_mistake_on_the_command_line_sends_nothing(words: list[str], sentence: str) -> None:
    """One line, exit code 2, and nothing reached the topic."""
    shell, fleet = run(*words, code=2)
    assert sentence in shell.said
    assert shell.said.count("\n") == 1
    assert sent(fleet) == []


def test_a_topic_that_is_not_there_is_told_with_its_remedy() -> None:
    """A fleet that was not provisioned must not take seeds into a topic that the broker makes up."""
    fleet = FakeFleet()
    del fleet.broker.logs[TOPIC]
    shell, _ = run("seeds", "a.test", code=1, fleet=fleet)
    assert "needed the topic discovered-urls" in shell.said
    assert "provision --only topics" in shell.said


def test_a_broker_that_is_away_at_the_start_is_waited_for() -> None:
    """Started a moment before its broker, the command says so and goes on by itself."""
    fleet = FakeFleet()
    fleet.broker.away = True

    def back(looks: int) -> None:
        fleet.broker.away = looks < 4

    fleet.on_look = back
    shell, _ = run("seeds", "a.test", fleet=fleet)
    assert "waiting for it, 30.0 s at most (--wait); nothing was sent yet" in shell.said
    assert len(sent(fleet)) == 1


def test_a_broker_that_goes_away_is_waited_for_and_told() -> None:
    """Half way through, nothing is lost and nobody is left without a word."""
    now = [NOW_MS]
    fleet = FakeFleet()

    def watch(producer: FakeProducer) -> None:
        def on_poll(polls: int) -> None:
            now[0] += 500
            fleet.broker.away = 2 <= polls < 20

        producer.on_poll = on_poll

    fleet.on_producer = watch
    shell = Captured(
        stdin=b"".join(b"https://a%d.test/\n" % n for n in range(2_000)), fleet=fleet, now_ms=lambda: now[0]
    )
    assert main(["seeds", "-"], shell) == 0
    assert "has acknowledged nothing for 3.0 s (no answer); waiting for it with" in shell.said
    assert "kafka answers again" in shell.said
    assert len(sent(fleet)) == 2_000


def test_patience_can_be_bounded() -> None:
    """A script that may not hang says for how long: what is not known to have arrived is told."""
    now = [NOW_MS]
    fleet = FakeFleet()

    def watch(producer: FakeProducer) -> None:
        def on_poll(polls: int) -> None:
            now[0] += 500
            fleet.broker.away = True

        producer.on_poll = on_poll

    fleet.on_producer = watch
    shell = Captured(stdin=b"a.test\n", fleet=fleet, now_ms=lambda: now[0])
    assert main(["seeds", "-", "--wait", "10s"], shell) == 1
    assert "gave up after Kafka was away for 10.0 s (--wait): of 1 URL it is not known" in shell.said
    assert "0 URLs acknowledged" in shell.printed


def test_an_input_that_breaks_off_is_told_after_what_came_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Text that is none from some place on: what was read until there is acknowledged, and where to go on is named."""
    file = tmp_path / "seeds.txt"
    monkeypatch.setattr("streams.cli.fleet.seed_lines.CHUNK_BYTES", 2)
    file.write_bytes("https://a.test/1\nhttps://a.test/2\n".encode("utf-16") + b"\x00\xd8\x00\xd8")
    shell, fleet = run("seeds", str(file), code=2)
    assert [one.url for one in sent(fleet)] == ["https://a.test/1", "https://a.test/2"]
    assert "2 URLs acknowledged" in shell.printed
    assert "line 3: needed text in UTF-8 or UTF-16" in shell.said


def test_a_refusal_of_the_brokers_ends_with_the_account() -> None:
    """Without leave to write nothing arrives: how many did is told, and what the user needs."""
    fleet = FakeFleet()
    fleet.broker.refuses = KafkaError.TOPIC_AUTHORIZATION_FAILED
    shell, _ = run("seeds", "-", code=1, stdin=b"a.test\nb.test\n", fleet=fleet)
    assert "2 lines read: 0 URLs acknowledged" in shell.printed
    assert "needs Write and Describe" in shell.said


def test_the_first_interrupt_finishes_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything read is acknowledged, and the line to go on with is named; the exit code says that it was not all."""
    fleet = FakeFleet()
    seen: list[Interrupts] = []

    class Watched(Interrupts):
        def __init__(self) -> None:
            super().__init__()
            seen.append(self)

    monkeypatch.setattr(sending, "Interrupts", Watched)

    def watch(producer: FakeProducer) -> None:
        producer.on_poll = lambda polls: None if seen[-1].asked else seen[-1].one()

    fleet.on_producer = watch
    stdin = b"".join(b"https://a%d.test/\n" % n for n in range(5_000))
    shell, _ = run("seeds", "-", code=130, stdin=stdin, fleet=fleet)
    assert f"go on with: --from-line {len(sent(fleet)) + 1}\n" in shell.said
    assert 0 < len(sent(fleet)) < 5_000
    fleet.on_producer = lambda producer: None
    run("seeds", "-", "--from-line", str(len(sent(fleet)) + 1), stdin=stdin, fleet=fleet)
    assert len({one.url for one in sent(fleet)}) == len(sent(fleet)) == 5_000


def test_the_second_interrupt_abandons_and_says_what_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that never comes back must not hold a person: how many are acknowledged is told."""
    fleet = FakeFleet()
    seen: list[Interrupts] = []

    class Watched(Interrupts):
        def __init__(self) -> None:
            super().__init__()
            seen.append(self)

    monkeypatch.setattr(sending, "Interrupts", Watched)

    def watch(producer: FakeProducer) -> None:
        def on_poll(polls: int) -> None:
            fleet.broker.away = True
            if polls <= 2:
                seen[-1].one()

        producer.on_poll = on_poll

    fleet.on_producer = watch
    shell, _ = run("seeds", "-", code=130, stdin=b"a.test\nb.test\n", fleet=fleet)
    assert "stopped; 0 URLs acknowledged, of 2 more it is not known" in shell.said


def test_lines_come_as_they_are_written() -> None:
    """A pipe that goes on is a feed: a line is sent when it is there, not when the next block is full."""
    reading, writing = os.pipe()
    fleet = FakeFleet()
    arrived = threading.Event()

    def watch(producer: FakeProducer) -> None:
        producer.on_poll = lambda polls: arrived.set() if fleet.broker.values(TOPIC) else None

    fleet.on_producer = watch
    os.write(writing, b"https://a.test/\n")
    ended: list[bool] = []

    def finish() -> None:
        ended.append(arrived.wait(20))
        os.close(writing)

    writer = threading.Thread(target=finish)
    writer.start()
    with os.fdopen(reading, "rb") as stdin:
        shell = Captured(fleet=fleet)
        shell._stdin = stdin
        assert main(["seeds", "-"], shell) == 0
    writer.join()
    assert ended == [True]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1 << 16])
@pytest.mark.parametrize(
    "data",
    [
        b"a\nb\r\nc\rd",
        b"\xef\xbb\xbfa\nb\nc\nd\n",
        "a\nb\r\nc\nd".encode("utf-16"),
        b"a\rb\rc\rd\r",
    ],
)
def test_lines_are_the_same_however_they_are_cut(monkeypatch: pytest.MonkeyPatch, size: int, data: bytes) -> None:
    """A mark, a CR or a character that lies over the edge of two reads changes neither lines nor numbers."""
    import io

    monkeypatch.setattr("streams.cli.fleet.seed_lines.CHUNK_BYTES", size)
    assert list(numbered_lines(io.BytesIO(data))) == [(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d")]


def test_an_endless_line_is_one_line_and_bounded() -> None:
    """A file without line ends must not be held in memory; the next line has the right number."""
    import io

    lines = list(numbered_lines(io.BytesIO(b"x" * (LINE_BYTES_MAX * 3) + b"\nb\n")))
    assert [(one[0], len(one[1])) for one in lines if one] == [(1, LINE_BYTES_MAX), (2, 1)]


URLSET = b"""<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
<url><loc>https://a.test/1</loc><lastmod>2026-01-02</lastmod></url>
<url><loc>https://b.test/2</loc></url>
<url><loc>nothing</loc></url>
</urlset>"""


def test_a_sitemap_file_is_read_here(tmp_path: Path) -> None:
    """Its pages are sent with their dates; what it names in vain is counted by reason."""
    file = tmp_path / "sitemap.xml.gz"
    file.write_bytes(gzip.compress(URLSET))
    shell, fleet = run("sitemap", str(file), code=1)
    assert [(one.url, one.source, one.kind, one.lastmod_ms, one.parent_id) for one in sent(fleet)] == [
        ("https://a.test/1", Source.SITEMAP, Kind.PAGE, 1_767_312_000_000, b""),
        ("https://b.test/2", Source.SITEMAP, Kind.PAGE, None, b""),
    ]
    assert f"{file}: urlset, 2 pages, 0 sitemaps" in shell.said
    assert "  1  no URL that can be fetched\n" in shell.printed


def test_a_sitemap_with_its_url_names_its_own_host_only(tmp_path: Path) -> None:
    """The protocol's rule holds where the file's place is known, and the refused entry says so."""
    file = tmp_path / "s.xml"
    file.write_bytes(URLSET)
    shell, fleet = run("sitemap", str(file), "--url", "https://a.test/s.xml", code=1)
    assert [one.url for one in sent(fleet)] == ["https://a.test/1"]
    assert "of another host than its sitemap" in shell.printed


def test_a_sitemap_by_its_url_is_left_to_the_crawl() -> None:
    """We ask the site nothing here: the fleet fetches it under its robots.txt and its delay."""
    _, fleet = run("sitemap", "a.test/news")
    assert [(one.url, one.source, one.kind) for one in sent(fleet)] == [
        ("https://a.test/news", Source.SITEMAP, Kind.SITEMAP)
    ]


def test_sitemaps_of_an_index_are_fetched_by_the_crawl(tmp_path: Path) -> None:
    """The children of an index are sent as sitemaps, not as pages."""
    file = tmp_path / "index.xml"
    file.write_bytes(
        b'<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
        b"<sitemap><loc>https://a.test/s1.xml</loc></sitemap></sitemapindex>"
    )
    shell, fleet = run("sitemap", str(file))
    assert [(one.url, one.kind) for one in sent(fleet)] == [("https://a.test/s1.xml", Kind.SITEMAP)]
    assert "index, 0 pages, 1 sitemap" in shell.said


def test_what_is_no_sitemap_sends_nothing(tmp_path: Path) -> None:
    """A page given by mistake is refused whole."""
    file = tmp_path / "page.html"
    file.write_bytes(b"<html><body>hello</body></html>")
    shell, fleet = run("sitemap", str(file), code=2)
    assert "came none that can be read (not_a_sitemap)" in shell.said
    assert sent(fleet) == []


def test_relative_links_of_a_feed_need_its_url(tmp_path: Path) -> None:
    """Without its place a relative entry names nothing: it is refused, not sent to a made-up host."""
    file = tmp_path / "feed.xml"
    file.write_bytes(
        b'<feed xmlns="http://www.w3.org/2005/Atom"><entry><link href="/one"/></entry>'
        b'<entry><link href="https://a.test/two"/></entry></feed>'
    )
    shell, fleet = run("sitemap", str(file), code=1)
    assert [(one.url, one.source) for one in sent(fleet)] == [("https://a.test/two", Source.FEED)]
    assert "relative, and nobody said to what: --url" in shell.printed
