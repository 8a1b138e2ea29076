"""The query of a link in the encoding of its page (WHATWG URL 1.3, "percent-encode after encoding"; Encoding standard).

Only links of pages in a legacy encoding come here, and of those only the ones whose query is not ASCII. Python's
codecs agree with the standard on most characters; the differences that pages meet are made good here.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from streams.core.rules.encodings import encoding_of_label

# Encoding standard 4.3, "get an output encoding": UTF-16 and replacement write UTF-8, as do all not named here.
_CODECS = {
    "ibm866": "cp866",
    **{f"iso-8859-{part}": f"iso8859_{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
    "iso-8859-8-i": "iso8859_8",
    "koi8-r": "koi8_r",
    "koi8-u": "koi8_u",
    "macintosh": "mac_roman",
    "x-mac-cyrillic": "mac_cyrillic",
    "windows-874": "cp874",
    **{f"windows-{page}": f"cp{page}" for page in range(1250, 1259)},
    "gbk": "gbk",
    "gb18030": "gb18030",
    "big5": "cp950",
    "euc-jp": "euc_jp",
    "iso-2022-jp": "iso2022_jp",
    "shift_jis": "cp932",
    "euc-kr": "cp949",
}

# WHATWG URL 1.3, special-query percent-encode set: C0 controls, above 0x7E, space, ", #, <, > and '.
_QUERY_BYTES = tuple(
    f"%{byte:02X}" if byte <= 0x20 or byte > 0x7E or byte in b"\"#<>'" else chr(byte) for byte in range(256)
)


def query_codec(document_encoding: str) -> str | None:
    """What `encode_query` takes for documents of this encoding, named by any of its labels; None when it is UTF-8."""
    name = encoding_of_label(document_encoding)
    return None if name is None else _CODECS.get(name)


def encode_query(query: str, codec: str) -> str:
    """`query` (without its `?`) percent-encoded after encoding; what the encoding lacks becomes `%26%23N%3B`.

    `codec` is one of `query_codec`. Escapes that `query` has already stay as they are.
    """
    if codec == "iso2022_jp":
        output = _iso_2022_jp(query)
    else:
        output = b"".join([_encoded(c, codec) or _reference(c) for c in query])
    return "".join([_QUERY_BYTES[byte] for byte in output])


def _reference(character: str) -> bytes:
    """The escaped `&#N;` that stands for a character which the encoding lacks."""
    return b"%%26%%23%d%%3B" % ord(character)


@lru_cache(maxsize=4_096)
def _encoded(character: str, codec: str) -> bytes | None:
    """One character's bytes by the Encoding standard; None when it has none."""
    code = ord(character)
    if code < 0x80:
        return bytes([code])
    if codec == "cp932":
        return _shift_jis(character)
    if codec == "euc_jp":
        return _euc_jp(character)
    try:
        return character.encode(codec)
    except UnicodeEncodeError:
        pass
    if codec.startswith(("cp125", "cp874")) and 0x80 <= code <= 0x9F:
        # The standard gives the unassigned bytes of the Windows code pages to the C1 controls.
        return bytes([code]) if not bytes([code]).decode(codec, "ignore") else None
    if codec == "gbk":  # 10.2.2 with the GBK flag: two bytes of gb18030 or none; the euro is 0x80
        wide = b"\x80" if code == 0x20AC else character.encode("gb18030", "ignore")
        return wide if 1 <= len(wide) <= 2 else None
    return None


# --- Japanese -----------------------------------------------------------------------------------------------------
# The standard's index jis0208 is that of Windows: Python's cp932 has it, its euc_jp and iso2022_jp have an older one.

_ALIASES = {"\u2212": "\uff0d"}  # 12.1.2, 12.2.2, 12.3.2: the minus sign is taken for the full-width hyphen-minus
_YEN_AND_OVERLINE = {"\xa5": b"\x5c", "\u203e": b"\x7e"}
_STATE_SWITCHES = "\x0e\x0f\x1b"  # 12.2.2: ISO-2022-JP takes these for U+FFFD
_EUC_POINTERS = 94 * 94
_NEC_SELECTED = range(8272, 8836)  # the index has the IBM extensions twice; these come first


def _shift_jis(character: str) -> bytes | None:
    """Encoding standard 12.3.2."""
    if character == "\x80":
        return b"\x80"
    if character in _YEN_AND_OVERLINE:
        return _YEN_AND_OVERLINE[character]
    character = _ALIASES.get(character, character)
    try:
        encoded = character.encode("cp932")
    except UnicodeEncodeError:
        return None
    # cp932 also takes characters that only look like those of the index.
    return encoded if encoded.decode("cp932") == character else None


def _euc_jp(character: str) -> bytes | None:
    """Encoding standard 12.1.2."""
    if character in _YEN_AND_OVERLINE:
        return _YEN_AND_OVERLINE[character]
    if "\uff61" <= character <= "\uff9f":
        return bytes([0x8E, ord(character) - 0xFF61 + 0xA1])
    pointer = _jis_pointer(character)
    return None if pointer is None else bytes([pointer // 94 + 0xA1, pointer % 94 + 0xA1])


def _iso_2022_jp(query: str) -> bytes:
    """Encoding standard 12.2.2, the whole query at once: the encoder has a state."""
    output = bytearray()
    state = b"\x1b(B"
    for character in query:
        encoded, wanted = _iso_2022_jp_character(character, state)
        if wanted != state:
            output += wanted
            state = wanted
        output += encoded
    return bytes(output) if state == b"\x1b(B" else bytes(output + b"\x1b(B")


def _iso_2022_jp_character(character: str, state: bytes) -> tuple[bytes, bytes]:
    """The bytes of one character, and the escape sequence of the state that they need."""
    if character in _STATE_SWITCHES:
        return _reference("\ufffd"), b"\x1b(B" if state == b"\x1b$B" else state
    if character < "\x80":
        roman = state == b"\x1b(J" and character not in "\\~"
        return character.encode(), state if roman else b"\x1b(B"
    if character in _YEN_AND_OVERLINE:
        return _YEN_AND_OVERLINE[character], b"\x1b(J"
    if "\uff61" <= character <= "\uff9f":  # half-width katakana have no place here, their full-width twins have
        character = _FULL_WIDTH_MARKS.get(character) or unicodedata.normalize("NFKC", character)
    pointer = _jis_pointer(character)
    if pointer is None:
        return _reference(character), b"\x1b(B" if state == b"\x1b$B" else state
    return bytes([pointer // 94 + 0x21, pointer % 94 + 0x21]), b"\x1b$B"


# Index ISO-2022-JP katakana has the spacing voice marks, where NFKC has the combining ones.
_FULL_WIDTH_MARKS = {"\uff9e": "\u309b", "\uff9f": "\u309c"}


def _jis_pointer(character: str) -> int | None:
    """Place in the index jis0208 within its 94 rows, row * 94 + cell, counted from 0."""
    encoded = _shift_jis(character)
    if encoded is None or len(encoded) != 2:
        return None
    lead, trail = encoded
    pointer = (lead - (0x81 if lead < 0xA0 else 0xC1)) * 188 + trail - (0x40 if trail < 0x7F else 0x41)
    return pointer if pointer < _EUC_POINTERS else _nec_selected().get(character)


@lru_cache(maxsize=1)
def _nec_selected() -> dict[str, int]:
    found = {}
    for pointer in _NEC_SELECTED:
        lead, trail = pointer // 188, pointer % 188
        encoded = bytes([lead + (0x81 if lead < 0x1F else 0xC1), trail + (0x40 if trail < 0x3F else 0x41)])
        if character := encoded.decode("cp932", "ignore"):
            found[character] = pointer
    return found
