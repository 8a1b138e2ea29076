"""The bench measures what it says: its web is as large as asked, its judge finds breaches, no figure is missing."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from connectors.crawldb_rocksdb import CrawlDb
from streams.bench.politeness_log import Log, judge
from streams.bench.population import PRIORITIES, Population
from streams.bench.skew import measure_skew
from streams.cli import main
from streams.cli.shell import Shell
from streams.core.rules.traps import url_trap
from streams.core.rules.urls import normalize
from streams.core.turn import Family

DELAY_MS = 100


def test_a_population_has_the_hosts_and_urls_that_were_asked_for() -> None:
    """Protects every figure a URL: no URL comes twice, none is missing, all are normal forms of real lengths."""
    population = Population(200, 5_003, 1_000, first=7)
    found = [one for host, start, count in population.plan() for one in population.batch(host, start, count, 5)]
    urls = {one.url for one in found}
    assert len(found) == len(urls) == 5_003
    by_host = Counter(one.host_key for one in found)
    assert len(by_host) == 200
    assert by_host[population.host_key(7)] == 1_000
    assert {population.host_of(key) for key in by_host} == set(range(200))
    assert sum(map(len, urls)) / len(urls) >= 75
    assert all(normalize(url) == url and url_trap(url) is None for url in urls)
    assert {one.priority_hint for one in found} == set(PRIORITIES)


def test_a_population_is_the_same_for_the_same_seed() -> None:
    """Protects comparisons: two runs measure the same work."""
    one, same, other = (Population(50, 500, seed=seed) for seed in (3, 3, 4))
    assert list(one.plan()) == list(same.plan())
    assert one.batch(9, 0, 3, 0) == same.batch(9, 0, 3, 0)
    assert one.batch(9, 0, 3, 0) != other.batch(9, 0, 3, 0)


@pytest.mark.parametrize(
    ("grants", "completions", "breaches"),
    [
        ([(1, 0), (2, 110)], [(1, 10), (2, 120)], {}),
        ([(1, 0), (2, 109)], [(1, 10), (2, 120)], {"too_early": 1}),
        ([(1, 0), (2, 9)], [(1, 10), (2, 120)], {"at_once": 1}),
        ([(1, 0)], [(1, 10), (2, 120)], {"not_granted": 1}),
    ],
)
def test_the_judge_of_the_logs_finds_what_is_planted(
    grants: list[tuple[int, int]], completions: list[tuple[int, int]], breaches: dict[str, int], tmp_path: Path
) -> None:
    """Protects "zero breaches": a lease beside another, one too early and an answer to nothing are all seen."""
    for name, lines in (("grants", grants), ("completions", completions)):
        with Log(tmp_path / name) as log:
            log.append((lease.to_bytes(16, "big"), 4, at_ms) for lease, at_ms in lines)
            log.append(((lease + 10).to_bytes(16, "big"), 5, at_ms) for lease, at_ms in [(1, 0)])
    found = judge(tmp_path / "grants", tmp_path / "completions", DELAY_MS).breaches
    assert {kind: count for kind, count in found.items() if count} == breaches


def test_the_skew_is_that_of_the_largest_hosts() -> None:
    """Protects the figure from a hash or a law of sizes gone wrong: loads lie around the mean, hosts are even."""
    skew = measure_skew(1_000_000)
    assert skew.load_min < 1 < skew.load_p99 <= skew.load_max
    assert 0.8 < skew.chi2_per_df < 1.2


def test_the_frontier_bench_tells_all_its_figures(tmp_path: Path) -> None:
    """Protects the keys that are looked at: both kinds of pace, restart, memory, lag by priority, and no breach."""
    out = io.StringIO()
    words = ["bench", "frontier", "--hosts", "60", "--urls", "1k", "--hot-host", "300", "--json"]
    words += ["--politeness-ms", "200", "--seconds", "1", "--ready-hosts", "30", "--rate", "60"]
    assert main([*words, "--dir", str(tmp_path / "bench")], Shell(out=out, err=io.StringIO())) == 0
    figures = msgspec.json.decode(out.getvalue())
    for name in (
        *("admits_per_cpu_s", "pairs_per_cpu_s", "pairs_per_s", "grant_p50_us", "grant_p99_us", "rss_mb"),
        *("bytes_per_url", "restart_s"),
    ):
        assert figures[name] > 0, name
    assert 0 < figures["hot_share"] <= 1
    assert set(figures["lag_ms"]) == {"high", "middle", "low"}
    assert figures["polite"]["breaches"] == {"at_once": 0, "too_early": 0, "not_granted": 0}
    assert figures["polite"]["gap_ms_min"] >= 200


def test_the_seen_bench_asks_real_pages(tmp_path: Path) -> None:
    """Protects the seen test's figure: links are those of the pages, nearly all known, and both ways are measured."""
    pages = tmp_path / "pages"
    pages.mkdir()
    for page in range(12):
        links = "".join(f'<a href="{other}.html">x</a>' for other in range(page, page + 80))
        (pages / f"{page}.html").write_text(f"<title>{page}</title>{links}")
    out = io.StringIO()
    words = ["bench", "seen", "--urls", "40k", "--links", "20k", "--json", "--pages", str(pages)]
    assert main(words, Shell(out=out, err=io.StringIO())) == 0
    figures = msgspec.json.decode(out.getvalue())
    assert figures["pages"] == 12
    assert figures["urls"] >= 40_000
    assert 70 < figures["links_a_page"] < 80
    assert 0.9 < figures["known_share"] < 1
    assert figures["memo_share"] < 0.9  # the others were asked of the store
    assert figures["links_per_cpu_s"] > 0 < figures["admission_links_per_cpu_s"]


def test_the_index_bench_loads_all_rows(tmp_path: Path) -> None:
    """Protects the figures of a takeover: the index was gone, grants came before it was whole, and it is whole."""
    out = io.StringIO()
    words = ["bench", "index", "--hosts", "60", "--urls", "9k", "--hot-host", "5k", "--json"]
    words += ["--dir", str(tmp_path / "b")]
    assert main(words, Shell(out=out, err=io.StringIO())) == 0
    figures = msgspec.json.decode(out.getvalue())
    assert figures["turns"] > 1
    assert figures["grants_while_loading"] > 0
    assert figures["first_grant_s"] > 0 < figures["rows_per_cpu_s"]
    db = CrawlDb(tmp_path / "b" / "state")
    assert sum(1 for _ in db.scan(Family.SEEN)) == 9_000
    db.close()
