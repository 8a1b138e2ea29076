"""`headrace bench`: what the frontier and the seen test cost on this machine, through the real durable state."""

from __future__ import annotations

import argparse
import cProfile
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from streams.cli.arguments import positive
from streams.cli.shell import Shell
from streams.core.failures import EXIT_DONE, EXIT_FAILED, UsageError

EXAMPLES = """
  headrace bench frontier --hosts 100k --urls 1M --hot-host 100k
  headrace bench frontier --hosts 1M --urls 10M --hot-host 1M --shards 2 --json
  headrace bench frontier --hosts 1k --urls 20k --seconds 60 --ready-hosts 100k    with real politeness, too
  headrace bench frontier --profile frontier.prof                                   for python -m pstats
  headrace bench seen --urls 10M --cache-mb 64 --pages /usr/share/doc/postgresql-doc-15/html
  headrace bench index --hosts 1M --urls 10M --hot-host 1M      first grant and rebuild without an index

A pair is a grant and its completion: the lease, its result, and that its page is stored. Everything is synced before
it counts. "CPU-second" is the whole process, the store's own threads in it; what only the measurement needs is out.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "what",
        choices=("frontier", "seen", "index"),
        help="frontier: admit, grant, complete; seen: known links; index: to be without one",
    )
    add("--hosts", type=positive, default=100_000, metavar="H", help="hosts (default: 100k)")
    add("--urls", type=positive, metavar="U", help="URLs known (default: frontier 1M, seen 10M)")
    add("--hot-host", type=positive, metavar="N", help="URLs of one hot host, of the U (default: none)")
    add("--pairs", type=positive, metavar="P", help="pairs to time (default: 30%% of the URLs, 1M at most)")
    add("--politeness-ms", type=positive, default=1_000, metavar="MS", help="a host's delay (default: 1000)")
    add("--seconds", type=positive, metavar="S", help="then hold a pace for S seconds by the real clock")
    add("--ready-hosts", type=positive, default=100_000, metavar="R", help="hosts of that (default: 100k)")
    add("--rate", type=positive, default=25_000, metavar="N", help="grants a second of that (default: 25k)")
    add("--shards", type=positive, default=1, metavar="S", help="processes, each with a folder (default: 1)")
    add("--links", type=positive, default=1_500_000, metavar="N", help="seen: links to ask for (default: 1,500k)")
    add("--cache-mb", type=positive, default=64, metavar="MB", help="seen: the store's cache (default: 64)")
    add("--pages", type=Path, metavar="DIR", help="seen: a folder of HTML pages whose links are asked for")
    add("--dir", type=Path, metavar="DIR", help="where to work, made and left there (default: a temporary one)")
    add("--profile", type=Path, metavar="FILE", help="write a profile of CPU time; the figures are slower for it")
    add("--json", action="store_true", help="the figures as one JSON object")


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    if arguments.profile is not None and arguments.shards > 1:
        raise UsageError("--profile shows one process; leave out --shards")
    folder, temporary = _folder(arguments.dir)
    profile = cProfile.Profile(time.thread_time) if arguments.profile is not None else None
    load = os.getloadavg()[0]
    try:
        if profile is not None:
            profile.enable()
        figures = {"frontier": _frontier, "seen": _seen, "index": _index}[arguments.what](arguments, folder, shell)
    finally:
        if profile is not None:
            profile.disable()
            profile.dump_stats(arguments.profile)
        if temporary:
            shutil.rmtree(folder, ignore_errors=True)
    figures["load_1min_before"], figures["cpus"] = load, os.cpu_count()
    if arguments.json:
        shell.print(msgspec.json.encode(figures).decode())
    else:
        for line in _lines(figures):
            shell.print(line)
    breaches = figures.get("polite", {}).get("breaches", {})
    return EXIT_FAILED if any(breaches.values()) else EXIT_DONE


def _folder(wanted: Path | None) -> tuple[Path, bool]:
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="headrace-bench-")), True
    if wanted.exists() and any(wanted.iterdir()):
        raise UsageError(f"--dir {wanted}: needed a new or empty folder")
    wanted.mkdir(parents=True, exist_ok=True)
    return wanted, False


def _frontier(arguments: argparse.Namespace, folder: Path, shell: Shell) -> dict[str, Any]:
    from streams.bench.shards import Plan, run_shard, run_shards, summed
    from streams.bench.skew import SIZES_MAX, measure_skew

    hosts, urls, hot = arguments.hosts, arguments.urls or 1_000_000, arguments.hot_host or 0
    if urls - hot < 2 * hosts:
        raise UsageError(f"--urls {urls}: needed at least two for each of {hosts} hosts beside the hot host's {hot}")
    plan = Plan(
        hosts=hosts,
        urls=urls,
        hot_urls=hot,
        pairs=arguments.pairs or min(1_000_000, urls * 3 // 10),
        politeness_ms=arguments.politeness_ms,
        seconds=arguments.seconds or 0,
        ready_hosts=arguments.ready_hosts,
        rate=arguments.rate,
    )
    if arguments.shards == 1:
        results = [run_shard(plan, 0, 1, folder / "shard-0", lambda phase: None, shell.say)]
    else:
        results = run_shards(plan, arguments.shards, folder)
    figures = summed(results)
    figures["shards"] = arguments.shards
    figures["skew"] = [msgspec.to_builtins(measure_skew(cap)) for cap in SIZES_MAX]
    return figures


def _seen(arguments: argparse.Namespace, folder: Path, shell: Shell) -> dict[str, Any]:
    from streams.bench.seen import run_seen

    if arguments.pages is None:
        raise UsageError("--pages DIR: needed a folder of HTML pages, such as a package's documentation")
    figures = run_seen(
        folder / "state",
        urls=arguments.urls or 10_000_000,
        links=arguments.links,
        cache_bytes=arguments.cache_mb << 20,
        pages=arguments.pages,
        say=shell.say,
    )
    return dict(msgspec.to_builtins(figures))


def _index(arguments: argparse.Namespace, folder: Path, shell: Shell) -> dict[str, Any]:
    from streams.bench.index import run_index
    from streams.bench.population import Population

    population = Population(arguments.hosts, arguments.urls or 1_000_000, arguments.hot_host or 0)
    return dict(msgspec.to_builtins(run_index(folder / "state", population, shell.say)))


def _lines(figures: Mapping[str, Any], indent: str = "") -> list[str]:
    lines: list[str] = []
    for name, value in figures.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}{name}", *_lines(value, indent + "  ")]
        elif isinstance(value, list):
            for one in value:
                lines += [f"{indent}{name}", *_lines(one, indent + "  ")]
        elif value is not None:
            text = f"{value:,.2f}" if isinstance(value, float) and abs(value) < 1_000 else f"{value:,.0f}"
            lines.append(f"{indent}{name:<{32 - len(indent)}}{text:>16}")
    return lines
