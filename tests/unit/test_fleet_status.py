"""`headrace status --fleet`, against a Kafka in memory and pages that are told what to say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from connectors import owner_page
from connectors.owner_page import NotTheOwner, OwnerPage, announcement
from connectors.topic_reader import Place
from schemas.codec import encode_batch
from schemas.records import DeadLetter, DiscoveredUrl, Source
from schemas.topics import OWNER_PAGES
from streams.cli import main
from streams.cli.fleet import status as fleet_status
from streams.core.failures import CrawlError
from streams.fleet.metrics import Metrics
from tests.support.fake_engine import Captured
from tests.support.fake_kafka import NOW_MS, FakeFleet

ONE, TWO = "http://10.0.0.1:6066", "http://10.0.0.2:6066"
NUMBERS = {"headrace_urls_known": 1_000.0, "headrace_urls_queued": 300.0, "headrace_pages_stored": 600.0}


def run(fleet: FakeFleet, *words: str, code: int = 0) -> Captured:
    shell = Captured(fleet=fleet)
    assert main(["status", *words], shell) == code, shell.said
    return shell


def owned(fleet: FakeFleet, **pages: str) -> None:
    """Partition p0, p1, ... owned at that page."""
    for name, page in pages.items():
        key, value = announcement(OwnerPage(int(name[1:]), 3, page, NOW_MS))
        fleet.broker.append(OWNER_PAGES, 0, value, key)


def test_what_all_owners_know_is_added_up() -> None:
    """Each worker is asked once however many partitions it owns, and one that does not answer is named."""
    fleet = FakeFleet()
    owned(fleet, p0=ONE, p1=ONE, p3=TWO)
    fleet.numbers = {ONE: NUMBERS | {"headrace_parse_backlog": 2.0}}
    found = json.loads(run(fleet, "--fleet", "--json").printed)
    assert found["counts"] == {
        "urls_known": 1_000,
        "urls_queued": 300,
        "pages_stored": 600,
        "leases_in_flight": 0,
        "parse_backlog": 2,
    }
    assert [(one["page"], one["partitions"]) for one in found["workers"]] == [(ONE, [0, 1]), (TWO, [3])]
    assert [bool(one["problem"]) for one in found["workers"]] == [False, True]
    assert found["unowned"] == [2]
    printed = run(fleet, "--fleet").printed
    assert "3 of 4 partitions owned" in printed
    assert f"owner {ONE}: partitions 0-1" in printed
    assert "nobody has taken over 2 yet" in printed
    assert "600 pages stored, 300 queued, 1,000 known; 0 in flight, 2 to parse" in printed
    assert "no worker there" in printed


def test_an_owner_that_grants_nothing_is_told() -> None:
    """Otherwise a fleet whose parsers stand still looks like one that has nothing to do."""
    fleet = FakeFleet()
    owned(fleet, p0=ONE, p1=TWO)
    fleet.numbers = {ONE: NUMBERS | {"headrace_grants_stopped": 1.0}, TWO: NUMBERS | {"headrace_grants_stopped": 0.0}}
    found = json.loads(run(fleet, "--fleet", "--json").printed)
    assert [(one["page"], one["grants_stopped"]) for one in found["workers"]] == [(ONE, True), (TWO, False)]
    assert run(fleet, "--fleet").printed.count("grants nothing: as many leases are out") == 1


def test_little_is_counted_and_much_is_told_by_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle fleet must say 0, though each transaction leaves an end behind the last record."""
    fleet = FakeFleet()
    url = DiscoveredUrl("https://a.test/", "https://a.test", Source.SEED, NOW_MS)
    for partition in (0, 0, 2):
        fleet.broker.append("discovered-urls", partition, encode_batch([url]))
    fleet.places_of = {
        "discovered-urls": {0: Place(1, 0, 3), 2: Place(None, 0, 2)},
        "fetch-leases": {1: Place(5, 0, 6)},  # a transaction's end alone
    }
    found = {one["topic"]: one for one in json.loads(run(fleet, "--fleet", "--json").printed)["behind"]}
    assert (found["discovered-urls"]["messages"], found["discovered-urls"]["about"]) == (2, False)
    assert found["fetch-leases"]["messages"] == 0
    assert found["index-events"]["group"] == "sink"
    printed = run(fleet, "--fleet").printed
    assert "  owner  behind by messages: discovered-urls 2\n" in printed
    assert "  fetch  has read all\n" in printed
    monkeypatch.setattr(fleet_status, "COUNTED_MAX", 3)
    assert "discovered-urls about 4" in run(fleet, "--fleet").printed


def test_dead_letters_are_counted_one_by_one() -> None:
    """A message of the topic holds several."""
    fleet = FakeFleet()
    letters = [DeadLetter("fetch", "https://a.test", f"https://a.test/{at}", "x", 1, NOW_MS, b"") for at in range(3)]
    fleet.broker.append("dead-letters", 1, encode_batch(letters))
    assert json.loads(run(fleet, "--fleet", "--json").printed)["dead_letters"] == 3
    assert "dead-letters --fleet shows them" in run(fleet, "--fleet").printed


def test_a_folder_and_a_fleet_are_not_both() -> None:
    """One of them was mistyped, and nothing is guessed."""
    for words in ((), ("news", "--fleet")):
        assert "needed DIR, the crawl's folder, or --fleet without one" in run(FakeFleet(), *words, code=2).said


@pytest.fixture
def served() -> Iterator[tuple[str, dict[str, tuple[int, str]]]]:
    """A page that answers by path."""
    answers: dict[str, tuple[int, str]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = answers.get(self.path, (404, ""))
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", answers
        server.shutdown()
        thread.join()


def test_a_workers_own_page_is_read(served: tuple[str, dict[str, tuple[int, str]]]) -> None:
    """What `streams.fleet.metrics` writes is what is read: owners' numbers alone, whatever their size and labels."""
    page, answers = served
    owner, parse = Metrics("owner"), Metrics("parse")
    owner.gauges = lambda: [("headrace_urls_known", (), 12_345_678), ("headrace_service_away_seconds", ("a b",), 0.5)]
    owner.count("headrace_leases_total", 2, ("page",))
    owner.count("headrace_leases_total", 3, ("robots",))
    parse.gauges = lambda: [("headrace_urls_known", (), 5)]
    answers["/metrics"] = 200, owner.page() + parse.page()
    found = owner_page.numbers(page)
    assert found["headrace_urls_known"] == 12_345_678
    assert found["headrace_leases_total"] == 5
    assert found["headrace_service_away_seconds"] == 0.5
    answers["/metrics"] = 200, "<html>"
    with pytest.raises(CrawlError, match="got status 200 without any"):
        owner_page.numbers(page)
    with pytest.raises(NotTheOwner, match="needed its numbers"):
        owner_page.numbers("http://127.0.0.1:1")
