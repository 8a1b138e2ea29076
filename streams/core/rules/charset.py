"""The encoding of a page, in the HTML standard's order (section 13.2.3, "the input byte stream").

Byte-order mark, then the charset of Content-Type, then the byte prescan of the first 1024 bytes, then the XML
declaration, then the bytes themselves: valid UTF-8 is UTF-8, the rest is what a later meta says, else guessed from a
bounded part, and what no guess explains is windows-1252. An unknown label counts as no label.

A browser reads a page again when its tree meets a meta that contradicts the prescan ("changing the encoding while
parsing", 13.2.3.4). Two things follow for a reader that goes over the bytes once: a meta inside a script is none,
and one beyond the first 1024 bytes is one.
"""

from __future__ import annotations

import re

from streams.core.rules.encodings import (
    USER_DEFINED,
    UTF_8,
    WINDOWS_1252,
    decode,
    encoding_of_codec,
    encoding_of_label,
)

PRESCAN_BYTES_MAX = 1024  # HTML standard 13.2.3.2: where it advises to stop
LATE_PRESCAN_BYTES_MAX = 16 * 1024  # for a meta that stands later, on a page that is not UTF-8
DETECT_BYTES_MAX = 4096  # around the first byte that is not UTF-8; the detector takes under 2 ms for them

_BOMS = ((b"\xef\xbb\xbf", UTF_8), (b"\xfe\xff", "utf-16be"), (b"\xff\xfe", "utf-16le"))
_CHARSET = re.compile(rb"charset[\t\n\f\r ]*=[\t\n\f\r ]*", re.IGNORECASE)
_BOUNDARY = re.compile(rb"[<> \n]")
_EAST_ASIAN = {"gbk", "gb18030", "big5", "euc-jp", "shift_jis", "iso-2022-jp", "euc-kr"}
_CYRILLIC = {"koi8-r", "koi8-u", "windows-1251", "iso-8859-5", "ibm866", "x-mac-cyrillic"}
_OTHER_SCRIPTS = {f"windows-{page}" for page in (874, 1253, 1255, 1256)} | {f"iso-8859-{part}" for part in (6, 7, 8)}
_GUESSABLE = _EAST_ASIAN | _CYRILLIC | _OTHER_SCRIPTS
_RAW_TEXT = frozenset((b"script", b"style", b"title", b"textarea"))
_NAME_END = re.compile(rb"[\t\n\f\r />]")
_ATTRIBUTE = re.compile(
    rb"[\t\n\f\r /]*"
    rb"(?P<name>[^\t\n\f\r />][^\t\n\f\r />=]*)"
    rb"(?:[\t\n\f\r ]*=[\t\n\f\r ]*"
    rb"(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|(?P<bare>[^\t\n\f\r >\"'][^\t\n\f\r >]*)|(?=>)))?"
)


def sniff(body: bytes, content_type: str | None, *, xml: bool = False) -> tuple[str, bytes | str]:
    """The standard's name of the page's encoding, and what a parser is to be given.

    A UTF-8 page stays bytes (without its mark; its errors are the parser's to replace), any other is decoded. `xml`
    puts the XML declaration before the meta element and makes UTF-8 the default when the bytes allow it. Never raises.
    """
    for mark, name in _BOMS:
        if body.startswith(mark):
            rest = body[len(mark) :]
            return name, rest if name == UTF_8 else decode(rest, name)
    encoding = encoding_of_content_type(content_type) if content_type else None
    if encoding is None:
        head = body[:PRESCAN_BYTES_MAX]
        encoding = (xml_encoding(head) or prescan(head)) if xml else (prescan(head) or xml_encoding(head))
    if encoding is None:
        encoding = detect(body)
    return encoding, body if encoding == UTF_8 else decode(body, encoding)


def encoding_of_content_type(content_type: str) -> str | None:
    """The encoding of a Content-Type field's charset parameter, None when there is none or it is unknown."""
    return _encoding_in(content_type.encode("utf-8", "replace"))


def prescan(head: bytes) -> str | None:
    """The encoding that a meta declares: "prescan a byte stream to determine its encoding", scripts left out.

    Comments are skipped and tags are read with their attributes, so that a meta inside a comment or an attribute does
    not count. utf-16 means UTF-8 here (who reads the declaration reads ASCII), and x-user-defined windows-1252.
    """
    if head.startswith(b"<\x00?\x00x\x00"):
        return "utf-16le"
    if head.startswith(b"\x00<\x00?\x00x"):
        return "utf-16be"
    position = head.find(b"<")
    while position >= 0:
        following = head[position + 1 : position + 2]
        if head.startswith(b"<!--", position):
            # "<!-->" is a whole comment: the two dashes may be those of the opening.
            end = head.find(b"-->", position + 2)
            if end < 0:
                return None
            position = end + 3
        elif head[position + 1 : position + 5].lower() == b"meta" and head[position + 5 : position + 6] in (
            b"\t", b"\n", b"\f", b"\r", b" ", b"/",
        ):  # fmt: skip
            declared, position = _meta(head, position + 5)
            if declared is not None:
                return declared
        elif following.isalpha() or (following == b"/" and head[position + 2 : position + 3].isalpha()):
            name_end = _NAME_END.search(head, position + 1 + (following == b"/"))
            if name_end is None:
                return None
            name = head[position + 1 : name_end.start()].lower()
            position = _skip_attributes(head, name_end.start())
            if name in _RAW_TEXT:
                position = head.lower().find(b"</" + name, position)
                if position < 0:
                    return None
        elif following in (b"!", b"/", b"?"):
            position = head.find(b">", position + 1)
            if position < 0:
                return None
        else:
            position += 1
        position = head.find(b"<", position)
    return None


def xml_encoding(head: bytes) -> str | None:
    """The encoding of an XML declaration at the very start ("get an XML encoding")."""
    if not head.startswith(b"<?xml"):
        return None
    declaration = head[: max(head.find(b">"), 0)]
    found = re.search(rb"encoding[\x00-\x20]*=[\x00-\x20]*(?:\"([^\"\x00-\x20]*)\"|'([^'\x00-\x20]*)')", declaration)
    if found is None:
        return None
    return _as_declared_inside(encoding_of_label((found[1] or found[2] or b"").decode("latin-1")))


def detect(body: bytes) -> str:
    """The likeliest encoding of a page that declares none early: UTF-8 when valid, a late meta's, a guess, 1252.

    A guess counts when it names an East Asian encoding or another script than Latin. Between the Latin code pages it is
    too often wrong for a word with an accent, and what browsers take for undeclared ones is windows-1252.
    """
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        start = error.start
        if error.reason == "unexpected end of data" and error.end == len(body):
            return UTF_8  # cut off in the middle of a character
    else:
        return UTF_8
    late = prescan(body[:LATE_PRESCAN_BYTES_MAX])
    if late is not None:
        return late
    import charset_normalizer  # read at its first use: 30 ms of CPU that pages which declare themselves never need

    best = charset_normalizer.from_bytes(_sample(body, start), enable_fallback=False).best()
    guessed = encoding_of_codec(best.encoding) if best is not None else None
    return guessed if guessed in _GUESSABLE else WINDOWS_1252


def _sample(body: bytes, start: int) -> bytes:
    """At most DETECT_BYTES_MAX around `start` that begin and end at a blank or a tag: no character is cut apart.

    No encoding has these bytes inside a character of several bytes.
    """
    begin = max(start - DETECT_BYTES_MAX // 2, 0)
    if begin:
        boundary = _BOUNDARY.search(body, begin, start)
        begin = start if boundary is None else boundary.start()
    end = begin + DETECT_BYTES_MAX
    sample = body[begin:end]
    if end < len(body):
        last = max(sample.rfind(byte) for byte in (b"<", b">", b" ", b"\n"))
        sample = sample[: last + 1] or sample
    return sample


def _meta(head: bytes, position: int) -> tuple[str | None, int]:
    """One meta's declaration, and where to go on. The prescan's loop over attributes, first of a name counting."""
    seen: dict[bytes, bytes] = {}
    while True:
        found = _ATTRIBUTE.match(head, position)
        if found is None or found.end() == len(head):
            break
        position = found.end()
        value = found["double"] or found["single"] or found["bare"] or b""
        seen.setdefault(found["name"].lower(), value.lower())
    end = head.find(b">", position)
    position = end if end >= 0 else len(head)
    if b"charset" in seen:
        return _as_declared_inside(encoding_of_label(seen[b"charset"].decode("latin-1"))), position
    if seen.get(b"http-equiv") == b"content-type" and b"content" in seen:
        return _as_declared_inside(_encoding_in(seen[b"content"])), position
    return None, position


def _skip_attributes(head: bytes, position: int) -> int:
    """The place after a tag's attributes: a quoted `>` does not end it."""
    while (found := _ATTRIBUTE.match(head, position)) is not None:
        position = found.end()
    return position


def _encoding_in(value: bytes) -> str | None:
    """The first `charset=` of a content value."""
    found = _CHARSET.search(value)
    if found is None:
        return None
    rest = value[found.end() :]
    if rest[:1] in (b'"', b"'"):
        end = rest.find(rest[:1], 1)
        return encoding_of_label(rest[1:end].decode("latin-1")) if end > 0 else None
    return encoding_of_label(re.split(rb"[\t\n\f\r ;,]", rest, maxsplit=1)[0].decode("latin-1"))


def _as_declared_inside(encoding: str | None) -> str | None:
    """What an encoding means when ASCII bytes of the page itself declare it (prescan, last steps)."""
    if encoding in ("utf-16le", "utf-16be"):
        return UTF_8
    return WINDOWS_1252 if encoding == USER_DEFINED else encoding
