"""`headrace dead-letters`: what was given up, why, and a way to try it again."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from schemas.records import DeadLetter
from streams.cli.shell import Shell, command
from streams.cli.words import count, instant, printable, shorten
from streams.core.failures import EXIT_DONE, UsageError

EXAMPLES = """
  headrace dead-letters news list
  headrace dead-letters news show KEY
  headrace dead-letters news requeue KEY KEY       due at once when the crawl next runs
  headrace dead-letters news requeue --all
  headrace dead-letters news list --json | jq -r .url
"""

ACTIONS = ("list", "show", "requeue")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", type=Path, metavar="DIR", help="the crawl's folder")
    parser.add_argument("action", nargs="?", default="list", metavar="ACTION", help="list (default), show or requeue")
    parser.add_argument("keys", nargs="*", metavar="KEY", help="as list shows them")
    parser.add_argument("--all", action="store_true", help="requeue every one")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    if arguments.action not in ACTIONS:
        raise UsageError(f'dead-letters: needed {", ".join(ACTIONS)}, came "{arguments.action}"')
    if arguments.action == "requeue":
        return _requeue(arguments, shell)
    if arguments.action == "show" and not arguments.keys:
        raise UsageError("dead-letters show: needed a KEY; headrace dead-letters DIR list shows them")
    if arguments.action == "list" and arguments.keys:
        raise UsageError("dead-letters list: takes no KEY; did you mean show?")
    wanted = set(arguments.keys)
    reader = shell.backend.open_reader(arguments.dir)
    shown = 0
    try:
        for key, letter in reader.dead_letters():
            if wanted and key not in wanted:
                continue
            shown += 1
            wanted.discard(key)
            _show(key, letter, shell, as_json=arguments.json, whole=arguments.action == "show")
            if arguments.action == "show" and not wanted:
                break
    finally:
        reader.close()
    if wanted:
        raise UsageError(f"dead-letters show: no such key: {', '.join(sorted(wanted))}")
    if not shown and not arguments.json:
        shell.print("no dead letters")
    return EXIT_DONE


def _show(key: str, letter: DeadLetter, shell: Shell, *, as_json: bool, whole: bool) -> None:
    if as_json:
        fields = {"key": key, **{name: getattr(letter, name) for name in letter.__struct_fields__}}
        fields["url_id"], fields["record"] = letter.url_id.hex(), letter.record.hex()
        shell.print(msgspec.json.encode(fields).decode())
        return
    said = f"{letter.status} {letter.error}".removeprefix("0 ")
    if not whole:
        shell.print(f"{key}  {letter.stage:<6} {shorten(said, 28):<28} {printable(letter.url)}")
        return
    shell.print(key)
    for label, value in (
        ("url", printable(letter.url)),
        ("stage", letter.stage),
        ("error", printable(said)),
        ("attempts", str(letter.attempts)),
        ("failed", instant(letter.failed_ms)),
        ("record", f"{count(len(letter.record), 'byte')}: {shorten(letter.record.hex(), 120)}"),
    ):
        shell.print(f"  {label:<8}  {value}")


def _requeue(arguments: argparse.Namespace, shell: Shell) -> int:
    if bool(arguments.keys) == arguments.all:
        raise UsageError("dead-letters requeue: needed KEYs or --all; headrace dead-letters DIR list shows the keys")
    number = shell.backend.requeue_dead_letters(arguments.dir, "all" if arguments.all else arguments.keys)
    shell.print(f"{count(number, 'URL')} queued again; go on with: {command()} crawl --out {arguments.dir}")
    missing = 0 if arguments.all else len(set(arguments.keys)) - number
    if missing > 0:
        raise UsageError(f"dead-letters requeue: {count(missing, 'key')} not found")
    return EXIT_DONE
