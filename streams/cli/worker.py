"""`headrace worker`: a fleet's worker, as `faust -A streams.app worker` starts it, with options and help."""

from __future__ import annotations

import argparse
from pathlib import Path

from infra.settings import FILE_NAME, Given, Settings, load
from infra.settings_fleet import STAGES
from streams.cli.arguments import positive
from streams.cli.fleet.backend import need_packages
from streams.cli.shell import Shell
from streams.core.failures import EXIT_DONE, EXIT_FAILED

EXAMPLES = """
  headrace worker                                   all stages in one process: a small fleet
  headrace worker --stage owner --config fleet.toml --data /var/lib/headrace/owner-1
  headrace worker --stage parse --stage route --web-port 6067
  curl http://127.0.0.1:6066/ready                  also /live, /metrics (Prometheus), /explain?partition=P&what=URL

Stages: owner, fetch (with store), parse, route (links and index). Start as many workers of each as are needed; they
share the work by themselves. Settings: headrace settings fleet; without --config ./headrace.toml, where there is one.
SIGTERM or Ctrl-C lets go what is held and ends it: within 60 s, a fetcher within 180 s. A worker that is killed loses
nothing: others take over. Exit code 0 after a signal, 1 when it cannot go on: whatever supervises it starts it again.
"""

LEVELS = ("debug", "info", "warning", "error")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--stage", action="append", choices=STAGES, metavar="S", help="run this stage; repeatable (default: all)")
    add("--config", type=Path, metavar="FILE", help="settings in TOML; see headrace settings fleet")
    add("--data", metavar="DIR", help="fleet.data: its own folder (default: fleet-data)")
    add("--web-port", type=positive, metavar="N", help="fleet.web_port: of its pages (default: 6066)")
    add("--log", choices=LEVELS, default="info", metavar="LEVEL", help="debug, info (default), warning or error")


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    need_packages("worker", ("faust", "confluent_kafka"))
    settings = settings_of(arguments, shell)
    from infra.wiring_worker import open_worker
    from streams.fleet.carrier import run_worker

    app = open_worker(settings, environ=shell.environ)
    fleet = settings.fleet
    shell.say(
        f"worker: {', '.join(fleet.stages)}; kafka {', '.join(fleet.kafka)}; data in {fleet.data};"
        f" pages on http://{fleet.web_bind}:{fleet.web_port}/ready"
    )
    return EXIT_DONE if run_worker(app, arguments.log) == 0 else EXIT_FAILED


def settings_of(arguments: argparse.Namespace, shell: Shell) -> Settings:
    """File, environment and flags. Raises SettingsError."""
    config = arguments.config
    if config is None and Path(FILE_NAME).exists():
        config = Path(FILE_NAME)
    flags = [
        Given(name, value, flag)
        for name, value, flag in (
            ("fleet.stages", arguments.stage, "--stage"),
            ("fleet.data", arguments.data, "--data"),
            ("fleet.web_port", arguments.web_port, "--web-port"),
        )
        if value is not None
    ]
    return load(config=config, environ=shell.environ, flags=flags)
