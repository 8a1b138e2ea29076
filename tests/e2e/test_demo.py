"""`headrace demo` as a person runs it: another process, the real engine, judged by the sites' own log."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from infra.demo_site import BOOKS, HOSTS, MIRRORED, crawl_delay_ms, disallowed
from streams.cli.demo import CALENDAR_URLS_MAX, DELAY_MS, LOG_NAME
from tests.support.access_log_oracle import Expected, Request, judge, read_log

TIMEOUT_S = 120


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """One run for all tests of this file."""
    out = tmp_path_factory.mktemp("demo") / "out"
    command = [sys.executable, "-m", "streams.cli", "demo", "--out", str(out)]
    return out, subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def log_of(out: Path) -> list[Request]:
    return read_log((out / LOG_NAME).read_bytes())


def test_it_ends_well_and_says_what_comes_next(demo: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Protects the first minute: exit code 0, the first page early, the verdict, and commands that can be pasted."""
    out, done = demo
    assert done.returncode == 0, done.stderr + done.stdout
    assert "first page: 200 http://library.demo.test" in done.stderr
    assert "Traceback" not in done.stderr
    assert "no breach" in done.stdout
    assert f"infra/headrace status {out}" in done.stdout


def test_no_site_was_asked_impolitely(demo: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Protects the promise: delay, one connection, robots.txt first, Crawl-delay, Retry-After; by an outside judge."""
    out, _ = demo

    def expected(host: str) -> Expected:
        return Expected(delay_ms=max(DELAY_MS, crawl_delay_ms(host)), allowed=lambda path: not disallowed(host, path))

    requests = log_of(out)
    assert {request.host for request in requests} == set(HOSTS)
    assert judge(requests, expected) == []


def test_everything_reachable_was_found_once(demo: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Protects completeness: every book and article is there, and no body was sent twice."""
    out, _ = demo
    fetched = Counter((request.host, request.path) for request in log_of(out) if request.status == 200)
    for host, path, number in (("library", "books", BOOKS), ("mirror", "books", MIRRORED), ("news", "articles", 24)):
        assert {(f"{host}.demo.test", f"/{path}/{n}") for n in range(number)} <= set(fetched)
    assert [page for page, times in fetched.items() if times > 1] == []


def test_the_trap_is_paused_and_the_shop_goes_on(demo: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Protects against the endless calendar: it gets its share and no more, and every item of the shop is fetched."""
    out, _ = demo
    paths = {request.path for request in log_of(out) if request.host == "shop.demo.test" and request.status == 200}
    assert {f"/goods/{number}" for number in range(12)} <= paths
    assert 1 <= sum(path.startswith("/calendar/") for path in paths) <= CALENDAR_URLS_MAX + 5


def test_the_folder_answers_afterwards(demo: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Protects the commands that the report proposes: status, explain and every export work on what it left."""
    out, _ = demo

    def headrace(*words: str) -> str:
        command = [sys.executable, "-m", "streams.cli", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    counts = json.loads(headrace("status", str(out), "--json"))["counts"]
    assert counts["pages"] >= 150
    assert counts["urls_queued"] == 0
    denied = next(request for request in log_of(out) if request.host == "quiet.demo.test")
    port = json.loads(headrace("export", str(out), "--to", "pages.jsonl", "--json"))
    assert port["rows"] == counts["urls_known"]
    rows = [json.loads(row) for row in (out / "pages.jsonl").read_text().splitlines()]
    private = next(row["url"] for row in rows if row["url"].endswith("/private/1"))
    assert denied.path == "/robots.txt"
    assert "Disallow: /private/" in headrace("explain", str(out), private)
    for name in ("pages.parquet", "links.parquet", "links.jsonl", "crawl.cdxj"):
        assert json.loads(headrace("export", str(out), "--to", name, "--json"))["rows"] > 100
