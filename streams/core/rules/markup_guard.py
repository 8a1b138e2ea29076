"""Looks at a page's bytes before the parser does, and says how much of them is safe to parse.

HTML's tree construction is quadratic in three places, in every parser that follows the standard: a tag's attributes
(each is compared with those before it), the depth of open elements (`</x>` and `<p>` walk them), and the list of open
formatting elements (`<font size=1><font size=2>...` is opened anew in each following paragraph: 50 KB made 4.5 million
nodes, 1.6 GB and 5 s). Links before the hostile place are worth keeping, so the page is cut there.

The answer for an ordinary page comes from a few counts; only a page that fails them is searched, then read tag by tag.
The reading approximates the tree builder: it bounds cost, it is no parser. What slips through meets a worker's limits.
"""

from __future__ import annotations

import re
from itertools import islice

SMALL_BYTES = 8 * 1024  # whatever stands in so few bytes is parsed within 0.1 s (measured)
GAP_BYTES = 2 * 1024  # a longer stretch without ">" may be a tag with very many attributes
QUOTED_ENDS_MAX = 8  # ">" inside quoted values, each of which may join two gaps
PROVEN_END_BYTES = 4 * 1024  # no tag is longer than three of these when each such stretch holds an end of a tag
PROVEN_BYTES_MAX = 1024 * 1024  # so many tags of 8 KB, with 2,300 names each, come to ATTRIBUTE_PAIRS_MAX
DEPTH_MAX = 12_000  # open elements; 0.15 s of parsing (quadratic)
REOPENED_MAX = 1_000_000  # formatting elements opened anew over the whole page; some 300 bytes of tree each
STACK_STEPS_MAX = 500_000_000  # open elements passed by all tags, if each tag looked through all of them; 1 s
ATTRIBUTE_PAIRS_MAX = 300_000_000  # comparisons of attribute names over the whole page; 0.5 s
TAGS_MAX = 600_000  # "<" on a page; some 350 bytes of tree each

TOO_MANY_ATTRIBUTES = "too_many_attributes"
TOO_DEEP = "too_deep"
TOO_MANY_ELEMENTS = "too_many_elements"

_QUOTED_END = re.compile(rb"=[\t\n\f\r ]*+(?:\"[^\">]*+>|'[^'>]*+>)")
_ATTRIBUTE = (  # HTML standard 13.2.5.32 to 13.2.5.39: a quote has a meaning only after "="
    rb"[^\t\n\f\r />][^\t\n\f\r />=]*+"
    rb"(?:[\t\n\f\r ]*+=[\t\n\f\r ]*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z)|[^\t\n\f\r >\"'][^\t\n\f\r >]*+)?+)?+"
)
_ATTRIBUTES = re.compile(_ATTRIBUTE)
_TAG = re.compile(
    rb"<(?:!--(?:-?>|.*?(?:--!?>|\Z))"
    rb"|(?P<close>/?)(?P<name>[a-zA-Z][^\t\n\f\r />]*+)(?P<rest>(?:[\t\n\f\r /]++|" + _ATTRIBUTE + rb")*+)>?"
    rb"|[!?/][^>]*+>?)",
    re.DOTALL,
)
_RAW_END = {
    name: re.compile(rb"</" + name + rb"(?=[\t\n\f\r />])|\Z", re.IGNORECASE)
    for name in b"script style textarea title noscript noframes noembed iframe xmp".split()
}
_PROVEN_END = re.compile(rb"=\"[^\"'<>=]*+\">")
"""Ends the tag that it stands in, or begins in, by 13.2.5.32 to 13.2.5.39, in whatever state: only a value in single
quotes could hold it."""
_PLAIN_ATTRIBUTES = rb"(?:[ \n]++[a-z-]++=(?:\"[^\"<>]*+\"|[a-z0-9_-]++(?=[ \n>])))*+"
_CLOSED_AT_ONCE = re.compile(rb"<([a-z][a-z0-9]*+)" + _PLAIN_ATTRIBUTES + rb">[^<]*+</\1>", re.IGNORECASE)
_PHRASE = rb"(?:[^<]++|</?(?:a|span|br)" + _PLAIN_ATTRIBUTES + rb">)*+"  # inside, one element waits at most
_NAMES = rb"(b|big|code|em|font|i|s|small|strike|strong|tt|u)"
_FORMATTING_LEFT_OPEN = re.compile(  # the look ahead keeps most tags from being compared without regard to case
    rb"<(?=[bceifstuBCEIFSTU][a-zA-Z]{0,5}[\t\n\f\r /])"
    rb"(?i:" + _NAMES + rb"(?=[\t\n\f\r /])(?!" + _PLAIN_ATTRIBUTES + rb">" + _PHRASE + rb"</\1>))"
)
_BARE_FORMATTING = re.compile(rb"<" + _NAMES + rb">", re.IGNORECASE)
_VOID = frozenset(b"area base br col embed hr img input link meta param source track wbr basefont bgsound".split())
_NOT_NESTING = frozenset(b"p li dt dd option optgroup tr td th tbody thead tfoot a nobr button form".split())
"""Tags that a second one closes, or that are ignored while one is open: alone they do not nest."""
_ROOTS = frozenset((b"html", b"head", b"body"))
_CELL_PARTS = frozenset(b"td th tr caption tbody thead tfoot".split())
_CLOSES: dict[bytes, frozenset[bytes]] = {  # what a start tag closes with all that stands in it
    b"td": frozenset((b"td", b"th", b"caption")),
    b"th": frozenset((b"td", b"th", b"caption")),
    b"tr": frozenset((b"tr", b"caption")),
    **{name: frozenset((b"tbody", b"thead", b"tfoot", b"caption")) for name in (b"tbody", b"thead", b"tfoot")},
    b"li": frozenset((b"li",)),
    b"dt": frozenset((b"dt", b"dd")),
    b"dd": frozenset((b"dt", b"dd")),
}
_ITEM_INNER = frozenset(b"a b big code em font i nobr s small strike strong tt u span p div address".split())
"""What an item may leave open when the next one closes it; anything else keeps it open."""
_CELL_OUTER = frozenset((b"table", b"template", b"svg", b"math"))
_IMPLIED_LEVELS_MAX = 64
_CELLS = frozenset((b"td", b"th", b"caption"))
_FORMATTING = frozenset(b"b big code em font i s small strike strong tt u".split())
"""Elements that are opened anew; not `a` and `nobr`, of which a second one closes the first."""
_ALIKE_MAX = 3  # formatting elements of one name and the same attributes that are opened anew (13.2.4.3)


def safe_length(body: bytes, *, attributes_per_tag_max: int) -> tuple[int, str]:
    """How many bytes of `body` (an ASCII superset) may be parsed, and why not all: an error code, else empty."""
    if len(body) <= SMALL_BYTES:
        return len(body), ""
    tags = body.count(b"<")
    length, error = len(body), ""
    if tags > TAGS_MAX:
        length = next(islice(re.finditer(rb"<", body), TAGS_MAX, None)).start()
        error = TOO_MANY_ELEMENTS
    if _is_plain(body, tags):
        return length, error
    cut, found = _read_tags(body, length, attributes_per_tag_max)
    return (cut, found) if found else (length, error)


def _is_plain(body: bytes, tags: int) -> bool:
    """Whether counts alone show that no tag, no nesting and no formatting can cost much."""
    if tags * tags // 2 <= REOPENED_MAX:
        return _has_short_tags(body)  # so few that all the products below hold
    starts = tags - body.count(b"</")
    if starts > DEPTH_MAX or starts * tags > STACK_STEPS_MAX:
        # What holds nothing but text and is closed right after it adds one level at a time.
        nesting = starts - sum(1 for _ in _CLOSED_AT_ONCE.finditer(body)) + 1
        if nesting > DEPTH_MAX or nesting * tags > STACK_STEPS_MAX:
            return False
    if starts * starts // 2 > REOPENED_MAX:  # else no share of formatting elements among them comes to so much
        # All formatting elements might be opened anew in each element and after it, but for those closed at once.
        waiting_max = REOPENED_MAX // (2 * starts)
        with_attributes = sum(1 for _ in _FORMATTING_LEFT_OPEN.finditer(body))
        if with_attributes + _ALIKE_MAX * len(_FORMATTING) > waiting_max:
            names = {name.lower() for name in _BARE_FORMATTING.findall(body)}
            if with_attributes + _ALIKE_MAX * len(names) > waiting_max:
                return False
    return _has_short_tags(body)


def _has_short_tags(body: bytes) -> bool:
    """Whether no tag is so long that its attributes could cost much."""
    if len(body) <= (QUOTED_ENDS_MAX + 1) * GAP_BYTES or _has_proven_ends(body):
        return True
    quoted_ends = sum(1 for _ in islice(_QUOTED_END.finditer(body), QUOTED_ENDS_MAX + 1))
    return quoted_ends <= QUOTED_ENDS_MAX and not _has_gap(body, text_counts=quoted_ends > 0)


def _has_proven_ends(body: bytes) -> bool:
    """Whether each stretch of PROVEN_END_BYTES holds an end of a tag for certain."""
    if len(body) > PROVEN_BYTES_MAX:
        return False
    looked_to, quote = 0, -1
    for start in range(0, len(body) - PROVEN_END_BYTES, PROVEN_END_BYTES):
        end = _PROVEN_END.search(body, start, start + PROVEN_END_BYTES)
        if end is None:
            return False
        # A value in single quotes lasts to the next one, so it holds the end only if the last one began a value.
        quote = max(quote, body.rfind(b"'", looked_to, end.start()))
        looked_to = end.start()
        if quote > 0 and body[max(quote - GAP_BYTES, 0) : quote].rstrip(b"\t\n\f\r ")[-1:] in (b"=", b""):
            return False
    return True


def _has_gap(body: bytes, *, text_counts: bool) -> bool:
    """Whether GAP_BYTES without ">" may be within one tag. Two steps advance at least GAP_BYTES, so it is linear.

    Where a ">" may be quoted (`text_counts`) what follows it may be a tag too; else a tag begins with "<".
    """
    position, end = 0, len(body) - GAP_BYTES
    while position < end:
        found = body.rfind(b">", position, position + GAP_BYTES)
        if found >= 0:
            position = found + 1
            continue
        start = position if text_counts else body.find(b"<", position)
        if start < 0:
            return False
        if body.find(b">", start, start + GAP_BYTES) < 0:
            return len(body) - start > GAP_BYTES
        position = start + 1
    return False


def _read_tags(body: bytes, length: int, attributes_max: int) -> tuple[int, str]:
    """Where the first tag stands that goes beyond a bound, and which; (length, "") when none does."""
    elements = _OpenElements()
    formatting = _OpenFormatting()
    root_attributes = pairs = steps = reopened = 0
    position = 0
    while (tag := _TAG.search(body, position, length)) is not None:
        position = tag.end()
        name = tag["name"]
        if name is None:
            continue
        name, rest = name.lower(), tag["rest"]
        attributes = sum(1 for _ in _ATTRIBUTES.finditer(rest)) if len(rest) > attributes_max else len(rest) > 1
        if name in _ROOTS:
            root_attributes += attributes  # they are all added to one element
        pairs += attributes * attributes
        if max(attributes, root_attributes) > attributes_max or pairs > ATTRIBUTE_PAIRS_MAX:
            return tag.start(), TOO_MANY_ATTRIBUTES
        steps += elements.depth
        if steps > STACK_STEPS_MAX:
            return tag.start(), TOO_DEEP
        if tag["close"]:
            formatting.close(name, elements.tables)
            elements.close(name)
            continue
        if name in _VOID:
            continue
        formatting.open(name, bool(attributes), elements.tables)
        reopened += formatting.waiting
        if name in _RAW_END and not elements.is_foreign:
            end = _RAW_END[name].search(body, position, length)
            position = length if end is None else end.start()
            continue
        if not (elements.is_foreign and rest.endswith(b"/")):
            elements.open(name)
        if elements.depth > DEPTH_MAX or reopened > REOPENED_MAX:
            return tag.start(), TOO_DEEP
    return length, ""


class _OpenElements:
    """The stack of open elements, nearly: at least as deep as the tree builder's for all but contrived markup."""

    def __init__(self) -> None:
        self.depth = 0
        self._names: list[bytes] = []
        self._counts: dict[bytes, int] = {}

    @property
    def tables(self) -> int:
        return self._counts.get(b"table", 0)

    @property
    def is_foreign(self) -> bool:
        """In SVG or MathML, where script and style are no raw text and `<x/>` is closed."""
        return bool(self._counts.get(b"svg") or self._counts.get(b"math"))

    def open(self, name: bytes) -> None:
        if name in _ROOTS or (name in _CELL_PARTS and not self.tables and not self.is_foreign):
            return  # there is one of each; parts of a table are ignored outside of one
        if name in _CLOSES:
            self._close_implied(name)
        if name in _NOT_NESTING and self._names and self._names[-1] == name:
            return
        self._names.append(name)
        self._counts[name] = self._counts.get(name, 0) + 1
        self.depth += 1

    def close(self, name: bytes) -> None:
        """Close the innermost `name` and what stands in it. Each element is popped once, so all pops are linear."""
        if not self._counts.get(name):
            return
        while self._pop() != name:
            pass

    def _close_implied(self, name: bytes) -> None:
        """A new cell, row or item closes the one before it, if that one's end tag was left out."""
        closed = _CLOSES[name]
        for level in range(1, min(self.depth, _IMPLIED_LEVELS_MAX) + 1):
            inner = self._names[-level]
            if inner in closed:
                for _ in range(level):
                    self._pop()
                return
            if inner in _CELL_OUTER or (name not in _CELL_PARTS and inner not in _ITEM_INNER):
                return

    def _pop(self) -> bytes:
        name = self._names.pop()
        self._counts[name] -= 1
        self.depth -= 1
        return name


class _OpenFormatting:
    """How many formatting elements with attributes wait to be opened anew (those without are kept three times at most).

    A table cell forgets at its end what was opened in it: the marker of the tree builder's list.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self._by_name: dict[bytes, int] = {}
        self._cells: list[tuple[int, int, dict[bytes, int]]] = []  # tables open, and what waited when the cell began

    def open(self, name: bytes, has_attributes: bool, tables: int) -> None:
        if name in _FORMATTING and has_attributes:
            self._by_name[name] = self._by_name.get(name, 0) + 1
            self.waiting += 1
        elif name in _CELLS and tables:
            self._end_cell(tables)
            self._cells.append((tables, self.waiting, dict(self._by_name)))

    def close(self, name: bytes, tables: int) -> None:
        if self._by_name.get(name):
            self._by_name[name] -= 1
            self.waiting -= 1
        elif name in _CELLS or name == b"table":
            self._end_cell(tables)

    def _end_cell(self, tables: int) -> None:
        while self._cells and self._cells[-1][0] >= tables:
            _, self.waiting, self._by_name = self._cells.pop()
