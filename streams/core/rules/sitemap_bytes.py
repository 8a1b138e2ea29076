"""From the bytes of a sitemap to a stream of UTF-8: gzip undone within bounds, the character encoding settled.

Sources: RFC 1952 (gzip; a member may be followed by another), RFC 7303 section 3 (byte order mark, then charset
parameter, then the XML declaration), XML 1.0 section 2.8 (prolog) and appendix F.
"""

from __future__ import annotations

import codecs
import contextlib
import re
import zlib
from collections.abc import Iterator
from html.entities import html5
from typing import Any

import msgspec

from streams.core.rules.encodings import encoding_of_label
from streams.core.rules.query_encoding import query_codec

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
_REFERENCE = re.compile(rb"&(?:#[0-9]{1,7};|#[xX][0-9a-fA-F]{1,6};|([A-Za-z][A-Za-z0-9]{0,31});)?")
_XML_NAMES = frozenset((b"amp", b"lt", b"gt", b"quot", b"apos"))
_REGION = re.compile(rb"<!--|<!\[CDATA\[")
_TAIL_BYTES = 40  # longer than any reference that _REFERENCE takes and than any opening of a region


class Inflated(msgspec.Struct, frozen=True):
    """The content of a body. `errors`: trailing_data, truncated, corrupt_gzip, too_large."""

    data: bytes | bytearray
    errors: tuple[str, ...] = ()
    ratio: float = 1.0  # bytes of content for each byte that was used to make them


def inflate(body: bytes, *, bytes_max: int) -> Inflated:
    """Undo gzip where the magic number says so, whatever name and type say; hold at most `bytes_max` bytes.

    What follows the last member is ignored, what a broken member gave before the break is kept.
    """
    data: bytes | bytearray = body
    errors: list[str] = []
    ratio = 1.0
    for _ in range(GZIP_LAYERS_MAX):
        if data[:2] != _GZIP_MAGIC:
            break
        data, used_bytes, found = _gunzip(data, bytes_max)
        errors.extend(found)
        ratio *= len(data) / max(1, used_bytes)
    if len(data) > bytes_max:
        errors.append("too_large")
        if isinstance(data, bytearray):
            del data[bytes_max:]  # in place: a copy would double what a bomb costs
        else:
            data = data[:bytes_max]
    return Inflated(data, tuple(dict.fromkeys(errors)), ratio)


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
    return codec_name or "utf-8", 0


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
    """Python's codec for a charset label; `None` when the web has no such encoding.

    UTF-16 by name only counts as UTF-8: what is UTF-16 shows it, by its mark or its shape.
    """
    return None if encoding_of_label(label) is None else query_codec(label) or "utf-8"


def _shape(data: bytes | bytearray) -> str | None:
    """UTF-16 without a mark shows by where the zero bytes of its first character stand (XML 1.0 appendix F)."""
    head = bytes(data[:4])
    if len(head) < 4 or head.count(0) != 2:
        return None
    if head[1] == 0 and head[3] == 0:
        return "utf-16-le"
    return "utf-16-be" if head[0] == 0 and head[2] == 0 else None


def _gunzip(data: bytes | bytearray, bytes_max: int) -> tuple[bytearray, int, list[str]]:
    """(The members of a gzip stream, joined; how much input that took; errors).

    At most a chunk more than `bytes_max` comes out, which says that there was more.
    """
    out = bytearray()
    rest = memoryview(data)
    while True:
        stream = zlib.decompressobj(wbits=31)
        for offset in range(0, len(rest), CHUNK_BYTES):
            piece = bytes(rest[offset : offset + CHUNK_BYTES])
            before, length = stream.copy(), len(out)
            try:
                _pour(stream, piece, out, bytes_max)
            except zlib.error:
                del out[length:]
                _salvage(before, piece, out, bytes_max)
                return out, len(data), ["corrupt_gzip" if len(rest) == len(data) else "trailing_data"]
            if len(out) > bytes_max:
                return out, len(data) - len(rest) + offset + len(piece) - len(stream.unconsumed_tail), []
            if stream.eof:
                break
        else:
            return out, len(data), ["truncated"]
        rest = rest[offset + len(piece) - len(stream.unused_data) :]
        if not rest:
            return out, len(data), []
        if bytes(rest[:2]) != _GZIP_MAGIC:
            return out, len(data) - len(rest), ["trailing_data"]


def _pour(stream: Any, piece: bytes, out: bytearray, bytes_max: int) -> None:
    """Inflate one piece of input in bounded steps, until it is used up or `out` is over its bound."""
    more = True
    while more and len(out) <= bytes_max:
        made = stream.decompress(piece, CHUNK_BYTES)
        out += made
        piece = stream.unconsumed_tail
        more = not stream.eof and (bool(piece) or len(made) == CHUNK_BYTES)


def _salvage(stream: Any, piece: bytes, out: bytearray, bytes_max: int) -> None:
    """What a piece gives before the error in it: zlib throws away the output of the call that finds one."""
    with contextlib.suppress(zlib.error):
        for place in range(len(piece)):
            _pour(stream, piece[place : place + 1], out, bytes_max)
