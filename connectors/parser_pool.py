"""Parser processes and who asks them: the `Parser` port. A bomb costs one record, whatever it does to its worker.

| what a worker does              | its record being parsed           | what else it was given | the worker           |
|---------------------------------|-----------------------------------|------------------------|----------------------|
| answers                         | the answer                        |                        | goes on              |
| runs out of memory, and says so | `parse_memory`, by the worker     | given to another       | ends, is replaced    |
| is ended by its CPU timer       | `parse_timeout`                   | given to another       | is replaced          |
| is slow on the wall clock       | given to another once, then       | given to another       | is killed, replaced  |
|                                 | `parse_timeout`                   |                        |                      |
| is killed from outside          | given to another once, then       | given to another       | is replaced          |
|                                 | `parser_died`                     |                        |                      |
| dies otherwise, sends noise     | `parser_died`                     | given to another       | (killed,) replaced   |
| dies before it said hello       | there is none                     |                        | replaced, slower     |

A worker answers in the order it was asked, so the record being parsed is always the first that has no answer yet; what
it had sent before it died arrives before the end of its stream. Replacements come at once, unless deaths follow one
another with no record done in between: then each waits longer. When not one worker in a row of START_FAILURES_MAX gets
as far as hello, the installation is broken, and `parse` says so by ParserUnavailable.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import msgspec

from connectors.parser_frames import (
    HEADER,
    HELLO,
    RESPONSE,
    RETIRING,
    BadFrame,
    Header,
    failed_page,
    parse_header,
    read_output,
    request_frame,
)
from connectors.ports import ParseOutput
from schemas.records import ParseTask
from streams.core.failures import EXIT_FAILED, CrawlError
from streams.core.policy import ParseLimits

PARSE_TIMEOUT = "parse_timeout"
PARSER_DIED = "parser_died"

PIPELINE_MAX = 4  # records a worker holds: it need not wait for us, and little is given back when it dies
DEATHS_FREE = 3  # in a row, without a record done, before replacements wait
RESPAWN_S_MIN = 0.1
RESPAWN_S_MAX = 30.0
START_FAILURES_MAX = 5
WALL_FACTOR = 4  # a worker shares its processor with others and is nice to them
WALL_S_EXTRA = 10.0
DRAIN_BYTES = 256 * 1024


class ParserUnavailable(CrawlError):
    """No worker starts, or the pool is closed: the service is away, no record is to blame."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_FAILED)


class ParserPool:
    """Parses in `workers` processes. Holds at most PIPELINE_MAX records a worker; further callers of `parse` wait.

    With `records` the outputs carry the store's records ready made, and no text. `command` stands for the worker's
    command line in tests. Workers start with the first record.
    """

    def __init__(
        self,
        workers: int = 1,
        limits: ParseLimits | None = None,
        product_token: str = "headrace",
        python: str = sys.executable,
        *,
        records: bool = True,
        command: Sequence[str] | None = None,
        wall_s_max: float | None = None,
    ) -> None:
        assert workers > 0
        self.limits = limits or ParseLimits()
        limits_json = msgspec.json.encode(self.limits).decode()
        own = (python, "-m", "connectors.parser_worker", product_token, limits_json, "1" if records else "0")
        self.command = tuple(command or own)
        self.wall_s_max = wall_s_max or self.limits.cpu_ms_max / 1000 * WALL_FACTOR + WALL_S_EXTRA
        self.deaths = 0  # of workers that were not asked to end, since the pool was made
        self._workers_max = workers
        self._slots: list[asyncio.Task[None]] = []
        self._workers: list[_Worker] = []
        self._pending: deque[_Job] = deque()
        self._room = asyncio.Semaphore(workers * PIPELINE_MAX)
        self._closed = asyncio.Event()
        self._deaths_in_a_row = 0
        self._start_failures = 0

    async def parse(self, task: ParseTask, body: bytes, *, generation: int = 0) -> ParseOutput:
        """What `body` gives; waits while the workers are full. Raises ParserUnavailable, never for the body's sake.

        With `records`, links that a worker named before for the same `generation` are left out of the page.
        """
        async with self._room:
            if self._closed.is_set():
                raise ParserUnavailable("the parser pool is closed")
            if not self._slots:
                self._slots = [asyncio.create_task(self._keep_worker()) for _ in range(self._workers_max)]
            job = _Job(task, body, generation, asyncio.get_running_loop().create_future())
            self._pending.append(job)
            self._deal()
            return await job.future

    async def close(self) -> None:
        """End all workers. What is still being parsed fails with ParserUnavailable."""
        self._closed.set()
        for worker in self._workers:
            worker.kill()
        if self._slots:
            await asyncio.wait(self._slots)
        self._fail_pending("the parser pool is closed")

    def pids(self) -> list[int]:
        """Process ids of the workers there are now."""
        return [worker.process.pid for worker in self._workers]

    # --- workers --------------------------------------------------------------------------------------------------

    async def _keep_worker(self) -> None:
        """Keep one worker there, one after another, until the pool is closed."""
        while not self._closed.is_set():
            await self._wait_before_start()
            if self._closed.is_set():
                return
            worker = _Worker(self._deal, self._done, self.wall_s_max)
            try:
                await worker.start(self.command)
            except OSError as error:  # no process or descriptor to be had now
                self._start_failed(f"{error}")
                continue
            self._workers.append(worker)
            self._deal()  # its hello may have come before it was one of them: while the loop was held up
            try:
                if self._closed.is_set():
                    worker.kill()
                await worker.ended
            finally:
                worker.kill()
                self._workers.remove(worker)
            # A killed process with much memory takes the kernel a while to clear away: not in the event loop.
            code = await asyncio.get_running_loop().run_in_executor(None, worker.process.wait)
            self._settle(worker, code)

    async def _wait_before_start(self) -> None:
        late = self._deaths_in_a_row - DEATHS_FREE
        if late > 0:
            delay_s = min(RESPAWN_S_MAX, RESPAWN_S_MIN * 2.0 ** min(late, 16))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), delay_s)

    def _settle(self, worker: _Worker, code: int) -> None:
        """A worker is gone: charge the record that it was parsing, give back the others."""
        if not worker.is_retiring:
            self.deaths += 1
            self._deaths_in_a_row += 1
        if self._closed.is_set():
            pass  # it was ended by us, in the midst of a record that is to blame for nothing
        elif not worker.is_ready:
            self._start_failed(f"{' '.join(self.command[:3])} ended with {code} before it was ready")
        elif worker.jobs and worker.late_job in (None, worker.jobs[0]) and not worker.is_retiring:
            job = worker.jobs[0]
            from_outside = code == -signal.SIGKILL and (job is worker.late_job or not worker.was_killed)
            if from_outside and not job.is_second_try:
                # No page does that: its memory and CPU time are bounded. The system or a person did, or gave the
                # worker no processor.
                job.is_second_try = True
            else:
                self._charge(worker, code)
        self._pending.extendleft(reversed(worker.jobs))
        worker.jobs.clear()
        self._deal()

    @staticmethod
    def _charge(worker: _Worker, code: int) -> None:
        """The record that was being parsed is to blame."""
        job = worker.jobs.popleft()
        slow = job is worker.late_job or code == -signal.SIGPROF
        job.finish(ParseOutput(failed_page(job.task, PARSE_TIMEOUT if slow else PARSER_DIED)))

    def _start_failed(self, why: str) -> None:
        self._start_failures += 1
        self._deaths_in_a_row = max(self._deaths_in_a_row, DEATHS_FREE + self._start_failures)
        if self._start_failures >= START_FAILURES_MAX:
            self._fail_pending(f"no parser process starts: {why}")

    def _fail_pending(self, why: str) -> None:
        while self._pending:
            job = self._pending.popleft()
            if not job.future.done():
                job.future.set_exception(ParserUnavailable(why))

    # --- records --------------------------------------------------------------------------------------------------

    def _deal(self) -> None:
        """Hand waiting records to the workers that hold the fewest."""
        while self._pending:
            free = [worker for worker in self._workers if worker.takes_more]
            if not free:
                return
            job = self._pending.popleft()
            if not job.future.done():  # its caller may have been cancelled
                min(free, key=lambda worker: len(worker.jobs)).send(job)

    def _done(self) -> None:
        """A record was done: workers live."""
        self._deaths_in_a_row = 0
        self._start_failures = 0
        self._deal()


class _Job:
    """A record and who waits for it."""

    __slots__ = ("body", "future", "generation", "is_second_try", "task")

    def __init__(self, task: ParseTask, body: bytes, generation: int, future: asyncio.Future[ParseOutput]) -> None:
        self.task = task
        self.body = body
        self.generation = generation
        self.future = future
        self.is_second_try = False

    def finish(self, output: ParseOutput) -> None:
        if not self.future.done():
            self.future.set_result(output)


class _Worker(asyncio.Protocol):
    """One process, its socket, and the records it holds in the order they were sent."""

    def __init__(self, on_ready: Callable[[], None], on_done: Callable[[], None], wall_s_max: float) -> None:
        self.process: subprocess.Popen[bytes]
        self.jobs: deque[_Job] = deque()
        self.is_ready = False
        self.is_retiring = False
        self.was_killed = False  # by us, and not only cleared away
        self.late_job: _Job | None = None  # what was being parsed when the wall clock ran out
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None  # a descriptor of our own for what a failed write leaves unread
        self._is_dying = False
        self._on_ready = on_ready
        self._on_done = on_done
        self._wall_s_max = wall_s_max
        self._first_since_s = 0.0  # when the first of `jobs` became the first
        self._watch: asyncio.TimerHandle | None = None
        self._received = bytearray()

    async def start(self, command: Sequence[str]) -> None:
        """Start the process. Raises OSError. Nothing is inherited but the socket, as standard input, and stderr."""
        ours, self.process = _spawn(command)
        self._socket = ours.dup()
        await self._loop.connect_accepted_socket(lambda: self, ours)

    @property
    def takes_more(self) -> bool:
        return self.is_ready and not (self.is_retiring or self._is_dying) and len(self.jobs) < PIPELINE_MAX

    def send(self, job: _Job) -> None:
        assert self._transport is not None
        assert self.takes_more
        if not self.jobs:
            self._first_since_s = self._loop.time()
            if self._watch is None:
                self._watch = self._loop.call_later(self._wall_s_max, self._look_at_clock)
        self.jobs.append(job)
        self._transport.writelines(request_frame(job.task, job.body, job.generation))

    def kill(self) -> None:
        """End the process now; it has nothing to lose. `ended` follows."""
        self._is_dying = True
        self.was_killed |= not self.ended.done()
        if self.process.poll() is None:
            self.process.kill()
        if self._transport is not None:
            self._transport.abort()

    def _look_at_clock(self) -> None:
        """The wall clock is the last resort: for a worker that sleeps, or that nobody gives a processor."""
        self._watch = None
        if not self.jobs or self.ended.done():
            return
        left_s = self._first_since_s + self._wall_s_max - self._loop.time()
        if left_s > 0:
            self._watch = self._loop.call_later(left_s, self._look_at_clock)
        else:
            self.late_job = self.jobs[0]
            self.kill()

    # --- asyncio.Protocol -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            while len(self._received) >= HEADER.size and not self.ended.done():
                header = parse_header(self._received)
                total = HEADER.size + header.rest_bytes
                if len(self._received) < total:
                    return
                self._frame(header)
                del self._received[:total]
        except BadFrame:
            self.kill()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._is_dying = True
        # A write to a dead process ends the transport at once. What the process had answered before tells which record
        # it died of, and lies in the socket still.
        if self._socket is not None:
            with self._socket as rest, contextlib.suppress(OSError):
                while data := rest.recv(DRAIN_BYTES):
                    self.data_received(data)
        if not self.ended.done():
            self.ended.set_result(None)

    def _frame(self, header: Header) -> None:
        if header.mark == HELLO and not self.is_ready:
            self.is_ready = True
            self._on_ready()
            return
        if header.mark != RESPONSE or not self.jobs:
            raise BadFrame("an answer that was not asked for")
        with memoryview(self._received) as view:
            output = read_output(header, view)
        job = self.jobs[0]
        if (output.page.url_id, output.page.url_version) != (job.task.url_id, job.task.url_version):
            raise BadFrame("an answer to another question")
        self.jobs.popleft()
        self._first_since_s = self._loop.time()
        self.is_retiring = bool(header.flags & RETIRING)
        job.finish(output)
        if self.is_retiring:
            self.kill()  # it has begun nothing else; what it holds is dealt anew when it is gone
        self._on_done()


def _spawn(command: Sequence[str]) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a process on one end of a new socket, as its standard input; the other end is ours. Raises OSError."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        try:
            process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": _python_path(), "OPENBLAS_NUM_THREADS": "1"},  # numpy's, never used
                process_group=0,  # a terminal's Ctrl-C is for the crawl, which drains with parsers
            )
        except OSError:
            ours.close()
            raise
    return ours, process


def _python_path() -> str:
    """Where the worker finds this package, wherever it is started."""
    root = str(Path(__file__).resolve().parents[1])
    return os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
