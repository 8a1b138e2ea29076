"""`headrace dead-letters --fleet`: what stages gave up, read off its topic, and sent again to the topic it came by."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from infra.settings_fleet import Fleet
from schemas.codec import BadRecord, decode_any
from schemas.records import DeadLetter, FetchLease, OwnerMessage, OwnerMessageKind
from schemas.topics import TOPICS, Cleanup
from streams.cli.fleet.clients import fleet_of, open_reader, partitions_of
from streams.cli.fleet.readable import entries
from streams.cli.fleet.refused import Refusals, Refused
from streams.cli.shell import Shell
from streams.cli.words import count, shorten
from streams.core.failures import EXIT_DONE, EXIT_FAILED, UsageError

if TYPE_CHECKING:
    from connectors.producer import BatchProducer

__all__ = ["letters", "requeue"]

TOPIC = "dead-letters"
GIVEN_UP = "fetch"  # the stage of a URL that failed after all retries: its owner is asked to try it anew
LEASES = "fetch-leases"
STARTED_ONCE = "a lease is started at most once, and never sent again"
KEY = re.compile(r"([0-9]{1,5})-([0-9]{1,18})-([0-9]{1,9})")
Letter = tuple[str, DeadLetter]


def letters(arguments: argparse.Namespace, shell: Shell, keys: list[str] | None = None) -> Iterator[Letter]:
    """(partition-offset-place, letter), partition by partition as they come; with `keys` those alone."""
    from connectors.topic_reader import BEGINNING

    fleet = fleet_of(arguments, shell)
    partitions = partitions_of(TOPIC, fleet, shell)
    reader = open_reader(fleet, shell)
    places = dict.fromkeys(range(partitions), BEGINNING) if keys is None else _places(keys, partitions)
    unreadable = 0
    try:
        for message in reader.read(TOPIC, places):
            for entry in entries(message):
                if isinstance(entry.record, DeadLetter):
                    key = f"{message.partition}-{message.offset}-{entry.index}"
                    if keys is None or key in keys:
                        yield key, entry.record
                else:
                    unreadable += 1
    finally:
        reader.close()
    if unreadable:
        shell.say(f"{count(unreadable, 'message')} cannot be read; headrace topics tail {TOPIC} --from-beginning")


def requeue(arguments: argparse.Namespace, shell: Shell) -> int:
    """Send the records again, each to the topic that it came by or that carries its kind; say what cannot be, and why.

    A message goes as it was, to the partition that it was in: what could not be read then may be readable now.
    """
    fleet = fleet_of(arguments, shell)
    there = shell.fleet.partitions(fleet)
    producers: dict[str, BatchProducer] = {}
    refusals = Refusals()
    wanted = None if arguments.all else arguments.keys
    found: set[str] = set()
    for key, letter in letters(arguments, shell, wanted):
        found.add(key)
        again = _again(letter)
        if again.problem or not there.get(again.topic):
            problem = again.problem or f"there is no topic {again.topic}"
            refusals.add(Refused(key, letter.url or letter.host_key, problem))
            continue
        if again.topic not in producers:
            producers[again.topic] = _producer(again.topic, there[again.topic], fleet, shell)
        producer = producers[again.topic]
        for record in again.records:
            producer.send(record)
        if again.whole:
            # A compacted topic takes no message without a key, and keeps the last of each: none may replace another.
            name = None if TOPICS[again.topic].cleanup is Cleanup.DELETE else f"requeued {key}".encode()
            producer.send_message(int(key.partition("-")[0]), name, letter.record)
    for topic, producer in producers.items():
        producer.settle()
        shell.print(f"{count(producer.counts.acknowledged, 'record')} sent again to {topic}")
    if not found and wanted is None:
        shell.print("no dead letters")
    if refusals.number:
        shell.print(f"{count(refusals.number, 'letter')} not sent:")
        for line in refusals.lines():
            shell.print(line)
    missing = [] if wanted is None else sorted(set(wanted) - found)
    if missing:
        raise UsageError(f"dead-letters requeue: no such key: {', '.join(missing)}")
    return EXIT_FAILED if refusals.number else EXIT_DONE


class _Again(msgspec.Struct, frozen=True):
    """How a letter is tried again: by records, or as the message that it was (`whole`); else why it is not."""

    topic: str = ""
    records: tuple[msgspec.Struct, ...] = ()
    whole: bool = False
    problem: str = ""


def _again(letter: DeadLetter) -> _Again:
    if letter.stage == GIVEN_UP and letter.url:
        asked = OwnerMessage(letter.host_key, "operator", OwnerMessageKind.REQUEUE, letter.url)
        return _Again("owner-messages", (asked,))
    if letter.topic == LEASES:
        return _Again(problem=STARTED_ONCE)
    if letter.topic:
        known = letter.topic in TOPICS
        return _Again(letter.topic, whole=known, problem="" if known else f"this version knows no topic {letter.topic}")
    try:
        records = decode_any(letter.record)
    except BadRecord as error:
        return _Again(problem=f"its record cannot be read: {shorten(str(error), 160)}")
    kind = type(records[0]) if records else None
    if kind is FetchLease:
        return _Again(problem=STARTED_ONCE)
    topic = next((one for one in TOPICS.values() if one.record is kind and one.batched), None)
    if topic is None or kind is DeadLetter:
        named = "record of no kind" if kind is None else kind.__name__
        return _Again(problem=f"no topic takes a {named} from here")
    return _Again(topic.name, records)


def _producer(topic: str, partitions: int, fleet: Fleet, shell: Shell) -> BatchProducer:
    from connectors.producer import BatchProducer

    def heard(why: str) -> None:
        shell.say(f"kafka: {why}; waiting for it")

    return BatchProducer(shell.fleet.producer(fleet, heard), topic, partitions, now_ms=shell.now_ms)


def _places(keys: list[str], partitions: int) -> dict[int, int]:
    """Where to begin in each partition that holds one of the keys."""
    places: dict[int, int] = {}
    for key in keys:
        match = KEY.fullmatch(key)
        if match is None or int(match.group(1)) >= partitions:
            raise UsageError(f'dead-letters: needed a key such as 3-1041-0, as list shows them, came "{key}"')
        partition, offset = int(match.group(1)), int(match.group(2))
        places[partition] = min(places.get(partition, offset), offset)
    return places
