"""Whether a robots.txt rule matches a URL, and which of several decides (RFC 9309 sections 2.2.2 and 2.2.3).

A rule and a URL are compared in one canonical form (2.2.2):

- escapes of characters that mean the same raw and escaped are decoded, other escapes are in upper case;
- `/` and `?` are escapes of their own in the path (`%2F` is not `/`); within the query they delimit nothing, and the
  RFC's own table has `?baz=https://foo.bar` and `?baz=https%3A%2F%2Ffoo.bar` equal;
- every other octet is escaped, and so is a `%` that starts no escape;
- so an unescaped `*`, or `$` at the end, can only be the pattern's own (2.2.3), and `%2A` and `%24` are the characters.

The longest pattern in octets wins, wildcards included; of two equally long ones Allow wins.

Bounds: ROBOTS_BYTES_MAX of the file is all there is of lines and rules, and no octet of it is looked at more than once
for each URL: patterns are cut at `*` and each piece is sought once, from left to right, without going back.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

_UNRESERVED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
_PLAIN = _UNRESERVED + "!&'()+,;=:@/?"  # stay as they are: raw, they mean in both sides the same
_DECODED_IN_PATH = frozenset(_PLAIN) - {"/", "?"}
_DECODED_IN_QUERY = frozenset(_PLAIN)
_NOT_PLAIN = re.compile(rf"[^{re.escape(_PLAIN)}]")
_UNIT = re.compile(rf"%[0-9A-Fa-f]{{2}}|[^{re.escape(_PLAIN)}]")

_GATE_MAX = 32  # up to so many plain patterns one startswith settles that none matches
_WILD_MAX = 32  # up to so many wildcard patterns are tried one by one, without an index
_GRAM = 4
_GRAM_LITERAL_MAX = 32  # characters of a literal piece that are considered for the index


class Rule(msgspec.Struct, frozen=True, array_like=True):
    """One Allow or Disallow line. `pattern` is in canonical form and begins with "/" or "*"."""

    pattern: str
    allow: bool
    line: int  # of the file, from 1

    def __str__(self) -> str:
        return f"{'Allow' if self.allow else 'Disallow'}: {self.pattern} (line {self.line})"


_Wild = tuple[int, str, tuple[str, ...], str | None, Rule]  # weight, head, pieces, tail when anchored, the rule


class Index:
    """The rules laid out so that a URL that no rule touches costs next to nothing.

    Plain patterns match as prefixes: a dictionary, asked for each length that occurs, longest first. Anchored ones
    without `*` match one path. Those with `*` are tried in the order of their weight, until one cannot win any more.
    """

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self._exact: dict[str, Rule] = {}
        self._prefix: dict[str, Rule] = {}
        wild: list[_Wild] = []
        for rule in rules:
            pattern = rule.pattern
            if "*" in pattern:
                wild.append(_compile(rule))
            elif pattern.endswith("$"):
                _put(self._exact, pattern[:-1], rule)
            else:
                _put(self._prefix, pattern, rule)
        self._lengths = tuple(sorted({len(prefix) for prefix in self._prefix}, reverse=True))
        self._gate = tuple(self._prefix) if len(self._prefix) <= _GATE_MAX else None
        wild.sort(key=lambda entry: -entry[0])
        self._wild = tuple(wild)
        self._grams = _grams(self._wild) if len(wild) > _WILD_MAX else None

    def decide(self, path: str) -> Rule | None:
        """The rule that settles a canonical path; None when it is allowed by none."""
        if path.startswith("/robots.txt") and path[11:12] in ("", "?"):
            return None  # 2.2.2: implicitly allowed
        best = self._exact.get(path) if self._exact else None
        if best is None and (self._gate is None or path.startswith(self._gate)):
            best = self._longest_prefix(path)
        if self._wild:
            candidates = self._wild if self._grams is None else _with_grams(self._grams, path)
            least = _weight(best) if best is not None else -1
            for weight, head, pieces, tail, rule in candidates:
                if weight <= least:
                    break
                if path.startswith(head) and _matches(path, len(head), pieces, tail):
                    return rule
        return best

    def _longest_prefix(self, path: str) -> Rule | None:
        for length in self._lengths:
            rule = self._prefix.get(path[:length])
            if rule is not None:
                return rule
        return None


def _rewriter(decoded: frozenset[str]) -> Callable[[re.Match[str]], str]:
    """What stands for one escape or one other character, each a Latin-1 character for an octet."""

    def rewrite(match: re.Match[str]) -> str:
        unit = match[0]
        if len(unit) == 1:
            return f"%{ord(unit):02X}"
        character = chr(int(unit[1:], 16))
        return character if character in decoded else unit.upper()

    return rewrite


_rewrite_path = _rewriter(_DECODED_IN_PATH)
_rewrite_query = _rewriter(_DECODED_IN_QUERY)


def _canonical(octets: str) -> str:
    """`octets` is a path with its query, one Latin-1 character an octet."""
    if not _NOT_PLAIN.search(octets):
        return octets
    path, mark, query = octets.partition("?")
    return _UNIT.sub(_rewrite_path, path) + mark + _UNIT.sub(_rewrite_query, query)


def canonical_pattern(value: bytes) -> str:
    """A rule's path, with its own `*` and final `$` as they are and all other octets in canonical form."""
    octets = value.decode("latin-1")
    anchor = ""
    if octets.endswith("$"):
        octets, anchor = octets[:-1], "$"
    path, mark, query = octets.partition("?")
    rewritten = [
        "*".join(_UNIT.sub(rewrite, piece) for piece in part.split("*"))
        for part, rewrite in ((path, _rewrite_path), (query, _rewrite_query))
    ]
    return mark.join(rewritten) + anchor if mark else rewritten[0] + anchor


def canonical_path(url: str) -> str:
    """Path and query of an absolute URL in canonical form; "/" when it has none."""
    slash = url.find("/", 8)  # behind http:// and at least one character of the host
    path = url[slash:] if slash > 0 else ""
    host = url[8:slash]
    if not path or _NOT_PLAIN.search(path) or "?" in host or "#" in host:
        return _canonical_path_of_any(url)
    return path


def _canonical_path_of_any(url: str) -> str:
    rest = url.partition("#")[0]
    _, separator, behind = rest.partition("://")
    if separator:
        start = min((at for at in (behind.find("/"), behind.find("?")) if at >= 0), default=len(behind))
        rest = behind[start:]
    if not rest.startswith("/"):
        rest = "/" + rest
    return _canonical(rest.encode("utf-8", "surrogatepass").decode("latin-1"))


def _weight(rule: Rule) -> int:
    """Orders rules: longer patterns first, Allow before Disallow (2.2.2)."""
    return 2 * len(rule.pattern) + rule.allow


def _put(rules: dict[str, Rule], key: str, rule: Rule) -> None:
    if key not in rules or rule.allow:
        rules[key] = rule


def _compile(rule: Rule) -> _Wild:
    pattern = rule.pattern
    anchored = pattern.endswith("$")
    head, *pieces = (pattern[:-1] if anchored else pattern).split("*")
    tail = pieces.pop() if anchored else None
    return _weight(rule), head, tuple(piece for piece in pieces if piece), tail or None, rule


def _matches(path: str, position: int, pieces: tuple[str, ...], tail: str | None) -> bool:
    """2.2.3. Taking each piece at its first place is enough: a later place leaves less to the pieces behind it."""
    for piece in pieces:
        position = path.find(piece, position)
        if position < 0:
            return False
        position += len(piece)
    return tail is None or (len(path) - len(tail) >= position and path.endswith(tail))


def _grams(wild: tuple[_Wild, ...]) -> dict[str, list[_Wild]]:
    """Each pattern under four characters that its matches must hold, of several the least used; "" for the rest."""
    grams: dict[str, list[_Wild]] = {}
    for entry in wild:
        _, head, pieces, tail, _ = entry
        literals = (head, *pieces, tail or "")
        own = {
            literal[at : at + _GRAM]
            for literal in literals
            for at in range(min(len(literal), _GRAM_LITERAL_MAX) - _GRAM + 1)
        }
        key = min(sorted(own), key=lambda gram: len(grams.get(gram, ())), default="")
        grams.setdefault(key, []).append(entry)
    return grams


def _with_grams(grams: dict[str, list[_Wild]], path: str) -> list[_Wild]:
    """The patterns that may match `path`, heaviest first."""
    found = list(grams.get("", ()))
    for gram in {path[at : at + _GRAM] for at in range(len(path) - _GRAM + 1)}:
        found.extend(grams.get(gram, ()))
    found.sort(key=lambda entry: -entry[0])
    return found
