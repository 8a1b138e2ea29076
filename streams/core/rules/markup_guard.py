"""Looks at a page's bytes before the parser does, and says how much of them is safe to parse.

HTML's tree construction is quadratic in three places, in every parser that follows the standard: a tag's attributes
(each is compared with those before it), the depth of open elements (`</x>` and `<p>` walk them), and the list of open
formatting elements (`<font size=1><font size=2>...` is opened anew in each following paragraph: 50 KB made 4.5 million
nodes, 1.6 GB and 5 s). Links before the hostile place are worth keeping, so the page is cut there.

The answer for an ordinary page comes from counts that C code makes; only a page that fails them is read tag by tag. The
reading approximates the tree builder: it bounds cost, it is no parser. What slips through meets the worker's limits.
"""

from __future__ import annotations

import re
from itertools import islice

import numpy as np

SMALL_BYTES = 8 * 1024  # whatever stands in so few bytes is parsed within 0.1 s (measured)
GAP_BYTES = 2 * 1024  # a longer stretch without ">" may be a tag with very many attributes
QUOTED_ENDS_MAX = 8  # ">" inside quoted values, each of which may join two gaps
FORMATTING_MAX = 400  # attributed formatting tags that need no look at their order: 400 * 400 / 2 nodes at most
DEPTH_MAX = 12_000  # open elements; 0.15 s of parsing (quadratic)
REOPENED_MAX = 1_000_000  # nodes that reconstruction of formatting elements may add over the whole page
ATTRIBUTE_PAIRS_MAX = 300_000_000  # comparisons of attribute names over the whole page; 0.5 s
TAGS_MAX = 1_000_000  # "<" on a page; some 250 bytes of tree each

TOO_MANY_ATTRIBUTES = "too_many_attributes"
TOO_DEEP = "too_deep"
TOO_MANY_ELEMENTS = "too_many_elements"

_QUOTED_END = re.compile(rb"=[\t\n\f\r ]*+(?:\"[^\">]*+>|'[^'>]*+>)")
_FORMATTING = re.compile(rb"<(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)[\t\n\f\r /]", re.IGNORECASE)
_REST = rb"[^>\"']*+(?:(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z))[^>\"']*+)*+"  # attributes; ">" in quotes is none's end
_TOKEN = re.compile(
    rb"<!--.*?(?:-->|\Z)"
    rb"|<(?P<raw>script|style|textarea|title|noscript|noframes|iframe|xmp)(?=[\t\n\f\r />])(?P<rawrest>"
    + _REST
    + rb")>?"
    rb".*?(?:</(?P=raw)(?=[\t\n\f\r />])|\Z)"
    rb"|<(?P<close>/?)(?P<name>[a-zA-Z][^\t\n\f\r />]*+)(?P<rest>" + _REST + rb")>?",
    re.IGNORECASE | re.DOTALL,
)
_ATTRIBUTE_START = re.compile(rb"[\t\n\f\r /\"'](?=[^\t\n\f\r />=])")
_VOID = frozenset(b"area base br col embed hr img input link meta param source track wbr basefont bgsound".split())
_SELF_CLOSING = frozenset(b"p li dt dd option optgroup tr td th tbody thead tfoot a nobr button form body html".split())
"""Tags that a second one closes, or that are ignored while one is open: alone they do not nest."""
_FORMATTING_NAMES = frozenset(b"b big code em font i nobr s small strike strong tt u".split())


def safe_length(body: bytes, *, attributes_per_tag_max: int) -> tuple[int, str]:
    """How many bytes of `body` (an ASCII superset) may be parsed, and why not all: an error code, else empty."""
    if len(body) <= SMALL_BYTES:
        return len(body), ""
    tags = body.count(b"<")
    length, error = len(body), ""
    if tags > TAGS_MAX:
        length = int(np.flatnonzero(np.frombuffer(body, dtype=np.uint8) == ord("<"))[TAGS_MAX])
        error = TOO_MANY_ELEMENTS
    if _is_plain(body, tags):
        return length, error
    cut, found = _read_tags(body, length, attributes_per_tag_max)
    return (cut, found) if found else (length, error)


def _is_plain(body: bytes, tags: int) -> bool:
    """Whether counts alone show that no tag, no nesting and no formatting can cost much."""
    if tags > DEPTH_MAX or _has_gap(body):
        return False
    if len(_FORMATTING.findall(body)) > FORMATTING_MAX:
        return False
    return sum(1 for _ in islice(_QUOTED_END.finditer(body), QUOTED_ENDS_MAX + 1)) <= QUOTED_ENDS_MAX


def _has_gap(body: bytes) -> bool:
    """Whether GAP_BYTES follow one another without ">". Two steps advance at least GAP_BYTES, so it is linear."""
    position, end = 0, len(body) - GAP_BYTES
    while position < end:
        found = body.rfind(b">", position, position + GAP_BYTES)
        if found < 0:
            return True
        position = found + 1
    return False


def _read_tags(body: bytes, length: int, attributes_max: int) -> tuple[int, str]:
    """Where the first tag stands that goes beyond a bound, and which; (length, "") when none does."""
    open_names: list[bytes] = []
    open_counts: dict[bytes, int] = {}
    formatting: dict[bytes, int] = {}  # attributed formatting elements that wait to be opened anew, by name
    waiting = reopened = pairs = 0
    for token in _TOKEN.finditer(body, 0, length):
        name = token["name"]
        rest = token["rest"] if name is not None else (token["rawrest"] or b"")
        if len(rest) > attributes_max:
            attributes = len(_ATTRIBUTE_START.findall(rest))
            pairs += attributes * attributes
            if attributes > attributes_max or pairs > ATTRIBUTE_PAIRS_MAX:
                return token.start(), TOO_MANY_ATTRIBUTES
        if name is None:
            continue
        name = name.lower()
        if token["close"]:
            if name in _FORMATTING_NAMES and formatting.get(name):
                formatting[name] -= 1
                waiting -= 1
            if open_counts.get(name):
                _pop_to(open_names, open_counts, name)
            continue
        if name in _VOID or (rest.endswith(b"/") and name not in _FORMATTING_NAMES):
            continue
        reopened += waiting
        if name in _FORMATTING_NAMES and len(rest) > 1:
            formatting[name] = formatting.get(name, 0) + 1
            waiting += 1
        if name in (b"td", b"th", b"caption") and open_counts.get(b"table"):
            formatting.clear()  # a cell's end forgets what was opened in it (the list's marker)
            waiting = 0
        if name in _SELF_CLOSING and open_names and open_names[-1] == name:
            continue
        open_names.append(name)
        open_counts[name] = open_counts.get(name, 0) + 1
        if len(open_names) > DEPTH_MAX or reopened > REOPENED_MAX:
            return token.start(), TOO_DEEP
    return length, ""


def _pop_to(open_names: list[bytes], open_counts: dict[bytes, int], name: bytes) -> None:
    """Close the innermost open `name` and what stands in it. Each element is popped once, so all pops are linear."""
    while True:
        popped = open_names.pop()
        open_counts[popped] -= 1
        if popped == name:
            return
