"""Text and facts of parsed pages in segments: many pages share a segment, and nobody hears of a page before its segment
is whole in the store.

`keep` appends at once and waits for the next round of `sync`, which begins HOLD_MS after the first page that waits for
it. So an object in the store holds some seconds' pages, and a page's links wait no longer than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from connectors.files import StoreFailed
from connectors.ports import ParseOutput, Segments
from schemas.records import BodyRef
from streams.core.failures import EXIT_FAILED, CrawlError

__all__ = ["HOLD_MS", "SegmentTexts"]

HOLD_MS = 2_000
_SYNCS_MAX = 4  # rounds under way at once: an upload may take longer than a hold


class SegmentTexts:
    """A `streams.fleet.parse.Texts` over the segments port, whose calls block."""

    def __init__(self, segments: Segments, *, hold_ms: int = HOLD_MS) -> None:
        self._segments, self._hold_ms = segments, hold_ms
        self._appending = ThreadPoolExecutor(1, thread_name_prefix="append")
        self._syncing = ThreadPoolExecutor(_SYNCS_MAX, thread_name_prefix="sync")
        self._next: asyncio.Task[None] | None = None

    async def keep(self, several: Sequence[ParseOutput]) -> list[BodyRef | None]:
        """Raises CrawlError when this machine cannot hold them: a full disk, a lost folder."""
        loop = asyncio.get_running_loop()
        refs = await loop.run_in_executor(self._appending, self._append, several)
        if self._next is None:
            self._next = asyncio.create_task(self._sync())
        await asyncio.shield(self._next)
        return refs

    def close(self) -> None:
        """Waits for nothing: what is not durable was not announced."""
        if self._next is not None:
            self._next.cancel()
        self._appending.shutdown(wait=False, cancel_futures=True)
        self._syncing.shutdown(wait=False, cancel_futures=True)

    def _append(self, several: Sequence[ParseOutput]) -> list[BodyRef | None]:
        try:
            return [self._segments.append_parsed(output) for output in several]
        except StoreFailed as error:
            raise CrawlError(f"parse: {error}", EXIT_FAILED) from error

    async def _sync(self) -> None:
        await asyncio.sleep(self._hold_ms / 1_000)
        self._next = None  # what is appended from here on is of the next round
        await asyncio.get_running_loop().run_in_executor(self._syncing, self._synced)

    def _synced(self) -> None:
        try:
            self._segments.sync()
        except StoreFailed as error:
            raise CrawlError(f"parse: {error}", EXIT_FAILED) from error
