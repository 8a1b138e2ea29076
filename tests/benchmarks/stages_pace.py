"""Pages a second through the parse and route stages on real services: `python -m tests.benchmarks.stages_pace`.

Bodies of a documentation page's size lie in the store and their tasks in the topic before the workers start, so what is
measured is the stages at their limit: one parse worker with one parser process and one route worker, Kafka and the
object store beside them on the same machine. CPU seconds are the workers' own with their parsers, from /proc.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from pathlib import Path

from infra.services import launcher
from tests.support.fleet_world import until
from tests.support.stage_world import StageWorld, now_and_then

LINKS = 300
TICKS = os.sysconf("SC_CLK_TCK")


def body_of(number: int, pages: int, dice: random.Random) -> bytes:
    """Some 50 KB with 300 links, most of them to pages that many others name."""
    words = " ".join(f"word{dice.randrange(3_000)}" for _ in range(3_000))
    link = '<li><a class="reference internal" href="/section/{}/page.html">A title of a page</a></li>'
    links = "".join(link.format(dice.randrange(pages)) for _ in range(LINKS))
    return f"<html><title>Page {number}</title><body><ul>{links}</ul><p>{words}</p></body></html>".encode()


def cpu_s(pid: int) -> float:
    """Of a process and all below it that live."""
    total = 0.0
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            ticks[int(entry.name)] = int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])
    left = [pid]
    while left:
        one = left.pop()
        total += ticks.get(one, 0) / TICKS
        left += children.get(one, [])
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=5_000)
    parser.add_argument("--hosts", type=int, default=50)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="headrace-stages-"))
    running = launcher.up(("kafka", "s3"), data=folder / "services", fresh=False, say=print)
    try:
        measure(StageWorld({name: one.endpoint for name, one in running.items()}, folder), arguments)
    finally:
        launcher.down((), data=folder / "services", say=print)


def measure(world: StageWorld, arguments: argparse.Namespace) -> None:
    dice = random.Random(7)
    pages, hosts = arguments.pages, arguments.hosts
    bodies = {f"http://h{n % hosts}.test/{n}": body_of(n, pages, dice) for n in range(pages)}
    size = sum(map(len, bodies.values())) / pages
    world.send(world.store(bodies), batch=100)
    print(f"{pages:,} bodies of {size / 1024:.0f} KiB and {LINKS} links lie in the store")
    try:
        for stage, group, topic in (
            ("parse", "headrace-parse", "parse-tasks"),
            ("route", "headrace-route", "parsed-pages"),
        ):
            worker = world.worker(stage, stage)
            until(lambda w=worker: "are ours" in w.said(200), "the worker to begin", 300)  # type: ignore[misc]
            began_s, cpu_before = time.monotonic(), cpu_s(worker.process.pid)
            until(now_and_then(lambda g=group, t=topic: world.lag(g, t) == 0), "all of it", 900)  # type: ignore[misc]
            took_s, cpu = time.monotonic() - began_s, cpu_s(worker.process.pid) - cpu_before
            print(
                f"{stage}: {pages / took_s:,.0f} pages/s, {pages / cpu:,.0f} a CPU-second of its own ({took_s:.0f} s)"
            )
            worker.kill()
        found = world.read("discovered-urls")
        print(f"{len(found):,} URLs discovered of {pages * LINKS:,} links")
    finally:
        world.close()


if __name__ == "__main__":
    main()
