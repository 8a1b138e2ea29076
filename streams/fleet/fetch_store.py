"""The store in the fetcher's process: bodies into segments, each announced when its segment is whole in S3.

Theory of operation. A body is appended to the open segment, in the local spool, as soon as it came; its stored result
waits. Some seconds after the first of them, or at the segment's size, the segment is brought to S3 in a thread while
the next one fills, and only then its stored results are sent. So a process that is killed announced nothing that is not
there: the leases of its bodies run into the store's deadline, and their URLs are leased again.

Bytes that were stored before are written once: what this process brought lately is remembered by its hash, once its
segment is whole, or within the same segment, so that no revisit record can outlive what it refers to.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor

import msgspec

from connectors.fetchlog_s3 import S3FetchLog
from connectors.ports import Fetched, Response, StoreClosed, StoredContent
from connectors.segments_s3 import S3Segments
from schemas.records import FetchLease, FetchResult, Kind, Outcome, StoredResult
from streams.core import policy as bounds
from streams.core.kept import fetch_log_row, stored_result
from streams.fleet.metrics import Metrics

__all__ = ["Keeping", "Store"]

log = logging.getLogger(__name__)


class Keeping(msgspec.Struct, frozen=True):
    """When segments are brought, and how much may wait."""

    seal_ms: int = 10_000  # from the first body of a segment; a full one goes at once
    spool_bytes_max: int = bounds.SPOOL_BYTES_MAX
    uploads_max: int = 4  # at once; one part of each is in memory
    log_ms: int = 60_000  # how long the fetch log's rows wait for a file


class Store:
    """For one event loop."""

    def __init__(
        self,
        segments: S3Segments,
        fetch_log: S3FetchLog,
        keeping: Keeping,
        *,
        threads: Executor,
        announce: Callable[[Sequence[StoredResult]], Awaitable[None]],
        metrics: Metrics,
        failed: Callable[[BaseException], None],
    ) -> None:
        """`announce`: send these, and return when they are on their way. `failed`: the worker cannot go on."""
        self._segments, self._log, self._keeping = segments, fetch_log, keeping
        self._threads, self._announce, self._metrics, self._failed = threads, announce, metrics, failed
        self._loop = asyncio.get_running_loop()
        self._waiting: list[StoredResult] = []  # of the segment that is open
        self._content: dict[bytes, StoredContent] = {}  # by hash: durable, the oldest first
        self._content_open: dict[bytes, StoredContent] = {}  # in the open segment
        self._open_name = ""
        self._bringing: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._log_timer: asyncio.TimerHandle | None = None
        self._due = False  # the open segment is to be brought as soon as an upload may begin

    def has_room(self) -> bool:
        """Whether the spool takes more bodies."""
        return self._segments.backlog_bytes() < self._keeping.spool_bytes_max

    def backlog_bytes(self) -> int:
        return self._segments.backlog_bytes()

    @property
    def backlog_bytes_max(self) -> int:
        return self._keeping.spool_bytes_max

    def keep(self, lease: FetchLease, fetched: Fetched) -> None:
        """A result, and its body if it has one. Raises StoreFailed when the spool does not take it."""
        result, stored, duplicate = fetched.result, None, False
        if fetched.response is not None and result.outcome is Outcome.FETCHED:
            stored, duplicate = self._store(result, fetched.response)
            self._metrics.count("headrace_bodies_total", 1, ("revisit" if duplicate else "new",))
            if result.kind is not Kind.ROBOTS:  # kept for the archive; its rules came with the result
                self._waiting.append(stored)
            self._seal_in_time()
        row = fetch_log_row(
            result,
            stored,
            url_version=lease.url_version,
            attempt=lease.attempt,
            policy_version=lease.policy_version,
            owner_epoch=lease.owner_epoch,
            delay_ms=lease.delay_ms,
            duplicate=duplicate,
        )
        self._log.add(row)
        if self._log.is_full:
            self._roll()
        elif self._log_timer is None:
            self._log_timer = self._loop.call_later(self._keeping.log_ms / 1_000, self._roll)

    async def close(self) -> None:
        """Bring and announce all that is left."""
        if self._timer is not None:
            self._timer.cancel()
        if self._log_timer is not None:
            self._log_timer.cancel()
        while self._bringing:
            await asyncio.wait(self._bringing)
        if self._waiting or self._segments.backlog_bytes():
            await self._bring(self._take_waiting())
        await self._loop.run_in_executor(self._threads, self._log.roll)

    def _store(self, result: FetchResult, response: Response) -> tuple[StoredResult, bool]:
        """Append the body, or a revisit record where the same bytes lie stored already."""
        content_hash = hashlib.sha256(response.body).digest()
        known = self._known(content_hash)
        ref = self._segments.append_response(result.url, response, content_hash, known)
        if known is None:
            if ref.segment != self._open_name:  # a full one was closed by its last record
                self._content_open, self._open_name = {}, ref.segment
            self._content_open[content_hash] = StoredContent(ref, result.url, response.fetched_ms)
        stored = stored_result(
            result,
            response.headers,
            content_hash=content_hash,
            body=ref,
            content=ref if known is None else known.content,
        )
        return stored, known is not None

    def _known(self, content_hash: bytes) -> StoredContent | None:
        known = self._content.get(content_hash)
        if known is None and self._segments.open_segment() == self._open_name:
            known = self._content_open.get(content_hash)
        return known

    # --- bringing segments ----------------------------------------------------------------------------------------

    def _seal_in_time(self) -> None:
        if not self._segments.open_segment():  # its last record filled it
            self._bring_soon()
        elif self._timer is None and not self._due:
            self._timer = self._loop.call_later(self._keeping.seal_ms / 1_000, self._bring_soon)

    def _bring_soon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due = len(self._bringing) >= self._keeping.uploads_max
        if self._due:
            return  # the next upload that ends begins it
        task = self._loop.create_task(self._bring(self._take_waiting()))
        self._bringing.add(task)
        task.add_done_callback(self._brought)

    def _take_waiting(self) -> tuple[list[StoredResult], dict[bytes, StoredContent]]:
        waiting, self._waiting = self._waiting, []
        content, self._content_open, self._open_name = self._content_open, {}, ""
        return waiting, content

    async def _bring(self, taken: tuple[list[StoredResult], dict[bytes, StoredContent]]) -> None:
        """The segments that are open now, then their announcements. Raises StoreClosed, StoreFailed."""
        stored, content = taken
        await self._loop.run_in_executor(self._threads, self._segments.sync)
        self._content.update(content)
        while len(self._content) > bounds.CONTENT_KNOWN_MAX:
            del self._content[next(iter(self._content))]
        if stored:
            await self._announce(stored)

    def _brought(self, task: asyncio.Task[None]) -> None:
        self._bringing.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, StoreClosed):
            self._failed(error)
        elif self._due and error is None:
            self._bring_soon()

    def _roll(self) -> None:
        """The fetch log's rows become a file."""
        if self._log_timer is not None:
            self._log_timer.cancel()
            self._log_timer = None
        task = self._loop.create_task(self._roll_in_thread())
        self._bringing.add(task)
        task.add_done_callback(self._brought)

    async def _roll_in_thread(self) -> None:
        await self._loop.run_in_executor(self._threads, self._log.roll)
