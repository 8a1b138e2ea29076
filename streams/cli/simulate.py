"""`headrace simulate`: the crawl in virtual time with everything going wrong that can; says what was broken, if any."""

from __future__ import annotations

import argparse
import time

import msgspec

from streams.cli.arguments import positive
from streams.cli.shell import Shell
from streams.core.failures import EXIT_DONE, EXIT_FAILED
from streams.simulation.faults import OPPORTUNITIES
from streams.simulation.many import LAG_BOUND_MS, Sum, run_many, summed
from streams.simulation.run import Report

EXAMPLES = """
  headrace simulate --seeds 100              a hundred seeds, over all processors
  headrace simulate --seed 17                one seed again, as a failure tells it
  headrace simulate --seeds 1000 --seed 0 --json
"""

SEEDS = 100
LAG_SHARE_MIN = 0.99
FAILURES_SHOWN_MAX = 5
_SAY_EACH_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--seeds", type=positive, metavar="N", help=f"how many seeds (default: {SEEDS}, or 1 with --seed)")
    add("--seed", type=_seed, metavar="S", help="the first seed (default: 0)")
    add("--processes", type=positive, metavar="P", help="at once (default: one a processor)")
    add("--json", action="store_true", help="one JSON object")


def _seed(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f'needed a whole number such as 17, came "{text}"')
    return int(text)


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    first = arguments.seed or 0
    count = arguments.seeds or (SEEDS if arguments.seed is None else 1)
    started_s = said_s = time.monotonic()
    results = []
    failed = 0
    for result in run_many(range(first, first + count), arguments.processes):
        results.append(result)
        failed += bool(result[0].rule)
        if time.monotonic() - said_s >= _SAY_EACH_S:
            said_s = time.monotonic()
            shell.say(f"{len(results):,} of {count:,} seeds, {failed} with a violation")
    total = summed(results)
    lag_kept = total.lag_in_bound >= LAG_SHARE_MIN
    if arguments.json:
        shell.print(msgspec.json.encode(total).decode())
    else:
        _print(total, time.monotonic() - started_s, first, shell, lag_kept=lag_kept)
    return EXIT_FAILED if total.failures or not lag_kept else EXIT_DONE


def _print(total: Sum, wall_s: float, first: int, shell: Shell, *, lag_kept: bool) -> None:
    say = shell.print
    say(f"seeds {first} to {first + total.seeds - 1}: {_counts(total.kinds)}")
    say(f"  {total.fetches:,} fetches, {total.completions:,} completed visits, {total.virtual_h:,.0f} virtual hours")
    say(f"  {wall_s:,.0f} s, {total.cpu_s / total.seeds:.2f} s of CPU a seed")
    least = f"{total.hosts_min} hosts, {total.fetches_min:,} fetches, {total.virtual_h_min:.1f} virtual hours"
    say(f"  each at least {least}")
    say("faults injected")
    for kind, of in OPPORTUNITIES.items():
        say(f"  {kind:<30} {total.injected.get(kind, 0):>9,}   {of}")
    if total.lags:
        lags = ", ".join(f"{float(share):.1%} within {_span(lag)}" for share, lag in total.lag_ms.items())
        say("from due to leased, high-priority URLs, where there was capacity for all")
        say(f"  {total.lags:,} leases: {lags}, longest {_span(total.lag_ms_max)}")
        say(f"  not counted: {total.slowed:,} of hosts that go at a fraction of their pace, after trouble")
        kept = "" if lag_kept else f", needed {LAG_SHARE_MIN:.0%}"
        say(f"  {total.lag_in_bound:.2%} within {_span(LAG_BOUND_MS)}{kept}")
    for report in total.failures[:FAILURES_SHOWN_MAX]:
        _failure(report, shell)
    if total.failures:
        shell.complain(f"{len(total.failures)} of {total.seeds:,} seeds broke a rule")
    else:
        say("no violation")


def _failure(report: Report, shell: Shell) -> None:
    shell.print(f"seed {report.seed} ({report.kind}, {report.virtual_h:.3f} h): {report.violation}")
    for line in report.last_events:
        shell.print(f"  {line}")
    shell.print(f"  again: headrace simulate --seed {report.seed}")


def _counts(kinds: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())


def _span(ms: int) -> str:
    return f"{ms / 1_000:.1f} s" if ms < 120_000 else f"{ms / 60_000:.1f} min"
