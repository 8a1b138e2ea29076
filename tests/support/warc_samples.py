"""Answers, parsed pages and other people's reading of segments, for the store's tests."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from warcio.archiveiterator import ArchiveIterator

from connectors.ports import ParseOutput, Response
from schemas.records import BodyRef, Kind, Link, ParsedPage

FETCHED_MS = 1_764_500_000_123
HEADERS = (
    (b"Content-Type", b"text/html"),
    (b"Content-Encoding", b"gzip"),
    (b"Transfer-Encoding", b"chunked"),
    (b"ETag", b'"a1"'),
)


def response(
    url: str,
    body: bytes,
    *,
    fetched_ms: int = FETCHED_MS,
    headers: tuple[tuple[bytes, bytes], ...] = HEADERS,
    codings: str = "gzip",
) -> Response:
    return Response(url, "127.0.0.1", 200, "OK", "1.1", headers, body, codings, fetched_ms)


def parsed(url: str, text: bytes, *, links: int = 3, fetched_ms: int = FETCHED_MS) -> ParseOutput:
    page = ParsedPage(
        url_id=hashlib.blake2b(url.encode(), digest_size=16).digest(),
        host_key="http://www.example.org",
        url=url,
        url_version=1,
        kind=Kind.PAGE,
        depth=2,
        fetched_ms=fetched_ms,
        extractor_version=1,
        links=tuple(Link(f"{url}?{n}", "a", ("nofollow",) if n % 2 else (), n % 2 == 1) for n in range(links)),
        title="A page",
        simhash=0xFEDC_BA98_7654_3210,
        text_bytes=len(text),
    )
    return ParseOutput(page, text)


def digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


class Seen:
    """One record as warcio reads it, its payload read whole and its digests compared."""

    def __init__(self, record: Any) -> None:
        self.offset = 0
        self.type: str = record.rec_type
        self.headers: dict[str, str] = {name.lower(): value for name, value in record.rec_headers.headers}
        self.http: list[tuple[str, str]] = record.http_headers.headers if record.http_headers else []
        self.status: str = record.http_headers.statusline if record.http_headers else ""
        self.payload: bytes = record.content_stream().read()
        self.digest_ok: bool | None = record.digest_checker.passed


def read_all(data: bytes | Path) -> list[Seen]:
    """Every record from start to end by warcio, digests checked."""
    return list(_records(io.BytesIO(data) if isinstance(data, bytes) else io.BytesIO(data.read_bytes())))


def read_at(root: Path, ref: BodyRef) -> Seen:
    """The record at its offset by warcio, given the record's own bytes alone."""
    path = root / ref.segment
    with open(path if path.exists() else f"{path}.open", "rb") as file:
        file.seek(ref.offset_bytes)
        found = list(_records(io.BytesIO(file.read(ref.record_bytes))))
    assert len(found) == 1
    return found[0]


def _records(stream: io.BytesIO) -> Iterator[Seen]:
    records = ArchiveIterator(stream, check_digests="raise")
    for record in records:
        seen = Seen(record)
        seen.offset = records.get_record_offset()  # reads to the record's end, so it comes after the payload
        yield seen
