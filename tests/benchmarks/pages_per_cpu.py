"""Pages a CPU-second of a whole durable crawl, beside a Scrapy spider that stores nothing, on the same site.

    python -m tests.benchmarks.pages_per_cpu [--rounds N] [--concurrency N] [--root DIR] [--start PATH] [--pages N]

One run, the two sides in turn (A B A B ...), every process of each side counted, the web server's CPU left out. Ours
fetches, stores WARC and text, parses, keeps all state synced, and writes the fetch log; Scrapy's side keeps nothing and
follows links in one of two ways (`tests.benchmarks.scrapy_spider`).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median

from tests.benchmarks.measured import headrace, load, measure
from tests.benchmarks.scrapy_spider import WAYS
from tests.support import doc_pages
from tests.support.site import ServedSite

RATIO_MIN = 8.0


def ours(
    url: str, concurrency: int, folder: Path, workers: int | None, pages_max: int | None
) -> tuple[int, float, float]:
    """(pages, CPU seconds, wall seconds) of a crawl into an empty folder."""
    words = ["crawl", url, "--out", str(folder / "crawl"), "--delay", "0", "--concurrency", str(concurrency)]
    words += ["--allow-address", "127.0.0.0/8", "--json"]
    words += [] if workers is None else ["--workers", str(workers)]
    words += [] if pages_max is None else ["--pages", str(pages_max)]
    cost = measure(headrace(*words))
    shutil.rmtree(folder / "crawl")
    events = [json.loads(line) for line in cost.out.splitlines() if line.startswith("{")]
    (summary,) = (event for event in events if event["event"] == "summary")
    return summary["progress"]["pages"], cost.cpu_s, cost.wall_s


def scrapys(url: str, concurrency: int, pages_max: int | None, way: str) -> tuple[int, float, float]:
    """The same of the Scrapy spider, which follows links one way or the other."""
    words = [url, str(concurrency), way, *([] if pages_max is None else [str(pages_max)])]
    cost = measure([sys.executable, "-m", "tests.benchmarks.scrapy_spider", *words])
    (pages,) = (int(line.split()[1]) for line in cost.out.splitlines() if line.startswith("pages "))
    return pages, cost.cpu_s, cost.wall_s


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.pages_per_cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--workers", type=int, help="parser processes of ours (default: the crawl's own)")
    parser.add_argument("--root", type=Path, help="a documentation tree (default: PostgreSQL's)")
    parser.add_argument("--pages", type=int, help="stop after so many (default: the whole site)")
    parser.add_argument("--start", default=doc_pages.START)
    arguments = parser.parse_args()
    rates: dict[str, list[float]] = {side: [] for side in ("headrace", *WAYS)}
    counts = set()
    print(load(), flush=True)
    with (
        ServedSite(arguments.root or doc_pages.root(), log=False) as site,
        tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as folder,
    ):
        for _ in range(arguments.rounds):
            for side in rates:
                url = site.url(arguments.start)
                if side == "headrace":
                    pages, cpu_s, wall_s = ours(
                        url, arguments.concurrency, Path(folder), arguments.workers, arguments.pages
                    )
                else:
                    pages, cpu_s, wall_s = scrapys(url, arguments.concurrency, arguments.pages, side)
                rates[side].append(pages / cpu_s)
                counts.add(pages)
                each = f"{pages / cpu_s:7.1f} pages a CPU-second ({cpu_s / pages * 1_000:.2f} ms a page)"
                print(f"{side:>10}: {pages:6,} pages, {cpu_s:7.2f} CPU s, {wall_s:7.2f} s, {each}", flush=True)
    ratios = {way: median(rates["headrace"]) / median(rates[way]) for way in WAYS}
    print(load())
    for way, ratio in ratios.items():
        print(f"ratio of the medians, beside Scrapy with {way}: {ratio:.1f} (needed: {RATIO_MIN:.0f})")
    if max(counts) - min(counts) > (0 if arguments.pages is None else 2 * arguments.concurrency):
        print(f"the sides did not fetch the same number of pages: {sorted(counts)}; no comparison", file=sys.stderr)
        return 2
    return 0 if min(ratios.values()) >= RATIO_MIN else 1


if __name__ == "__main__":
    sys.exit(main())
