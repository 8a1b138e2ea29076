"""`headrace replay`: stored bodies of a fleet read anew. Nothing is fetched; links and documents are made again."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from infra.settings_fleet import Fleet
from schemas.records import ParseTask
from schemas.topics import Group
from streams.cli.arguments import positive
from streams.cli.fleet.clients import Interrupts, add_fleet, fleet_of, partitions_of
from streams.cli.seeds import judged
from streams.cli.shell import Shell
from streams.cli.words import count, rate, span
from streams.core.failures import EXIT_DONE, EXIT_INTERRUPTED, CrawlError, UsageError
from streams.core.policy import EXTRACTOR_VERSION, REPLAY_TASKS_MAX, CrawlPolicy
from streams.core.rows import decode_row
from streams.core.rules.urls import host_key
from streams.core.tasks import replay_task

if TYPE_CHECKING:
    from connectors.producer import BatchProducer

EXAMPLES = """
  headrace replay --fleet                          after an upgrade: every body that an older extractor read
  headrace replay --fleet https://example.org      of these hosts alone
  headrace replay --fleet --again                  also what today's extractor read: an index that was lost fills anew
  headrace replay --fleet --dry-run                how many bodies that would be

It keeps --ahead tasks before the parsers at most, so that fresh pages wait behind no more, and goes on as they do.
Bodies are read from the store, never from their sites. A document that is made again has a higher version than the one
that stood, unless the same extractor made both: then it is the same, and only fills a gap. Run as often as you like.
The first Ctrl-C ends it in order, exit code 130; what was asked for by then will be done.
"""

TOPIC = "parse-tasks"
PROGRESS_MS = 5_000
_WAITS = 10  # moments between two looks at how far the parsers are


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("hosts", nargs="*", metavar="HOST", help="scheme and host, such as https://example.org")
    parser.add_argument("--again", action="store_true", help="also what the same extractor read, or never came to")
    parser.add_argument(
        "--extractor-version",
        type=positive,
        default=EXTRACTOR_VERSION,
        metavar="N",
        help="under which version the readings go (default: this build's, %(default)s)",
    )
    parser.add_argument(
        "--ahead",
        type=positive,
        default=REPLAY_TASKS_MAX,
        metavar="N",
        help="bodies asked for and not yet parsed, at most: fresh pages wait behind them (default: %(default)s)",
    )
    parser.add_argument("--dry-run", action="store_true", help="count, and send nothing")
    add_fleet(parser, verb=True)


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    if not arguments.fleet:
        raise UsageError(
            "replay: needed --fleet; a crawl in a folder reads older bodies anew by itself when its scope grows"
        )
    hosts = [_host(word) for word in arguments.hosts]
    fleet = fleet_of(arguments, shell)
    interrupts = Interrupts()
    with interrupts.listening():
        return _Replay(shell, fleet, arguments, interrupts).run(hosts)


def _host(word: str) -> str:
    url, what, came = judged(word)
    if url is None:
        raise UsageError(f"replay: needed a host such as https://example.org, {word!r} {what}{came}")
    return host_key(url)


class _Replay:
    """One command's."""

    def __init__(self, shell: Shell, fleet: Fleet, arguments: argparse.Namespace, interrupts: Interrupts) -> None:
        self._shell, self._fleet, self._interrupts = shell, fleet, interrupts
        self._policy = CrawlPolicy(extractor_version=arguments.extractor_version)
        self._again, self._dry = arguments.again, arguments.dry_run
        self._step = max(1, arguments.ahead // 2)
        self._step_before: dict[int, int] = {}  # by partition: the last offset of the step that must be parsed next
        self._looked = self._asked = 0
        self._began_ms = self._said_ms = shell.now_ms()
        self._why = ""

    def run(self, hosts: list[str]) -> int:
        """The exit code."""
        from connectors.producer import BatchProducer

        shell = self._shell
        partitions = partitions_of(TOPIC, self._fleet, shell)
        producer = None
        if not self._dry:
            client = shell.fleet.producer(self._fleet, self._heard)
            producer = BatchProducer(client, TOPIC, partitions, now_ms=shell.now_ms, tick=self._tick)
        with shell.fleet.url_rows(self._fleet, hosts, shell.say) as rows:
            for task in self._tasks(rows):
                if producer is not None:
                    producer.send(task)
                    if self._asked % self._step == 0:
                        self._let_parsers_follow(producer)
        if producer is not None:
            producer.settle()
        took_ms = max(1, shell.now_ms() - self._began_ms)
        done = "would be read anew" if self._dry else f"acknowledged by {TOPIC}, to be read anew"
        pace = rate(self._looked * 1_000 / took_ms)
        shell.print(f"{count(self._looked, 'URL')} looked at in {span(took_ms)} ({pace}): {self._asked:,} {done}")
        if not self._asked and self._looked and not self._again:
            shell.say(f"all of them were read by extractor {self._policy.extractor_version}; --again reads them anew")
        return EXIT_INTERRUPTED if self._interrupts.asked else EXIT_DONE

    def _tasks(self, rows: Iterator[tuple[str, bytes, bytes]]) -> Iterator[ParseTask]:
        for host_key_, url_id, raw in rows:
            if self._interrupts.asked:
                self._shell.say("ending; what was asked for will be done")
                return
            self._looked += 1
            task = replay_task(host_key_, url_id, decode_row(raw), self._policy, again=self._again)
            if task is not None:
                self._asked += 1
                yield task
            self._tick()

    def _let_parsers_follow(self, producer: BatchProducer) -> None:
        """A step was sent: the next one begins when the one before it is parsed, however long that takes."""
        producer.settle()
        wanted, self._step_before = self._step_before, dict(producer.last_offset)
        while wanted and not self._interrupts.asked:
            try:
                places = self._shell.fleet.places(self._fleet, {TOPIC: Group.PARSE.value}).get(TOPIC, {})
            except CrawlError as error:
                self._why = str(error)
                places = {}
            done = {at: place.next for at, place in places.items()}
            wanted = {at: offset for at, offset in wanted.items() if done.get(at, 0) <= offset}
            for _ in range(_WAITS if wanted else 0):
                producer.wait()

    def _tick(self) -> None:
        now_ms = self._shell.now_ms()
        if now_ms - self._said_ms >= PROGRESS_MS:
            self._said_ms = now_ms
            away = f"; kafka: {self._why}" if self._why else ""
            looked = count(self._looked, "URL")
            self._shell.say(f"{span(now_ms - self._began_ms)}: {looked} looked at, {self._asked:,} asked for{away}")
            self._why = ""

    def _heard(self, why: str) -> None:
        self._why = why


__all__ = ["EXAMPLES", "add_arguments", "run"]
