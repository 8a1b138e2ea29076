"""The query of a link in the encoding of its page (WHATWG URL, "percent-encode after encoding"; Encoding standard).

Only links of pages in a legacy encoding come here, and of those only the ones whose query is not ASCII.
"""

from __future__ import annotations

from functools import lru_cache

# Encoding standard 4.2: encodings other than UTF-8, by name and by the labels that pages use most -> Python codec.
_CODECS = {
    "ibm866": "cp866",
    **{f"iso-8859-{part}": f"iso8859_{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
    "iso-8859-8-i": "iso8859_8",
    "iso-8859-8-e": "iso8859_8",
    "latin2": "iso8859_2",
    "latin-9": "iso8859_15",
    "koi8-r": "koi8_r",
    "koi8-u": "koi8_u",
    "koi8-ru": "koi8_u",
    "macintosh": "mac_roman",
    "mac": "mac_roman",
    "x-mac-roman": "mac_roman",
    "x-mac-cyrillic": "mac_cyrillic",
    "windows-874": "cp874",
    "tis-620": "cp874",
    "iso-8859-11": "cp874",
    **{f"windows-{page}": f"cp{page}" for page in range(1250, 1259)},
    **{f"cp{page}": f"cp{page}" for page in range(1250, 1259)},
    "iso-8859-1": "cp1252",
    "latin1": "cp1252",
    "ascii": "cp1252",
    "us-ascii": "cp1252",
    "iso-8859-9": "cp1254",
    "latin5": "cp1254",
    "gbk": "gbk",
    "gb2312": "gbk",
    "x-gbk": "gbk",
    "gb18030": "gb18030",
    "big5": "cp950",
    "big5-hkscs": "cp950",
    "x-x-big5": "cp950",
    "euc-jp": "euc_jp",
    "x-euc-jp": "euc_jp",
    "iso-2022-jp": "iso2022_jp",
    "shift_jis": "cp932",
    "shift-jis": "cp932",
    "sjis": "cp932",
    "x-sjis": "cp932",
    "windows-31j": "cp932",
    "euc-kr": "cp949",
    "ks_c_5601-1987": "cp949",
    "ksc5601": "cp949",
    "windows-949": "cp949",
}
_JAPANESE = frozenset({"cp932", "euc_jp", "iso2022_jp"})
# Encoding standard 12.1.2, 12.2.2, 12.3.2: Japanese encoders take U+2212 for U+FF0D, yen sign and overline for ASCII.
_MINUS = {0x2212: 0xFF0D}
_STATE_SWITCHES = "\x0e\x0f\x1b"  # 12.2.2: ISO-2022-JP takes these for U+FFFD
_YEN_AND_OVERLINE = {0xA5: 0x5C, 0x203E: 0x7E}

# WHATWG URL 1.3, special-query percent-encode set: C0 controls, above 0x7E, space, ", #, <, > and '.
_QUERY_BYTES = tuple(
    f"%{byte:02X}" if byte <= 0x20 or byte > 0x7E or byte in b"\"#<>'" else chr(byte) for byte in range(256)
)


def query_codec(document_encoding: str) -> str | None:
    """The Python codec for queries in documents of this encoding; None for UTF-8 (and UTF-16, and what is unknown)."""
    return _CODECS.get(document_encoding.strip().lower())


def encode_query(query: str, codec: str) -> str:
    """`query` (without its `?`) percent-encoded after encoding; what the encoding lacks becomes `%26%23N%3B`.

    `codec` is one of `query_codec`. Escapes that `query` has already stay as they are.
    """
    if codec in _JAPANESE:
        query = query.translate(_MINUS)
    if codec in {"cp932", "euc_jp"}:
        query = query.translate(_YEN_AND_OVERLINE)
    encoded = [_encoded(character, codec) for character in query]
    if codec == "iso2022_jp":  # has a state: the standard escapes to ASCII and back, so the whole is encoded at once
        known = [
            _reference("\ufffd" if c in _STATE_SWITCHES else c) if e is None else c
            for c, e in zip(query, encoded, strict=True)
        ]
        output = "".join(known).encode(codec)
    else:
        output = b"".join([_reference(c).encode() if e is None else e for c, e in zip(query, encoded, strict=True)])
    return "".join([_QUERY_BYTES[byte] for byte in output])


def _reference(character: str) -> str:
    """The escaped `&#N;` that stands for a character which the encoding lacks."""
    return f"%26%23{ord(character)}%3B"


@lru_cache(maxsize=4_096)
def _encoded(character: str, codec: str) -> bytes | None:
    """One character's bytes by the Encoding standard, also where Python's codec differs; None when it has none."""
    if codec == "iso2022_jp" and character in _STATE_SWITCHES:
        return None
    try:
        return character.encode(codec)
    except UnicodeEncodeError:
        pass
    code = ord(character)
    if codec.startswith(("cp125", "cp874")) and 0x80 <= code <= 0x9F:
        # The standard gives the unassigned bytes of the Windows code pages to the C1 controls.
        return bytes([code]) if not bytes([code]).decode(codec, "ignore") else None
    if codec == "gbk":  # 10.2.2 with the GBK flag: two bytes of gb18030 or none; the euro is 0x80
        wide = b"\x80" if code == 0x20AC else character.encode("gb18030", "ignore")
        return wide if 1 <= len(wide) <= 2 else None
    return None
