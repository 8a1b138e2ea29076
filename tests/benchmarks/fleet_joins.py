"""A second fetch worker and a second parse worker join a whole fleet under load, and leave: what is asked for again.

    python -m tests.benchmarks.fleet_joins [--times N] [--seed N] [--hosts N] [--pages N] [--delay-ms N]

Each joins by its start and leaves by SIGTERM. Counted over the sixty seconds around each: from thirty before it began
to thirty after it was over. At the end the crawl is judged as in `fleet_chaos`: the command fails when anything is
missing, twice, or was asked too soon.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Callable

from tests.benchmarks.fleet_runs import now_ms, say, services
from tests.support.chaos import Chaos
from tests.support.whole_fleet import StageProcess

STAGES_THAT_GROW = ("fetch", "parse")
HOSTS_A_DEED = 3
AROUND_MS = 30_000  # before it begins, and after it is over
LEAVE_S_MAX = 60.0


def main() -> None:
    """Print what each cost; raise when the crawl is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.fleet_joins")
    parser.add_argument("--times", type=int, default=1, help="that each joins and leaves")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10_000))
    parser.add_argument("--hosts", type=int, default=10, help="at first")
    parser.add_argument("--pages", type=int, default=120, help="of each host")
    parser.add_argument("--delay-ms", type=int, default=500)
    with services(parser) as (arguments, fleet, folder):
        chaos = Chaos(
            fleet,
            folder,
            pages=arguments.pages,
            hosts_max=arguments.hosts + HOSTS_A_DEED * 2 * len(STAGES_THAT_GROW) * arguments.times,
            delay_ms=arguments.delay_ms,
            seed=arguments.seed,
            say=say,
        )
        try:
            chaos.whole.start(each=1)
            chaos.feed(arguments.hosts)
            chaos.goes_on()
            chaos.passes(AROUND_MS / 1_000)
            for _ in range(arguments.times):
                for stage in STAGES_THAT_GROW:
                    _joins_and_leaves(chaos, stage)
            again = chaos.check()
        finally:
            chaos.close()
        say(f"{len(chaos.expected()):,} documents, once each, as a walk says; no breach, no dead letter")
        say(f"{len(chaos.lines):,} requests, {again.total()} of them again")


def _joins_and_leaves(chaos: Chaos, stage: str) -> None:
    made: list[StageProcess] = []
    _counted(chaos, f"a second worker of {stage} joins", lambda: made.append(chaos.joins(stage)))
    more = made.pop()

    def leave() -> None:
        assert more.terminate(LEAVE_S_MAX) == 0, more.said()

    _counted(chaos, f"it leaves {stage}", leave)


def _counted(chaos: Chaos, name: str, act: Callable[[], None]) -> None:
    """Do it, and tell what was asked again around it. There is load all the time."""
    chaos.feed(HOSTS_A_DEED)
    began_ms = now_ms()
    act()
    over_ms = now_ms()
    chaos.passes(AROUND_MS / 1_000)
    since_ms, until_ms = began_ms - AROUND_MS, over_ms + AROUND_MS
    requests, again = chaos.asked_again(since_ms, until_ms)
    pause_s = chaos.longest_pause_s(since_ms, until_ms)
    lost = sum(one.metric("headrace_leases_lost_total") for one in chaos.whole.running("owner"))
    say(
        f"{name}: {(over_ms - began_ms) / 1_000:.1f} s; in the {(until_ms - since_ms) / 1_000:.0f} s around it"
        f" {requests} requests, {again} of them again, longest pause {pause_s:.1f} s; {lost:.0f} leases lost so far"
    )
    assert requests, "there was no load"


if __name__ == "__main__":
    main()
