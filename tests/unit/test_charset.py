"""The encoding of a page: HTML standard 13.2.3, Encoding standard 4.2."""

from __future__ import annotations

import pytest

from streams.core.rules.charset import detect, encoding_of_content_type, prescan, sniff, xml_encoding
from streams.core.rules.encodings import _LABELS, decode, encoding_of_label

RUSSIAN = "Привет, это обычная страница о погоде и о природе."


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("latin1", "windows-1252"),
        (" US-ASCII\n", "windows-1252"),
        ("ISO-8859-1", "windows-1252"),
        ("gb2312", "gbk"),
        ("ks_c_5601-1987", "euc-kr"),
        ("Shift-JIS", "shift_jis"),
        ("utf-16", "utf-16le"),
        ("iso-8859-9", "windows-1254"),
        ("iso-8859-11", "windows-874"),
        ("hz-gb-2312", "replacement"),
        ("utf8", "utf-8"),
        ("none", None),
        ("", None),
        ("utf-7", None),
    ],
)
def test_a_label_names_what_the_standard_says(label: str, name: str | None) -> None:
    """Labels are no codec names: taking latin1 for ISO 8859-1 turns quotes and euros into controls."""
    assert encoding_of_label(label) == name


def test_every_encoding_can_be_decoded() -> None:
    """A name without a codec would raise on the first page that declares it."""
    for name in _LABELS:
        assert isinstance(decode(bytes(range(256)), name), str)


@pytest.mark.parametrize(
    ("encoding", "body", "text"),
    [
        ("windows-1252", b"\x80\x81\x93", "€\x81“"),
        ("gbk", b"\xe9F\x80", "镕\ufffd"),
        ("euc-kr", b"\xb0\xa1\x8c\x63", "가똠"),
        ("shift_jis", b"\x87\x40", "①"),
        ("x-user-defined", b"a\x80\xff", "a\uf780\uf7ff"),
        ("replacement", b"<a href=x>", "\ufffd"),
        ("replacement", b"", ""),
        ("utf-16le", b"\xff\xfea\x00\x00\xd8", "a\ufffd"),
    ],
)
def test_decoding_reads_the_supersets(encoding: str, body: bytes, text: str) -> None:
    """Pages use characters beyond the set that their label names; a strict codec loses them."""
    assert decode(body, encoding) == text


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("text/html; charset=windows-1251", "windows-1251"),
        ('text/html; Charset="koi8-r"', "koi8-r"),
        ("text/html;charset = 'utf-8' ; x=y", "utf-8"),
        ("text/html; charset=none", None),
        ('text/html; charset="koi8-r', None),
        ("text/html; charsetx; charset=koi8-u", "koi8-u"),
        ("text/html", None),
    ],
)
def test_the_header_is_read(value: str, name: str | None) -> None:
    """The charset parameter in all its spellings; what is unknown counts as missing."""
    assert encoding_of_content_type(value) == name


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"<meta charset=koi8-r>", "koi8-r"),
        (b"<META CHARSET='Koi8-R'>", "koi8-r"),
        (b'<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">', "windows-1251"),
        (b'<meta content="text/html; charset=windows-1251" http-equiv=content-type>', "windows-1251"),
        (b'<meta name=x content="text/html; charset=windows-1251">', None),
        (b"<!-- <meta charset=koi8-r> --><meta charset=windows-1251>", "windows-1251"),
        (b"<!--><meta charset=koi8-r>", "koi8-r"),
        (b"<p title='<meta charset=koi8-r>'><meta charset=windows-1251>", "windows-1251"),
        (b"<script>'<meta charset=koi8-r>'</SCRIPT><meta charset=windows-1251>", "windows-1251"),
        (b"<scripty><meta charset=koi8-r>", "koi8-r"),
        (b"</p x='><meta charset=koi8-r>'><meta charset=windows-1251>", "windows-1251"),
        (b"<!x <meta charset=koi8-r><meta charset=windows-1251>", "windows-1251"),
        (b"<metacharset=koi8-r>", None),
        (b"<meta charset=what><meta charset=koi8-r>", "koi8-r"),
        (b"<meta charset=utf-16le>", "utf-8"),
        (b"<meta charset=x-user-defined>", "windows-1252"),
        (b"<meta charset=a charset=koi8-r>", None),
        (b"<meta charset=koi8-r", None),
        (b"<?xml encoding='koi8-r'?><meta charset=windows-1251>", "windows-1251"),
        (b"<meta/charset=koi8-r/>", None),
        (b"<meta/charset=koi8-r />", "koi8-r"),
        (b"< meta charset=koi8-r>", None),
    ],
)
def test_the_prescan_reads_tags_not_words(head: bytes, name: str | None) -> None:
    """A declaration counts where a browser sees one: not in comments, attributes or scripts."""
    assert prescan(head) == name


def test_an_xml_declaration_counts_for_xhtml_first() -> None:
    """In XHTML the declaration is the word of the format; in HTML only when no meta says otherwise."""
    body = b"<?xml version='1.0' encoding='windows-1251'?><meta charset=koi8-r>"
    assert xml_encoding(body) == "windows-1251"
    assert sniff(body, None, xml=True)[0] == "windows-1251"
    assert sniff(body, None)[0] == "koi8-r"


def test_the_order_of_precedence() -> None:
    """Mark, then header, then meta, then bytes: each overrules the next."""
    meta = b"<meta charset=windows-1251>\xcf"
    assert sniff(b"\xef\xbb\xbf" + meta, "text/html; charset=koi8-r")[0] == "utf-8"
    assert sniff(b"\xfe\xff\x00a", "text/html; charset=koi8-r") == ("utf-16be", "a")
    assert sniff(meta, "text/html; charset=koi8-r")[0] == "koi8-r"
    assert sniff(meta, "text/html; charset=none")[0] == "windows-1251"
    assert sniff("<p>é".encode(), None) == ("utf-8", "<p>é".encode())


def test_a_utf_8_page_is_not_copied() -> None:
    """The usual page goes to the parser as it came: decoding and encoding it again would cost a pass each."""
    body = "<p>é".encode()
    assert sniff(body, "text/html; charset=utf-8")[1] is body


def test_a_late_meta_counts_when_the_page_is_not_utf_8() -> None:
    """A browser reads the page again when its tree meets a meta beyond the first 1024 bytes."""
    late = b"<!--" + b"x" * 2000 + b"--><meta charset=koi8-r>"
    assert sniff(late + RUSSIAN.encode("koi8-r"), None)[0] == "koi8-r"
    assert sniff(late + RUSSIAN.encode(), None)[0] == "utf-8"


@pytest.mark.parametrize(
    ("text", "codec", "name"),
    [
        (RUSSIAN * 20, "cp1251", "windows-1251"),
        ("这是一个中文网页，今天天气很好。 " * 2000, "gbk", "gb18030"),
        ("안녕하세요 오늘 날씨가 좋습니다. " * 20, "cp949", "euc-kr"),
        ("Le café est très bon à l’été. " * 20, "cp1252", "windows-1252"),
        ("Zażółć gęślą jaźń. ", "cp1250", "windows-1252"),
    ],
)
def test_a_guess_counts_only_between_scripts(text: str, codec: str, name: str) -> None:
    """A guess between Latin code pages is a coin's; one between scripts is not."""
    assert detect(b"<p>" + text.encode(codec)) == name


def test_a_character_cut_off_at_the_end_is_still_utf_8() -> None:
    """A body that a limit cut inside a character must not be read as windows-1252."""
    assert detect("<p>日本".encode()[:-1]) == "utf-8"
