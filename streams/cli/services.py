"""`headrace services`: the fleet's servers on this machine, without Docker."""

from __future__ import annotations

import argparse
import importlib.util
import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from streams.cli.arguments import positive
from streams.cli.shell import Shell
from streams.core.failures import EXIT_DONE, EXIT_FAILED, CrawlError, UsageError

if TYPE_CHECKING:
    from infra.services.launcher import State

EXAMPLES = """
  headrace services up                       all of them; returns when each answers
  headrace services up kafka s3              these alone; connect brings kafka with it
  headrace services up --fresh               begin anew, without what they kept
  headrace services status                   endpoints, pids, memory; exit code 0 when all named are ready
  headrace services logs cassandra --lines 200
  headrace services down                     ends what was started here, and nothing else

Programs are fetched once into ~/.cache/headrace/services (HEADRACE_CACHE); needed: Java 17 with its compiler, Maven.
Data is kept in ./services-data (HEADRACE_SERVICES, --data). HEADRACE_PORTS=+500,kafka=9092 moves the ports.
HEADRACE_JAVA=/path/to/jdk names the Java. The optional registry, started only when named, needs Java 21 or newer.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("what", choices=("up", "down", "status", "logs"), help="what to do with them")
    # A default of its own, else argparse counts it among what is missing when nothing is given.
    add(
        "names",
        nargs="*",
        default=[],
        metavar="NAME",
        help="kafka, cassandra, s3, opensearch, connect, registry (default: all)",
    )
    add("--fresh", action="store_true", help="up: first take away what they kept")
    add("--data", type=Path, metavar="DIR", help="the folder of their data (default: services-data)")
    add("--lines", type=positive, default=40, metavar="N", help="logs: the last N lines of each (default: 40)")
    add("--json", action="store_true", help="up, status: one JSON object a line")


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    from infra.services import catalog, launcher

    if arguments.fresh and arguments.what != "up":
        raise UsageError(f"--fresh belongs to `services up`, came `services {arguments.what}`")
    missing = [name for name in ("confluent_kafka", "cassandra", "boto3") if importlib.util.find_spec(name) is None]
    if missing and arguments.what in ("up", "status"):
        raise CrawlError(
            f"services {arguments.what} asks the services by their clients, and {', '.join(missing)} is not installed; "
            "start it by ./infra/headrace, which adds the fleet's packages, or: pip install 'headrace[fleet]'",
            EXIT_FAILED,
        )
    data = (arguments.data or launcher.data_folder(shell.environ)).absolute()
    tools = launcher.Tools(environ=shell.environ)
    if arguments.what == "up":
        before = signal.signal(signal.SIGTERM, _interrupt)  # as Ctrl-C: nothing is left half up
        try:
            running = launcher.up(arguments.names, data=data, fresh=arguments.fresh, say=shell.say, tools=tools)
        finally:
            signal.signal(signal.SIGTERM, before)
        states = [launcher.State(one.name, "ready", one.endpoint, one.pid, one.rss_mb, "") for one in running.values()]
        _show(states, arguments.json, shell)
        return EXIT_DONE
    if arguments.what == "down":
        if not launcher.down(arguments.names, data=data, say=shell.say, tools=tools):
            shell.say(f"nothing ran that was started with its data in {data}")
        return EXIT_DONE
    if arguments.what == "status":
        states = launcher.status(arguments.names, data=data, tools=tools)
        _show(states, arguments.json, shell)
        wanted = arguments.names or [one.name for one in states if not catalog.SERVICES[one.name].optional]
        return EXIT_DONE if all(one.state == "ready" for one in states if one.name in wanted) else EXIT_FAILED
    return _logs(arguments, data, shell)


def _logs(arguments: argparse.Namespace, data: Path, shell: Shell) -> int:
    from infra.services import catalog, launcher

    found = False
    for name in arguments.names or catalog.SERVICES:
        lines = launcher.logs(name, data=data, lines=arguments.lines)
        if lines or arguments.names:
            shell.print(f"== {name}: {data / name / 'log'}")
        for line in lines:
            shell.print(line)
        found = found or bool(lines)
    if not found:
        shell.say(f"no logs in {data}; headrace services up starts the services")
    return EXIT_DONE


def _show(states: list[State], as_json: bool, shell: Shell) -> None:
    if as_json:
        for one in states:
            shell.print(json.dumps(one._asdict()))
        return
    shell.print(f"{'service':<12}{'state':<11}{'endpoint':<25}{'pid':>8}{'memory':>10}")
    for one in states:
        pid, memory = (str(one.pid), f"{one.rss_mb:,} MB") if one.pid else ("", "")
        line = f"{one.name:<12}{one.state:<11}{one.endpoint:<25}{pid:>8}{memory:>10}  {one.note}"
        shell.print(line.rstrip())
    if any(one.pid for one in states):
        shell.print(f"{'together':<48}{'':>8}{f'{sum(one.rss_mb for one in states):,} MB':>10}")


def _interrupt(signum: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt
