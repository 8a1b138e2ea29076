"""Undoes Content-Encoding in bounded steps (RFC 9110 section 8.4). Pure computation.

| coding                        | undone as                                                                          |
|-------------------------------|------------------------------------------------------------------------------------|
| gzip, x-gzip                  | RFC 1952, several members one after the other, CRC and length checked              |
| deflate                       | RFC 1950 (zlib), or bare RFC 1951 as some servers send: the first two bytes decide |
| br                            | RFC 7932                                                                           |
| zstd                          | RFC 8878, several frames, window of 8 MiB at most (RFC 9659)                       |
| identity, none, utf-8, "" ... | nothing                                                                            |

Several codings are undone from the last to the first. Bytes after the end of a coded body are ignored.
Codes of `error`: `too_large` (decoded size or ratio), `bad_encoding` (corrupt), `incomplete_body` (cut),
`unknown_encoding`, `too_many_encodings`.
"""

from __future__ import annotations

from typing import Protocol, cast

import brotli
import zstandard
from isal import igzip_lib, isal_zlib

from streams.core.policy import DECODE_STEP_BYTES_MAX, RATIO_FROM_BYTES

BROTLI_SLICE_BYTES = 16 * 1024
ZSTD_SLICE_BYTES = 64  # a frame's block of 4 bytes may stand for 128 KiB: 16 blocks are 2 MiB
ZSTD_WINDOW_BYTES_MAX = 8 * 1024 * 1024  # RFC 9659
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_NOTHING = frozenset({"", "identity", "none", "utf-8", "8bit", "binary"})
_KNOWN = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate", "br": "br", "zstd": "zstd"}


class CorruptBody(Exception):
    """The bytes are not what their coding's name says. Does not leave this module."""


_CORRUPT: tuple[type[Exception], ...] = (
    CorruptBody,
    cast("type[Exception]", igzip_lib.IsalError),
    brotli.error,
    zstandard.ZstdError,
)


class Layer(Protocol):
    """One coding. `feed` keeps what it cannot take at once and gives it when asked again with b""."""

    finished: bool

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """Some decoded bytes, at most about DECODE_STEP_BYTES_MAX, and whether b"" would bring more."""
        ...


def codings(lines: list[bytes], codings_max: int) -> tuple[tuple[str, ...], str]:
    """The codings to undo, in the order they were applied, and an error code ("" when all are known)."""
    named: list[str] = []
    for line in lines:
        for part in line.split(b","):
            name = part.strip(b" \t").lower().decode("latin-1")
            if name in _NOTHING:
                continue
            if name not in _KNOWN:
                return (), "unknown_encoding"
            named.append(_KNOWN[name])
    if len(named) > codings_max:
        return (), "too_many_encodings"
    return tuple(named), ""


class BodyDecoder:
    """Takes the body's bytes as they come and keeps what they stand for, under limits."""

    __slots__ = (
        "_cut_bytes",
        "_decoded_max",
        "_layers",
        "_parts",
        "_ratio_max",
        "_wire_max",
        "decoded_bytes",
        "error",
        "full",
        "wire_bytes",
    )

    def __init__(
        self, named: tuple[str, ...], *, decoded_max: int, wire_max: int, ratio_max: int, cut_bytes: int | None = None
    ) -> None:
        """`named` in the order applied. With `cut_bytes` decoding stops there, without an error, and `full` is set."""
        self._cut_bytes = cut_bytes
        self.full = False
        self._layers: list[Layer] = [_layer(name) for name in reversed(named)]
        self._parts: list[bytes] = []
        self._decoded_max = decoded_max
        self._wire_max = wire_max
        self._ratio_max = ratio_max
        self.wire_bytes = 0
        self.decoded_bytes = 0
        self.error = ""

    def feed(self, piece: bytes) -> None:
        """Undo the codings of one piece. Does nothing after an error or when full."""
        if self.error or self.full or not piece:
            return
        self.wire_bytes += len(piece)
        if self.wire_bytes > self._wire_max:
            self.error = "too_large"
        elif not self._layers:
            self._keep(piece)
        else:
            try:
                self._down(0, piece)
            except _CORRUPT:
                self.error = "bad_encoding"

    def finish(self) -> None:
        """The body has ended: a coding that has not is `incomplete_body`."""
        if not self.error and not self.full and self.wire_bytes and any(not layer.finished for layer in self._layers):
            self.error = "incomplete_body"

    def take(self) -> bytes:
        """What was decoded, cut at `cut_bytes`. The decoder keeps nothing of it."""
        whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts = []
        return whole if self._cut_bytes is None else whole[: self._cut_bytes]

    def _down(self, index: int, piece: bytes) -> None:
        """Through layer `index` and all below it, step by step, so that no layer's output is held whole."""
        if index == len(self._layers):
            self._keep(piece)
            return
        layer = self._layers[index]
        more = True
        while more and not self.error and not self.full:
            out, more = layer.feed(piece)
            piece = b""
            if out:
                self._down(index + 1, out)

    def _keep(self, piece: bytes) -> None:
        self.decoded_bytes += len(piece)
        self._parts.append(piece)
        if self._cut_bytes is not None and self.decoded_bytes >= self._cut_bytes:
            self.full = True
        elif self.decoded_bytes > min(self._decoded_max, max(RATIO_FROM_BYTES, self.wire_bytes * self._ratio_max)):
            self.error = "too_large"


def _layer(name: str) -> Layer:
    match name:
        case "gzip":
            return _Gzip()
        case "deflate":
            return _Deflate()
        case "br":
            return _Brotli()
        case _:
            assert name == "zstd", f"codings() lets only known names through, got {name!r}"
            return _Zstd()


class _Gzip:
    """Members one after the other; anything else after a member is garbage and ignored."""

    def __init__(self) -> None:
        self._stream = isal_zlib.decompressobj(31)
        self._pending = b""
        self._begun = False
        self.finished = False

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        data = self._pending + data if self._pending else data
        self._pending = b""
        if self.finished:
            if not data.startswith(_GZIP_MAGIC):
                self._pending = data if _GZIP_MAGIC.startswith(data) else b""
                return b"", False
            self._stream = isal_zlib.decompressobj(31)
            self.finished = False
        if not self._begun:  # the library waits for a whole header before it looks at the first bytes
            if not data.startswith(_GZIP_MAGIC[: len(data)]):
                raise CorruptBody
            if len(data) < len(_GZIP_MAGIC):
                self._pending = data
                return b"", False
            self._begun = True
        out: bytes = self._stream.decompress(data, DECODE_STEP_BYTES_MAX)
        if self._stream.eof:
            self.finished = True
            self._pending = self._stream.unused_data
            return out, self._pending.startswith(_GZIP_MAGIC)
        self._pending = self._stream.unconsumed_tail
        return out, bool(self._pending) or len(out) >= DECODE_STEP_BYTES_MAX


class _Deflate:
    """The zlib wrapper when the first two bytes are its header (RFC 1950 2.2), else bare deflate."""

    def __init__(self) -> None:
        self._stream: isal_zlib.Decompress | None = None
        self._pending = b""
        self.finished = False

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        if self.finished:
            return b"", False
        data = self._pending + data if self._pending else data
        self._pending = b""
        if self._stream is None:
            if len(data) < 2:
                self._pending = data
                return b"", False
            wrapped = data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0
            self._stream = isal_zlib.decompressobj(15 if wrapped else -15)
        out: bytes = self._stream.decompress(data, DECODE_STEP_BYTES_MAX)
        if self._stream.eof:
            self.finished = True
            return out, False
        self._pending = self._stream.unconsumed_tail
        return out, bool(self._pending) or len(out) >= DECODE_STEP_BYTES_MAX


class _Brotli:
    """Fed in slices with a bound on the output. The library calls bytes after the end an error: they are looked for."""

    def __init__(self) -> None:
        self._stream = brotli.Decompressor()
        self._seen: list[bytes] = []  # all slices so far, for `_last_slice`
        self._pending = b""
        self.finished = False

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        if self.finished:
            return b"", False
        data = self._pending + data if self._pending else data
        piece = b""
        if self._stream.can_accept_more_data():
            piece, self._pending = data[:BROTLI_SLICE_BYTES], data[BROTLI_SLICE_BYTES:]
            self._seen.append(piece)
        else:
            self._pending = data
        try:
            out: bytes = self._stream.process(piece, output_buffer_limit=DECODE_STEP_BYTES_MAX)
        except brotli.error:
            return self._last_slice(piece), False
        self.finished = self._stream.is_finished()
        more = not self.finished and (bool(self._pending) or not self._stream.can_accept_more_data())
        return out, more

    def _last_slice(self, piece: bytes) -> bytes:
        """The slice failed: because it is corrupt, or because garbage follows the end in it. Read it byte by byte."""
        again = brotli.Decompressor()
        for earlier in self._seen[:-1]:
            again.process(earlier, output_buffer_limit=DECODE_STEP_BYTES_MAX)
            while not again.can_accept_more_data():
                again.process(b"", output_buffer_limit=DECODE_STEP_BYTES_MAX)
        out: list[bytes] = []
        for index in range(len(piece)):
            out.append(again.process(piece[index : index + 1]))
            if again.is_finished():
                self.finished = True
                return b"".join(out)
        raise CorruptBody


class _Zstd:
    """Frames one after the other, fed in slices so small that a step's output is bounded."""

    def __init__(self) -> None:
        self._context = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
        self._stream = self._context.decompressobj()
        self._pending = b""
        self.finished = False

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        data = self._pending + data if self._pending else data
        self._pending = b""
        if self.finished:
            if not data.startswith(_ZSTD_MAGIC):
                self._pending = data if _ZSTD_MAGIC.startswith(data) else b""
                return b"", False
            self._stream = self._context.decompressobj()
            self.finished = False
        out: list[bytes] = []
        size = 0
        position = 0
        while position < len(data) and size < DECODE_STEP_BYTES_MAX:
            part = self._stream.decompress(data[position : position + ZSTD_SLICE_BYTES])
            position += ZSTD_SLICE_BYTES
            out.append(part)
            size += len(part)
            if self._stream.eof:
                self.finished = True
                self._pending = self._stream.unused_data + data[position:]
                return b"".join(out), self._pending.startswith(_ZSTD_MAGIC)
        self._pending = data[position:]
        return b"".join(out), bool(self._pending)
