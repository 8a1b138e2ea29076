"""The long form of the judged crawl: 50 hosts, the default delay, kill -9 and a new start every two minutes.

    python -m tests.benchmarks.judged_crawl --minutes 5 [--delay-ms 1000] [--kills 2] [--dir DIR]

prints what was asked and every breach, and exits with 1 when there is one. Log and policies stay in --dir, for
`python -m tests.support.judge`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.support.judged_crawl import judged_crawl


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.judged_crawl")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--delay-ms", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--dir", type=Path, help="an empty folder (default: a temporary one)")
    arguments = parser.parse_args()
    if arguments.dir is not None:
        arguments.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.dir or Path(temporary)
        seconds = round(arguments.minutes * 60)
        judged = judged_crawl(folder, seconds=seconds, kills=arguments.kills, delay_ms=arguments.delay_ms)
    for breach in judged.breaches:
        print(f"{breach.at_ms / 1e3:.3f} {breach.host} {breach.kind}: {breach.detail}")
    print(
        f"{judged.requests} requests of {judged.hosts} hosts, {judged.robots_answers} of them for robots.txt, "
        f"{judged.kills} kills, {len(judged.breaches)} breaches; by status: {judged.statuses}"
    )
    return 1 if judged.breaches else 0


if __name__ == "__main__":
    sys.exit(main())
