"""A crawl as plain lines, for a log, a pipe or a terminal without a cursor; and as JSON Lines for a script."""

from __future__ import annotations

from typing import TextIO

import msgspec

from schemas.records import Kind
from streams.cli.report import waiting
from streams.cli.words import count, printable, rate, size, span
from streams.core.progress import Progress, RecentPage, State

__all__ = ["JsonLines", "PlainLines", "Silent"]

PLAIN_EVERY_MS = 5_000
JSON_EVERY_MS = 1_000
MILESTONES = tuple(10**power for power in range(2, 11))  # pages


class Silent:
    """`--quiet`: nothing but warnings and remarks that answer a person."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._warned: set[str] = set()

    def start(self) -> None:
        pass

    def show(self, progress: Progress) -> None:
        for warning in progress.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                self.note(f"warning: {printable(warning)}")

    def note(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    def finish(self) -> None:
        pass


class PlainLines(Silent):
    """The first page at once, then a line every few seconds and at every power of ten."""

    def __init__(self, stream: TextIO, *, every_ms: int = PLAIN_EVERY_MS) -> None:
        super().__init__(stream)
        self._every_ms = every_ms
        self._next_ms = every_ms
        self._first_shown = self._failure_shown = False
        self._milestones = list(MILESTONES)
        self._last = ""

    def show(self, progress: Progress) -> None:
        super().show(progress)
        if not self._first_shown:
            first = _first_page(progress.last_urls)
            if first is not None:
                self._first_shown = True
                self.note(
                    f"first page: {first.status} {printable(first.url)} after {span(progress.elapsed_ms)}"
                    + (f" (answered in {span(first.duration_ms)})" if first.duration_ms else "")
                )
            elif _is_news(progress) and not self._failure_shown:
                self._failure_shown = True
                last = progress.last_urls[-1]
                self.note(f"no page yet: {printable(last.url)}: {printable(last.error) or last.status}")
        waits = waiting(progress)
        if waits:
            if waits != self._last:
                self._last = waits
                self.note(f"{span(progress.elapsed_ms)}: {waits} (Ctrl-C ends; run again to go on)")
            return
        reached = self._reached(progress.pages)
        if reached or progress.elapsed_ms >= self._next_ms:
            self._next_ms = progress.elapsed_ms - progress.elapsed_ms % self._every_ms + self._every_ms
            line = _line(progress)
            if line != self._last:
                self._last = line
                self.note(f"{span(progress.elapsed_ms)}: {line}")

    def _reached(self, pages: int) -> bool:
        reached = False
        while self._milestones and pages >= self._milestones[0]:
            del self._milestones[0]
            reached = True
        return reached


class JsonLines(Silent):
    """`{"event": "progress", ...}` about once a second. Remarks go to stderr, so that stdout stays JSON."""

    def __init__(self, stream: TextIO, remarks: TextIO, *, every_ms: int = JSON_EVERY_MS) -> None:
        super().__init__(remarks)
        self._json = stream
        self._every_ms = every_ms
        self._next_ms = 0

    def show(self, progress: Progress) -> None:
        """The last snapshot is left to the summary, which holds it."""
        super().show(progress)
        if progress.elapsed_ms >= self._next_ms and progress.state is not State.DONE:
            self._next_ms = progress.elapsed_ms + self._every_ms
            self.event("progress", progress)

    def event(self, name: str, what: msgspec.Struct) -> None:
        fields = {"event": name, **msgspec.to_builtins(what)}
        print(msgspec.json.encode(fields).decode(), file=self._json, flush=True)


def _first_page(answers: tuple[RecentPage, ...]) -> RecentPage | None:
    """A sitemap is none: people wait for a page."""
    pages = (answer for answer in answers if answer.kind == Kind.PAGE.value)
    return next((page for page in pages if 200 <= page.status < 300 or page.status == 304), None)


def _is_news(progress: Progress) -> bool:
    """Whether the last answer was a failure that no warning has told."""
    if not progress.last_urls:
        return False
    last = progress.last_urls[-1]
    failed = bool(last.error) or last.status >= 400
    return failed and not (last.error and any(last.error in warning for warning in progress.warnings))


def _line(progress: Progress) -> str:
    kinds = progress.errors_by_kind
    errors = sum(kinds.values())
    parts = [
        count(progress.pages, "page"),
        rate(progress.pages_per_s),
        size(progress.wire_bytes),
        f"{progress.urls_queued:,} queued",
        f"{progress.in_flight} in flight",
    ]
    if progress.hosts_backing_off:
        parts.append(f"{count(progress.hosts_backing_off, 'host')} backing off")
    if errors:
        most = max(kinds, key=lambda kind: (kinds[kind], kind))
        parts.append(f"{count(errors, 'error')} ({'most ' if len(kinds) > 1 else ''}{printable(most)})")
    if progress.state is State.DRAINING:
        parts.append("draining")
    return ", ".join(parts)
