"""`headrace status --fleet`: who owns what, how much there is, and how far each group is behind its topics."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from infra.settings_fleet import Fleet
from schemas.topics import OWNER_PAGES, TOPICS, WORKER_GROUPS, Group
from streams.cli.fleet.clients import fleet_of, open_reader, partitions_of
from streams.cli.fleet.dead_letters import TOPIC as DEAD_LETTERS
from streams.cli.fleet.readable import entries
from streams.cli.shell import Shell, command
from streams.cli.words import count, printable
from streams.core.failures import CrawlError

if TYPE_CHECKING:
    from connectors.owner_page import OwnerPage
    from connectors.topic_reader import TopicReader

__all__ = ["Behind", "FleetStatus", "Worker", "lines", "look"]

COUNTED_MAX = 5_000  # messages of a topic that are read to be counted; of more, their offsets tell roughly
LETTERS_MAX = 100_000
GROUPS = (*WORKER_GROUPS, Group.SINK)
COUNTS = {  # what owners show of their partitions, by the names that status has for it
    "urls_known": "headrace_urls_known",
    "urls_queued": "headrace_urls_queued",
    "pages_stored": "headrace_pages_stored",
    "leases_in_flight": "headrace_leases_in_flight",
    "parse_backlog": "headrace_parse_backlog",
}


class Behind(msgspec.Struct, frozen=True):
    """How far a group is behind one topic. `about`: more than are counted, and transactions' ends among them."""

    group: str
    topic: str
    messages: int
    about: bool = False


class Worker(msgspec.Struct, frozen=True):
    """One with partitions, at its page. `problem`: why it did not answer; its partitions are not in the counts then.

    `grants_stopped`: each of its partitions has as many leases out, or pages to parse, as it may.
    """

    page: str
    partitions: tuple[int, ...]
    problem: str = ""
    grants_stopped: bool = False


class FleetStatus(msgspec.Struct, frozen=True):
    """What `--json` prints. `unowned`: partitions that nobody has taken over yet."""

    kafka: str
    partitions: int
    unowned: tuple[int, ...]
    workers: tuple[Worker, ...]
    counts: Mapping[str, int]
    behind: tuple[Behind, ...]
    dead_letters: int


def look(arguments: argparse.Namespace, shell: Shell) -> FleetStatus:
    """Ask the brokers and every owner. Raises CrawlError when the brokers do not answer."""
    fleet = fleet_of(arguments, shell)
    partitions = partitions_of("discovered-urls", fleet, shell)
    partitions_of(OWNER_PAGES, fleet, shell)
    letters = partitions_of(DEAD_LETTERS, fleet, shell)
    reader = open_reader(fleet, shell)
    try:
        from connectors.owner_page import pages

        owners = pages(reader)
        workers, counts = _ask(owners, fleet, shell)
        return FleetStatus(
            kafka=",".join(fleet.kafka),
            partitions=partitions,
            unowned=tuple(sorted(set(range(partitions)) - owners.keys())),
            workers=workers,
            counts=counts,
            behind=tuple(_behind(fleet, reader, shell)),
            dead_letters=_letters(reader, letters),
        )
    finally:
        reader.close()


def _ask(owners: Mapping[int, OwnerPage], fleet: Fleet, shell: Shell) -> tuple[tuple[Worker, ...], dict[str, int]]:
    """Each owner's worker once."""
    by_page: dict[str, list[int]] = {}
    for partition, owner in owners.items():
        by_page.setdefault(owner.page, []).append(partition)
    counts = dict.fromkeys(COUNTS, 0)
    workers = []
    for page, partitions in sorted(by_page.items()):
        problem, stopped = "", False
        try:
            numbers = shell.fleet.owner_numbers(page)
        except CrawlError as error:
            problem = str(error)
        else:
            stopped = numbers.get("headrace_grants_stopped", 0) > 0
            for name, metric in COUNTS.items():
                counts[name] += int(numbers.get(metric, 0))
        workers.append(Worker(page, tuple(sorted(partitions)), problem, stopped))
    return tuple(workers), counts


def _behind(fleet: Fleet, reader: TopicReader, shell: Shell) -> Iterator[Behind]:
    """Of each topic that a group reads. What is little is read and counted: offsets count transactions' ends, too."""
    topics = [topic for topic in TOPICS.values() if topic.group in GROUPS and topic.record is not None]
    places = shell.fleet.places(fleet, {topic.name: topic.group.value for topic in topics})
    for topic in topics:
        open_places = {partition: (place.next, place.end) for partition, place in places.get(topic.name, {}).items()}
        offsets = sum(max(0, end - begin) for begin, end in open_places.values())
        if offsets > COUNTED_MAX:
            yield Behind(topic.group.value, topic.name, offsets, about=True)
            continue
        ahead = {partition: begin for partition, (begin, end) in open_places.items() if begin < end}
        messages = sum(1 for _ in reader.read(topic.name, ahead)) if ahead else 0
        yield Behind(topic.group.value, topic.name, messages)


def _letters(reader: TopicReader, partitions: int) -> int:
    from connectors.topic_reader import BEGINNING

    found = 0
    for message in reader.read(DEAD_LETTERS, dict.fromkeys(range(partitions), BEGINNING)):
        found += sum(1 for _ in entries(message)) if message.value is not None else 0
        if found >= LETTERS_MAX:
            break
    return found


def lines(status: FleetStatus) -> Iterator[str]:
    """For people."""
    owned = status.partitions - len(status.unowned)
    workers = [worker for worker in status.workers if not worker.problem]
    yield f"fleet at {status.kafka}: {owned} of {count(status.partitions, 'partition')} owned"
    for worker in status.workers:
        yield f"  owner {worker.page}: partitions {_ranges(worker.partitions)}"
        if worker.problem:
            yield f"    {printable(worker.problem)}"
        if worker.grants_stopped:
            yield (
                "    grants nothing: as many leases are out, or pages wait to be parsed, as may be;"
                " see below which group is behind"
            )
    if status.unowned:
        yield (
            f"  nobody has taken over {_ranges(status.unowned)} yet; start a worker: {command()} worker --stage owner"
        )
    numbers = status.counts
    if workers:
        yield (
            f"  {count(numbers['pages_stored'], 'page')} stored, {numbers['urls_queued']:,} queued,"
            f" {numbers['urls_known']:,} known; {numbers['leases_in_flight']:,} in flight,"
            f" {numbers['parse_backlog']:,} to parse"
        )
    for group in GROUPS:
        behind = [one for one in status.behind if one.group == group.value]
        late = ", ".join(f"{one.topic} {'about ' * one.about}{one.messages:,}" for one in behind if one.messages)
        yield f"  {group.value:<6} {f'behind by messages: {late}' if late else 'has read all'}"
    if status.dead_letters:
        more = " or more" if status.dead_letters >= LETTERS_MAX else ""
        yield f"  {status.dead_letters:,}{more} given up; {command()} dead-letters --fleet shows them"


def _ranges(numbers: Sequence[int]) -> str:
    """`0-3, 7`."""
    said: list[str] = []
    at = 0
    while at < len(numbers):
        last = at
        while last + 1 < len(numbers) and numbers[last + 1] == numbers[last] + 1:
            last += 1
        said.append(str(numbers[at]) if last == at else f"{numbers[at]}-{numbers[last]}")
        at = last + 1
    return ", ".join(said)
