"""One real site through a whole fleet, two workers a stage, beside the embedded engine and a plain walk of it.

    python -m tests.benchmarks.fleet_site [--hosts 1] [--delay-ms 0] [--concurrency 8] [--root DIR]

The same set of pages three times, documents equal to the indexable pages, once each, the site's own log judged; then
what each side's processes cost. The command fails when they differ. `--hosts N`: the site by N names, so N times its
pages; with one, all of it is one partition's, since a host has one owner. The web server's CPU is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

from tests.benchmarks.fleet_runs import cpu_s, say, services
from tests.benchmarks.measured import headrace, measure
from tests.support import doc_pages
from tests.support.access_log_oracle import Expected, judge
from tests.support.crawls import fetched, page_rows
from tests.support.services import Fleet
from tests.support.site import Asked, ServedSite
from tests.support.walk import pages, walk
from tests.support.whole_fleet import WholeFleet

IDLE_S = 20.0
CRAWL_S_MAX = 1_800.0
SERVICES = ("kafka", "cassandra", "s3", "opensearch", "connect")


def main() -> None:
    """Print the figures; raise when one of the sets or the log is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.fleet_site")
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--each", type=int, default=2, help="workers of each stage")
    parser.add_argument("--delay-ms", type=int, default=0)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--root", type=Path, help="a documentation tree (default: PostgreSQL's)")
    with services(parser) as (arguments, fleet, folder):
        root = arguments.root or doc_pages.root()
        hosts = [f"d{number}.test" for number in range(arguments.hosts)]
        with ServedSite(root) as site:
            paths = {urlsplit(url).path for url in pages(walk(site.url(doc_pages.START)))}
            expected = {site.url(path, host) for host in hosts for path in paths}
            say(f"a plain walk: {len(paths):,} pages; {len(hosts)} hosts: {len(expected):,}")
            own = _embedded(site, hosts, folder, arguments)
            assert own[0] == expected, _differ(own[0], expected)
            before = len(site.log())
            ours, theirs = _through_the_fleet(site, hosts, expected, fleet, folder, arguments)
            _judge(site.log()[before:], expected, arguments)
        say(
            f"embedded: {len(expected) / own[1]:.0f} pages a CPU-second; fleet: {len(expected) / ours:.0f} of our"
            f" processes ({ours / own[1]:.1f} times the embedded engine's CPU), {len(expected) / (ours + theirs):.0f}"
            " with all services"
        )


def _embedded(
    site: ServedSite, hosts: list[str], folder: Path, arguments: argparse.Namespace
) -> tuple[set[str], float]:
    """(URLs with a page, CPU seconds) of the embedded engine."""
    out = folder / "embedded"
    words = ["crawl", *(site.url(doc_pages.START, host) for host in hosts), "--out", str(out)]
    words += ["--delay", f"{arguments.delay_ms}ms", "--concurrency", str(arguments.concurrency)]
    words += ["--allow-address", "127.0.0.0/8", "--workers", "1"]
    os.environ["HEADRACE_DNS__RESOLVE"] = ",".join(f"{host}=127.0.0.1" for host in hosts)
    try:
        cost = measure(headrace(*words))
    finally:
        del os.environ["HEADRACE_DNS__RESOLVE"]
    found = fetched(page_rows(out))
    say(f"embedded engine: {len(found):,} pages, {cost.cpu_s:.1f} CPU s, {cost.wall_s:.1f} s")
    return found, cost.cpu_s


def _through_the_fleet(
    site: ServedSite,
    hosts: list[str],
    expected: set[str],
    services_: Fleet,
    folder: Path,
    arguments: argparse.Namespace,
) -> tuple[float, float]:
    """CPU seconds of our processes and of the services, from the seeds to the last document."""
    whole = WholeFleet(
        services_,
        folder / "fleet",
        hosts,
        politeness__delay_ms=arguments.delay_ms,
        politeness__concurrency=arguments.concurrency,
    )
    try:
        began_s = time.monotonic()
        whole.start(arguments.each)
        say(f"{len(whole.workers)} workers ready after {time.monotonic() - began_s:.1f} s")
        idle = _costs(whole)
        threading.Event().wait(IDLE_S)
        rest = {name: (spent - idle[name]) / IDLE_S for name, spent in _costs(whole).items()}
        before, began_s = _costs(whole), time.monotonic()
        whole.seed(site.url(doc_pages.START, host) for host in hosts)
        whole.until(lambda: whole.count_documents() >= len(expected), f"{len(expected)} documents", CRAWL_S_MAX)
        took_s = time.monotonic() - began_s
        spent = {name: after - before[name] for name, after in _costs(whole).items()}
        say(f"the last document {took_s:.1f} s after the seeds ({len(expected) / took_s:.1f} pages/s)")
        say("CPU s: " + ", ".join(f"{name} {spent[name]:.1f}" for name in spent))
        say("cores at rest: " + ", ".join(f"{name} {rest[name]:.2f}" for name in rest))
        say("MB: " + ", ".join(f"{one.name} {one.rss_mb():.0f}" for one in whole.workers))
        _compare(whole, expected)
        for one in whole.workers:
            assert one.terminate() == 0, one.said()
        ours = sum(spent[one.name] for one in whole.workers)
        return ours, sum(spent[name] for name in SERVICES)
    finally:
        whole.close()


def _compare(whole: WholeFleet, expected: set[str]) -> None:
    """Documents, rows and dead letters are those that the walk leads to."""
    documents = whole.documents()
    assert documents == Counter(expected), _differ(set(documents), expected)
    host_keys = {url.rpartition("/")[0] for url in expected if url.endswith(doc_pages.START)}
    rows = whole.rows(host_keys)
    stored = {url for url, row in rows.items() if row.visit is not None and row.visit.status == 200}
    assert stored == expected, _differ(stored, expected)
    again = {url: row.visit.visits for url, row in rows.items() if row.visit is not None and row.visit.visits != 1}
    assert again == {}, again
    letters = whole.dead_letters()
    assert letters == [], letters[:3]
    say(f"{len(documents):,} documents, once each; {len(rows):,} rows, each completed once; no dead letter")


def _costs(whole: WholeFleet) -> dict[str, float]:
    status = whole.services.status()
    return {one.name: one.cpu_s() for one in whole.workers} | {name: cpu_s(status[name].pid) for name in SERVICES}


def _judge(lines: list[Asked], expected: set[str], arguments: argparse.Namespace) -> None:
    policy = Expected(delay_ms=arguments.delay_ms, concurrency=arguments.concurrency)
    breaches = judge((line.as_request() for line in lines), lambda host: policy)
    assert breaches == [], breaches[:5]
    asked = Counter((line.host, line.path) for line in lines)
    again = sum(times - 1 for times in asked.values())
    say(f"the site's log: {len(lines):,} requests, {again} of them again, 0 breaches")


def _differ(found: set[str], expected: set[str]) -> str:
    return json.dumps({"missing": sorted(expected - found)[:10], "more": sorted(found - expected)[:10]})


if __name__ == "__main__":
    main()
