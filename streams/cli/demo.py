"""`headrace demo`: a crawl of a small web that this process serves on loopback, and what both sides say of it."""

from __future__ import annotations

import argparse
import itertools
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from infra.demo_site import FORBIDDEN, SEED_HOST
from infra.demo_verdict import HostVerdict, judge
from infra.demo_web import DemoWeb
from infra.settings import Crawl, Dns, Scope, Settings
from streams.cli.crawl import view_of
from streams.cli.running import run_engine
from streams.cli.seeds import read_seeds
from streams.cli.shell import Shell, command
from streams.cli.words import count, size, span
from streams.core.failures import EXIT_DONE, EXIT_FAILED, UsageError
from streams.core.policy import Politeness, TrapLimits
from streams.core.progress import EndReason, Summary

EXAMPLES = """
  headrace demo                       into ./headrace-demo
  headrace demo --out try-it
"""

DELAY_MS = 150  # a tenth or so of what real sites get: nobody waits for this one
REFRESH_S = 4
CALENDAR_URLS_MAX = 30  # of an endless pattern before it is paused; 2,000 on real sites
LOG_NAME = "demo-access.log"
FOLDERS_MAX = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, metavar="DIR", help="an empty or new folder (default: ./headrace-demo)")


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    out = _folder(arguments.out)
    with DemoWeb(out / LOG_NAME) as demo:
        shell.say(f"serving {count(len(demo.hosts), 'site')} on 127.0.0.1:{demo.port}, crawling them into {out}/")
        settings = settings_for(demo)
        seeds = read_seeds([demo.url(SEED_HOST)], stdin=lambda: shell.stdin, now_ms=shell.now_ms())
        first = run_engine(shell.backend.open_engine(settings, seeds, out), view_of(shell, out))
        again = None
        if first.reason in (EndReason.COMPLETE, EndReason.NOTHING_DUE):
            shell.say(f"asking again for what is known, for {REFRESH_S} s: unchanged pages cost no body")
            crawl = msgspec.structs.replace(settings.crawl, time_max_s=REFRESH_S)
            engine = shell.backend.open_engine(msgspec.structs.replace(settings, crawl=crawl), [], out, refresh=True)
            again = run_engine(engine, view_of(shell, out))
        verdicts = judge(demo.log(), DELAY_MS)
    for line in report(first, again, verdicts, out, command(), demo.url(*FORBIDDEN)):
        shell.print(line)
    if first.exit_code:
        return first.exit_code
    return EXIT_FAILED if any(verdict.breaches for verdict in verdicts) else EXIT_DONE


def settings_for(demo: DemoWeb) -> Settings:
    """A polite crawl of the demo's web, and of nothing else: no other address may be asked."""
    return Settings(
        crawl=Crawl(
            user_agent="HeadraceDemo",
            contact="https://demo.test/bot",
            scope=Scope.ANY,
            include=(rf"^http://[a-z]+\.demo\.test:{demo.port}/",),
            allow_addresses=("127.0.0.0/8",),
            wait_max_s=5,
        ),
        politeness=Politeness(delay_ms=DELAY_MS),
        traps=TrapLimits(endless_template_urls_max=CALENDAR_URLS_MAX),
        dns=Dns(resolve=tuple(f"{host}=127.0.0.1" for host in demo.hosts)),
    )


def report(
    first: Summary, again: Summary | None, verdicts: Sequence[HostVerdict], out: Path, program: str, forbidden: str
) -> Iterator[str]:
    """What was found, what the sites' own log says, where it lies, what to type next."""
    progress = first.progress
    yield ""
    yield (
        f"{count(progress.pages, 'page')} of {count(len(verdicts), 'site')} in {span(progress.elapsed_ms)}"
        f" ({first.reason.value}), {size(progress.wire_bytes)}"
    )
    for number, words in (
        (progress.duplicates, "bodies identical to one stored before, and stored once"),
        (progress.robots_denied, "not asked for: robots.txt says no"),
        (progress.redirects, "redirects, a circle among them"),
        (progress.paused_patterns, "URL patterns paused as traps: the calendar has no end"),
        (progress.retries, "tried again, when the busy site's Retry-After was over"),
        (sum(progress.errors_by_kind.get(kind, 0) for kind in ("not_found", "gone")), "broken links (404 and 410)"),
        (again.progress.not_modified if again else 0, "unchanged when asked again: 304, no body sent"),
    ):
        if number:
            yield f"  {number:>5,}  {words}"
    yield ""
    yield from _verdict(verdicts)
    yield ""
    places = [*first.places, ("what the sites saw, a line a request", LOG_NAME)]
    width = max(len(place) for _, place in places)
    yield f"in {out}/"
    for what, place in places:
        yield f"  {place:<{width}}  {what}"
    yield ""
    yield from _next(out, program, forbidden)


def _verdict(verdicts: Sequence[HostVerdict]) -> Iterator[str]:
    yield "what the sites' own log says:"
    yield f"  {'site':<20}{'requests':>9}{'shortest gap':>14}{'asked for':>11}{'at once':>9}  robots.txt first"
    for one in verdicts:
        gap = "-" if one.gap_ms is None else span(one.gap_ms)
        first = "yes" if one.robots_first else "NO"
        yield f"  {one.host:<20}{one.requests:>9,}{gap:>14}{span(one.owed_ms):>11}{one.at_once:>9}  {first}"
    breaches = [f"{one.host}: {breach}" for one in verdicts for breach in one.breaches]
    if breaches:
        yield f"  {count(len(breaches), 'breach')}:"
        yield from (f"    {breach}" for breach in breaches)
    else:
        yield "  no breach: one request at a time, each delay kept, nothing forbidden asked, Retry-After waited for"


def _next(out: Path, program: str, forbidden: str) -> Iterator[str]:
    folder = shlex.quote(str(out))
    rows = (
        (f"{program} status {folder}", "how it stands"),
        (f"{program} explain {folder} {forbidden}", "why one was not fetched"),
        (f"{program} export {folder} --to pages.parquet", "the pages as a table"),
        (f"{program} crawl https://YOUR.SITE --pages 100 --contact YOU@YOUR.SITE", "a real site, a page a second"),
    )
    width = max(len(row) for row, _ in rows)
    yield "next:"
    for row, why in rows:
        yield f"  {row:<{width}}  {why}"


def _folder(named: Path | None) -> Path:
    """A folder that holds nothing yet: another demo's would be of another port, and so of other hosts."""
    if named is not None:
        if named.exists() and (not named.is_dir() or any(named.iterdir())):
            raise UsageError(f"--out {named}: needed a new or empty folder, came one with something in it")
        return named
    names = itertools.chain(["headrace-demo"], (f"headrace-demo-{number}" for number in range(2, FOLDERS_MAX)))
    for name in names:
        if not Path(name).exists():
            return Path(name)
    raise UsageError(f"{FOLDERS_MAX:,} demos lie here; delete some, or name a folder: --out DIR")
