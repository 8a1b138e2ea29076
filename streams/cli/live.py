"""A crawl as one panel that redraws itself in place: what comes in, what waits and why, what goes wrong.

Drawn by hand of one `Text` a line: rich's table costs twice as much, and the picture must stay below 3 % of a
core (`tests/unit/test_cli_live.py` measures it). `NO_COLOR` is rich's own to honour.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from streams.cli.report import waiting
from streams.cli.words import clock, count, printable, rate, shorten, size, span
from streams.core.progress import Progress, RecentPage, State

__all__ = ["LiveView", "panel"]

LABEL_WIDTH = 9
WIDTH_MAX = 110
ERRORS_SHOWN_MAX = 4
BAR_WIDTH = 16
ECHO_WIDTH = 2  # of the `^C` that a terminal writes behind the last line: it would wrap, and leave a line of debris


class LiveView:
    """Shows on a terminal. `title` names the crawl, `resume` is the command that goes on with it."""

    def __init__(self, stream: TextIO, title: str, resume: str) -> None:
        self._console = Console(file=stream, highlight=False, soft_wrap=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._title, self._resume = title, resume
        self._warned: set[str] = set()
        self._started = False

    def start(self) -> None:
        self._started = True
        self._live.start()

    def show(self, progress: Progress) -> None:
        for warning in progress.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                self.note(f"warning: {printable(warning)}")
        self._live.update(panel(progress, self._title, self._resume, self._console.width - ECHO_WIDTH), refresh=True)

    def note(self, line: str) -> None:
        self._console.print(Text(line, style="yellow"), soft_wrap=True)

    def finish(self) -> None:
        if self._started:
            self._live.stop()


def panel(progress: Progress, title: str, resume: str, width: int) -> Panel:
    """The picture, for a terminal of `width` columns."""
    width = min(width, WIDTH_MAX)
    inner = max(width - 4, 20)
    lines = [line for line in _lines(progress, inner) if line is not None]
    for line in lines:
        line.truncate(inner, overflow="ellipsis")
    if progress.state is State.DRAINING:
        foot = "draining: Ctrl-C again stops at once"
    else:
        foot = f"Ctrl-C finishes what is in flight; later: {resume}"
        if len(foot) > inner - 2:
            foot = "Ctrl-C finishes what is in flight"
    return Panel(
        Text("\n").join(lines),
        title=Text(shorten(f"headrace  {title}  {clock(progress.elapsed_ms)}", inner - 2), style="bold"),
        title_align="left",
        subtitle=Text(shorten(foot, inner - 2), style="dim"),
        subtitle_align="left",
        width=width,
        border_style="yellow" if progress.state is State.DRAINING else "cyan",
    )


def _lines(progress: Progress, inner: int) -> Iterable[Text | None]:
    yield _row("pages", _pages(progress, inner))
    yield _row("bytes", _bytes(progress))
    yield _row("hosts", _hosts(progress))
    yield _row("queue", _queue(progress))
    waits = waiting(progress)
    if waits:
        yield _row("", Text(waits, style="yellow"))
    yield _also(progress)
    yield _errors(progress)
    yield _slowest(progress)
    for number, page in enumerate(progress.last_urls[-4:]):
        yield _page("last" if number == 0 else "", page, inner)


def _row(label: str, *parts: Text | str) -> Text:
    row = Text(f"{label:<{LABEL_WIDTH}}", style="", no_wrap=True)
    row.stylize("dim", 0, LABEL_WIDTH)
    for part in parts:
        row.append(part)
    return row


def _pages(progress: Progress, inner: int) -> Text:
    text = Text(f"{progress.pages:,}", style="bold")
    if progress.pages_max is not None:
        text.append(f" of {progress.pages_max:,}", style="not bold")
        if inner >= 70:
            filled = min(progress.pages * BAR_WIDTH // progress.pages_max, BAR_WIDTH)
            text.append("  " + "━" * filled, style="not bold green")
            text.append("━" * (BAR_WIDTH - filled), style="not bold dim")
    text.append(f"  {rate(progress.pages_per_s)}", style="not bold green")
    return text


def _bytes(progress: Progress) -> Text:
    text = Text(size(progress.wire_bytes))
    text.append(f"  {size(progress.wire_bytes_per_s)}/s", style="green")
    if progress.body_bytes > progress.wire_bytes:
        text.append(f"  ({size(progress.body_bytes)} unpacked)", style="dim")
    return text


def _hosts(progress: Progress) -> Text:
    text = Text(f"{progress.hosts_ready:,} ready · {progress.hosts_waiting:,} waiting")
    backing = progress.hosts_backing_off
    text.append(" · ")
    text.append(f"{backing:,} backing off", style="yellow" if backing else "")
    text.append(f" · {progress.hosts_known:,} known", style="dim")
    return text


def _queue(progress: Progress) -> str:
    return (
        f"{count(progress.urls_queued, 'URL')} · {progress.in_flight:,} in flight"
        f" · {progress.store_backlog:,} to store · {progress.parse_backlog:,} to parse"
    )


def _also(progress: Progress) -> Text | None:
    parts = [
        f"{number:,} {name}"
        for number, name in (
            (progress.redirects, "redirects"),
            (progress.not_modified, "unchanged"),
            (progress.duplicates, "duplicates"),
            (progress.robots_denied, "denied by robots"),
            (progress.retries, "retries"),
            (progress.paused_patterns, "traps paused"),
        )
        if number
    ]
    return _row("also", " · ".join(parts)) if parts else None


def _errors(progress: Progress) -> Text | None:
    kinds = sorted(progress.errors_by_kind.items(), key=lambda item: (-item[1], item[0]))
    if not kinds:
        return None
    text = Text(" · ".join(f"{printable(kind)} {number:,}" for kind, number in kinds[:ERRORS_SHOWN_MAX]), style="red")
    if len(kinds) > ERRORS_SHOWN_MAX:
        text.append(f" · {sum(number for _, number in kinds[ERRORS_SHOWN_MAX:]):,} others", style="dim")
    return _row("errors", text)


def _slowest(progress: Progress) -> Text | None:
    hosts = [
        f"{shorten(host.host_key.partition('://')[2], 30)} {span(host.mean_ms)}"
        + (f" ({host.queued:,} queued)" if host.queued else "")
        for host in progress.slowest_hosts[:3]
    ]
    return _row("slowest", " · ".join(hosts)) if hosts else None


def _page(label: str, page: RecentPage, inner: int) -> Text:
    if page.status:
        style = "green" if page.status < 300 else "cyan" if page.status < 400 else "red"
        head = Text(f"{page.status}", style=style)
    else:
        head = Text("---", style="red")
    took = f" {span(page.duration_ms):>7}  "
    said = f"  {printable(page.error)}" if page.error and not page.status else ""
    room = inner - LABEL_WIDTH - 3 - len(took) - len(said)
    return _row(label, head, Text(took, style="dim"), shorten(page.url, max(room, 8)), Text(said, style="red"))
