"""`headrace dead-letters`: what was given up, why, and a way to try it again."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Generator
from pathlib import Path

import msgspec

from schemas.records import DeadLetter
from streams.cli.fleet.clients import add_fleet
from streams.cli.shell import Shell, command
from streams.cli.words import count, instant, printable, shorten
from streams.core.failures import EXIT_DONE, UsageError

EXAMPLES = """
  headrace dead-letters news list
  headrace dead-letters news show KEY
  headrace dead-letters news requeue KEY KEY       due at once when the crawl next runs
  headrace dead-letters news requeue --all
  headrace dead-letters news list --json | jq -r .url
  headrace dead-letters --fleet list               of a fleet, by its topic; requeue sends the record again
"""

ACTIONS = ("list", "show", "requeue")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", nargs="?", metavar="DIR", help="the crawl's folder; none with --fleet")
    parser.add_argument("action", nargs="?", metavar="ACTION", help="list (default), show or requeue")
    parser.add_argument("keys", nargs="*", metavar="KEY", help="as list shows them")
    parser.add_argument("--all", action="store_true", help="requeue every one")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    add_fleet(parser, verb=True)


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    if arguments.fleet:  # its words begin one place earlier
        keys = [word for word in (arguments.action, *arguments.keys) if word is not None]
        arguments.dir, arguments.action, arguments.keys = None, arguments.dir or "list", keys
    elif arguments.dir is None:
        raise UsageError("dead-letters: needed the crawl's folder, or --fleet; headrace dead-letters --help shows how")
    action = arguments.action or "list"
    if action not in ACTIONS:
        raise UsageError(f'dead-letters: needed {", ".join(ACTIONS)}, came "{action}"')
    if action == "requeue":
        return _requeue(arguments, shell)
    if action == "show" and not arguments.keys:
        raise UsageError("dead-letters show: needed a KEY; headrace dead-letters DIR list shows them")
    if action == "list" and arguments.keys:
        raise UsageError("dead-letters list: takes no KEY; did you mean show?")
    wanted = set(arguments.keys)
    shown = 0
    with contextlib.closing(_letters(arguments, shell)) as letters:
        for key, letter in letters:
            if wanted and key not in wanted:
                continue
            shown += 1
            wanted.discard(key)
            _show(key, letter, shell, as_json=arguments.json, whole=action == "show")
            if action == "show" and not wanted:
                break
    if wanted:
        raise UsageError(f"dead-letters show: no such key: {', '.join(sorted(wanted))}")
    if not shown and not arguments.json:
        shell.print("no dead letters")
    return EXIT_DONE


def _letters(arguments: argparse.Namespace, shell: Shell) -> Generator[tuple[str, DeadLetter], None, None]:
    """Of the folder, the oldest first; of the fleet, as they lie."""
    if arguments.fleet:
        from streams.cli.fleet.dead_letters import letters

        yield from letters(arguments, shell, arguments.keys or None)
        return
    reader = shell.backend.open_reader(Path(arguments.dir))
    try:
        yield from reader.dead_letters()
    finally:
        reader.close()


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
    if arguments.fleet:
        from streams.cli.fleet.dead_letters import requeue

        return requeue(arguments, shell)
    number = shell.backend.requeue_dead_letters(Path(arguments.dir), "all" if arguments.all else arguments.keys)
    shell.print(f"{count(number, 'URL')} queued again; go on with: {command()} crawl --out {arguments.dir}")
    missing = 0 if arguments.all else len(set(arguments.keys)) - number
    if missing > 0:
        raise UsageError(f"dead-letters requeue: {count(missing, 'key')} not found")
    return EXIT_DONE
