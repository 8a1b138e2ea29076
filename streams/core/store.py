"""WARC/1.1 records as bytes, each one a gzip member of its own, and the way back from a record to its payload.

Theory of operation: a visit makes one record, a `response` with the body or, when the same bytes lie stored already, a
`revisit` that refers to them. What parsing gave makes two more in a segment of their own: a `conversion` (the text) and
a `metadata` record (links and facts as JSON), which both refer to the visit's record. Record ids are functions of what
the record is about, so the one who parses knows the visit's id without asking, and a repeat makes equal bytes.

Sources: ISO 28500:2017 (WARC 1.1); IIPC's revisit profile `identical-payload-digest`; RFC 9562 section 5.8 (UUIDv8);
RFC 1952 (a gzip file is a series of members). Digests are `sha256:` and hex: warcio reads hex, and base32 with padding.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import msgspec
from isal import isal_zlib

from schemas.records import ParsedPage
from streams.core.facts import facts_blocks
from streams.core.policy import RECORD_BYTES_MAX, RECORD_HEADER_BYTES_MAX

REVISIT_PROFILE = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
GZIP_LEVEL = (
    1  # decision 0035: isal-1 makes 500 MB/s; isal-3 4 % smaller for 1.6 times the CPU, zlib-6 12 % for 7 times
)
_GZIP_WBITS = 31  # a gzip frame, window of 32 KiB

_LINE_BREAKERS = bytes.maketrans(b"\r\n\x00", b"   ")  # would end a header line early
_NOT_IN_NAMES = bytes(b for b in range(256) if b <= 32 or b >= 127 or b == ord(":"))  # RFC 9110 section 5.6.2, in short
_IsalError: type[Exception] = isal_zlib.IsalError  # type: ignore[assignment]  # its stub calls the class an instance


class ParsedRecords(msgspec.Struct, frozen=True):
    """Ready gzip members: first the text's `conversion` (without text none, and 0 bytes), then the `metadata`."""

    data: bytes
    text_record_bytes: int


class Record(msgspec.Struct, frozen=True):
    """One record read back: header names in lower case, `payload` without the HTTP header of responses and revisits."""

    type: str
    headers: dict[str, str]
    http_header: bytes
    payload: bytes


class BadRecord(msgspec.Struct, frozen=True):
    """The bytes are no whole record of ours; `reason` says why."""

    reason: str


def visit_record_id(url: str, fetched_ms: int) -> str:
    """The id of a visit's response or revisit: one lease a URL is in flight, so the instant tells visits apart."""
    return _record_id("visit", url, fetched_ms)


def response_record(
    url: str,
    *,
    address: str,
    http_header: bytes,
    body: bytes,
    content_hash: bytes,
    fetched_ms: int,
    truncated: bool = False,
) -> bytes:
    """The answer with its decoded body; `http_header` is `http_header_block`'s, `content_hash` the body's SHA-256."""
    head = _head(
        "response",
        visit_record_id(url, fetched_ms),
        fetched_ms,
        len(http_header) + len(body),
        "application/http; msgtype=response",
        ("WARC-Target-URI", url),
        ("WARC-IP-Address", address),
        ("WARC-Payload-Digest", payload_digest(content_hash)),
        ("WARC-Truncated", "length" if truncated else ""),
    )
    return gzip_member(head + http_header, body, b"\r\n\r\n")


def revisit_record(
    url: str,
    *,
    address: str,
    http_header: bytes,
    content_hash: bytes,
    fetched_ms: int,
    refers_to_url: str,
    refers_to_ms: int,
) -> bytes:
    """The answer without its body: the bytes lie in the record of `refers_to_url` as fetched at `refers_to_ms`."""
    head = _head(
        "revisit",
        visit_record_id(url, fetched_ms),
        fetched_ms,
        len(http_header),
        "application/http; msgtype=response",
        ("WARC-Target-URI", url),
        ("WARC-IP-Address", address),
        ("WARC-Payload-Digest", payload_digest(content_hash)),
        ("WARC-Profile", REVISIT_PROFILE),
        ("WARC-Refers-To", visit_record_id(refers_to_url, refers_to_ms)),
        ("WARC-Refers-To-Target-URI", refers_to_url),
        ("WARC-Refers-To-Date", warc_date(refers_to_ms)),
    )
    return gzip_member(head + http_header, b"\r\n\r\n")


def warcinfo_record(filename: str, created_ms: int, fields: tuple[tuple[str, str], ...]) -> bytes:
    """The first record of a segment. `fields`: (name, value) such as software, isPartOf, http-header-user-agent."""
    lines = (b"%b: %b\r\n" % (_name(n.encode()), _value(v.encode())) for n, v in fields)
    block = b"".join((*lines, b"format: WARC File Format 1.1\r\n"))
    head = _head(
        "warcinfo",
        _record_id("warcinfo", filename, created_ms),
        created_ms,
        len(block),
        "application/warc-fields",
        ("WARC-Filename", filename),
    )
    return gzip_member(head, block, b"\r\n\r\n")


def conversion_record(url: str, fetched_ms: int, extractor_version: int, text: bytes) -> bytes:
    """The text of a page, UTF-8, in document order."""
    head = _head(
        "conversion",
        _record_id("conversion", url, fetched_ms, extractor_version),
        fetched_ms,
        len(text),
        "text/plain; charset=utf-8",
        ("WARC-Target-URI", url),
        ("WARC-Refers-To", visit_record_id(url, fetched_ms)),
    )
    return gzip_member(head, text, b"\r\n\r\n")


def metadata_records(page: ParsedPage) -> list[bytes]:
    """Links and facts of a parsed page as JSON (`core.facts`): one record, several when there are very many links."""
    return [_metadata_record(page, part, block) for part, block in enumerate(facts_blocks(page))]


def parsed_records(page: ParsedPage, text: bytes) -> ParsedRecords:
    """All records of a parsed page, ready to append; made by the parser's process, the writer only writes."""
    converted = conversion_record(page.url, page.fetched_ms, page.extractor_version, text) if text else b""
    return ParsedRecords(b"".join((converted, *metadata_records(page))), len(converted))


def _metadata_record(page: ParsedPage, part: int, block: bytes) -> bytes:
    head = _head(
        "metadata",
        _record_id("metadata", page.url, page.fetched_ms, page.extractor_version, part),
        page.fetched_ms,
        len(block),
        "application/json",
        ("WARC-Target-URI", page.url),
        ("WARC-Refers-To", visit_record_id(page.url, page.fetched_ms)),
    )
    return gzip_member(head, block, b"\r\n\r\n")


def http_header_block(
    status: int,
    reason: str,
    http_version: str,
    headers: tuple[tuple[bytes, bytes], ...],
    *,
    body_bytes: int,
    content_codings: str,
) -> bytes:
    """The header as received, made true of the decoded, de-chunked body that follows it; ends with the empty line.

    What no longer fits is kept under the names that Common Crawl uses: `X-Crawler-Transfer-Encoding` (always),
    `X-Crawler-Content-Encoding` (when codings were undone), `X-Crawler-Content-Length` (when it is not the body's).
    Exactly one Content-Length remains, and it is `body_bytes`. A line break inside a value would make a header of its
    own: it becomes a blank.
    """
    lines = [b"HTTP/%b %d %b\r\n" % (_value(http_version.encode()), status, _value(reason.encode("utf-8", "replace")))]
    length = b"%d" % body_bytes
    length_given = False
    for name, value in headers:
        name = name.translate(None, _NOT_IN_NAMES)
        if not name:
            continue
        match name.lower():
            case b"transfer-encoding":
                name = b"X-Crawler-Transfer-Encoding"
            case b"content-encoding" if content_codings:
                name = b"X-Crawler-Content-Encoding"
            case b"content-length" if value.strip() == length and not length_given:
                value, length_given = length, True
            case b"content-length":
                name = b"X-Crawler-Content-Length"
        lines.append(b"%b: %b\r\n" % (name, value.translate(_LINE_BREAKERS)))
    if not length_given:
        lines.append(b"Content-Length: %b\r\n" % length)
    lines.append(b"\r\n")
    return b"".join(lines)


def payload_digest(content_hash: bytes) -> str:
    """`sha256:` and 64 hex digits."""
    assert len(content_hash) == 32, f"a SHA-256 is 32 bytes, not {len(content_hash)}"
    return "sha256:" + content_hash.hex()


def warc_date(instant_ms: int) -> str:
    """ISO 8601 in UTC with milliseconds (WARC 1.1 section 5.4 takes one to nine fraction digits)."""
    seconds, ms = divmod(instant_ms, 1_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ms:03d}Z"


def gzip_member(*parts: bytes) -> bytes:
    """One whole gzip member; no file name and no time in it, so that equal records are equal bytes."""
    packer = isal_zlib.compressobj(GZIP_LEVEL, isal_zlib.DEFLATED, _GZIP_WBITS)
    packed = [packer.compress(part) for part in parts]
    packed.append(packer.flush())
    return b"".join(packed)


def read_record(member: bytes, *, bytes_max: int = RECORD_BYTES_MAX) -> Record | BadRecord:
    """One record from its gzip member, checked by CRC and by its own lengths; at most `bytes_max` unpacked."""
    unpacker = isal_zlib.decompressobj(_GZIP_WBITS)
    try:
        data = unpacker.decompress(member, bytes_max + 1)
    except _IsalError as error:
        return BadRecord(f"no gzip member: {error}")
    if len(data) > bytes_max:
        return BadRecord(f"unpacks to more than {bytes_max} bytes")
    if not unpacker.eof:
        return BadRecord("the gzip member is cut")
    if unpacker.unused_data:
        return BadRecord(f"{len(unpacker.unused_data)} bytes follow the gzip member")
    return unpacked_record(data)


def unpacked_record(data: bytes) -> Record | BadRecord:
    """One record from what its gzip member unpacked to."""
    head_end = data.find(b"\r\n\r\n", 0, RECORD_HEADER_BYTES_MAX)
    if not data.startswith(b"WARC/1.") or head_end < 0:
        return BadRecord("no WARC header")
    lines = data[:head_end].decode("utf-8", "replace").split("\r\n")[1:]
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = headers.get("content-length", "")
    start = head_end + 4
    if not length.isdecimal() or len(data) != start + int(length) + 4:
        return BadRecord(f"Content-Length is {length!r}, the block has {len(data) - start - 4} bytes")
    http_header = b""
    if headers.get("content-type", "").startswith("application/http"):
        http_end = data.find(b"\r\n\r\n", start) + 4
        if http_end < start + 4 or http_end > len(data) - 4:
            return BadRecord("no HTTP header")
        http_header, start = data[start:http_end], http_end
    return Record(headers.get("warc-type", ""), headers, http_header, data[start:-4])


def _head(
    kind: str, record_id: str, date_ms: int, block_bytes: int, content_type: str, *fields: tuple[str, str]
) -> bytes:
    """The WARC header with its empty line; fields without a value are left out."""
    lines = [f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: {record_id}\r\nWARC-Date: {warc_date(date_ms)}\r\n"]
    for name, value in fields:
        if value:
            assert value.isprintable(), f"{name} of a record may break its line: {value!r}"
            lines.append(f"{name}: {value}\r\n")
    lines.append(f"Content-Type: {content_type}\r\nContent-Length: {block_bytes}\r\n\r\n")
    return "".join(lines).encode()


def _record_id(*parts: str | int) -> str:
    digest = bytearray(
        hashlib.blake2b("\n".join(map(str, parts)).encode(), digest_size=16, person=b"headrace-record").digest()
    )
    digest[6] = digest[6] & 0x0F | 0x80  # UUID version 8: made by a rule of our own
    digest[8] = digest[8] & 0x3F | 0x80  # the variant of RFC 9562
    h = digest.hex()
    return f"<urn:uuid:{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}>"


def _name(name: bytes) -> bytes:
    return name.translate(None, _NOT_IN_NAMES)


def _value(value: bytes) -> bytes:
    return value.translate(_LINE_BREAKERS)
