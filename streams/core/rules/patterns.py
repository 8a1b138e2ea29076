"""Patterns over URLs that an operator writes: regular expressions, checked before a crawl depends on them.

Python's `re` backtracks, and the text that it is shown is written by strangers. Two bounds keep a match short: a URL
has at most URL_BYTES_MAX characters, and an expression whose work could double with each of them (`(a+)+$`) is refused
when the scope is made. What remains is a polynomial of the number of `.*` in a pattern; an operator should write few.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from re import _parser  # type: ignore[attr-defined]  # the parse tree has no public name
from typing import Any

from streams.core.policy import SCOPE_PATTERN_CHARS_MAX, SCOPE_PATTERNS_MAX


class PatternError(ValueError):
    """A pattern that cannot be used: which one, and why."""


def compile_patterns(patterns: Sequence[str], *, name: str) -> tuple[re.Pattern[str], ...]:
    """Each of `patterns` compiled for `search` in a whole URL. `name` says in an error where they came from.

    Raises PatternError.
    """
    if len(patterns) > SCOPE_PATTERNS_MAX:
        raise PatternError(f"{name}: at most {SCOPE_PATTERNS_MAX} patterns, got {len(patterns)}; join some with |")
    return tuple(_compile(pattern, name) for pattern in patterns)


def _compile(pattern: str, name: str) -> re.Pattern[str]:
    if len(pattern) > SCOPE_PATTERN_CHARS_MAX:
        raise PatternError(f"{name}: a pattern has at most {SCOPE_PATTERN_CHARS_MAX} characters, got {len(pattern)}")
    try:
        compiled = re.compile(pattern)
        tree = _parser.parse(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(f"{name}: {pattern!r} is not a regular expression: {error}") from error
    if _explodes(tree):
        raise PatternError(
            f"{name}: {pattern!r} repeats a part that itself repeats, with nothing fixed between the rounds; "
            "matching it could take for ever. Take away one of the repetitions, or begin each round with a fixed "
            "character that the rest of it cannot match"
        )
    return compiled


# --- the check ----------------------------------------------------------------------------------------------------
# The parse tree is a list of (operator, argument). A normal form is ASCII, so a set of code points below 128 says all
# that an item can match.

_Item = tuple[Any, Any]
_ALL = frozenset(range(128))
_MANY_ROUNDS = 10  # 2**10 ways to match are still quick
_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT"})  # possessive ones and atomic groups give nothing back
_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}
_CATEGORY_CHARACTERS = {
    name: frozenset(code for code in _ALL if re.match(pattern, chr(code))) for name, pattern in _CATEGORIES.items()
}


def _explodes(tree: Iterable[_Item]) -> bool:
    """Whether some repetition of many rounds has a body that can match one text in several ways, round by round."""
    return any(
        (str(operator) in _REPEATS and argument[1] >= _MANY_ROUNDS and _ambiguous(argument[2]))
        or any(_explodes(part) for part in _parts(str(operator), argument))
        for operator, argument in tree
    )


def _ambiguous(body: Iterable[_Item]) -> bool:
    """Whether rounds of `body` have no fixed character between them that the variable parts could not match too."""
    fixed: list[frozenset[int]] = []
    variable: list[frozenset[int]] = []
    _sort_out(body, fixed, variable)
    loose = frozenset().union(*variable)
    return bool(variable) and all(characters & loose for characters in fixed)


def _sort_out(body: Iterable[_Item], fixed: list[frozenset[int]], variable: list[frozenset[int]]) -> None:
    for operator, argument in body:
        name = str(operator)
        if name == "SUBPATTERN":
            _sort_out(argument[3], fixed, variable)
        elif name in _REPEATS and argument[0] == argument[1]:
            _sort_out(argument[2], fixed, variable)
        elif name in _REPEATS or (name == "BRANCH" and not _distinct(argument[1])):
            variable.append(_characters(operator, argument))
        elif name in {"LITERAL", "NOT_LITERAL", "IN", "ANY"}:
            fixed.append(_characters(operator, argument))


def _distinct(alternatives: Sequence[Sequence[_Item]]) -> bool:
    """Whether the first character alone tells which alternative it is, and each has one length."""
    firsts: set[int] = set()
    for alternative in alternatives:
        if not alternative or any(str(operator) not in {"LITERAL", "IN"} for operator, _ in alternative):
            return False
        first = _characters(*alternative[0])
        if first & firsts:
            return False
        firsts |= first
    return True


def _characters(operator: Any, argument: Any) -> frozenset[int]:
    """All characters that can occur in what an item matches."""
    name = str(operator)
    if name == "LITERAL":
        return frozenset({argument})
    if name == "NOT_LITERAL":
        return _ALL - {argument}
    if name == "RANGE":
        return frozenset(range(argument[0], min(argument[1], 127) + 1))
    if name == "CATEGORY":
        return _CATEGORY_CHARACTERS[str(argument)]
    if name == "IN":
        negated = bool(argument) and str(argument[0][0]) == "NEGATE"
        union = frozenset().union(*(_characters(*item) for item in argument[negated:]))
        return _ALL - union if negated else union
    if name == "AT":
        return frozenset()
    parts = _parts(name, argument)
    if not parts:
        return _ALL  # ANY, back references, and what later versions may bring
    return frozenset().union(*(_characters(*item) for part in parts for item in part))


def _parts(name: str, argument: Any) -> list[Sequence[_Item]]:
    """The sequences within one item."""
    if name in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
        return [argument[2]]
    if name == "SUBPATTERN":
        return [argument[3]]
    if name == "BRANCH":
        return list(argument[1])
    if name in {"ASSERT", "ASSERT_NOT"}:
        return [argument[1]]
    if name == "ATOMIC_GROUP":
        return [argument]
    if name == "GROUPREF_EXISTS":
        return [part for part in argument[1:] if part]
    return []
