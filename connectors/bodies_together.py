"""Stored records read several at once: those that lie near one another in a segment come by one ranged GET.

A GET costs 1 to 2 ms of CPU and its price, however little it brings, and what is read together was mostly stored
together. A gap of GAP_BYTES_MAX costs less than another request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import NamedTuple

from connectors.files import StoreFailed
from connectors.object_store import ObjectStore
from connectors.segment_records import whole
from schemas.records import BodyRef
from streams.core.policy import RECORD_BYTES_MAX

__all__ = ["BodiesTogether", "Span", "spans"]

GAP_BYTES_MAX = 64 << 10
SPAN_BYTES_MAX = 4 << 20  # of several records; one that is longer is read alone


class Span(NamedTuple):
    """What one request reads: bytes of a segment, and which of the references lie in them."""

    segment: str
    start: int
    end: int
    members: tuple[int, ...]


def spans(refs: Sequence[BodyRef]) -> list[Span]:
    """Every reference is in exactly one span, whole."""
    found: list[Span] = []
    for at in sorted(range(len(refs)), key=lambda one: (refs[one].segment, refs[one].offset_bytes)):
        segment, start, length = refs[at].segment, refs[at].offset_bytes, refs[at].record_bytes
        last = found[-1] if found else None
        if last is not None and last.segment == segment and start - last.end <= GAP_BYTES_MAX:
            end = max(last.end, start + length)
            if end - last.start <= SPAN_BYTES_MAX:
                found[-1] = Span(segment, last.start, end, (*last.members, at))
                continue
        found.append(Span(segment, start, start + length, (at,)))
    return found


class BodiesTogether:
    """Of one bucket. For one event loop; the store is asked in `threads`."""

    def __init__(self, objects: ObjectStore, threads: Executor) -> None:
        self._objects, self._threads = objects, threads

    async def read(self, refs: Sequence[BodyRef]) -> list[bytes | None]:
        """The payloads in the order asked; None for a record that cannot be had, now or later. Waits while the store
        is away; raises StoreClosed when the worker ends meanwhile."""
        found: list[bytes | None] = [None] * len(refs)
        good = [at for at, ref in enumerate(refs) if 0 < ref.record_bytes <= RECORD_BYTES_MAX and ref.offset_bytes >= 0]
        asked = [refs[at] for at in good]
        loop = asyncio.get_running_loop()
        wanted = spans(asked)
        reads = [loop.run_in_executor(self._threads, self._read, span, asked) for span in wanted]
        for span, payloads in zip(wanted, await asyncio.gather(*reads), strict=True):
            for member, payload in zip(span.members, payloads, strict=True):
                found[good[member]] = payload
        return found

    def _read(self, span: Span, refs: Sequence[BodyRef]) -> list[bytes | None]:
        try:
            data = memoryview(self._objects.read(span.segment, span.start, span.end - span.start))
        except StoreFailed:
            return [None] * len(span.members)
        return [_payload(refs[member], data, span.start) for member in span.members]


def _payload(ref: BodyRef, data: memoryview, start: int) -> bytes | None:
    at = ref.offset_bytes - start
    try:
        return whole(ref, bytes(data[at : at + ref.record_bytes])).payload
    except StoreFailed:
        return None
