"""`headrace explain --fleet`: the right owner is found and asked, and says what a folder's reader would say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from connectors.owner_page import PATH, Explain, Explained, NotTheOwner, OwnerPage, announcement, answer, ask
from schemas.topics import OWNER_PAGES, partition_for
from streams.cli import main
from streams.core.failures import CrawlError, UsageError
from tests.support.fake_engine import NOW_MS, Captured
from tests.support.fake_kafka import FakeFleet

HOST = "https://a.test"


def known(what: str) -> Sequence[tuple[str, str]]:
    if what == "::":
        raise UsageError("explain: needed a URL or a host")
    return [("now", f"{what}: its delay is not over"), ("queue", "3 new")]


@contextmanager
def worker(owned: Callable[[int], tuple[int, Explain] | None]) -> Iterator[str]:
    """A worker's web port with the page, as an agent serves it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            assert parts.path == PATH
            status, body = answer(dict(parse_qsl(parts.query)), owned)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def announce(fleet: FakeFleet, partition: int, page: str, epoch: int = 1) -> None:
    key, value = announcement(OwnerPage(partition, epoch, page, NOW_MS))
    fleet.broker.append(OWNER_PAGES, 0, value, key)


def real_fleet() -> FakeFleet:
    """Topics in memory, pages asked over HTTP."""
    fleet = FakeFleet()
    fleet.ask_owner = ask  # type: ignore[method-assign]
    return fleet


def run(fleet: FakeFleet, *words: str, code: int = 0) -> Captured:
    shell = Captured(fleet=fleet)
    assert main(["explain", "--fleet", *words], shell) == code, shell.said
    return shell


def test_a_page_answers_for_what_it_owns() -> None:
    """URLs with all their characters arrive whole, and the epoch says who answered."""
    with worker(lambda partition: (7, known) if partition == 3 else None) as page:
        said = ask(OwnerPage(3, 7, page, NOW_MS), "https://a.test/?q=1&r=%C3%A9#x")
        assert said == Explained(
            3, 7, (("now", "https://a.test/?q=1&r=%C3%A9#x: its delay is not over"), ("queue", "3 new"))
        )
        with pytest.raises(NotTheOwner, match="partition 2 is not owned by this worker now"):
            ask(OwnerPage(2, 7, page, NOW_MS), HOST)
        with pytest.raises(CrawlError, match="needed a URL or a host") as error:
            ask(OwnerPage(3, 7, page, NOW_MS), "::")
        assert error.value.exit_code == 2


@pytest.mark.parametrize("query", [{}, {"what": "x"}, {"partition": "1"}, {"what": "x", "partition": "-1"}])
def test_a_question_that_is_none_is_refused(query: dict[str, str]) -> None:
    """Anybody may call the page: what is no question reaches no store."""
    status, body = answer(query, lambda partition: pytest.fail("asked"))
    assert status == 400
    assert "needed" in msgspec.json.decode(body)["error"]


def test_the_owner_of_the_host_is_asked() -> None:
    """Two workers with two partitions each: the one that has the host answers, by the highest epoch announced."""
    mine = partition_for(HOST, 4)
    fleet = real_fleet()
    with (
        worker(lambda partition: (2, known) if partition == mine else None) as right,
        worker(lambda partition: (1, known) if partition != mine else None) as wrong,
    ):
        announce(fleet, mine, wrong, epoch=1)
        announce(fleet, mine, right, epoch=2)
        announce(fleet, (mine + 1) % 4, wrong)
        fleet.broker.append(OWNER_PAGES, 0, b"garbage")
        shell = run(fleet, f"{HOST}/x")
        assert shell.printed == ("https://a.test/x\n  now    https://a.test/x: its delay is not over\n  queue  3 new\n")
        said = run(fleet, f"{HOST}/x", "--json").printed
        assert msgspec.json.decode(said)["because"][1] == ["queue", "3 new"]


def test_a_bare_name_is_asked_of_both_schemes() -> None:
    """http and https are two hosts with two owners: the one that knows the name has the answer."""
    fleet = FakeFleet()
    asked: list[tuple[int, str]] = []

    def owner(page: OwnerPage, what: str) -> Explained:
        asked.append((page.partition, what))
        if page.partition == partition_for("http://b.test", 4):
            return Explained(page.partition, 1, (("now", "http://b.test: ready to be asked"),))
        return Explained(page.partition, 1, (("now", "b.test: the crawl does not know this host"),))

    for partition in range(4):
        announce(fleet, partition, "http://worker")
    fleet.owners["http://worker"] = owner
    assert partition_for("http://b.test", 4) != partition_for("https://b.test", 4)
    assert "ready to be asked" in run(fleet, "b.test").printed
    assert asked == [(partition_for("https://b.test", 4), "b.test"), (partition_for("http://b.test", 4), "b.test")]


def test_a_takeover_between_look_and_question_is_followed() -> None:
    """The partition moved just now: the new owner's record is looked up and asked, without a person's help."""
    fleet = FakeFleet()
    mine = partition_for(HOST, 4)
    announce(fleet, mine, "http://old", epoch=1)

    def old(page: OwnerPage, what: str) -> Explained:
        announce(fleet, mine, "http://new", epoch=2)
        raise NotTheOwner("not owned here", 1)

    fleet.owners = {"http://old": old, "http://new": lambda page, what: Explained(mine, 2, (("now", "well"),))}
    assert "well" in run(fleet, HOST).printed


def test_a_dead_owner_is_told() -> None:
    """Nobody listens at the page that was announced: which partition, which epoch, and what to do."""
    fleet = real_fleet()
    with worker(lambda partition: None) as page:
        pass
    announce(fleet, partition_for(HOST, 4), page, epoch=5)
    shell = run(fleet, HOST, code=1)
    assert f"the owner of partition {partition_for(HOST, 4)} (epoch 5) at {page}: needed an answer, got" in shell.said
    assert "taken over within a minute" in shell.said


def test_a_fleet_without_owners_is_told() -> None:
    """No worker ever took the partition: the remedy is the command that starts one."""
    assert "faust -A streams.app worker" in run(FakeFleet(), HOST, code=1).said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["news", HOST], "needed no folder beside it"),
        (["https://"], "needed a URL or a host"),
        ([" "], "came nothing"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], sentence: str) -> None:
    """Nobody is asked for what is no question."""
    shell = run(FakeFleet(), *words, code=2)
    assert sentence in shell.said
    assert shell.said.count("\n") == 1
