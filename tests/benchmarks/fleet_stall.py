"""All parse workers of a fleet stand still (SIGSTOP): grants stop, memory is flat, and all goes on when they wake.

    python -m tests.benchmarks.fleet_stall [--stall-s N] [--before-s N] [--workers N] [--backlog-max N] [--seed N]

New hosts are told to the fleet meanwhile: they are admitted, and wait. Every ten seconds one line: requests that the
site saw, pages that wait to be parsed, owners that have stopped granting, memory of each worker. At the end the crawl
is judged as in `fleet_chaos`. The command fails when requests do not end, when memory grows, and when anything is
missing, twice, or was asked too soon.
"""

from __future__ import annotations

import argparse
import secrets
import time

from tests.benchmarks.fleet_runs import say, services
from tests.support.chaos import Chaos
from tests.support.whole_fleet import STAGES, StageProcess

HOSTS_FIRST = 12
HOSTS_WAITING = 16  # by all their pages, when parsers stand still: more of each partition than may wait to be parsed
HOSTS_MEANWHILE = 8  # when grants have stopped
HOSTS_AFTER = 2
LOOK_S = 10.0
GRANTS_END_S_MAX = 120.0
GROWN_MB_MAX = 16.0  # of one worker, from when grants had stopped


def main() -> None:
    """Print a line every some seconds; raise when the crawl is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.fleet_stall")
    parser.add_argument("--stall-s", type=float, default=60.0, help="after grants have stopped")
    parser.add_argument(
        "--before-s",
        type=float,
        default=75.0,
        help="of load before: memory that everything takes once is taken by then",
    )
    parser.add_argument("--workers", type=int, default=2, help="of each stage")
    parser.add_argument("--backlog-max", type=int, default=40, help="pages of a partition that may wait for a parser")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10_000))
    parser.add_argument("--pages", type=int, default=60, help="of each host")
    parser.add_argument("--delay-ms", type=int, default=100)
    with services(parser) as (arguments, fleet, folder):
        chaos = Chaos(
            fleet,
            folder,
            pages=arguments.pages,
            hosts_max=HOSTS_FIRST + HOSTS_WAITING + HOSTS_MEANWHILE + HOSTS_AFTER,
            delay_ms=arguments.delay_ms,
            seed=arguments.seed,
            say=say,
            fleet__parse_backlog_max=arguments.backlog_max,
        )
        try:
            chaos.whole.start(arguments.workers)
            chaos.feed(HOSTS_FIRST)
            chaos.goes_on()
            chaos.passes(arguments.before_s)
            _stall(chaos, arguments.stall_s)
            say(f"woken; goes on {chaos.goes_on():.1f} s later")
            chaos.feed(HOSTS_AFTER)
            again = chaos.check()
        finally:
            chaos.close()
        say(f"{len(chaos.expected()):,} documents, once each, as a walk says; no breach, no dead letter")
        say(f"{len(chaos.lines):,} requests, {again.total()} of them again")


def _stall(chaos: Chaos, stall_s: float) -> None:
    parsers = chaos.whole.running("parse")
    for one in parsers:
        one.stop()
    try:
        say(f"{len(parsers)} parse workers stand still at {len(chaos.log())} requests")
        chaos.feed(HOSTS_WAITING, whole=True)
        _until_grants_end(chaos)
        before, asked = _memory(chaos), len(chaos.log())
        chaos.feed(HOSTS_MEANWHILE, whole=True)
        end_s = time.monotonic() + stall_s
        while time.monotonic() < end_s:
            _look(chaos)
        after = _memory(chaos)
        for line in chaos.whole.command("status", "--fleet").splitlines():
            say(f"  {line}")
        assert len(chaos.log()) == asked, f"{len(chaos.log()) - asked} requests though grants had stopped"
    finally:
        for one in parsers:
            one.wake()
    grown = {name: after[name] - before[name] for name in before}
    say("grown meanwhile by MB: " + ", ".join(f"{name} {mb:+.1f}" for name, mb in grown.items()))
    assert max(grown.values()) <= GROWN_MB_MAX, grown


def _until_grants_end(chaos: Chaos) -> None:
    """Every owner says so, and the site was asked nothing between two looks."""
    end_s, asked = time.monotonic() + GRANTS_END_S_MAX, -1
    while asked != len(chaos.log()) or not all(map(_stopped, chaos.whole.running("owner"))):
        assert time.monotonic() < end_s, f"grants have not stopped\n{chaos.whole.said()}"
        asked = len(chaos.log())
        _look(chaos)


def _look(chaos: Chaos) -> None:
    """Some seconds later, one line."""
    chaos.passes(LOOK_S)
    owners = chaos.whole.running("owner")
    memory = _memory(chaos)
    say(
        f"{len(chaos.log())} requests; {sum(one.metric('headrace_leases_total') for one in owners):.0f} leases,"
        f" {sum(one.metric('headrace_parse_backlog') for one in owners):.0f} pages to parse,"
        f" {sum(map(_stopped, owners))} of {len(owners)} owners stopped,"
        f" {sum(one.metric('headrace_urls_known') for one in owners):.0f} URLs known; MB "
        + ", ".join(f"{name} {mb:.0f}" for name, mb in memory.items())
    )


def _stopped(owner: StageProcess) -> bool:
    return owner.metric("headrace_grants_stopped") >= 1


def _memory(chaos: Chaos) -> dict[str, float]:
    """Of each worker's processes, in MB."""
    return {one.name: one.rss_mb() for stage in STAGES for one in chaos.whole.running(stage)}


if __name__ == "__main__":
    main()
