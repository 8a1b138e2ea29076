"""`headrace topics`: what there is, and the records of one as people read them."""

from __future__ import annotations

import argparse
import difflib
import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from connectors.topic_reader import BEGINNING, END, last
from infra import units
from infra.units import Unit
from schemas.topics import INNER_TOPICS, TOPICS, partition_for
from streams.cli.arguments import positive
from streams.cli.fleet.clients import Interrupts, add_fleet, fleet_of, open_reader, partitions_of
from streams.cli.fleet.readable import Entry, entries, json_of, key_of, line_of
from streams.cli.shell import Shell
from streams.core.failures import EXIT_DONE, UsageError

if TYPE_CHECKING:
    from connectors.topic_reader import Message, TopicReader

EXAMPLES = """
  headrace topics                                    the topics, what they carry, from whom to whom
  headrace topics tail fetch-results                 the last ten records
  headrace topics tail discovered-urls -n 100 --follow
  headrace topics tail fetch-leases --host https://example.org --since 1h
  headrace topics tail dead-letters --from-beginning --json | jq -r .record.url

A line is: partition-offset-place in the batch, when it was sent, what it is about, and every field that says something.
Only committed records are shown. No group is joined: nobody's reading is disturbed. Ctrl-C ends --follow, exit code 0.
"""

ACTIONS = ("list", "tail")
RECORDS = 10
LOOKED_BACK_MAX = 1_000  # messages of the host's partition, with --host and no --since


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("action", nargs="?", default="list", metavar="ACTION", help="list (default) or tail")
    add("topic", nargs="?", metavar="TOPIC", help="tail: which one")
    add("-n", "--records", type=positive, metavar="N", help="the last N records (default: 10)")
    add("-f", "--follow", action="store_true", help="go on as more come")
    add("--since", metavar="SPAN", help="all that is not older: 10min, 2h")
    add("--from-beginning", action="store_true", help="all that the topic keeps")
    add("--partition", type=int, metavar="P", help="of this partition alone")
    add("--host", metavar="HOST_KEY", help="of this host alone, such as https://example.org")
    add_fleet(parser)
    add("--json", action="store_true", help="one JSON object a line")


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    if arguments.action not in ACTIONS:
        raise UsageError(f'topics: needed {" or ".join(ACTIONS)}, came "{arguments.action}"')
    if arguments.action == "list":
        return _list(arguments, shell)
    return _tail(arguments, shell)


def _list(arguments: argparse.Namespace, shell: Shell) -> int:
    there = shell.fleet.partitions(fleet_of(arguments, shell))
    for topic in (*TOPICS.values(), *INNER_TOPICS.values()):
        record = "" if topic.record is None else topic.record.__name__
        count = there.get(topic.name)
        if arguments.json:
            fields: dict[str, object] = {
                "topic": topic.name,
                "partitions": count,
                "record": record or None,
                "key": topic.key,
            }
            fields |= {"producers": list(topic.producers), "reader": topic.group.value}
            shell.print(msgspec.json.encode(fields).decode())
            continue
        size = "not there" if count is None else f"{count:,} partition{'s' * (count != 1)}"
        flow = f"{', '.join(topic.producers)} -> {topic.group.value}"
        shell.print(f"{topic.name:<32}{size:<18}{record:<15}{flow}")
    return EXIT_DONE


def _tail(arguments: argparse.Namespace, shell: Shell) -> int:
    if arguments.topic is None:
        raise UsageError("topics tail: needed a TOPIC; headrace topics lists them")
    if sum((arguments.records is not None, arguments.since is not None, arguments.from_beginning)) > 1:
        raise UsageError("topics tail: needed one of -n, --since and --from-beginning, came two")
    fleet = fleet_of(arguments, shell)
    there = shell.fleet.partitions(fleet)
    if arguments.topic not in there:
        near = difflib.get_close_matches(arguments.topic, [*TOPICS, *INNER_TOPICS, *there], n=1, cutoff=0.5)
        if near and near[0] != arguments.topic:
            raise UsageError(f'topics tail: no topic "{arguments.topic}"; did you mean {near[0]}?')
        partitions_of(arguments.topic, fleet, shell)  # says how it is made
    partitions = _partitions(arguments, there[arguments.topic])
    interrupts = Interrupts()
    interrupts.asked = True  # the first Ctrl-C ends it
    reader = open_reader(fleet, shell)
    try:
        with interrupts.listening():
            _show(reader, partitions, arguments, shell)
    except KeyboardInterrupt:
        pass
    finally:
        reader.close()
    return EXIT_DONE


def _partitions(arguments: argparse.Namespace, count: int) -> list[int]:
    if arguments.partition is not None:
        if not 0 <= arguments.partition < count:
            raise UsageError(f"--partition: needed 0 to {count - 1}, came {arguments.partition}")
        return [arguments.partition]
    topic = TOPICS.get(arguments.topic)
    if arguments.host is not None and (topic is None or topic.co_partitioned):
        if "://" not in arguments.host:
            raise UsageError(f'--host: needed scheme and name such as https://example.org, came "{arguments.host}"')
        return [partition_for(arguments.host, count)]
    return list(range(count))


class _Tail:
    """The records of one topic that are asked for, in the order of their sending, and those that follow."""

    def __init__(self, reader: TopicReader, topic: str, partitions: Sequence[int], host: str | None) -> None:
        self._reader, self._topic, self._partitions, self._host = reader, topic, partitions, host
        self._seen = dict.fromkeys(partitions, -1)

    def from_places(self, places: Mapping[int, int]) -> Iterator[tuple[Message, Entry]]:
        """All from there to the end as it is now."""
        for message in self._reader.read(self._topic, places):
            self._seen[message.partition] = max(self._seen[message.partition], message.offset)
            yield from self._records(message)

    def last(self, wanted: int) -> list[tuple[Message, Entry]]:
        """The newest records. Each round looks twice as far back, until no partition can hide a newer one.

        A transaction leaves a marker of its own: 2 x wanted offsets hold as many messages, whatever else lies there.
        """
        back_max = 2 * wanted + 50 if self._host is None else max(2 * wanted, LOOKED_BACK_MAX)
        back = min(back_max, 2 * -(-wanted // len(self._partitions)) + 4)
        while True:
            newest: list[tuple[int, int, int, int]] = []
            held: dict[tuple[int, int, int, int], tuple[Message, Entry]] = {}
            oldest: dict[int, int] = {}
            for message, entry in self.from_places(dict.fromkeys(self._partitions, last(back))):
                oldest.setdefault(message.partition, message.timestamp_ms)
                place = (message.timestamp_ms, message.partition, message.offset, entry.index)
                held[place] = message, entry
                heapq.heappush(newest, place)
                if len(newest) > wanted:
                    del held[heapq.heappop(newest)]
            hidden = len(newest) < wanted or any(since_ms > newest[0][0] for since_ms in oldest.values())
            if not hidden or back >= back_max:
                return [held[place] for place in sorted(newest)]
            back = min(2 * back, back_max)

    def follow(self) -> Iterator[tuple[Message, Entry] | None]:
        """What comes after all that was read; None when nothing comes for now."""
        places = {one: END if seen < 0 else seen + 1 for one, seen in self._seen.items()}
        for message in self._reader.follow(self._topic, places):
            if message is None:
                yield None
            else:
                yield from self._records(message)

    def _records(self, message: Message) -> Iterator[tuple[Message, Entry]]:
        for entry in entries(message):
            if self._host is None or key_of(entry) == self._host:
                yield message, entry


def _show(reader: TopicReader, partitions: Sequence[int], arguments: argparse.Namespace, shell: Shell) -> None:
    def show(one: tuple[Message, Entry]) -> None:
        shell.print(msgspec.json.encode(json_of(*one)).decode() if arguments.json else line_of(*one))

    tail = _Tail(reader, arguments.topic, partitions, arguments.host)
    if arguments.from_beginning:
        for one in tail.from_places(dict.fromkeys(partitions, BEGINNING)):
            show(one)
    elif arguments.since is not None:
        since_ms = shell.now_ms() - _span_ms(arguments.since)
        for one in tail.from_places(reader.at_time(arguments.topic, partitions, since_ms)):
            show(one)
    else:
        for one in tail.last(arguments.records or RECORDS):
            show(one)
    shell.out.flush()
    if arguments.follow:
        for came in tail.follow():
            if came is None:
                shell.out.flush()
            else:
                show(came)


def _span_ms(text: str) -> int:
    span_ms = units.parse(text, Unit.MS, bare=Unit.S)
    if span_ms is None:
        raise UsageError(f'--since: needed a span such as 10min or 2h, came "{text}"')
    return span_ms
