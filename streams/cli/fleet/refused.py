"""What was not taken, and why: counted by reason, with the first places of each, and on request every one in a file."""

from __future__ import annotations

from typing import TextIO

import msgspec

from streams.cli.words import count, printable, shorten

__all__ = ["Refusals", "Refused"]

EXAMPLES_MAX = 3  # shown of each reason
REASONS_MAX = 50  # counted by themselves; more are counted together
OTHER = "other reasons"


class Refused(msgspec.Struct, frozen=True):
    """One input that is no URL for a crawl. `where` is "seeds.txt line 17", or "" for a word of the command line."""

    where: str
    text: str
    reason: str


class _Reason(msgspec.Struct):
    number: int = 0
    first: list[Refused] = []


class Refusals:
    """All of one command. `into` gets each as `WHERE<tab>REASON<tab>TEXT`."""

    def __init__(self, into: TextIO | None = None) -> None:
        self.number = 0
        self._into = into
        self._reasons: dict[str, _Reason] = {}

    def add(self, refused: Refused) -> None:
        self.number += 1
        if self._into is not None:
            fields = (refused.where, refused.reason, printable(refused.text))
            print("\t".join(fields), file=self._into)
        known = refused.reason in self._reasons or len(self._reasons) < REASONS_MAX
        reason = self._reasons.setdefault(refused.reason if known else OTHER, _Reason())
        reason.number += 1
        if len(reason.first) < EXAMPLES_MAX:
            reason.first.append(refused)

    def add_many(self, reason: str, number: int) -> None:
        """Some more of a reason of which no more is known."""
        self.number += number
        self._reasons.setdefault(reason, _Reason()).number += number

    def lines(self) -> list[str]:
        """The account for people, the most frequent reason first."""
        lines = []
        for reason, found in self._sorted():
            lines.append(f"  {count(found.number)}  {reason}")
            for one in found.first:
                where = f"{one.where}: " if one.where else ""
                lines.append(f"      {printable(where)}{shorten(one.text, 90)}")
            if found.number > len(found.first) > 0:
                lines.append(f"      and {count(found.number - len(found.first))} more")
        return lines

    def as_json(self) -> list[dict[str, object]]:
        """The account for scripts, in the same order."""
        return [
            {"reason": reason, "count": found.number, "first": [msgspec.to_builtins(one) for one in found.first]}
            for reason, found in self._sorted()
        ]

    def _sorted(self) -> list[tuple[str, _Reason]]:
        return sorted(self._reasons.items(), key=lambda item: (-item[1].number, item[0]))
