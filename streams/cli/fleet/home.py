"""`headrace home`: the regions that partitions are at home in, and how one is moved: an epoch of its own."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

import msgspec

from schemas.topics import partition_for
from streams.cli.fleet.clients import add_fleet, fleet_of, partitions_of
from streams.cli.shell import Shell
from streams.core.failures import EXIT_DONE, UsageError
from streams.core.rules.urls import host_key, normalize

EXAMPLES = """
  headrace home                                      of every partition: the region whose workers own it
  headrace home https://example.org                  of this host's
  headrace home 0-127,512 --to west                  move these: workers of that region take them over

A worker's region is the setting fleet.region, empty where there is but one. A partition is at home where it was taken
first. When it is moved, its owner goes on until a worker of the new region takes over, within some ten seconds where
one runs: those follow the partitions of the others. What is moved to a region without workers stands still.
"""

TOPIC = "discovered-urls"  # any co-partitioned one tells how hosts are dealt


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("what", nargs="*", metavar="PARTITION|HOST", help="a number, a range such as 0-127, some by commas, or a host")
    add("--to", metavar="REGION", help='move them there; "" is the region without a name')
    add_fleet(parser)
    add("--json", action="store_true", help="one JSON object a line")


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    fleet = fleet_of(arguments, shell)
    if arguments.to is not None and not arguments.what:
        raise UsageError("home: --to needed partitions or hosts, came none; headrace home 0-3 --to west moves four")
    count = partitions_of(TOPIC, fleet, shell)
    chosen = _chosen(arguments.what, count) or range(count)
    with shell.fleet.epochs(fleet, shell.complain) as epochs:
        for partition in chosen:
            epoch = None if arguments.to is None else epochs.move(partition, arguments.to)
            home = epochs.home(partition)
            _say(partition, None if home is None else home.region, epoch, arguments.json, shell)
    return EXIT_DONE


def _chosen(words: Sequence[str], count: int) -> list[int]:
    """The partitions that are meant, each once, in order. Raises UsageError."""
    found: set[int] = set()
    for word in (part for given in words for part in given.split(",") if part):
        numbers = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", word)
        if numbers is not None:
            first, last = int(numbers[1]), int(numbers[2] or numbers[1])
            if not first <= last < count:
                raise UsageError(f"home: needed partitions from 0 to {count - 1}, came {word}")
            found.update(range(first, last + 1))
            continue
        url = normalize(word)
        if url is None:
            raise UsageError(f"home: needed a partition or a host, came {word!r}; try 0-3 or https://example.org")
        found.add(partition_for(host_key(url), count))
    return sorted(found)


def _say(partition: int, home: str | None, epoch: int | None, as_json: bool, shell: Shell) -> None:
    if as_json:
        fields = {"partition": partition, "home": home} | ({} if epoch is None else {"epoch": epoch})
        shell.print(msgspec.json.encode(fields).decode())
        return
    place = "nobody took it yet" if home is None else home or "the region without a name"
    shell.print(f"{partition:5} {place}" + ("" if epoch is None else f"   moved, by epoch {epoch}"))
