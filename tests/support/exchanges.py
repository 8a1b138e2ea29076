"""The bytes of an answer as the shared HTTP cases describe it: head lines, coded body, framing, and what ends it.

Bodies are made block by block, so that a body of gigabytes costs what is read of it.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import brotli
import msgspec
import zstandard

BLOCK_BYTES = 64 * 1024
LAZY_BYTES_MIN = 64 * 1024 * 1024  # a coded body this large is sent chunk by chunk, its length unknown

KNOWN_BEHAVIOURS = frozenset(
    [
        *("", "close", "close_early", "keep_alive", "keep_alive_excess", "empty_reply", "connection_reset"),
        *("read_timeout", "timeout", "stall", "drip_headers", "drip_body", "slow_headers", "slow_body"),
        *("dns_servfail", "dns_nxdomain", "dns_timeout", "dns_refused", "connect_refused", "connect_timeout"),
        *("connection_refused", "connection_timeout", "tls_error", "tls_handshake", "tls_expired", "tls_self_signed"),
    ]
)

Step = dict[str, Any]
"""One answer of a case's `exchange`."""


class Wire(msgspec.Struct, frozen=True):
    """An answer to play: the blocks to send one after the other, and the behaviour ("" to stay open)."""

    blocks: Iterator[bytes]
    behaviour: str = ""
    drip: bool = False  # byte by byte, slowly


def wire(step: Step) -> Wire:
    """The bytes of one answer. Raises ValueError when the step names a coding that is unknown here."""
    behaviour = step.get("behaviour", "")
    if "status" not in step and "status_line" not in step:
        return Wire(iter(()), behaviour)
    end = step.get("line_end", "\r\n").encode()
    lines = [_status_line(step), *_header_lines(step)]
    lines += [_latin(line) for line in step.get("raw_header_lines", ())]
    body, length = _body(step)
    names = {line.split(b":", 1)[0].strip().lower() for line in lines[1:]}
    if step.get("chunked"):
        body = _chunks(body)
    framed = {b"content-length", b"transfer-encoding"} & names
    bodiless = step.get("status") in (204, 304) or 100 <= step.get("status", 200) < 200
    close = behaviour or ("close" if step.get("http_version") == "1.0" and not framed else "")
    if step.get("chunked") and b"transfer-encoding" not in names:
        lines.append(b"Transfer-Encoding: chunked")
    elif not framed and not bodiless and close != "close":
        if length is None and "raw_b64" not in step:
            lines.append(b"Transfer-Encoding: chunked")
            body = _chunks(body)
        elif length is None:
            close = close or "close"
        else:
            lines.append(b"Content-Length: %d" % length)
    head = end.join(lines) + end + end
    return Wire(_joined(head, body), close, drip="drip" in behaviour or "slow" in behaviour)


def _status_line(step: Step) -> bytes:
    if "status_line" in step:
        return _latin(step["status_line"])
    version = str(step.get("http_version", "1.1")).removeprefix("HTTP/")
    return _latin(f"HTTP/{version} {step['status']} {step.get('reason', 'Answer')}")


def _header_lines(step: Step) -> Iterator[bytes]:
    """A list stands for several lines, `{"times": N}` for N of them, a generated string for one long line."""
    for name, value in step.get("headers", {}).items():
        if name.endswith("_b64"):
            yield _latin(name.removesuffix("_b64")) + b": " + base64.b64decode(value)
        elif isinstance(value, list):
            for one in value:
                yield f"{name}: {one}".encode()
        elif isinstance(value, dict) and "repeat" in value:
            text = value.get("prefix", "") + value["repeat"] * value["times"] + value.get("suffix", "")
            yield f"{name}: {text}".encode()
        elif isinstance(value, dict):
            for number in range(value["times"]):
                yield f"{name}-{number}: {value.get('value', 'x')}".encode()
        else:
            yield f"{name}: {value}".encode()


def _body(step: Step) -> tuple[Iterator[bytes], int | None]:
    """The body in blocks before framing, and its length when it is known beforehand."""
    if "raw_b64" in step:
        return iter((base64.b64decode(step["raw_b64"]),)), None
    encode = step.get("encode", ())
    if "body_gen" in step:
        generated = step["body_gen"]
        parts = [str(generated[name]).encode() for name in ("prefix", "repeat", "suffix")]
        size = len(parts[0]) + len(parts[1]) * generated["times"] + len(parts[2])
        blocks = _generated(parts[0], parts[1], generated["times"], parts[2])
        if not encode:
            return blocks, size
        if size >= LAZY_BYTES_MIN:
            for name in encode:
                blocks = _encoded(name, blocks)
            return blocks, None
        body = b"".join(blocks)
    elif "body_b64" in step:
        body = base64.b64decode(step["body_b64"])
    else:
        body = step.get("body", "").encode("utf-8", "surrogatepass")
    for name in encode:
        body = b"".join(_encoded(name, iter((body,))))
    if step.get("corrupt_crc"):
        body = body[:-8] + bytes(byte ^ 0xFF for byte in body[-8:-4]) + body[-4:]
    if cut := step.get("cut_encoded_tail"):
        body = body[:-cut]
    body += _appended(step)
    return iter((body,)), len(body)


def _appended(step: Step) -> bytes:
    if "append_b64" in step:
        return base64.b64decode(step["append_b64"])
    return str(step.get("append", "")).encode()


def _generated(prefix: bytes, repeat: bytes, times: int, suffix: bytes) -> Iterator[bytes]:
    yield prefix
    per_block = max(1, BLOCK_BYTES // max(1, len(repeat)))
    block = repeat * per_block
    for _ in range(times // per_block):
        yield block
    yield repeat * (times % per_block) + suffix


def _encoded(name: str, blocks: Iterator[bytes]) -> Iterator[bytes]:
    compress, flush = _encoder(name)
    for block in blocks:
        if out := compress(block):
            yield out
    yield flush()


def _encoder(name: str) -> tuple[Callable[[bytes], bytes], Callable[[], bytes]]:
    if name in ("gzip", "zlib", "raw-deflate"):
        window = {"gzip": 31, "zlib": 15, "raw-deflate": -15}[name]
        deflate = zlib.compressobj(6, zlib.DEFLATED, window)
        return deflate.compress, deflate.flush
    if name == "br":
        broth = brotli.Compressor(quality=4)
        return broth.process, broth.finish
    if name == "zstd":
        zstd = zstandard.ZstdCompressor().compressobj()
        return zstd.compress, zstd.flush
    raise ValueError(f"a case encodes with {name!r}: gzip, zlib, raw-deflate, br and zstd are known here")


def _chunks(blocks: Iterator[bytes]) -> Iterator[bytes]:
    for block in blocks:
        if block:
            yield b"%x\r\n%s\r\n" % (len(block), block)
    yield b"0\r\n\r\n"


def _joined(head: bytes, body: Iterator[bytes]) -> Iterator[bytes]:
    """Head and first block in one write, as servers send a small answer."""
    yield head + next(body, b"")
    yield from body


def _latin(text: str) -> bytes:
    return text.encode("latin-1", "surrogateescape") if text.isascii() else text.encode()
