"""Lines of a file or of stdin as they come: bounded memory however many there are, and a live pipe is no wait.

UTF-8, or UTF-16 with its mark. Lines end by LF, CR or both, and are numbered from 1.
"""

from __future__ import annotations

import codecs
import os
import select
from collections.abc import Callable, Iterator
from typing import BinaryIO

from streams.core.policy import HREF_CHARS_MAX

__all__ = ["LINE_BYTES_MAX", "numbered_lines"]

CHUNK_BYTES = 1 << 16
IDLE_S = 0.05
LINE_BYTES_MAX = 4 * HREF_CHARS_MAX  # of a longer line only so much is kept: enough to see that it is no URL


def numbered_lines(stream: BinaryIO, stopped: Callable[[], bool] = lambda: False) -> Iterator[tuple[int, bytes] | None]:
    """(number, line in UTF-8 without its end); None when nothing came for IDLE_S. Ends early once `stopped`.

    Raises UnicodeDecodeError in the midst of UTF-16 that is none.
    """
    number, rest, skipping = 0, b"", False
    for chunk in _in_utf8(_chunks(stream, stopped)):
        if chunk is None:
            yield None
            continue
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        for line in lines:
            number += 1
            if skipping:
                skipping = False
                continue
            yield number, line[:LINE_BYTES_MAX]
        if len(rest) > LINE_BYTES_MAX:
            if not skipping:
                yield number + 1, rest[:LINE_BYTES_MAX]
            skipping, rest = True, b""
    if rest and not skipping:
        yield number + 1, rest


def _chunks(stream: BinaryIO, stopped: Callable[[], bool]) -> Iterator[bytes | None]:
    """What there is, as soon as it is there."""
    try:
        number = stream.fileno()
    except OSError:  # of a stream in memory
        number = -1
    while not stopped():
        if number >= 0:
            if not select.select([number], [], [], IDLE_S)[0]:
                yield None
                continue
            chunk = os.read(number, CHUNK_BYTES)
        else:
            chunk = stream.read(CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


def _in_utf8(chunks: Iterator[bytes | None]) -> Iterator[bytes | None]:
    """The same with LF alone at the ends of lines, without a mark, and in UTF-8 where it was UTF-16."""
    decoder: codecs.IncrementalDecoder | None = None
    head: bytes | None = b""  # until it is long enough for a mark
    held = b""  # a CR at a chunk's end: an LF may follow
    for chunk in chunks:
        if chunk is None:
            yield None
            continue
        if head is not None:
            head += chunk
            if len(head) < 3:
                continue
            chunk, decoder = _without_mark(head)
            head = None
        if decoder is not None:
            chunk = decoder.decode(chunk).encode()
        chunk = held + chunk
        held = b"\r" if chunk.endswith(b"\r") else b""
        chunk = chunk[: len(chunk) - len(held)]
        yield chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in chunk else chunk
    last = held
    if head is not None:
        last, decoder = _without_mark(head)
    if decoder is not None:
        last += decoder.decode(b"", final=True).encode()
    if last:
        yield last.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _without_mark(head: bytes) -> tuple[bytes, codecs.IncrementalDecoder | None]:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return head, codecs.getincrementaldecoder("utf-16")()
    return head.removeprefix(codecs.BOM_UTF8), None
