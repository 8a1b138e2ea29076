"""Run an engine to its end: a look at it several times a second, the first Ctrl-C drains, the second stops.

SIGTERM counts as Ctrl-C. SIGHUP drains, however often it comes; the terminal is gone then, so nothing more is shown.

A view (`streams.cli.live`, `streams.cli.lines`) shows what it is handed and decides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
from collections.abc import Callable
from typing import Protocol

from streams.cli.backend import Engine
from streams.cli.words import count
from streams.collector import quiet_collector
from streams.core.failures import EXIT_FAILED, CrawlError
from streams.core.progress import Progress, Summary

__all__ = ["View", "run_engine"]

LOOK_MS = 400  # 2.5 looks a second: lively to the eye, and far below 3 % of a core
FIRST_LOOK_MS = 50  # until the first answer is there: it is to be seen at once


class View(Protocol):
    """What a person watches."""

    def start(self) -> None: ...

    def show(self, progress: Progress) -> None: ...

    def note(self, line: str) -> None:
        """A remark that stays."""
        ...

    def finish(self) -> None:
        """Take the picture down; called once, whatever happened."""
        ...


def run_engine(engine: Engine, view: View, on_hang_up: Callable[[], None] = lambda: None) -> Summary:
    """Run until the engine ends; `CrawlError` when the system fails it. A third interrupt is Python's own.

    `on_hang_up`: the terminal is gone.
    """
    import uvloop

    quiet_collector()
    view = _UntilHangUp(view, on_hang_up)
    view.start()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_drive(engine, view))
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise CrawlError(
            f"the run could not go on: {place}{error.strerror or error}; put that right (free room on the disk?),"
            " then run the same command again: nothing that was committed is lost",
            EXIT_FAILED,
        ) from error
    finally:
        view.finish()


class _UntilHangUp:
    """A view whose terminal may go away: from then on writing to it fails, and must not end the run."""

    def __init__(self, view: View, on_hang_up: Callable[[], None]) -> None:
        self._view, self._on_hang_up = view, on_hang_up
        self.hung_up = False

    def hang_up(self) -> None:
        if not self.hung_up:
            self.hung_up = True
            self._on_hang_up()

    def start(self) -> None:
        self._view.start()

    def show(self, progress: Progress) -> None:
        if not self.hung_up:
            self._view.show(progress)

    def note(self, line: str) -> None:
        if not self.hung_up:
            self._view.note(line)

    def finish(self) -> None:
        with contextlib.suppress(OSError) if self.hung_up else contextlib.nullcontext():
            self._view.finish()


async def _drive(engine: Engine, view: _UntilHangUp) -> Summary:
    loop = asyncio.get_running_loop()
    interrupts = _Interrupts(engine, view, functools.partial(_release, loop))
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupts.one)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup: the crawl is to go on
        loop.add_signal_handler(signal.SIGHUP, interrupts.hang_up)
    run = asyncio.ensure_future(engine.run())
    try:
        while not run.done():
            progress = engine.progress()
            view.show(progress)
            await asyncio.wait({run}, timeout=(LOOK_MS if progress.last_urls else FIRST_LOOK_MS) / 1_000)
        summary = run.result()
        view.show(summary.progress)
        return summary
    finally:
        _release(loop)


def _release(loop: asyncio.AbstractEventLoop) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.remove_signal_handler(number)


class _Interrupts:
    """Counts them."""

    def __init__(self, engine: Engine, view: _UntilHangUp, release: Callable[[], None]) -> None:
        self._engine, self._view, self._release = engine, view, release
        self._seen = 0

    def hang_up(self) -> None:
        self._view.hang_up()
        self._engine.drain()

    def one(self) -> None:
        self._seen += 1
        if self._seen == 1:
            in_flight = self._engine.progress().in_flight
            what = f"finishing {count(in_flight, 'request')}" if in_flight else "finishing"
            self._view.note(f"{what}; Ctrl-C again to stop at once")
            self._engine.drain()
        else:
            self._release()
            self._view.note("stopping; what was decided is kept")
            self._engine.stop()
