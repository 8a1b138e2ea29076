"""What an element says of a link, by the HTML standard: words of rel, meta refresh, srcset, the Link header, MIME type.

All functions are pure, take strings as the parser gives them, and never raise on any input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

ASCII_SPACE = "\t\n\f\r "

FEED_TYPES = frozenset(
    ("application/rss+xml", "application/atom+xml", "application/rdf+xml", "application/feed+json", "text/rss+xml")
)
HEAD_LINK_RELS = frozenset(
    (
        "alternate", "next", "prev", "previous", "first", "last", "start", "up", "top", "contents", "toc", "index",
        "chapter", "section", "appendix", "glossary", "help", "author", "license", "copyright", "bookmark", "amphtml",
    )
)  # fmt: skip
"""Relations of a `<link>` that name a page to read; the others load something or name a service."""

REFRESH_DELAY_S_MAX = 2**31 - 1
SRCSET_CANDIDATES_MAX = 1_000
LINK_HEADER_VALUES_MAX = 100

_URL_PREFIX = re.compile(rf"[uU](?:[rR](?:[lL](?:[{ASCII_SPACE}]*(=)[{ASCII_SPACE}]*)?)?)?")
_REFRESH_TIME = re.compile(rf"[{ASCII_SPACE}]*(?:([0-9]+)|(?=\.))[0-9.]*")
_POSITIVE = re.compile(r"0*[1-9][0-9]*")
_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LINK_PARAMETER = re.compile(r"""[ \t]*;[ \t]*([^\s=;,"]*)[ \t]*(?:=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s;,"]*)))?""")


def words(value: str | None) -> tuple[str, ...]:
    """The words of a space-separated attribute such as rel: ASCII lower case, in order, each once."""
    if not value:
        return ()
    return tuple(dict.fromkeys(word.lower() for word in re.split(rf"[{ASCII_SPACE}]+", value) if word))


def parse_refresh(content: str) -> tuple[int, str | None] | None:
    """Delay in seconds and target of a meta refresh, by the "shared declarative refresh steps"; None when it is none.

    A target of None is the page itself. The time is needed, its fraction is dropped, and a character other than `;`,
    `,` or a blank after it spoils the whole.
    """
    time = _REFRESH_TIME.match(content)
    if time is None:
        return None
    digits = time[1] or "0"
    delay = min(int(digits), REFRESH_DELAY_S_MAX) if len(digits) <= 10 else REFRESH_DELAY_S_MAX
    rest = content[time.end() :]
    if not rest:
        return delay, None
    if rest[0] not in ";," + ASCII_SPACE:
        return None
    rest = rest.lstrip(ASCII_SPACE)
    if rest[:1] in (";", ","):
        rest = rest[1:].lstrip(ASCII_SPACE)
    if not rest:
        return delay, None
    prefix = _URL_PREFIX.match(rest)
    if prefix is not None:
        if prefix[1] is None:
            return delay, rest  # begins like "url" but is none: a target such as "upload/"
        rest = rest[prefix.end() :]
    if rest[:1] in ("'", '"'):
        quote, rest = rest[0], rest[1:]
        end = rest.find(quote)
        rest = rest if end < 0 else rest[:end]
    return delay, rest


def srcset_urls(value: str) -> Iterator[str]:
    """The URLs of a srcset's candidates, in order ("parse a srcset attribute"). A comma inside a URL belongs to it."""
    position, length = 0, len(value)
    for _ in range(SRCSET_CANDIDATES_MAX):
        while position < length and value[position] in ASCII_SPACE + ",":
            position += 1
        if position >= length:
            return
        start = position
        while position < length and value[position] not in ASCII_SPACE:
            position += 1
        url = value[start:position]
        if url.endswith(","):
            yield url.rstrip(",")
            continue
        descriptors, position = _srcset_descriptors(value, position)
        if _are_valid_descriptors(descriptors):
            yield url


def _srcset_descriptors(value: str, position: int) -> tuple[list[str], int]:
    """The descriptors from `position` to the next comma outside parentheses, and where to go on."""
    descriptors: list[str] = []
    current = ""
    in_parentheses = False
    for index in range(position, len(value)):
        character = value[index]
        if in_parentheses:
            current += character
            in_parentheses = character != ")"
        elif character == ",":
            return ([*descriptors, current] if current else descriptors), index + 1
        elif character in ASCII_SPACE:
            if current:
                descriptors.append(current)
                current = ""
        else:
            current += character
            in_parentheses = character == "("
    return ([*descriptors, current] if current else descriptors), len(value)


def _are_valid_descriptors(descriptors: list[str]) -> bool:
    """A width, a density, or a width with a height; anything else drops the candidate."""
    kinds = []
    for descriptor in descriptors:
        number, kind = descriptor[:-1], descriptor[-1]
        if not (_POSITIVE if kind in "wh" else _NUMBER).fullmatch(number):
            return False
        kinds.append(kind)
    return sorted(kinds) in ([], ["w"], ["x"], ["h", "w"])


def link_header_targets(value: str, relation: str) -> Iterator[str]:
    """Targets of a Link field's values with this relation (RFC 8288 section 3), in order.

    Of a repeated `rel` the first counts. A value with an `anchor` speaks of another resource and is left out.
    """
    position = 0
    for _ in range(LINK_HEADER_VALUES_MAX):
        start = value.find("<", position)
        end = value.find(">", start)
        if start < 0 or end < 0:
            return
        position = end + 1
        parameters: dict[str, str] = {}
        while (found := _LINK_PARAMETER.match(value, position)) is not None:
            position = found.end()
            text = re.sub(r"\\(.)", r"\1", found[2]) if found[2] is not None else (found[3] or "")
            parameters.setdefault(found[1].lower(), text)
        if relation in words(parameters.get("rel")) and "anchor" not in parameters:
            yield value[start + 1 : end].strip()


def mime_essence(content_type: str | None) -> str:
    """`type/subtype` in lower case without parameters; empty when there is none."""
    essence = (content_type or "").split(";", 1)[0].split(",", 1)[0].strip().lower()
    kind, slash, subtype = essence.partition("/")
    return essence if slash and kind and subtype and not re.search(r"\s", essence) else ""
