"""What the index is told: documents, deletes, and versions that put every two of them in the right order."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from schemas.records import BodyRef, Kind, Outcome, ParsedPage, ParseTask
from streams.core import indexing
from streams.core.indexing import Verdict, doc_version, document, encode_document, is_document, of_page
from streams.core.policy import CrawlPolicy, Politeness
from streams.core.rows import Status
from streams.core.tasks import parsed_message
from tests.support.core_world import World, answer, complete, stored
from tests.unit.test_complete import lease_again, row_of

HOST = "http://a.test"
TEXT = BodyRef("parsed/x.warc.gz", 9, 9)
OPEN = CrawlPolicy(politeness=Politeness(delay_ms=0, concurrency=8, respect_robots=False))


def page(**more: Any) -> ParsedPage:
    facts = {"title": "T", "text_bytes": 4, "text": TEXT, "content_hash": b"\1" * 32, "simhash": 7, **more}
    return ParsedPage(b"\2" * 16, HOST, HOST + "/x", 3, Kind.PAGE, 1, 5, 2, **facts)


def read(task: ParseTask, **more: Any) -> ParsedPage:
    """What a parser makes of a task's body."""
    return ParsedPage(
        url_id=task.url_id,
        host_key=task.host_key,
        url=task.url,
        url_version=task.url_version,
        kind=task.kind,
        depth=task.depth,
        fetched_ms=task.fetched_ms,
        extractor_version=task.extractor_version,
        **{"title": "T", "text_bytes": 4, "text": TEXT, **more},
    )


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ({}, Verdict.UPSERT),
        ({"text": None, "text_bytes": 0}, Verdict.UPSERT),  # a title alone
        ({"error": "body_cut"}, Verdict.UPSERT),  # what was read, was read
        ({"index": False}, Verdict.DELETE),
        ({"soft_404": True}, Verdict.DELETE),
        ({"title": "", "text": None, "text_bytes": 0}, Verdict.DELETE),  # a picture
        ({"title": "", "text": None, "text_bytes": 0, "error": "parser_died"}, Verdict.DELETE),
        ({"text": None}, Verdict.NOTHING),  # read again for its links: the document stands
        ({"part": 1, "parts": 2}, Verdict.NOTHING),
    ],
)
def test_which_pages_are_documents(more: dict[str, Any], verdict: Verdict) -> None:
    """Protects the index from what a site keeps out of it, and from documents told twice."""
    assert of_page(page(**more))[0] is verdict


def test_a_sitemap_is_no_document() -> None:
    """Protects searches from lists of addresses."""
    assert of_page(msgspec.structs.replace(page(), kind=Kind.SITEMAP))[0] is Verdict.NOTHING


def test_versions_put_readings_in_order() -> None:
    """Protects a good reading from a failed one of the same content, and a newer visit from all older ones."""
    failed = page(title="", text=None, text_bytes=0, error="parse_timeout")
    later = msgspec.structs.replace(page(), extractor_version=3)
    gone = indexing.withdrawal(_row(), b"\2" * 16, HOST, 4, 6)
    versions = [of_page(one)[1] for one in (failed, page(), later, gone)]
    assert versions == sorted(set(versions))
    assert versions[1] == doc_version(3, 5) == 3 << 20 | 5
    assert of_page(gone)[0] is Verdict.DELETE


def test_a_document_holds_the_page() -> None:
    """Protects searches from documents without what they are searched by."""
    event = document(page(canonical=HOST + "/c", language="en"), 77, "text")
    fields = json.loads(encode_document(event))
    assert fields == {
        "url_id": "02" * 16,
        "doc_version": 77,
        "url": HOST + "/x",
        "title": "T",
        "text": "text",
        "language": "en",
        "content_hash": "01" * 32,
        "simhash": "0000000000000007",
        "fetched_ms": 5,
        "canonical": HOST + "/c",
    }


@pytest.mark.parametrize("text", ["word " * 50_000, '"\n' * 90_000, "ж" * 70_000, "\ud800word " * 30_000])
def test_a_long_text_loses_its_end_and_no_more_than_it_must(text: str) -> None:
    """Protects documents from being refused for their length, or for text that is no text."""
    data = encode_document(document(page(), 1, text), bytes_max=100_000)
    assert 90_000 < len(data) <= 100_000
    assert json.loads(data)["text"]


# --- the owner's side ---------------------------------------------------------------------------------------------


def _row() -> Any:
    return row_of(_read_world())


def _read_world() -> World:
    """A URL that was fetched, stored and read."""
    world = World(OPEN)
    world.seed(HOST + "/x")
    turn = complete(world, world.turn().leases)
    world.turn(parsed_message(read(turn.tasks[0])), leases_max=0)
    return world


def test_a_tombstone_and_a_redirect_withdraw_the_document_once() -> None:
    """Protects searches from pages that are gone or lead elsewhere."""
    for outcome, status, more, turns in (
        (Outcome.FAILED, 410, {}, 2),
        (Outcome.REDIRECT, 301, {"redirect_target": HOST + "/y"}, 1),
    ):
        world = _read_world()
        assert is_document(row_of(world, HOST + "/x"))
        withdrawn = []
        for _ in range(turns + 1):
            lease = lease_again(world)
            turn = world.turn(answer(lease, world.now_ms, outcome, status, **more), leases_max=0)
            withdrawn += turn.withdrawn
        (one,) = withdrawn
        assert (one.error, one.url, one.url_version) == (indexing.WITHDRAWN, HOST + "/x", turns + 1)
        assert not is_document(row_of(world, HOST + "/x"))


def test_a_url_without_content_withdraws_nothing() -> None:
    """Protects the index from deletes of what it never had."""
    world = World(OPEN)
    world.seed(HOST + "/x")
    (lease,) = world.turn().leases
    turn = world.turn(answer(lease, world.now_ms, Outcome.REDIRECT, 301, redirect_target=HOST + "/y"), leases_max=0)
    assert turn.withdrawn == []


@pytest.mark.parametrize("again", [Outcome.FETCHED, Outcome.NOT_MODIFIED])
def test_a_page_that_comes_back_unchanged_is_a_document_again(again: Outcome) -> None:
    """Protects a page that was gone for a while from staying out of the index: its version beats the delete's."""
    world = _read_world()
    for _ in range(2):
        gone = world.turn(answer(lease_again(world), world.now_ms, Outcome.FAILED, 404), leases_max=0)
    lease = lease_again(world)
    if again is Outcome.FETCHED:
        turn = complete(world, [lease])
    else:
        turn = world.turn(answer(lease, world.now_ms, Outcome.NOT_MODIFIED, 304), leases_max=0)
    (task,) = turn.tasks
    assert not task.kept
    back = read(task)
    assert of_page(back)[1] > of_page(gone.withdrawn[0])[1]
    world.turn(parsed_message(back), leases_max=0)
    assert row_of(world, HOST + "/x").status is Status.FETCHED
    assert is_document(row_of(world, HOST + "/x"))


def test_a_header_that_says_noindex_later_has_the_same_bytes_read_again() -> None:
    """Protects a site's late word on a page whose content did not change."""
    world = _read_world()
    lease = lease_again(world)
    late = msgspec.structs.replace(stored(lease), robots_tags=("noindex",))
    turn = world.turn(answer(lease, world.now_ms), late, leases_max=0)
    (task,) = turn.tasks
    assert (task.robots_tags, task.url_version) == (("noindex",), lease.url_version)
    again = world.turn(answer(lease_again(world), world.now_ms), leases_max=0)
    assert again.tasks == []


def test_rows_and_pages_agree() -> None:
    """Protects the one definition of a document from two readings of it, one of a page and one of its row."""
    for more in ({}, {"index": False}, {"soft_404": True}, {"title": "", "text": None, "text_bytes": 0}):
        world = World(OPEN)
        world.seed(HOST + "/x")
        (task,) = complete(world, world.turn().leases).tasks
        made = read(task, **more)
        world.turn(parsed_message(made), leases_max=0)
        row = row_of(world, HOST + "/x")
        verdict, version = of_page(made)
        assert row.visit is not None
        assert (verdict is Verdict.UPSERT, version) == (is_document(row), indexing.row_version(row.visit))
