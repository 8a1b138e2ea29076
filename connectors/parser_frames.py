"""What the parser pool and its workers say to one another, over one stream socket.

| frame    | header                                                    | then                               |
|----------|-----------------------------------------------------------|------------------------------------|
| hello    | mark `h`, three zeros, flags 0                            | nothing: the worker is ready       |
| request  | mark `q`, lengths of task, body, 0; 0; generation         | ParseTask as msgpack, the body     |
| response | mark `r`, lengths of page, text, records; text record len | ParsedPage as msgpack, text, records |

Integers are 32 bits, big-endian. A worker answers in the order it was asked. Flag RETIRING in a response: the worker
ends after it and has not begun anything else.
"""

from __future__ import annotations

import struct

import msgspec

from connectors.ports import ParseOutput
from schemas.records import ParsedPage, ParseTask

HEADER = struct.Struct(">cIIIII")  # mark, three lengths, length of the text's record, flags
FRAME_BYTES_MAX = 512 * 1024 * 1024  # 100,000 links of 2 KB, twice; more is no answer but noise
HELLO = b"h"
REQUEST = b"q"
RESPONSE = b"r"
RETIRING = 1
GENERATION_MASK = 0xFFFFFFFF

_encode = msgspec.msgpack.Encoder().encode
_decode_task = msgspec.msgpack.Decoder(ParseTask).decode
_decode_page = msgspec.msgpack.Decoder(ParsedPage).decode

hello_frame = HEADER.pack(HELLO, 0, 0, 0, 0, 0)


class BadFrame(Exception):
    """What came is no frame: the other side is not what it should be, or it is broken."""


class Header(msgspec.Struct, frozen=True):
    """The lengths of what follows, in bytes."""

    mark: bytes
    first: int
    second: int
    third: int
    text_record_bytes: int
    flags: int

    @property
    def rest_bytes(self) -> int:
        return self.first + self.second + self.third


def parse_header(data: bytes | bytearray | memoryview) -> Header:
    """The header at the beginning of `data`, which must hold HEADER.size bytes. Raises BadFrame."""
    header = Header(*HEADER.unpack_from(data))
    if header.mark not in (HELLO, REQUEST, RESPONSE) or header.rest_bytes > FRAME_BYTES_MAX:
        raise BadFrame(f"needed the header of a frame, got {bytes(data[: HEADER.size])!r}")
    return header


def request_frame(task: ParseTask, body: bytes, generation: int = 0) -> tuple[bytes, bytes]:
    """A request in two pieces, so that the body is not copied. `generation`: as for `ports.Parser.parse`."""
    head = _encode(task)
    return HEADER.pack(REQUEST, len(head), len(body), 0, 0, generation & GENERATION_MASK) + head, body


def read_task(data: bytes) -> ParseTask:
    """The task of a request. Raises BadFrame."""
    try:
        return _decode_task(data)
    except msgspec.MsgspecError as error:
        raise BadFrame(f"needed a parse task: {error}") from error


def response_frame(output: ParseOutput, *, retiring: bool = False) -> bytes:
    """A whole response."""
    page = _encode(output.page)
    flags = RETIRING if retiring else 0
    header = HEADER.pack(RESPONSE, len(page), len(output.text), len(output.records), output.text_record_bytes, flags)
    return b"".join((header, page, output.text, output.records))


def read_output(header: Header, frame: memoryview) -> ParseOutput:
    """The output of a whole response, its header included. Raises BadFrame."""
    page_end = HEADER.size + header.first
    text_end = page_end + header.second
    with frame[HEADER.size : page_end] as head:
        try:
            page = _decode_page(head)
        except msgspec.MsgspecError as error:
            raise BadFrame(f"needed a parsed page: {error}") from error
    text = bytes(frame[page_end:text_end])
    records = bytes(frame[text_end : text_end + header.third])
    return ParseOutput(page, text, records, header.text_record_bytes)


def failed_page(task: ParseTask, error: str) -> ParsedPage:
    """A page that says nothing but which task it is of, and what went wrong."""
    return ParsedPage(
        url_id=task.url_id,
        host_key=task.host_key,
        url=task.url,
        url_version=task.url_version,
        kind=task.kind,
        depth=task.depth,
        fetched_ms=task.fetched_ms,
        extractor_version=task.extractor_version,
        error=error,
        trusted_hosts=task.trusted_hosts,
    )
