"""Peak memory of a crawl of 1,000 pages and of one of 30,000 pages of the same site.

    python -m tests.benchmarks.memory_by_pages [--root DIR] [--few N] [--many N] [--copies N]

The site is Debian's rust-doc (over 21,000 pages), served twice under two prefixes, each copy's pages with bytes of
their own. Resident memory is that of all processes of the crawl together.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.measured import headrace, load, measure
from tests.support.site import ServedSite

ROOT = Path("/usr/share/doc/rust-doc/html")
MORE_BYTES_MAX = 200_000_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.memory_by_pages")
    parser.add_argument("--root", type=Path, default=ROOT, help="Debian: apt-get install rust-doc")
    parser.add_argument("--few", type=int, default=1_000)
    parser.add_argument("--many", type=int, default=30_000)
    parser.add_argument("--copies", type=int, default=2)
    parser.add_argument("--concurrency", type=int, default=8)
    arguments = parser.parse_args()
    if not (arguments.root / "index.html").is_file():
        print(f"no site in {arguments.root}; apt-get install rust-doc, or name a tree: --root DIR", file=sys.stderr)
        return 2
    peaks = []
    print(load(), flush=True)
    with ServedSite(arguments.root, "--copies", str(arguments.copies), log=False) as site:
        for pages_max in (arguments.few, arguments.many):
            with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as folder:
                seeds = [site.url(f"/{copy}/index.html") for copy in range(arguments.copies)]
                words = ["crawl", *seeds, "--out", f"{folder}/crawl", "--delay", "0", "--pages", str(pages_max)]
                words += ["--allow-address", "127.0.0.0/8", "--concurrency", str(arguments.concurrency), "--json"]
                cost = measure(headrace(*words), memory=True)
            events = [json.loads(line) for line in cost.out.splitlines() if line.startswith("{")]
            (summary,) = (event for event in events if event["event"] == "summary")
            pages, known = summary["progress"]["pages"], summary["progress"]["urls_known"]
            peaks.append(cost.peak_bytes)
            print(
                f"{pages:,} pages, {known:,} URLs known: peak {cost.peak_bytes / 1e6:.0f} MB,"
                f" {cost.cpu_s:.1f} CPU s ({cost.cpu_s / pages * 1_000:.2f} ms a page), {cost.wall_s:.1f} s",
                flush=True,
            )
    print(load())
    print(f"difference: {(peaks[1] - peaks[0]) / 1e6:.0f} MB (at most {MORE_BYTES_MAX / 1e6:.0f})")
    return 0 if peaks[1] - peaks[0] < MORE_BYTES_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
