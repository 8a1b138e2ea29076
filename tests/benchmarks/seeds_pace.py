"""What a seed costs on its way into a fleet: lines a CPU-second without brokers, or the whole command against some.

    python -m tests.benchmarks.seeds_pace [--seeds 100000]      our side alone, to a client that acknowledges at once
    python -m tests.benchmarks.seeds_pace --kafka HOST:PORT     `headrace seeds` as it is called: wall, CPU, memory

For the second `headrace provision --only topics` first. The topic keeps what is sent.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from streams.cli import main as headrace
from tests.support.fake_engine import Captured
from tests.support.fake_kafka import Broker, FakeFleet

HOSTS = 5_000


def main() -> None:
    """Print one line a way."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=100_000)
    parser.add_argument("--kafka", default="")
    arguments = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.2f}")
    if arguments.kafka:
        against(arguments.kafka, arguments.seeds)
        return
    data = seeds(arguments.seeds)
    for name, words, partitions in (("dry run", ["--dry-run"], 4), ("4 partitions", [], 4), ("1,024", [], 1_024)):
        fleet = FakeFleet(Broker(partitions))
        shell = Captured(stdin=data, fleet=fleet)
        began = time.process_time()
        headrace(["seeds", "-", *words], shell)
        took = time.process_time() - began
        values = [value for _, value in fleet.broker.values("discovered-urls")]
        size = sum(map(len, values)) / arguments.seeds
        print(f"{name}: {arguments.seeds / took:,.0f} seeds/CPU-s, {len(values):,} messages, {size:.0f} bytes a seed")


def against(kafka: str, count: int) -> None:
    """The real command, a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "seeds.txt"
        file.write_bytes(seeds(count))
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "streams.cli", "seeds", str(file), "--quiet"],
            env={**os.environ, "HEADRACE_FLEET__KAFKA": kafka},
            check=True,
        )
        wall = time.monotonic() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime
    print(
        f"{count:,} seeds: {wall:.1f} s, {count / wall:,.0f}/s, {count / cpu:,.0f}/CPU-s,"
        f" {used.ru_maxrss / 1_000:.0f} MB at most, exit code {done.returncode}"
    )


def seeds(count: int) -> bytes:
    """One URL a line, of so many hosts in turn."""
    return b"".join(
        b"https://www.host%d.example.org/docs/section-%d/page-%d.html\n" % (at * 7_919 % HOSTS, at % 97, at)
        for at in range(count)
    )


if __name__ == "__main__":
    main()
