"""WARC records as warcio, the reader of other people, understands them."""

from __future__ import annotations

import gzip

import msgspec
import pytest

from schemas.records import Kind, Link, ParsedPage, SitemapEntry
from streams.core import store
from streams.core.facts import PageFacts, facts_blocks
from tests.support.warc_samples import FETCHED_MS, digest, parsed, read_all

URL = "http://www.example.org/a?b=c"


def header(headers: tuple[tuple[bytes, bytes], ...], body: bytes, codings: str = "", reason: str = "OK") -> bytes:
    return store.http_header_block(200, reason, "1.1", headers, body_bytes=len(body), content_codings=codings)


def stored(headers: tuple[tuple[bytes, bytes], ...], body: bytes, codings: str = "", truncated: bool = False) -> bytes:
    return store.response_record(
        URL,
        address="192.0.2.1",
        http_header=header(headers, body, codings),
        body=body,
        content_hash=digest(body),
        fetched_ms=FETCHED_MS,
        truncated=truncated,
    )


def test_response_says_whence_when_and_what() -> None:
    """A response names URL, address, instant and digest, and warcio finds the digest true."""
    (seen,) = read_all(stored(((b"Content-Type", b"text/html"),), b"<p>hello"))
    assert seen.type == "response"
    assert seen.payload == b"<p>hello"
    assert seen.digest_ok is True
    assert seen.headers["warc-target-uri"] == URL
    assert seen.headers["warc-ip-address"] == "192.0.2.1"
    assert seen.headers["warc-date"] == "2025-11-30T10:53:20.123Z"
    assert seen.headers["warc-record-id"] == store.visit_record_id(URL, FETCHED_MS)
    assert "warc-truncated" not in seen.headers
    assert seen.http == [("Content-Type", "text/html"), ("Content-Length", "8")]


def test_truncated_response_says_so() -> None:
    """A body that was cut at the limit is marked, so that nobody takes it for whole."""
    (seen,) = read_all(stored((), b"x", truncated=True))
    assert seen.headers["warc-truncated"] == "length"


def test_coding_headers_step_aside() -> None:
    """What no longer fits the decoded body is renamed; a reader that would unpack or de-chunk again gets the body."""
    headers = ((b"content-encoding", b"gzip"), (b"Transfer-Encoding", b"chunked"), (b"Content-Length", b"99"))
    (seen,) = read_all(stored(headers, b"plain", "gzip"))
    assert seen.payload == b"plain"
    assert seen.http == [
        ("X-Crawler-Content-Encoding", "gzip"),
        ("X-Crawler-Transfer-Encoding", "chunked"),
        ("X-Crawler-Content-Length", "99"),
        ("Content-Length", "5"),
    ]


def test_true_length_and_kept_coding_stay() -> None:
    """A Content-Length that fits stands once, and a coding that was not undone stands."""
    headers = ((b"Content-Length", b"5"), (b"Content-Encoding", b"x-own"), (b"Content-Length", b"5"))
    block = header(headers, b"plain")
    assert block == (
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Encoding: x-own\r\nX-Crawler-Content-Length: 5\r\n\r\n"
    )


def test_no_value_makes_a_header_of_its_own() -> None:
    """Line breaks and NULs in names, values or the reason become harmless: the header block ends where we end it."""
    headers = ((b"X-A", b"1\r\n\r\n<body>"), (b"Bad\r\nName: x", b"2"), (b"\r\n", b"3"))
    block = header(headers, b"", reason="OK\r\nX-B: 4")
    assert block.count(b"\r\n\r\n") == 1
    assert block.count(b"\r\n") == 5
    assert b"X-A: 1    <body>\r\nBadNamex: 2\r\n" in block


def test_revisit_refers_to_the_first_copy() -> None:
    """A revisit carries headers and digest but no body, and names the record, URL and date that hold the bytes."""
    record = store.revisit_record(
        URL,
        address="",
        http_header=header(((b"Server", b"s"),), b"12345"),
        content_hash=digest(b"12345"),
        fetched_ms=FETCHED_MS,
        refers_to_url="http://www.example.org/first",
        refers_to_ms=FETCHED_MS - 1_000,
    )
    (seen,) = read_all(record)
    assert (seen.type, seen.payload) == ("revisit", b"")
    assert seen.headers["warc-profile"] == store.REVISIT_PROFILE
    assert seen.headers["warc-payload-digest"] == "sha256:" + digest(b"12345").hex()
    assert seen.headers["warc-refers-to"] == store.visit_record_id("http://www.example.org/first", FETCHED_MS - 1_000)
    assert seen.headers["warc-refers-to-target-uri"] == "http://www.example.org/first"
    assert seen.headers["warc-refers-to-date"] == "2025-11-30T10:53:19.123Z"
    assert "warc-ip-address" not in seen.headers
    assert ("Content-Length", "5") in seen.http


def test_parsed_records_are_text_and_facts() -> None:
    """Text and facts refer to the visit's record, and the links come back as they were."""
    output = parsed(URL, "Grüße".encode())
    made = store.parsed_records(output.page, output.text)
    text, facts = read_all(made.data)
    assert (text.type, text.payload.decode()) == ("conversion", "Grüße")
    assert facts.offset == made.text_record_bytes
    assert facts.type == "metadata"
    visit = store.visit_record_id(URL, FETCHED_MS)
    assert text.headers["warc-refers-to"] == visit
    assert facts.headers["warc-refers-to"] == visit
    back = msgspec.json.decode(facts.payload, type=PageFacts)
    assert back.links == output.page.links
    assert (back.title, back.simhash, back.kind) == ("A page", "fedcba9876543210", Kind.PAGE)


def test_page_without_text_has_facts_alone() -> None:
    """A sitemap or a failed parse leaves no empty text behind."""
    made = store.parsed_records(parsed(URL, b"").page, b"")
    assert made.text_record_bytes == 0
    assert [x.type for x in read_all(made.data)] == ["metadata"]


def test_lone_surrogates_cost_nothing_but_themselves() -> None:
    """A title or rel that no UTF-8 can hold becomes question marks; the record and its links stand."""
    page = ParsedPage(
        b"i" * 16, "http://h", URL, 1, Kind.PAGE, 0, 5, 1, title="a\ud800", links=(Link(URL, "a", ("\udfff",)),)
    )
    (seen,) = read_all(store.metadata_records(page)[0])
    back = msgspec.json.decode(seen.payload, type=PageFacts)
    assert (back.title, back.links[0].rel) == ("a?", ("?",))


def test_very_many_links_are_spread_over_records() -> None:
    """A page with more links than a reader takes at once has several records: none is lost, each is bounded."""
    page = parsed(URL, b"", links=100).page
    long_rel = Link(URL, "a", ("x" * 5_000,))
    entries = tuple(SitemapEntry(f"{URL}&{n}", n) for n in range(50))
    page = msgspec.structs.replace(page, links=(*page.links[:50], long_rel, *page.links[50:]), entries=entries)
    blocks = facts_blocks(page, block_bytes_max=2_000)
    assert all(len(block) <= 2_000 for block in blocks)
    parts = [msgspec.json.decode(block, type=PageFacts) for block in blocks]
    assert [(x.part, x.parts, x.title) for x in parts] == [(n, len(blocks), "A page") for n in range(len(blocks))]
    links = [link for x in parts for link in x.links]
    assert links == [*page.links[:50], Link(URL, "a"), *page.links[51:]]
    assert tuple(entry for x in parts for entry in x.entries) == entries


def test_records_of_a_hostile_page_can_be_read_back() -> None:
    """The longest list of the longest links makes records that stay below what a reader takes."""
    link = Link("http://www.example.org/" + "a" * 2_000, "a")
    page = msgspec.structs.replace(parsed(URL, b"").page, links=(link,) * 20_000)
    records = [store.read_record(member) for member in store.metadata_records(page)]
    assert [x.type for x in records if isinstance(x, store.Record)] == ["metadata"] * 3
    ids = {x.headers["warc-record-id"] for x in records if isinstance(x, store.Record)}
    assert len(ids) == 3


def test_warcinfo_has_its_lines() -> None:
    """The first record of a segment says what made it."""
    (seen,) = read_all(store.warcinfo_record("n.warc.gz", FETCHED_MS, (("software", "headrace"), ("a b", "c\r\nd"))))
    assert (seen.type, seen.headers["warc-filename"]) == ("warcinfo", "n.warc.gz")
    assert seen.payload == b"software: headrace\r\nab: c  d\r\nformat: WARC File Format 1.1\r\n"


def test_equal_inputs_make_equal_bytes() -> None:
    """No clock and no dice: a repeated group writes the very same record, and each thing has an id of its own."""
    assert stored((), b"x") == stored((), b"x")
    ids = {store.visit_record_id(URL, FETCHED_MS), store.visit_record_id(URL, FETCHED_MS + 1)}
    ids |= {x.headers["warc-record-id"] for x in read_all(store.parsed_records(parsed(URL, b"t").page, b"t").data)}
    assert len(ids) == 4
    assert all(x[23] == "8" and x[28] in "89ab" for x in (y.removeprefix("<") for y in ids))


def test_record_reads_back() -> None:
    """Our own reader gives the payload without the HTTP header, also when the body looks like one."""
    record = store.read_record(stored((), b"a\r\n\r\nb"))
    assert isinstance(record, store.Record)
    assert (record.type, record.payload) == ("response", b"a\r\n\r\nb")
    assert record.http_header.endswith(b"Content-Length: 6\r\n\r\n")


def damaged() -> dict[str, bytes]:
    whole = stored((), b"x" * 100)
    bad_crc = bytearray(whole)
    bad_crc[-8] ^= 1
    http_less = (
        b"WARC/1.1\r\nWARC-Type: response\r\nContent-Type: application/http\r\nContent-Length: 1\r\n\r\nx\r\n\r\n"
    )
    return {
        "empty": b"",
        "cut": whole[:-1],
        "checksum": bytes(bad_crc),
        "followed": whole + whole,
        "plain": b"no gzip at all",
        "other": gzip.compress(b"hello\r\n\r\n"),
        "no end of header": gzip.compress(b"WARC/1.1\r\n" + b"a: b\r\n" * 10_000 + b"\r\n"),
        "length": gzip.compress(b"WARC/1.1\r\nContent-Length: 7\r\n\r\n123456\r\n\r\n"),
        "no length": gzip.compress(b"WARC/1.1\r\nA: 7\r\n\r\n123456\r\n\r\n"),
        "no http": gzip.compress(http_less),
    }


@pytest.mark.parametrize("kind", damaged())
def test_damage_is_a_value(kind: str) -> None:
    """Bytes that are no whole record of ours are told apart with a reason, never half read."""
    assert isinstance(store.read_record(damaged()[kind]), store.BadRecord)


def test_unpacking_is_bounded() -> None:
    """A record that would unpack beyond the bound is refused before it is unpacked whole."""
    big = store.conversion_record(URL, 5, 1, bytes(1_000_000))
    assert isinstance(store.read_record(big, bytes_max=999_999), store.BadRecord)
    assert isinstance(store.read_record(big, bytes_max=1_001_000), store.Record)
