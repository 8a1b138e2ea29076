"""`headrace status`: how a crawl stands, read from its folder, also while it runs."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from streams.cli.fleet.clients import add_fleet
from streams.cli.report import reason_words, waiting
from streams.cli.shell import Shell, command
from streams.cli.words import count, instant, printable, rate, size, span
from streams.core.failures import EXIT_DONE, UsageError
from streams.core.progress import Counts, Progress, State

EXAMPLES = """
  headrace status news
  headrace status news --watch       again and again, until the run ends
  headrace status news --json        for a script: {"counts": {...}, "progress": {...} or null, "last_run": {...}}
  headrace status --fleet            partitions and owners, totals, how far each group is behind, dead letters
"""

WATCH_S = 2.0


class Status(msgspec.Struct, frozen=True):
    """What `--json` prints. `progress` is null when no run holds the folder, `last_run` while one does."""

    out: str
    counts: Counts
    progress: Progress | None
    last_run: Progress | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", nargs="?", type=Path, metavar="DIR", help="the crawl's folder; none with --fleet")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--watch", action="store_true", help="every two seconds, until the run ends")
    add_fleet(parser, verb=True)


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    if arguments.fleet == (arguments.dir is not None):
        raise UsageError(
            "status: needed DIR, the crawl's folder, or --fleet without one; headrace status --help shows how"
        )
    pause = threading.Event()
    looks = _watch_fleet if arguments.fleet else watch
    looks(arguments, shell, lambda: pause.wait(WATCH_S))
    return EXIT_DONE


def _watch_fleet(arguments: argparse.Namespace, shell: Shell, pause: Callable[[], object]) -> None:
    """Once, or with `--watch` until Ctrl-C: a fleet's run has no end."""
    from streams.cli.fleet.status import lines as fleet_lines
    from streams.cli.fleet.status import look

    while True:
        status = look(arguments, shell)
        if arguments.json:
            shell.print(msgspec.json.encode(status).decode())
        else:
            for line in fleet_lines(status):
                shell.print(line)
        if not arguments.watch:
            return
        if not arguments.json:
            shell.print()
        shell.out.flush()
        pause()


def watch(arguments: argparse.Namespace, shell: Shell, pause: Callable[[], object]) -> None:
    """Look once, or with `--watch` until the run ends; `pause` is called between two looks."""
    while True:
        status = _look(arguments.dir, shell)
        if arguments.json:
            shell.print(msgspec.json.encode(status).decode())
        else:
            for line in lines(status):
                shell.print(line)
        running = status.progress is not None and status.progress.state is not State.DONE
        if not arguments.watch or not running:
            return
        if not arguments.json:
            shell.print()
        shell.out.flush()
        pause()


def _look(out: Path, shell: Shell) -> Status:
    reader = shell.backend.open_reader(out)
    try:
        progress = reader.progress()
        return Status(str(out), reader.counts(), progress, reader.last_run() if progress is None else None)
    finally:
        reader.close()


def lines(status: Status) -> Iterator[str]:
    """For people."""
    counts, progress = status.counts, status.progress
    running = progress is not None and progress.state is not State.DONE
    yield f"{status.out}: {'running' if running else 'not running'}"
    last = progress or status.last_run
    if last is not None and not running:
        yield f"  {_last_run(last)}"
    yield f"  {count(counts.pages, 'page')} stored, {counts.urls_queued:,} queued, {counts.urls_known:,} known"
    yield f"  {count(counts.hosts_known, 'host')}"
    for number, words in (
        (counts.robots_denied, "denied by robots.txt"),
        (counts.paused_patterns, "URL pattern(s) paused as traps"),
        (counts.dead_letters, "given up (dead letters)"),
    ):
        if number:
            yield f"  {number:,} {words}"
    if counts.statuses:
        ordered = sorted(counts.statuses.items(), key=lambda item: (-item[1], item[0]))
        yield "  by state: " + ", ".join(f"{number:,} {printable(name)}" for name, number in ordered)
    if progress is not None and running:
        yield from _running(progress)
    elif counts.urls_queued:
        yield f"  go on with: {command()} crawl --out {status.out}"


def _last_run(last: Progress) -> str:
    """When it ended and why; a run that was killed could not say so."""
    seen = instant(last.at_ms) if last.at_ms else "an unknown time"
    if last.end_reason is None:
        return f"the last run was cut off (killed, or the machine went down), last seen at {seen}"
    reason = reason_words(last.end_reason, last.end_detail)
    return f"the last run ended at {seen}, after {span(last.elapsed_ms)} and {count(last.pages, 'page')}: {reason}"


def _running(progress: Progress) -> Iterator[str]:
    yield (
        f"  this run: {span(progress.elapsed_ms)}, {count(progress.pages, 'page')} ({rate(progress.pages_per_s)}),"
        f" {size(progress.wire_bytes)}"
    )
    yield (
        f"  hosts: {progress.hosts_ready:,} ready, {progress.hosts_waiting:,} waiting,"
        f" {progress.hosts_backing_off:,} backing off; {progress.in_flight:,} in flight,"
        f" {progress.store_backlog:,} to store, {progress.parse_backlog:,} to parse"
    )
    if waits := waiting(progress):
        yield f"  {waits}"
    if progress.errors_by_kind:
        ordered = sorted(progress.errors_by_kind.items(), key=lambda item: (-item[1], item[0]))
        yield "  errors: " + ", ".join(f"{printable(kind)} {number:,}" for kind, number in ordered)
    for host in progress.slowest_hosts:
        yield f"  slow: {host.host_key} {span(host.mean_ms)}, {host.queued:,} queued"
    for warning in progress.warnings:
        yield f"  warning: {printable(warning)}"
