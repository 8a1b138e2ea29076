"""`headrace settings`: every setting with its default and meaning; `--toml` is a file to start from."""

from __future__ import annotations

import argparse
import textwrap
from itertools import groupby

import msgspec

from infra.settings_help import Described, describe
from streams.cli.shell import Shell
from streams.core.failures import EXIT_DONE, UsageError

EXAMPLES = """
  headrace settings
  headrace settings politeness                        one section
  headrace settings --toml > headrace.toml            then: headrace crawl --config headrace.toml ...
  HEADRACE_POLITENESS__DELAY=2s headrace crawl ...    the environment sets the same

Later wins: what a resumed crawl keeps in DIR/settings.toml, then the file, then the environment, then the options.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("section", nargs="?", metavar="SECTION", help="only this section")
    parser.add_argument("--toml", action="store_true", help="as a file, each line commented out")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    rows = [row for row in describe() if arguments.section in (None, _section(row))]
    if not rows:
        known = ", ".join(dict.fromkeys(_section(row) for row in describe()))
        raise UsageError(f'settings: no section "{arguments.section}"; known: {known}')
    if arguments.json:
        for row in rows:
            shell.print(msgspec.json.encode(row).decode())
        return EXIT_DONE
    for number, (section, group) in enumerate(groupby(rows, key=_section)):
        if number:
            shell.print()
        shell.print(f"[{section}]")
        _show(list(group), shell, toml=arguments.toml)
    return EXIT_DONE


def _section(row: Described) -> str:
    return row.name.partition(".")[0]


def _show(rows: list[Described], shell: Shell, *, toml: bool) -> None:
    pairs = [(row.name.partition(".")[2], row.default, row.meaning) for row in rows]
    if toml:
        for key, default, meaning in pairs:
            for line in textwrap.wrap(meaning, 110):
                shell.print(f"# {line}")
            shell.print(f"#{key} = {default if default != 'none' else chr(34) + 'none' + chr(34)}")
        return
    keys, defaults = max(len(key) for key, _, _ in pairs), max(len(default) for _, default, _ in pairs)
    for key, default, meaning in pairs:
        shell.print(f"  {key:<{keys}}  {default:<{defaults}}  {meaning}")
