"""A whole fleet under load: each kind of worker and each service killed, a fetcher stopped past its session and woken.

    python -m tests.benchmarks.fleet_chaos --kills 3 [--seed N] [--only TEXT] [--minutes N]

In an order and at moments that the seed chooses; new hosts come with every deed. At the end the crawl runs to its end:
the index, the URL table and the dead letters are compared with a plain walk, and the site's own log is judged. The
command fails when anything is missing, twice, or was asked too soon, and prints the seed that begins it again.
"""

from __future__ import annotations

import argparse
import secrets
import time
from collections import Counter

from tests.benchmarks.fleet_runs import say, services
from tests.support.chaos import Chaos

HOSTS_FIRST = 6
HOSTS_A_DEED = 2
DEEDS = 10  # kinds of them


def main() -> None:
    """Print what each deed cost; raise when the crawl is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.fleet_chaos")
    parser.add_argument("--kills", type=int, default=3, help="of each kind")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10_000))
    parser.add_argument("--only", default="", help="deeds with these words alone")
    parser.add_argument("--minutes", type=float, default=120.0, help="no deed begins later; judged it is all the same")
    parser.add_argument("--pages", type=int, default=60, help="of each host")
    parser.add_argument("--delay-ms", type=int, default=200)
    with services(parser) as (arguments, fleet, folder):
        chaos = Chaos(
            fleet,
            folder,
            pages=arguments.pages,
            hosts_max=HOSTS_FIRST + (HOSTS_A_DEED + 1) * DEEDS * arguments.kills,
            delay_ms=arguments.delay_ms,
            seed=arguments.seed,
            say=say,
        )
        try:
            _run(chaos, arguments)
        finally:
            chaos.close()


def _run(chaos: Chaos, arguments: argparse.Namespace) -> None:
    chaos.whole.start()
    chaos.feed(HOSTS_FIRST)
    chaos.goes_on()
    deeds = [one for one in chaos.deeds().items() if arguments.only in one[0]] * arguments.kills
    chaos.dice.shuffle(deeds)
    end_s = time.monotonic() + 60 * arguments.minutes
    done: Counter[str] = Counter()
    for name, act in deeds:
        if time.monotonic() > end_s:
            break
        chaos.deed(name, act, HOSTS_A_DEED)
        done[name] += 1
    again = chaos.check()
    say(f"{done.total()} deeds: {', '.join(f'{times} {name}' for name, times in sorted(done.items()))}")
    say(
        f"{len(chaos.expected()):,} documents, once each, as a walk says; {len(chaos.log()):,}"
        f" requests, {again.total()} of them again, 0 breaches, no dead letter"
    )


if __name__ == "__main__":
    main()
