"""`headrace explain`: why a URL or a host is, or is not, being fetched."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from streams.cli.fleet.clients import add_fleet, words_of
from streams.cli.shell import Shell
from streams.cli.words import printable
from streams.core.failures import EXIT_DONE, UsageError

EXAMPLES = """
  headrace explain news https://example.org/a     robots rule, budget, backoff, trap, when it is next
  headrace explain news example.org               the host: its delay, queue and robots.txt
  headrace explain news https://example.org/a --json
  headrace explain --fleet https://example.org/a  the same of a fleet: the owner of its host is asked
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help="the crawl's folder; none with --fleet")
    parser.add_argument("what", nargs="?", metavar="URL|HOST", help="a URL, or a host by its name")
    add_fleet(parser, verb=True)
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    folder, word = words_of(arguments, "what")
    what = (word or "").strip()
    if not what:
        raise UsageError("explain: needed a URL or a host, came nothing; headrace explain DIR URL|HOST")
    if folder is None:
        from streams.cli.fleet.explain import explain

        rows = explain(what, arguments, shell)
    else:
        reader = shell.backend.open_reader(Path(folder))
        try:
            rows = reader.explain(what, shell.now_ms())
        finally:
            reader.close()
    if arguments.json:
        shell.print(msgspec.json.encode({"what": what, "because": [list(row) for row in rows]}).decode())
        return EXIT_DONE
    shell.print(what)
    width = max((len(label) for label, _ in rows), default=0)
    for label, sentence in rows:
        shell.print(f"  {label:<{width}}  {printable(sentence)}")
    if not rows:
        shell.print("  nothing is known of it in this crawl")
    return EXIT_DONE
