"""What the fleet's verbs share: settings, a topic that must be there, a broker that is waited for, Ctrl-C counted."""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from infra import units
from infra.settings import load
from infra.settings_fleet import Fleet
from infra.units import Unit
from streams.cli.shell import Shell, command
from streams.cli.words import span
from streams.core.failures import EXIT_FAILED, CrawlError, UsageError

if TYPE_CHECKING:
    from connectors.topic_reader import TopicReader

__all__ = [
    "Interrupts",
    "add_fleet",
    "fleet_of",
    "open_reader",
    "partitions_of",
    "wait_for_partitions",
    "wait_ms",
    "words_of",
]


def add_fleet(parser: argparse.ArgumentParser, *, verb: bool = False) -> None:
    """Where the fleet is; of a `verb` that is also a folder's, the word that it is meant."""
    if verb:
        parser.add_argument("--fleet", action="store_true", help="of the fleet, not of a folder: leave DIR out")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML; see headrace settings fleet")


def fleet_of(arguments: argparse.Namespace, shell: Shell) -> Fleet:
    """The fleet that file and environment name. Raises SettingsError."""
    return load(config=arguments.config, environ=shell.environ).fleet


def wait_ms(text: str | None) -> int | None:
    """The span of `--wait`. Raises UsageError."""
    if text is None:
        return None
    parsed = units.parse(text, Unit.MS, bare=Unit.S)
    if parsed is None:
        raise UsageError(f'--wait: needed a span such as 30s or 5min, came "{text}"')
    return parsed


def words_of(arguments: argparse.Namespace, name: str) -> tuple[str | None, str | None]:
    """(folder, word) of a verb with DIR and one word more. With --fleet there is no folder, and DIR is the word."""
    word: str | None = getattr(arguments, name)
    if not arguments.fleet:
        return arguments.dir, word
    if word is not None:
        raise UsageError(f'--fleet: needed no folder beside it, came "{arguments.dir}"; leave it out')
    return None, arguments.dir


class Interrupts:
    """The first Ctrl-C or SIGTERM is only noted (`asked`); the second is a KeyboardInterrupt."""

    def __init__(self) -> None:
        self.asked = False

    def one(self, number: int = signal.SIGINT, frame: FrameType | None = None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Python takes signals in its main thread alone."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.one) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def partitions_of(topic: str, fleet: Fleet, shell: Shell) -> int:
    """How many partitions the topic has. Raises CrawlError when it is not there."""
    count = shell.fleet.partitions(fleet).get(topic)
    if not count:
        raise CrawlError(
            f"kafka at {','.join(fleet.kafka)}: needed the topic {topic}, it has none of that name;"
            f" make it: {command()} provision --only topics",
            EXIT_FAILED,
        )
    return count


def wait_for_partitions(
    topic: str, fleet: Fleet, shell: Shell, *, wait_ms: int, stopped: Callable[[], bool]
) -> int | None:
    """As `partitions_of`, but a broker that is away is waited for; None once `stopped`."""
    from infra.provision.steps import ServiceAway

    began_ms = shell.now_ms()
    said = False
    while True:
        try:
            return partitions_of(topic, fleet, shell)
        except ServiceAway as error:
            if stopped():
                return None
            if error.shut or shell.now_ms() - began_ms >= wait_ms:
                raise
            if not said:
                said = True
                shell.say(f"{error}; waiting for it, {span(wait_ms)} at most (--wait); nothing was sent yet")


def open_reader(fleet: Fleet, shell: Shell, tick: Callable[[], None] = lambda: None) -> TopicReader:
    """A way to read topics."""
    from connectors.topic_reader import TopicReader

    return TopicReader(shell.fleet.consumer(fleet, lambda why: None), ",".join(fleet.kafka), tick=tick)
