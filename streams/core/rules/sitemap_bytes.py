"""From the bytes of a sitemap to a stream of UTF-8: gzip undone within bounds, the character encoding settled.

Sources: RFC 1952 (gzip; a member may be followed by another), RFC 7303 section 3 (byte order mark, then charset
parameter, then the XML declaration), XML 1.0 section 2.8 (prolog) and appendix F.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Iterator
from html.entities import html5

import msgspec

CHUNK_BYTES = 64 * 1024
GZIP_LAYERS_MAX = 2  # a .gz that the server gzips once more is seen in the wild; more is a game
_GZIP_MAGIC = b"\x1f\x8b"
_BOMS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_DECLARED = re.compile(rb"""<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']""")
_CHARSET = re.compile(r"""charset\s*=\s*["']?([^\s"';,]{1,40})""", re.IGNORECASE)
# Python's names of the encodings of the WHATWG Encoding standard: no codec beyond them is reachable from the web.
_CODECS = (
    {f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)}
    | {"utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "koi8-r", "koi8-u", "mac-roman"}
    | {"cp866", "cp874", "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258"}
    | {"mac-cyrillic", "gb18030", "big5", "big5hkscs", "euc_jp", "iso2022_jp", "cp932", "cp949"}
)
# Labels for which the standard names a wider encoding than Python does.
_WIDER = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
    "shift_jis": "cp932",
    "utf_8_sig": "utf-8",
}
_REFERENCE = re.compile(rb"&(?:#[0-9]{1,7};|#[xX][0-9a-fA-F]{1,6};|([A-Za-z][A-Za-z0-9]{0,31});)?")
_XML_NAMES = frozenset((b"amp", b"lt", b"gt", b"quot", b"apos"))
_REGION = re.compile(rb"<!--|<!\[CDATA\[")
_TAIL_BYTES = 40  # longer than any reference that _REFERENCE takes and than any opening of a region


class Inflated(msgspec.Struct, frozen=True):
    """The content of a body. `errors`: trailing_data, truncated, corrupt_gzip, too_large."""

    data: bytes | bytearray
    errors: tuple[str, ...] = ()
    ratio: float = 1.0  # bytes of content for each byte that came


def inflate(body: bytes, *, bytes_max: int) -> Inflated:
    """Undo gzip where the magic number says so, whatever name and type say; hold at most `bytes_max` bytes.

    What follows the last member is ignored, what a broken member gave before the break is kept.
    """
    data: bytes | bytearray = body
    errors: list[str] = []
    layers = 0
    while data[:2] == _GZIP_MAGIC and layers < GZIP_LAYERS_MAX:
        data, found = _gunzip(data, bytes_max)
        errors.extend(found)
        layers += 1
    if len(data) > bytes_max:
        errors.append("too_large")
        data = data[:bytes_max]
    return Inflated(data, tuple(dict.fromkeys(errors)), len(data) / max(1, len(body)))


def encoding_of(data: bytes | bytearray, content_type: str | None) -> tuple[str, int]:
    """(Python codec, length of the byte order mark): mark, charset parameter, shape of the first bytes, declaration."""
    for mark, codec in _BOMS:
        if data.startswith(mark):
            return codec, len(mark)
    charset = _CHARSET.search(content_type or "")
    codec_name = _codec(charset.group(1)) if charset else None
    shape = _shape(data)
    if shape is not None:
        return shape, 0
    if codec_name is None:
        declared = _DECLARED.search(data[:1024])
        codec_name = _codec(declared.group(1).decode("ascii")) if declared else None
    if codec_name is None or codec_name.startswith(("utf-16", "utf-32")):
        codec_name = "utf-8"  # no such encoding, or one that these bytes cannot be in
    return codec_name, 0


def whole_end(data: bytes | bytearray) -> int:
    """Where a cut document must end so that no text is taken for whole that the cut has shortened."""
    last = data.rfind(b">") + 1
    return len(data) if last == 0 or data.find(b"<", last) >= 0 else last


def utf8_chunks(data: bytes | bytearray, codec: str, start: int, *, strict: bool) -> Iterator[bytes]:
    """`data` from `start` as UTF-8 in pieces. UTF-8 passes as it is when `strict`, else with what is none replaced."""
    view = memoryview(data)
    if codec == "utf-8" and strict:
        for offset in range(start, len(view), CHUNK_BYTES):
            yield bytes(view[offset : offset + CHUNK_BYTES])
        return
    decoder = codecs.getincrementaldecoder(codec)(errors="replace")
    for offset in range(start, len(view), CHUNK_BYTES):
        piece = bytes(view[offset : offset + CHUNK_BYTES])
        text = decoder.decode(piece, final=offset + CHUNK_BYTES >= len(view))
        if text:
            yield text.encode("utf-8", "replace")


def repaired(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Escape each ampersand that begins no reference XML knows; HTML's named characters become characters.

    Comments and CDATA sections pass as they are. Linear in the length, and holds no more than a chunk.
    """
    closing = b""  # what ends the region we are in; empty outside of one
    rest = b""
    for chunk in chunks:
        rest = rest + chunk
        place = 0
        while True:
            if closing:
                end = rest.find(closing, place)
                if end < 0:  # the terminator may be cut in two
                    cut = max(place, len(rest) - len(closing) + 1)
                    yield rest[place:cut]
                    break
                yield rest[place : end + len(closing)]
                place = end + len(closing)
                closing = b""
            opening = _REGION.search(rest, place)
            if opening is None:
                cut = max(place, _whole_until(rest))
                yield _REFERENCE.sub(_mend, rest[place:cut])
                break
            yield _REFERENCE.sub(_mend, rest[place : opening.start()])
            yield opening.group()
            place = opening.end()
            closing = b"-->" if opening.group() == b"<!--" else b"]]>"
        rest = rest[cut:]
    yield rest if closing else _REFERENCE.sub(_mend, rest)


def _whole_until(rest: bytes) -> int:
    """Up to where `rest` certainly splits neither a reference nor the opening of a region."""
    cut = len(rest) - _TAIL_BYTES
    if cut <= 0:
        return 0
    window = max(0, cut - _TAIL_BYTES)
    begun = max(rest.rfind(b"&", window, cut), rest.rfind(b"<", window, cut))
    return begun if begun >= 0 else cut


def _mend(match: re.Match[bytes]) -> bytes:
    whole = match.group()
    name = match.group(1)
    if name is None:
        return b"&amp;" if whole == b"&" else whole
    if name in _XML_NAMES:
        return whole
    character = html5.get(name.decode("ascii") + ";")
    return b"&amp;" + whole[1:] if character is None else character.encode()


def _codec(label: str) -> str | None:
    """Python's codec for a charset label; `None` when the web has no such encoding."""
    try:
        name = codecs.lookup(label.strip()).name
    except (LookupError, ValueError):
        return None
    name = _WIDER.get(name, name)
    return name if name in _CODECS else None


def _shape(data: bytes | bytearray) -> str | None:
    """UTF-16 without a mark shows by where the zero bytes of its first character stand (XML 1.0 appendix F)."""
    head = bytes(data[:4])
    if len(head) < 4 or head.count(0) != 2:
        return None
    if head[1] == 0 and head[3] == 0:
        return "utf-16-le"
    return "utf-16-be" if head[0] == 0 and head[2] == 0 else None


def _gunzip(data: bytes | bytearray, bytes_max: int) -> tuple[bytearray, list[str]]:
    """The members of a gzip stream, joined; at most one byte more than `bytes_max`, which says that there was more."""
    out = bytearray()
    rest: bytes | bytearray | memoryview = data
    while True:
        stream = zlib.decompressobj(wbits=31)
        try:
            for offset in range(0, len(rest), CHUNK_BYTES):
                pending = bytes(rest[offset : offset + CHUNK_BYTES])
                more = True
                while more:
                    piece = stream.decompress(pending, CHUNK_BYTES)
                    out += piece
                    if len(out) > bytes_max:
                        return out, []
                    pending = stream.unconsumed_tail
                    more = not stream.eof and (bool(pending) or len(piece) == CHUNK_BYTES)
                if stream.eof:
                    break
            else:
                return out, ["truncated"]
        except zlib.error:
            return out, ["corrupt_gzip" if rest is data else "trailing_data"]
        consumed = min(len(rest), offset + CHUNK_BYTES) - len(stream.unused_data)
        rest = memoryview(rest)[consumed:]
        if not rest:
            return out, []
        if bytes(rest[:2]) != _GZIP_MAGIC:
            return out, ["trailing_data"]
