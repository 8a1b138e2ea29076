"""The verbs that read a crawl's folder: status, explain, export, dead-letters."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import msgspec
import pytest

from connectors.exports import PageRow
from infra.folder import Folder
from schemas.records import DeadLetter
from streams.cli import main
from streams.cli.status import watch
from streams.core.progress import Counts, EndReason, HostSpeed, Progress, State
from tests.support.fake_engine import NOW_MS, Captured, FakeBackend, FakeReader

LETTER = DeadLetter("fetch", "https://a.example", "https://a.example/x", "timeout", 6, NOW_MS, b"\x01\x02", b"\xaa", 0)
REFUSED = DeadLetter("parse", "https://b.example", "https://b.example/\x1b[2J", "parser_died", 2, NOW_MS, b"", b"\xbb")
COUNTS = Counts(
    pages=812, urls_queued=3_201, urls_known=5_000, hosts_known=3, dead_letters=2, statuses={"fetched": 812}
)


def run(*words: str, reader: FakeReader | None = None) -> Captured:
    shell = Captured(FakeBackend(reader=reader or FakeReader(COUNTS)))
    assert main(words, shell) == 0
    return shell


def test_status_of_a_crawl_at_rest() -> None:
    """Protects the numbers that people look for first, and the command that goes on."""
    shell = run("status", "news")
    assert "news: not running" in shell.printed
    assert "812 pages stored, 3,201 queued, 5,000 known" in shell.printed
    assert "headrace crawl --out news" in shell.printed
    assert shell.fake.reader.closed == 1


def test_status_of_a_running_crawl() -> None:
    """Protects a look from outside: rates, hosts and errors of the run that holds the folder."""
    slow = HostSpeed("https://s.example", 900, 4)
    progress = Progress(pages=9, elapsed_ms=3_000, errors_by_kind={"timeout": 2}, slowest_hosts=(slow,))
    printed = run("status", "news", reader=FakeReader(COUNTS, progress=progress)).printed
    assert "news: running" in printed
    assert "errors: timeout 2" in printed
    assert "slow: https://s.example 900 ms, 4 queued" in printed


def test_status_as_json() -> None:
    """Protects scripts: one object, null where no run is."""
    status = json.loads(run("status", "news", "--json").printed)
    assert status["counts"]["pages"] == 812
    assert status["progress"] is None


def test_status_tells_how_the_last_run_ended() -> None:
    """Protects the question of the next morning: when did it end, and why, or was it killed?"""
    ended = Progress(state=State.DONE, at_ms=NOW_MS, elapsed_ms=3_000, pages=9, end_reason=EndReason.PAGE_LIMIT)
    words = run("status", "news", reader=FakeReader(COUNTS, last_run=ended)).printed
    assert "the last run ended at 2026-11-30 00:53:20Z, after 3.0 s and 9 pages: page limit" in words
    full = msgspec.structs.replace(ended, end_reason=EndReason.FAILED, end_detail="no space left")
    assert "failed: no space left" in run("status", "news", reader=FakeReader(COUNTS, last_run=full)).printed
    killed = FakeReader(COUNTS, last_run=Progress(at_ms=NOW_MS))
    assert (
        "cut off (killed, or the machine went down), last seen at 2026-11-30"
        in run("status", "n", reader=killed).printed
    )
    assert json.loads(run("status", "news", "--json", reader=killed).printed)["last_run"]["at_ms"] == NOW_MS


def test_watch_ends_with_the_run() -> None:
    """Protects `--watch`: it looks until the run is over, and pauses only in between."""
    backend = FakeBackend(reader=FakeReader(COUNTS, progress=Progress()))
    shell = Captured(backend)
    pauses = 0

    def pause() -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 2:
            backend.reader = FakeReader(COUNTS, progress=Progress(state=State.DONE))

    watch(argparse.Namespace(dir=Path("news"), json=True, watch=True), shell, pause)
    assert pauses == 2
    assert len(shell.printed.splitlines()) == 3


def test_explain_prints_each_reason() -> None:
    """Protects the answer to "why is this not fetched?": the words go on as typed, with the time of asking."""
    reader = FakeReader(COUNTS, because=(("robots", "Disallow: /x (line 3)"), ("next", "never")))
    shell = run("explain", "news", "a.example/x", reader=reader)
    assert reader.explained == [("a.example/x", NOW_MS)]
    assert shell.printed.splitlines() == ["a.example/x", "  robots  Disallow: /x (line 3)", "  next    never"]
    as_json = json.loads(run("explain", "news", "a.example", "--json", reader=reader).printed)
    assert as_json["because"][0] == ["robots", "Disallow: /x (line 3)"]


def letters() -> FakeReader:
    return FakeReader(COUNTS, letters=(("k1", LETTER), ("k2", REFUSED)))


def test_dead_letters_are_listed_and_shown() -> None:
    """Protects the operator: each letter with its key, and what a site sent cannot steer the terminal."""
    listed = run("dead-letters", "news", reader=letters()).printed.splitlines()
    assert listed[0].startswith("k1  fetch  timeout")
    assert listed[0].endswith("https://a.example/x")
    assert "\x1b" not in "".join(listed)
    shown = run("dead-letters", "news", "show", "k1", reader=letters()).printed
    assert "attempts  6" in shown
    assert "2 bytes: 0102" in shown
    rows = [json.loads(row) for row in run("dead-letters", "news", "--json", reader=letters()).printed.splitlines()]
    assert [(row["key"], row["url_id"], row["record"]) for row in rows] == [("k1", "aa", "0102"), ("k2", "bb", "")]


def test_a_key_that_is_none_is_refused() -> None:
    """Protects against a typo in a key being taken for "nothing to show"."""
    shell = Captured(FakeBackend(reader=letters()))
    assert main(["dead-letters", "news", "show", "k9"], shell) == 2
    assert "no such key: k9" in shell.said


def test_requeue_takes_keys_or_all() -> None:
    """Protects requeue: exactly what was named."""
    assert run("dead-letters", "news", "requeue", "k1", "k2").fake.requeued == [(Path("news"), ["k1", "k2"])]
    shell = run("dead-letters", "news", "requeue", "--all")
    assert shell.fake.requeued == [(Path("news"), "all")]
    assert "7 URLs queued again" in shell.printed


@pytest.mark.parametrize(("name", "place"), [("pages.jsonl", "crawl/pages.jsonl"), ("./pages.jsonl", "pages.jsonl")])
def test_export_goes_into_the_folder_unless_a_path_is_given(
    name: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects both habits: a bare name lands beside the crawl, a path where it says."""
    monkeypatch.chdir(tmp_path)
    Folder(Path("crawl"), now_ms=NOW_MS).close()
    row = PageRow("https://a.example/", "aa", "page", "fetched", "seed", 0, 1, status=200)
    shell = run("export", "crawl", "--to", name, reader=FakeReader(COUNTS, rows=(row,)))
    assert json.loads(Path(place).read_text())["url"] == "https://a.example/"
    assert f"{place}: 1 URL" in shell.printed


def test_export_needs_a_crawl_and_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects against an empty table made of a mistyped folder."""
    monkeypatch.chdir(tmp_path)
    shell = Captured()
    assert main(["export", "nowhere", "--to", "pages.parquet"], shell) == 3
    assert "nowhere" in shell.said
    Folder(Path("crawl"), now_ms=NOW_MS).close()
    assert main(["export", "crawl", "--to", "no/such/pages.parquet"], shell) == 2
    assert "no folder no/such" in shell.said
