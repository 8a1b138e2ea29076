"""What a verb has of the world around it: its streams, its environment, the clock, and the way to the engine.

Tests hand in their own; nothing below `streams.cli` reads `sys` or `os.environ` by itself.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

if TYPE_CHECKING:
    from streams.cli.backend import Backend
    from streams.cli.fleet.backend import FleetBackend


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000


def command(called: str | None = None, here: Path | None = None) -> str:
    """How this program is to be called from `here`, so that the commands it proposes can be pasted.

    `called` is the word that it was started by: an installed `headrace`, or a module of a checkout with a launcher.
    """
    program = Path(sys.argv[0] if called is None else called)
    launcher = Path(__file__).resolve().parents[2] / "infra" / "headrace"
    if program.name == "headrace" or not launcher.is_file():
        return "headrace"
    here = Path.cwd() if here is None else here
    near = launcher.is_relative_to(here)
    return f"./{launcher.relative_to(here)}" if near else shlex.quote(str(launcher))


class Shell:
    """One command's surroundings. Results go to `out`, all else (progress, complaints) to `err`."""

    def __init__(
        self,
        *,
        out: TextIO | None = None,
        err: TextIO | None = None,
        stdin: BinaryIO | None = None,
        environ: Mapping[str, str] | None = None,
        now_ms: Callable[[], int] = _clock_ms,
        backend: Backend | None = None,
        fleet: FleetBackend | None = None,
    ) -> None:
        self.out = out or sys.stdout
        self.err = err or sys.stderr
        self._stdin = stdin
        self.environ = os.environ if environ is None else environ
        self.now_ms = now_ms
        self._on_terminal = self.out.isatty(), self.err.isatty()  # asked in time: one that is gone says no
        self._backend = backend
        self._fleet = fleet

    @property
    def stdin(self) -> BinaryIO:
        return self._stdin or sys.stdin.buffer

    @property
    def backend(self) -> Backend:
        """The engine's side. It is loaded at the first use: it brings in everything that the crawl stands on."""
        if self._backend is None:
            from streams.cli.backend import default_backend

            self._backend = default_backend()
        return self._backend

    @property
    def fleet(self) -> FleetBackend:
        """The fleet's side, loaded at the first use. Raises CrawlError where its packages are not installed."""
        if self._fleet is None:
            from streams.cli.fleet.backend import default_fleet_backend

            self._fleet = default_fleet_backend()
        return self._fleet

    def say(self, line: str) -> None:
        """A remark beside the result."""
        print(line, file=self.err, flush=True)

    def complain(self, line: str) -> None:
        print(f"headrace: {line}", file=self.err, flush=True)

    def print(self, line: str = "") -> None:
        """A line of the result."""
        print(line, file=self.out)

    def hang_up(self) -> None:
        """The terminal is gone: what would go there goes nowhere. A pipe or a file still gets all."""
        nowhere = io.StringIO()
        self.out = nowhere if self._on_terminal[0] else self.out
        self.err = nowhere if self._on_terminal[1] else self.err

    def live(self) -> bool:
        """Whether a picture that redraws itself may be shown: a terminal that can move its cursor."""
        return self.err.isatty() and self.environ.get("TERM", "dumb") != "dumb"
