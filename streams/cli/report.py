"""What a run ends with: what came, what was left and why, where it lies, what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from streams.cli.words import count, instant, printable, rate, size, span, upcoming
from streams.core.progress import Counts, EndReason, Progress, Summary

__all__ = ["ending", "reason_words", "resuming", "waiting"]

ERRORS_SHOWN_MAX = 8
_REASONS = {  # where the word that scripts read is not one for people
    EndReason.DRAINED: "as asked (Ctrl-C, SIGTERM or SIGHUP), and what was in flight is finished",
    EndReason.STOPPED: "stopped at once; what was in flight is asked for again in the next run",
}
_ERROR_WORDS = {  # errors that a person can do something about
    "private_address": "refused: not a public address (--allow-address CIDR allows a network)",
    "robots.txt private_address": "refused for robots.txt: not a public address (--allow-address CIDR allows it)",
    "robots.txt dns_nxdomain": "look-ups that found no such name (dns_nxdomain)",
}
_NAMES = (
    ("stored", "stored"),
    ("not_modified", "unchanged (304)"),
    ("duplicates", "identical to a stored one"),
    ("redirects", "redirects"),
    ("robots_denied", "denied by robots.txt"),
    ("retries", "tried again"),
    ("paused_patterns", "URL patterns paused as traps"),
    ("dead_letters", "given up (dead letters)"),
)


def resuming(counts: Counts, settings: Sequence[str] = ()) -> str:
    """`resuming: 812 pages done, 3,201 queued; with crawl.scope "domain"`: the settings that are not the defaults."""
    words = printable("; with " + ", ".join(settings)) if settings else ""
    return f"resuming: {count(counts.pages, 'page')} done, {counts.urls_queued:,} queued{words}"


def waiting(progress: Progress) -> str:
    """What a run waits for that has nothing else to do, and until when; "" when it has."""
    if not progress.waits_for:
        return ""
    until_ms = progress.waits_until_ms
    when = "" if until_ms is None else f", next try at {upcoming(until_ms, progress.at_ms)}"
    return f"waiting for {printable(progress.waits_for)}{when}"


def reason_words(reason: EndReason, detail: str) -> str:
    """Why a run ended, for people."""
    words = _REASONS.get(reason, reason.value)
    separator = ": " if reason is EndReason.FAILED else " "
    return f"{words}{separator}{printable(detail)}" if detail else words


def ending(summary: Summary, command: str = "headrace") -> Iterator[str]:
    """The closing report, a line each."""
    progress = summary.progress
    failed = summary.reason is EndReason.FAILED  # the error itself goes to stderr
    reason = reason_words(summary.reason, "" if failed else summary.reason_detail)
    yield f"{'done' if summary.reason is EndReason.COMPLETE else 'ended'}: {reason}"
    yield ""
    yield f"  {_pages(progress)}"
    for name, words in _NAMES:
        number = getattr(progress, name)
        if number:
            kinds = _by_kind(progress.retries_by_kind) if name == "retries" else ""
            yield f"  {number:>10,}  {words}{kinds}"
    yield from _errors(progress)
    yield from _left(summary)
    if summary.places:
        yield ""
        yield f"  in {summary.out}/"
        width = max(len(place) for _, place in summary.places)
        for what, place in summary.places:
            yield f"    {place:<{width}}  {what}"
    if not failed:
        yield ""
        yield from _next(summary, command)


def _pages(progress: Progress) -> str:
    per_s = progress.pages * 1_000 / progress.elapsed_ms if progress.elapsed_ms else 0.0
    return (
        f"{count(progress.pages, 'page')} in {span(progress.elapsed_ms)} ({rate(per_s)}),"
        f" {size(progress.wire_bytes)} received, {size(progress.body_bytes)} unpacked,"
        f" {count(progress.urls_known, 'URL')} on {count(progress.hosts_known, 'host')} known"
    )


def _by_kind(numbers: Mapping[str, int]) -> str:
    """`: 4 connection_reset, 2 timeout`, the most frequent first."""
    kinds = _most_first(numbers)
    parts = [f"{number:,} {printable(kind)}" for kind, number in kinds[:ERRORS_SHOWN_MAX]]
    others = sum(number for _, number in kinds[ERRORS_SHOWN_MAX:])
    if others:
        parts.append(f"{others:,} others")
    return ": " + ", ".join(parts) if parts else ""


def _most_first(numbers: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(numbers.items(), key=lambda item: (-item[1], item[0]))


def _errors(progress: Progress) -> Iterator[str]:
    kinds = _most_first(progress.errors_by_kind)
    for kind, number in kinds[:ERRORS_SHOWN_MAX]:
        yield f"  {number:>10,}  {_ERROR_WORDS.get(kind) or printable(kind)}"
    if len(kinds) > ERRORS_SHOWN_MAX:
        yield f"  {sum(number for _, number in kinds[ERRORS_SHOWN_MAX:]):>10,}  other errors"


def _left(summary: Summary) -> Iterator[str]:
    if not summary.hosts_left_count:
        return
    yield ""
    yield f"  {count(summary.hosts_left_count, 'host')} left with URLs:"
    for host in summary.hosts_left:
        when = f"; next at {instant(host.next_ms)}" if host.next_ms is not None else ""
        yield f"    {host.host_key}  {count(host.queued, 'URL')}: {printable(host.reason)}{when}"
    if summary.hosts_left_count > len(summary.hosts_left):
        yield f"    and {summary.hosts_left_count - len(summary.hosts_left):,} more"


def _next(summary: Summary, command: str) -> Iterator[str]:
    out = shlex.quote(summary.out)
    finished = summary.reason is EndReason.COMPLETE
    rows = [
        (f"{command} export {out} --to pages.parquet", "the pages as a table"),
        (f"{command} explain {out} URL", "why a URL was, or was not, fetched"),
    ]
    if not finished:
        rows.insert(0, (f"{command} crawl --out {out}", "go on where this ended"))
    elif not summary.progress.pages:
        rows.insert(0, (f"{command} crawl --out {out} --refresh", "ask for every known page again, if it changed"))
    if summary.progress.dead_letters:
        rows.append((f"{command} dead-letters {out} list", "what was given up"))
    width = max(len(row) for row, _ in rows)
    for row, why in rows:
        yield f"  {row:<{width}}  {why}"
