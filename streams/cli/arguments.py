"""argparse with the manners of this program: errors in one line with the nearest right option, help with examples."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Sequence
from typing import NoReturn

from streams.cli.shell import Shell
from streams.core.failures import UsageError

__all__ = ["Parser", "positive"]


class Parser(argparse.ArgumentParser):
    """The options of one verb. Positional words and options may come in any order."""

    def __init__(self, verb: str, summary: str, examples: str, shell: Shell) -> None:
        super().__init__(
            prog=f"headrace {verb}",
            description=summary[:1].upper() + summary[1:] + ".",
            epilog="examples:\n" + examples.strip("\n"),
            formatter_class=_Formatter,
            allow_abbrev=False,
            add_help=False,
        )
        self._shell = shell
        self._help_asked = False
        self.add_argument("-h", "--help", action="store_true", dest="help", help="show this")

    def parse(self, words: Sequence[str]) -> argparse.Namespace | None:
        """The arguments, or None when help was asked for and shown. Raises `UsageError`."""
        before_end = words[: words.index("--")] if "--" in words else words
        if "-h" in before_end or "--help" in before_end:
            self._shell.print(self.format_help().rstrip())
            return None
        arguments, strangers = self.parse_known_intermixed_args(words)
        if strangers:
            self._refuse(strangers[0])
        return arguments

    def format_usage(self) -> str:
        words = [action for action in self._actions if not action.option_strings]
        formatter = self._get_formatter()
        formatter.add_usage(None, words, self._mutually_exclusive_groups)
        return formatter.format_help().rstrip("\n") + " [options]\n"

    def format_help(self) -> str:
        """The words first, then the options; argparse's own usage line would name all of them twice."""
        formatter = self._get_formatter()
        formatter.add_text(self.description)
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return self.format_usage() + "\n" + formatter.format_help()

    def error(self, message: str) -> NoReturn:
        message = re.sub(r"^argument ([^:]+): ", lambda match: f"{match.group(1).split('/')[-1]}: ", message)
        raise UsageError(f"{message}; {self.prog} --help shows the options")

    def _refuse(self, stranger: str) -> NoReturn:
        known = [option for action in self._actions for option in action.option_strings]
        near = difflib.get_close_matches(stranger.partition("=")[0], known, n=1, cutoff=0.5)
        what = "option" if stranger.startswith("-") else "argument"
        hint = f"did you mean {near[0]}?" if near else f"{self.prog} --help shows the options"
        raise UsageError(f'{self.prog} has no {what} "{stranger}"; {hint}')


def positive(text: str) -> int:
    """A whole number of at least 1: `500`, `10_000`, `10,000`, `10k`."""
    match = re.fullmatch(r"([0-9][0-9_,]{0,15})([kM]?)", text)
    number = (
        int(re.sub("[_,]", "", match.group(1))) * {"": 1, "k": 1_000, "M": 1_000_000}[match.group(2)] if match else 0
    )
    if number < 1:
        raise argparse.ArgumentTypeError(f'needed a whole number of at least 1 such as 500 or 10k, came "{text}"')
    return number


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Examples as they are written, options in one column."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=100)
