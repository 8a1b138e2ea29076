"""`headrace provision`: make what a fleet needs in its services; say what stands, and refuse what does not fit."""

from __future__ import annotations

import argparse
import textwrap
from collections import Counter
from pathlib import Path

import msgspec

from infra.provision.everything import PARTS, provision
from infra.provision.steps import Step, Verdict
from infra.settings import Given, load
from infra.settings_fleet import Fleet
from streams.cli.arguments import positive
from streams.cli.shell import Shell, command
from streams.core.failures import EXIT_DONE, EXIT_FAILED, CrawlError, UsageError

EXAMPLES = """
  headrace provision                                  for the services of headrace services up
  headrace provision --dry-run                        only say what would be done
  headrace provision --only topics,keyspace
  headrace provision --partitions 1024 --replication 3 --config fleet.toml
  HEADRACE_FLEET__KAFKA=kafka1:9092,kafka2:9092 headrace provision --only topics

Addresses, keys and sizes are settings: headrace settings fleet. A second run finds all of it standing.
Parts: topics, keyspace, bucket, index, connector. Exit code 1 when anything was refused or a service is away.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--partitions", type=positive, metavar="P", help="fleet.partitions: for ever")
    parser.add_argument("--replication", type=positive, metavar="R", help="fleet.replication: copies of everything")
    parser.add_argument("--only", metavar="PART,...", default="", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--dry-run", action="store_true", help="change nothing, say what would be done")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a TOML file of settings")


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    only = _parts(arguments.only)
    fleet = _fleet(arguments, shell)
    verdicts: Counter[Verdict] = Counter()
    away = 0
    remedies: set[str] = set()
    for part, said in provision(fleet, only, dry_run=arguments.dry_run):
        if isinstance(said, CrawlError):
            away += 1
            _show_error(part, said, shell, as_json=arguments.json)
        else:
            verdicts[said.verdict] += 1
            if arguments.json:
                _show_json(part, said, shell, dry_run=arguments.dry_run)
            else:
                _show(said, shell, remedies, dry_run=arguments.dry_run)
    if not arguments.json:
        shell.say(_sum(verdicts, away, dry_run=arguments.dry_run))
    return EXIT_FAILED if away or verdicts[Verdict.REFUSED] else EXIT_DONE


def _parts(text: str) -> tuple[str, ...]:
    chosen = tuple(word.strip() for word in text.split(",") if word.strip())
    unknown = [word for word in chosen if word not in PARTS]
    if unknown:
        raise UsageError(f'provision: --only: no part "{unknown[0]}"; known: {", ".join(PARTS)}')
    return chosen


def _fleet(arguments: argparse.Namespace, shell: Shell) -> Fleet:
    flags = [
        Given(f"fleet.{name}", value, f"--{name}")
        for name, value in (("partitions", arguments.partitions), ("replication", arguments.replication))
        if value is not None
    ]
    return load(config=arguments.config, environ=shell.environ, flags=flags).fleet


def _show_json(part: str, step: Step, shell: Shell, *, dry_run: bool) -> None:
    fields = {"part": part, "thing": step.thing, "verdict": step.verdict.value, "detail": step.detail}
    fields |= {"remedy": step.remedy} if step.remedy else {}
    shell.print(msgspec.json.encode(fields | ({"dry_run": True} if dry_run else {})).decode())


def _show(step: Step, shell: Shell, remedies: set[str], *, dry_run: bool) -> None:
    """`remedies`: those said already; eleven topics of one wrong count have one remedy."""
    words = {Verdict.LEFT: "left undone"}
    words |= {Verdict.MADE: "would make", Verdict.CHANGED: "would change"} if dry_run else {}
    shell.print(f"{words.get(step.verdict, step.verdict.value):<12}  {step.thing:<38}  {step.detail}".rstrip())
    if step.remedy and step.remedy not in remedies:
        remedies.add(step.remedy)
        for line in textwrap.wrap(step.remedy, 104, break_long_words=False, break_on_hyphens=False):
            shell.print(f"{'':<12}  {line}")


def _show_error(part: str, error: CrawlError, shell: Shell, *, as_json: bool) -> None:
    if as_json:
        shell.print(msgspec.json.encode({"part": part, "verdict": "failed", "detail": str(error)}).decode())
    else:
        shell.complain(str(error))


def _sum(verdicts: Counter[Verdict], away: int, *, dry_run: bool) -> str:
    said = [f"{verdicts[verdict]} {verdict.value}" for verdict in Verdict if verdicts[verdict]]
    said += [f"{away} part{'s' * (away > 1)} failed"] if away else []
    rest = ""
    if dry_run:
        rest = "; nothing was changed"
    elif away or verdicts[Verdict.REFUSED]:
        rest = f"; mend what is said above and repeat {command()} provision: what was made stands"
    return ", ".join(said) + rest
