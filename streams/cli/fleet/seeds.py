"""`headrace seeds`: URLs into a fleet, from files, from a pipe or from the command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from streams.cli.arguments import positive
from streams.cli.fleet.refused import Refused
from streams.cli.fleet.seed_lines import LINE_BYTES_MAX, numbered_lines
from streams.cli.fleet.sending import Item, add_sending, send_all
from streams.cli.seeds import is_file_word, judged, seed_of, url_of
from streams.cli.shell import Shell
from streams.core.failures import UsageError

EXAMPLES = """
  headrace seeds seeds.txt                         one URL a line, # begins a comment
  zcat million.txt.gz | headrace seeds -           stdin, also one that goes on: each line is sent as it comes
  headrace seeds https://example.org example.net/docs
  headrace seeds seeds.txt --dry-run               what would be sent, and what is refused and why
  headrace seeds seeds.txt --refused refused.tsv
  headrace seeds seeds.txt --from-line 400001      go on after a Ctrl-C
  HEADRACE_FLEET__KAFKA=kafka1:9092 headrace seeds seeds.txt

A URL that the fleet knows already changes nothing: sending twice does no harm. One named like a sitemap (sitemap.xml)
is fetched as a sitemap. The first Ctrl-C finishes what was read, exit code 130; the second ends at once.
Other exit codes: 0 all of it is acknowledged, 1 something was refused or Kafka is away, 2 bad input.
"""

_COMMENT = re.compile(r"(?:^|\s)#.*")
_NO_NAME = "no web address, and no name with a dot in it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("seeds", nargs="+", metavar="FILE|-|URL", help="a file with one URL a line, - for stdin, a URL")
    parser.add_argument("--from-line", type=positive, default=1, metavar="N", help="leave out the lines before")
    add_sending(parser)


def run(arguments: argparse.Namespace, shell: Shell) -> int:
    if arguments.seeds.count("-") > 1:
        raise UsageError("seeds: needed - once, came it twice; stdin can be read once")
    files = [word for word in arguments.seeds if word == "-" or is_file_word(word)]
    if arguments.from_line > 1 and (len(files) != 1 or len(arguments.seeds) != 1):
        raise UsageError("seeds --from-line: needed one file alone, of which the lines are counted")
    for word in arguments.seeds:
        if word not in files:
            problem = url_of(word.strip())[1]
            if problem:
                raise UsageError(problem)
    reading = _Reading(arguments.seeds, set(files), arguments.from_line, shell)
    code = send_all(reading.items, arguments, shell, noun="line" if files else "seed")
    if code == 130 and len(arguments.seeds) == 1 and files and reading.line and not arguments.json:
        shell.say(f"go on with: --from-line {reading.line + 1}")
    return code


class _Reading:
    """The words of the command line in their order, and of files their lines. `line`: the last that was given on."""

    def __init__(self, words: list[str], files: set[str], from_line: int, shell: Shell) -> None:
        self.line = 0
        self._words, self._files, self._from_line, self._shell = words, files, from_line, shell

    def items(self, stopped: Callable[[], bool]) -> Iterator[Item]:
        for word in self._words:
            if word == "-":
                yield from self._lines(self._shell.stdin, "stdin", stopped)
            elif word in self._files:
                with _opened(word) as stream:
                    yield from self._lines(stream, word, stopped)
            else:
                yield self._item(word.strip(), "")

    def _lines(self, stream: BinaryIO, name: str, stopped: Callable[[], bool]) -> Iterator[Item]:
        try:
            for one in numbered_lines(stream, stopped):
                if one is None:
                    yield None
                    continue
                number, raw = one
                if number < self._from_line:
                    continue
                self.line = number
                item = self._of_line(raw, name, number)
                if item is not None:
                    yield item
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{name} line {self.line + 1}: needed text in UTF-8 or UTF-16, came other bytes; what came before is"
                f" sent; save the file as UTF-8 and go on with --from-line {self.line + 1}"
            ) from error
        except OSError as error:
            raise UsageError(f"{name}: cannot be read ({error.strerror}); needed a file with one URL a line") from error

    def _of_line(self, raw: bytes, name: str, number: int) -> Item:
        where = f"{name} line {number}"
        if len(raw) >= LINE_BYTES_MAX:
            return Refused(where, raw[:200].decode("utf-8", "replace"), "longer than any URL")
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            return Refused(where, raw[:200].decode("utf-8", "replace"), "not UTF-8")
        if "#" in text:
            text = _COMMENT.sub("", text)
        text = text.strip()
        return self._item(text, where) if text else None

    def _item(self, text: str, where: str) -> Item:
        url, what, came = judged(text)
        if url is None:
            return Refused(where, text, _reason(what, came))
        return seed_of(url, self._shell.now_ms())


def _reason(what: str, came: str) -> str:
    if what.startswith("is neither"):
        return _NO_NAME
    return came.lstrip(",; ").removeprefix("came ").removeprefix("it is ")


def _opened(word: str) -> BinaryIO:
    try:
        return Path(word).open("rb")
    except OSError as error:
        raise UsageError(f"{word}: cannot be read ({error.strerror}); needed a file with one URL a line") from error
