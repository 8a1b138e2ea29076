"""The WHATWG Encoding standard's labels: what a page calls its encoding, and the Python codec that reads it.

A label is not a codec's name: `latin1` and `us-ascii` mean windows-1252, `gb2312` means GBK, `ks_c_5601-1987` means
windows-949. Names are the standard's, in lower case (Encoding standard, section 4.2).
"""

from __future__ import annotations

import codecs

UTF_8 = "utf-8"
WINDOWS_1252 = "windows-1252"
REPLACEMENT = "replacement"
USER_DEFINED = "x-user-defined"

_LABELS = {
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf8 x-unicode20utf8",
    "ibm866": "866 cp866 csibm866",
    "iso-8859-2": "csisolatin2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2",
    "iso-8859-3": "csisolatin3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3",
    "iso-8859-4": "csisolatin4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4",
    "iso-8859-5": "csisolatincyrillic cyrillic iso-ir-144 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988",
    "iso-8859-6": "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6-e iso-8859-6-i "
    "iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987",
    "iso-8859-7": "csisolatingreek ecma-118 elot_928 greek greek8 iso-ir-126 iso8859-7 iso88597 iso_8859-7 "
    "iso_8859-7:1987 sun_eu_greek",
    "iso-8859-8": "csiso88598e csisolatinhebrew hebrew iso-8859-8-e iso-ir-138 iso8859-8 iso88598 iso_8859-8 "
    "iso_8859-8:1988 visual",
    "iso-8859-8-i": "csiso88598i logical",
    "iso-8859-10": "csisolatin6 iso-ir-157 iso8859-10 iso885910 l6 latin6",
    "iso-8859-13": "iso8859-13 iso885913",
    "iso-8859-14": "iso8859-14 iso885914",
    "iso-8859-15": "csisolatin9 iso8859-15 iso885915 iso_8859-15 l9",
    "iso-8859-16": "",
    "koi8-r": "cskoi8r koi koi8 koi8_r",
    "koi8-u": "koi8-ru",
    "macintosh": "csmacintosh mac x-mac-roman",
    "windows-874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620",
    "windows-1250": "cp1250 x-cp1250",
    "windows-1251": "cp1251 x-cp1251",
    "windows-1252": "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591 "
    "iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii x-cp1252",
    "windows-1253": "cp1253 x-cp1253",
    "windows-1254": "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 "
    "latin5 x-cp1254",
    "windows-1255": "cp1255 x-cp1255",
    "windows-1256": "cp1256 x-cp1256",
    "windows-1257": "cp1257 x-cp1257",
    "windows-1258": "cp1258 x-cp1258",
    "x-mac-cyrillic": "x-mac-ukrainian",
    "gbk": "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 iso-ir-58 x-gbk",
    "gb18030": "",
    "big5": "big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc-jp": "cseucpkdfmtjapanese x-euc-jp",
    "iso-2022-jp": "csiso2022jp",
    "shift_jis": "csshiftjis ms932 ms_kanji shift-jis sjis windows-31j x-sjis",
    "euc-kr": "cseuckr csksc56011987 iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 windows-949",
    "replacement": "csiso2022kr hz-gb-2312 iso-2022-cn iso-2022-cn-ext iso-2022-kr",
    "utf-16be": "unicodefffe",
    "utf-16le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16",
    "x-user-defined": "",
}
_BY_LABEL = {label: name for name, labels in _LABELS.items() for label in (name, *labels.split())}

# The codec that reads at least what the standard's decoder reads. Where Python's codec of the same name is stricter
# (gbk, euc_kr, shift_jis, big5), its superset stands here.
_CODECS = {
    "gbk": "gb18030",
    "euc-kr": "cp949",
    "shift_jis": "cp932",
    "big5": "big5hkscs",
    "iso-8859-8-i": "iso8859-8",
    "iso-2022-jp": "iso2022_jp",
    "macintosh": "mac_roman",
    "x-mac-cyrillic": "mac_cyrillic",
    "ibm866": "cp866",
    "windows-874": "cp874",
}
# Bytes that Python's windows code pages leave undefined are C1 controls in the standard's tables.
_WINDOWS_1252_HOLES = {0x81, 0x8D, 0x8F, 0x90, 0x9D}
_WINDOWS_1252_TABLE = "".join(
    chr(byte) if byte in _WINDOWS_1252_HOLES else bytes([byte]).decode("cp1252") for byte in range(256)
)
_USER_DEFINED_TABLE = "".join(chr(byte if byte < 0x80 else 0xF780 + byte - 0x80) for byte in range(256))

_NAMES_BY_CODEC = {
    "ascii": UTF_8,
    "utf_8": UTF_8,
    "cp949": "euc-kr",
    "euc_kr": "euc-kr",
    "johab": "euc-kr",
    "cp932": "shift_jis",
    "shift_jis": "shift_jis",
    "big5": "big5",
    "big5hkscs": "big5",
    "cp950": "big5",
    "gb2312": "gbk",
    "gbk": "gbk",
    "gb18030": "gb18030",
    "euc_jp": "euc-jp",
    "koi8_r": "koi8-r",
    "koi8_u": "koi8-u",
    "latin_1": WINDOWS_1252,
    "cp866": "ibm866",
    "mac_cyrillic": "x-mac-cyrillic",
    "utf_16_be": "utf-16be",
    "utf_16_le": "utf-16le",
    **{f"cp125{digit}": f"windows-125{digit}" for digit in range(9)},
    **{f"iso8859_{part}": f"iso-8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
    "iso8859_9": "windows-1254",
}


def encoding_of_label(label: str) -> str | None:
    """The encoding that a label names ("get an encoding", Encoding standard 4.2); None for an unknown label."""
    return _BY_LABEL.get(label.strip("\t\n\f\r ").lower())


def encoding_of_codec(codec: str) -> str | None:
    """The standard's name for a Python codec that a detector found; None when no browser would read it."""
    return _NAMES_BY_CODEC.get(codec)


def decode(body: bytes, encoding: str) -> str:
    """The text of `body`, errors as U+FFFD. `encoding` is a name of the standard; a byte-order mark is dropped.

    The replacement encoding (labels of stateful encodings that hide markup) gives one U+FFFD for any input, as the
    standard says.
    """
    if encoding == WINDOWS_1252:
        return codecs.charmap_decode(body, "replace", _WINDOWS_1252_TABLE)[0]
    if encoding == USER_DEFINED:
        return codecs.charmap_decode(body, "replace", _USER_DEFINED_TABLE)[0]
    if encoding == REPLACEMENT:
        return "\ufffd" if body else ""
    text = body.decode(_CODECS.get(encoding, encoding), "replace")
    return text[1:] if text.startswith("\ufeff") else text
