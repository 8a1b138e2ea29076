"""URLs into a fleet: `seeds` and `sitemap` share the way, the picture of it and the account at its end.

The input comes as a stream of `DiscoveredUrl`, `Refused`, and None where nothing more comes for now. The first Ctrl-C
ends the reading; what was read is sent and acknowledged before the command ends, with exit code 130. The second
abandons that.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import msgspec

from infra.settings_fleet import Fleet
from schemas.records import DiscoveredUrl
from streams.cli.fleet.clients import Interrupts, add_fleet, fleet_of, wait_for_partitions, wait_ms
from streams.cli.fleet.refused import Refusals, Refused
from streams.cli.shell import Shell
from streams.cli.words import count, rate, span
from streams.core.failures import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, CrawlError, UsageError

if TYPE_CHECKING:
    from connectors.producer import BatchProducer

__all__ = ["Item", "Source", "add_sending", "send_all"]

TOPIC = "discovered-urls"
PROGRESS_MS = 5_000
PROGRESS_JSON_MS = 1_000
AWAY_MS = 3_000  # without an acknowledgement while something is out: the brokers are said to be away
WAIT_START_MS = 30_000

Item = DiscoveredUrl | Refused | None
Source = Callable[[Callable[[], bool]], Iterable[Item]]
"""Opened once the topic is known to be there; is told how to see that the reading is to end."""


def add_sending(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dry-run", action="store_true", help="send nothing, say what would be sent and what refused")
    add("--refused", type=Path, metavar="FILE", help="write every refused one there: where, why and what, by tabs")
    add("--wait", metavar="SPAN", help="give up when Kafka is away for so long (default: 30s at the start, then never)")
    add_fleet(parser)
    add("--json", action="store_true", help="progress and summary as JSON lines")
    add("--quiet", action="store_true", help="no progress, only the account")


def send_all(source: Source, arguments: argparse.Namespace, shell: Shell, *, noun: str) -> int:
    """Send what the source gives, tell about it, and return the exit code. `noun`: of what is read, "line"."""
    fleet = fleet_of(arguments, shell)
    patience_ms = wait_ms(arguments.wait)
    interrupts = Interrupts()
    with _file(arguments.refused) as into, interrupts.listening():
        run = _Run(shell, fleet, arguments, Refusals(into), interrupts, noun)
        try:
            if arguments.dry_run:
                run.count_only(source)
            elif not run.open(WAIT_START_MS if patience_ms is None else patience_ms):
                return EXIT_INTERRUPTED
            else:
                run.send(source, patience_ms)
        except KeyboardInterrupt:
            run.abandon()
            return EXIT_INTERRUPTED
    run.account()
    if run.problem is not None:
        shell.complain(str(run.problem))
        return run.problem.exit_code
    if interrupts.asked:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if run.refusals.number or run.given_up else EXIT_DONE


@contextlib.contextmanager
def _file(path: Path | None) -> Iterator[TextIO | None]:
    if path is None:
        yield None
        return
    try:
        stream = path.open("w", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--refused {path}: cannot be written ({error.strerror}); name another file") from error
    with stream:
        yield stream


class _Run:
    """One command's sending."""

    def __init__(
        self,
        shell: Shell,
        fleet: Fleet,
        arguments: argparse.Namespace,
        refusals: Refusals,
        interrupts: Interrupts,
        noun: str,
    ) -> None:
        self.refusals = refusals
        self.given_up = False
        self.problem: CrawlError | None = None  # what ended the sending before its end
        self._shell, self._interrupts, self._noun = shell, interrupts, noun
        self._address = ",".join(fleet.kafka)
        self._fleet, self._json, self._quiet = fleet, arguments.json, arguments.quiet
        self._dry = arguments.dry_run
        self._read = self._good = 0
        self._began_ms = shell.now_ms()
        self._next_ms = self._began_ms + self._every_ms()
        self._why, self._away_said, self._draining_said = "", False, False
        self._patience_ms: int | None = None
        self._producer: BatchProducer | None = None

    # --- the way --------------------------------------------------------------------------------------------------

    def open(self, patience_ms: int) -> bool:
        """The topic and a client for it. False when Ctrl-C came while the brokers were away."""
        from connectors.producer import BatchProducer

        partitions = wait_for_partitions(
            TOPIC, self._fleet, self._shell, wait_ms=patience_ms, stopped=lambda: self._interrupts.asked
        )
        if partitions is None:
            self._shell.complain("stopped; nothing was sent")
            return False
        client = self._shell.fleet.producer(self._fleet, self._heard)
        self._producer = BatchProducer(
            client, TOPIC, partitions, now_ms=self._shell.now_ms, tick=self._tick, on_refused=self._unwritable
        )
        self._began_ms = self._shell.now_ms()
        self._next_ms = self._began_ms + self._every_ms()
        return True

    def send(self, source: Source, patience_ms: int | None) -> None:
        """All of the source, or what came before a Ctrl-C or before an input that cannot be read on."""
        from connectors.producer import SendRefused

        assert self._producer is not None
        self._patience_ms = patience_ms
        try:
            try:
                self._send_each(source, self._producer)
            except UsageError as error:
                self.problem = error
            self._producer.settle()
        except _GivenUp:
            self._producer.abandon()
            self.given_up = True
        except SendRefused as error:
            self._producer.abandon()
            self.problem = error

    def _send_each(self, source: Source, producer: BatchProducer) -> None:
        for item in source(lambda: self._interrupts.asked):
            if isinstance(item, DiscoveredUrl):
                self._read += 1
                self._good += 1
                producer.send(item)
            elif item is None:
                producer.hand_over()
            else:
                self._read += 1
                self.refusals.add(item)
            if self._interrupts.asked:
                return

    def count_only(self, source: Source) -> None:
        for item in source(lambda: self._interrupts.asked):
            if item is not None:
                self._read += 1
            if isinstance(item, Refused):
                self.refusals.add(item)
            elif item is not None:
                self._good += 1
            if self._interrupts.asked:
                break

    def abandon(self) -> None:
        """The second Ctrl-C."""
        if self._producer is None:
            self._shell.complain("stopped; nothing was sent")
            return
        self._producer.abandon()
        counts = self._producer.counts
        self._shell.complain(
            f"stopped; {count(counts.acknowledged, 'URL')} acknowledged, of {counts.open:,} more it is not known;"
            " send all of it again: what is known already is not taken twice"
        )

    # --- what is told ---------------------------------------------------------------------------------------------

    def account(self) -> None:
        took_ms = max(1, self._shell.now_ms() - self._began_ms)
        sent = 0 if self._producer is None else self._producer.counts.acknowledged
        if self._json:
            self._event("summary", took_ms)
            return
        read = f"{count(self._read, self._noun)} read"
        if self._dry:
            self._shell.print(f"{read}: {count(self._good, 'URL')} would be sent, {self.refusals.number:,} refused")
        else:
            assert self._producer is not None
            counts = self._producer.counts
            pace = f" ({rate(sent * 1_000 / took_ms)})" if sent else ""
            self._shell.print(
                f"{read}: {count(sent, 'URL')} acknowledged by {TOPIC} at {self._address} in {span(took_ms)}{pace},"
                f" {self.refusals.number:,} refused"
            )
            if self.given_up:
                self._shell.complain(
                    f"gave up after Kafka was away for {span(self._patience_ms or 0)} (--wait): of"
                    f" {count(counts.open, 'URL')} it is not known whether they arrived; send all of it again when it"
                    f" is back: what is known already is not taken twice ({self._why or 'no answer'})"
                )
        if self.refusals.number:
            self._shell.print("refused:")
            for line in self.refusals.lines():
                self._shell.print(line)

    def _tick(self) -> None:
        """Called several times a second while anything goes on or is waited for."""
        assert self._producer is not None
        waiting_ms = self._producer.waiting_ms()
        if self._interrupts.asked and not self._draining_said:
            self._draining_said = True
            self._shell.say(f"finishing {count(self._producer.counts.open, 'URL')}; Ctrl-C again to stop at once")
        if waiting_ms < AWAY_MS:
            if self._away_said:
                self._shell.say("kafka answers again")
            self._away_said = False
        elif not self._away_said:
            self._away_said = True
            self._shell.say(
                f"kafka at {self._address} has acknowledged nothing for {span(waiting_ms)}"
                f" ({self._why or 'no answer'}); waiting for it with"
                f" {count(self._producer.counts.open, 'URL')}, nothing is lost (Ctrl-C twice ends)"
            )
        if self._patience_ms is not None and waiting_ms >= self._patience_ms:
            raise _GivenUp
        now_ms = self._shell.now_ms()
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + self._every_ms()
            self._progress(now_ms - self._began_ms)

    def _progress(self, took_ms: int) -> None:
        assert self._producer is not None
        if self._json:
            self._event("progress", took_ms)
        elif not self._quiet and not self._away_said:
            done = self._producer.counts.acknowledged
            self._shell.say(
                f"{span(took_ms)}: {count(self._read, self._noun)} read, {count(done, 'URL')} acknowledged"
                f" ({rate(done * 1_000 / max(1, took_ms))}), {self.refusals.number:,} refused"
            )

    def _event(self, name: str, took_ms: int) -> None:
        counts = None if self._producer is None else self._producer.counts
        fields: dict[str, object] = {
            "event": name,
            "read": self._read,
            "taken": self._good,
            "acknowledged": 0 if counts is None else counts.acknowledged,
            "open": 0 if counts is None else counts.open,
            "refused": self.refusals.number,
            "took_ms": took_ms,
        }
        if name == "summary":
            fields |= {
                "topic": TOPIC,
                "kafka": self._address,
                "dry_run": self._dry,
                "interrupted": self._interrupts.asked,
                "messages": 0 if counts is None else counts.messages,
                "bytes": 0 if counts is None else counts.bytes,
                "by_partition": {}
                if self._producer is None
                else {str(one): number for one, number in sorted(self._producer.by_partition.items())},
                "reasons": self.refusals.as_json(),
            }
        self._shell.print(msgspec.json.encode(fields).decode())
        self._shell.out.flush()

    def _every_ms(self) -> int:
        return PROGRESS_JSON_MS if self._json else PROGRESS_MS

    def _heard(self, why: str) -> None:
        self._why = why

    def _unwritable(self, record: msgspec.Struct, why: str) -> None:
        assert isinstance(record, DiscoveredUrl)
        self.refusals.add(Refused("", record.url, why))


class _GivenUp(Exception):
    """Kafka was away for longer than `--wait` allows."""
