"""`headrace crawl`: from the words of the command line to a run, and back to a report."""

from __future__ import annotations

import argparse
import ipaddress
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from infra.kept import kept, kept_settings
from infra.settings import Crawl, Given, Scope, Settings, SettingsError, contact_of, load
from schemas.records import DiscoveredUrl
from streams.cli.arguments import positive
from streams.cli.lines import JsonLines, PlainLines, Silent
from streams.cli.report import ending, resuming
from streams.cli.running import View, run_engine
from streams.cli.seeds import read_seeds
from streams.cli.shell import Shell, command
from streams.core.failures import UsageError
from streams.core.progress import EndReason, Summary
from streams.core.rules.urls import host_name

EXAMPLES = """
  headrace crawl https://example.org --user-agent "MyBot/1.0 (+https://example.org/bot)"
  headrace crawl example.org/docs/ --scope prefix --pages 500 --delay 2s
  headrace crawl seeds.txt https://example.net/sitemap.xml --out news --scope domain --depth 5
  sort -u more.txt | headrace crawl - --out news      add seeds to a crawl, and go on with it
  headrace crawl --out news                           go on where it ended, by the same settings
  headrace crawl --out news --refresh                 ask for every known page again, if it changed
  headrace crawl http://127.0.0.1:8000 --allow-address 127.0.0.0/8 --delay 0

A SEED is a URL, a file with one URL a line (# begins a comment), - for stdin, or a sitemap's URL.
The first Ctrl-C (or SIGTERM, SIGHUP) finishes what is in flight, and the exit code is 0; the second Ctrl-C stops at
once, and it is 130. Nothing is lost by either. Other codes: 1 failed, 2 bad input, 3 trouble with the folder.
"""

_FLAGS = {  # the destination of an option, and the setting it sets
    "scope": "crawl.scope",
    "depth": "crawl.depth_max",
    "pages": "crawl.pages_max",
    "time": "crawl.time_max",
    "delay": "politeness.delay",
    "concurrency": "politeness.concurrency",
    "user_agent": "crawl.user_agent",
    "contact": "crawl.contact",
    "allow_address": "crawl.allow_addresses",
    "include": "crawl.include",
    "exclude": "crawl.exclude",
    "resolve": "dns.resolve",
    "dns_server": "dns.servers",
    "workers": "crawl.workers",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("seeds", nargs="*", metavar="SEED", help="where to start; none: go on with the crawl in --out")
    add("--out", type=Path, metavar="DIR", help="the crawl's folder (default: ./headrace-HOST of the first seed)")
    add("--sitemap", action="append", default=[], metavar="URL", help="a sitemap or feed to start from")
    scopes = ", ".join(one.value for one in Scope)
    add("--scope", metavar="WHICH", help=f"how far from the seeds: {scopes} (default: host)")
    add("--depth", metavar="N", help="follow at most N links from a seed")
    add("--pages", type=positive, metavar="N", help="end this run after N pages")
    add("--time", metavar="SPAN", help="end this run after SPAN, such as 90s, 20min or 2h")
    add("--include", action="append", metavar="REGEX", help="only URLs in which REGEX is found")
    add("--exclude", action="append", metavar="REGEX", help="no URLs in which REGEX is found")
    add("--delay", metavar="SPAN", help="from an answer to the next request of the host (default: 1s)")
    add("--concurrency", type=positive, metavar="N", help="requests at once of one host (default: 1)")
    add("--refresh", action="store_true", help="take every known page as due now")
    add_identity(parser)
    add_network(parser)
    add("--workers", metavar="N", help="parser processes (default: one a CPU)")
    add("--config", type=Path, metavar="FILE", help="settings in TOML; headrace settings lists them")
    add("--json", action="store_true", help="progress and summary as JSON lines on stdout")
    add("--quiet", action="store_true", help="no progress, only warnings and the report")


def add_identity(parser: argparse.ArgumentParser) -> None:
    """Who asks."""
    parser.add_argument("--user-agent", metavar="TEXT", help='"Product/1.0 (+https://contact)"')
    parser.add_argument("--contact", metavar="URL", help="where a site's operator finds you")


def add_network(parser: argparse.ArgumentParser) -> None:
    """How addresses are found, and which may be asked."""
    add = parser.add_argument
    add("--allow-address", action="append", metavar="CIDR", help="a network to fetch from although it is not public")
    add("--resolve", action="append", metavar="NAME=ADDR", help="the address of a name, asked of no server")
    add("--dns-server", action="append", metavar="ADDR[:PORT]", help="a DNS server; several take turns")


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    settings = settings_of(arguments, shell)
    seeds = read_seeds(arguments.seeds, arguments.sitemap, stdin=lambda: shell.stdin, now_ms=shell.now_ms())
    out = _out(arguments.out, settings, seeds)
    resumes = out.is_dir() and any(out.iterdir())
    if resumes:
        settings = settings_of(arguments, shell, out)
    _check_patterns(settings)
    _check_addresses(settings, seeds)
    if not seeds and not resumes:
        raise UsageError(f"no seeds, and no crawl in {out}; name a URL or a file of URLs: headrace crawl https://...")
    if not contact_of(settings.crawl) and not _only_loopback(settings, seeds):
        shell.say(
            "note: the user agent names no contact; a site's operator should find you:"
            ' --user-agent "MyBot/1.0 (+https://example.org/bot)" or --contact URL'
        )
    engine = shell.backend.open_engine(settings, seeds, out, refresh=arguments.refresh)
    if resumes:
        reader = shell.backend.open_reader(out)
        try:
            shell.say(resuming(reader.counts(), [f"{name} {value}" for name, value in kept_settings(settings)]))
        finally:
            reader.close()
    view = view_of(shell, out, as_json=arguments.json, quiet=arguments.quiet)
    summary = run_engine(engine, view, shell.hang_up)
    show_summary(summary, shell, view)
    return summary.exit_code


def settings_of(arguments: argparse.Namespace, shell: Shell, resumed: Path | None = None) -> Settings:
    """Defaults, what a resumed crawl keeps, file, environment, flags. Raises `UsageError` for what is no setting."""
    given = [
        Given(name, tuple(value) if isinstance(value, list) else value, f"--{flag.replace('_', '-')}")
        for flag, name in _FLAGS.items()
        if (value := getattr(arguments, flag, None)) is not None
    ]
    try:
        return load(
            config=getattr(arguments, "config", None),
            environ=shell.environ,
            flags=given,
            kept=() if resumed is None else kept(resumed),
        )
    except SettingsError as error:
        raise UsageError(str(error)) from error


def view_of(shell: Shell, out: Path, *, as_json: bool = False, quiet: bool = False) -> View:
    """The picture that fits where it is shown."""
    if as_json:
        return JsonLines(shell.out, shell.err)
    if quiet:
        return Silent(shell.err)
    if not shell.live():
        return PlainLines(shell.err)
    from streams.cli.live import LiveView

    return LiveView(shell.err, out.name, f"{command()} crawl --out {shlex.quote(str(out))}")


def show_summary(summary: Summary, shell: Shell, view: View) -> None:
    """The report on stdout; what ended a run that failed is an error like any other, on stderr."""
    if isinstance(view, JsonLines):
        view.event("summary", summary)
    else:
        for line in ending(summary, command()):
            shell.print(line)
    if summary.reason is EndReason.FAILED:
        shell.complain(summary.reason_detail)


def _out(named: Path | None, settings: Settings, seeds: Sequence[DiscoveredUrl]) -> Path:
    if named is not None:
        out = named
    elif settings.crawl.out != Crawl().out:
        out = Path(settings.crawl.out)
    elif seeds:
        out = Path("headrace-" + re.sub(r"[^a-z0-9.-]+", "-", host_name(seeds[0].host_key)).strip("-"))
    else:
        raise UsageError("nothing to crawl; name a URL or a file of URLs, or a crawl to go on with: --out DIR")
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out}: needed a folder, came a file; name another one")
    return out


def _check_patterns(settings: Settings) -> None:
    for name, patterns in (("--include", settings.crawl.include), ("--exclude", settings.crawl.exclude)):
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise UsageError(f'{name}: needed a regular expression, came "{pattern}": {error}') from error


def _check_addresses(settings: Settings, seeds: Sequence[DiscoveredUrl]) -> None:
    """Refuse at once a crawl whose every seed is an address that no request may go to."""
    refused = [seed for seed in seeds if (address := _address(settings, seed)) and not _may_ask(settings, address)]
    if refused and len(refused) == len(seeds):
        address = _address(settings, refused[0])
        network = "127.0.0.0/8" if address in ipaddress.ip_network("127.0.0.0/8") else str(address)
        raise UsageError(
            f"{refused[0].url}: {address} is not a public address, and is not asked unless you allow it:"
            f" --allow-address {network}"
        )


def _address(settings: Settings, seed: DiscoveredUrl) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address of a seed, where it is known without asking anybody."""
    name = host_name(seed.host_key)
    fixed = dict(entry.split("=", 1) for entry in settings.dns.resolve)
    text = fixed.get(name, "127.0.0.1" if name == "localhost" or name.endswith(".localhost") else name)
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None


def _may_ask(settings: Settings, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    networks = (ipaddress.ip_network(text, strict=False) for text in settings.crawl.allow_addresses)
    return address.is_global or any(address in network for network in networks)


def _only_loopback(settings: Settings, seeds: Iterable[DiscoveredUrl]) -> bool:
    addresses = [_address(settings, seed) for seed in seeds]
    if not addresses:
        return bool(settings.crawl.allow_addresses)
    return all(address is not None and address.is_loopback for address in addresses)
