"""Runner A: a crawl in one process, without servers, on local disk.

One task owns all state and works in groups. For each group, in this order:

1. store: bodies and parsed records of the group are appended to the segments (in memory);
2. decide: the owner handles the group's events and grants (pure);
3. make durable, in a thread: the segments are synced, then one synced RocksDB batch takes the owner's writes, the
   segments' position, the content index and the fetch log's journal;
4. release: only now are leases fetched and bodies parsed.

Stored bodies that are to be read again, since the scope grew, go to the parsers while those have little else to do.

A crash at any point leaves the last batch: segments are cut back to its position, leases that were out are closed and
leased again one delay later, bodies that waited to be parsed are parsed.
Backpressure: a group is bounded; leases are granted only while requests, unstored bodies and unparsed pages are below
their limits. What waits to be parsed is durable and small (a reference), so nothing else needs a bound of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from connectors.control_folder import ControlFolder
from connectors.crawldb_rocksdb import CrawlDb
from connectors.files import StoreFailed
from connectors.parser_frames import failed_page
from connectors.ports import Fetched, ParseOutput, Parser, Web
from connectors.segments_local import LocalSegments
from schemas.records import BodyRef, DiscoveredUrl, FetchLease, FetchLogRow, HostPolicy, ParseTask
from streams.core import policy as bounds
from streams.core.failures import EXIT_FAILED, EXIT_INTERRUPTED, CrawlError
from streams.core.hosts import NEVER_MS, PRIVATE_ADDRESS, decode_host
from streams.core.owner import Event, Owner
from streams.core.progress import EndReason, Progress, State, Summary
from streams.core.rows import QueueClass, Status
from streams.core.tasks import decode_task
from streams.core.turn import Family, Turn
from streams.ledger import Group, Ledger
from streams.tally import Tally

_START_BATCH = 2_000  # URLs that become due in one commit, as a run begins

# Instants are whole milliseconds: a delay from the end of one to the beginning of another is too short by almost one.
# So no request goes out in the millisecond of its grant. Two, as a timer may be early by one.
_TICK_S = 0.002


class Limits(msgspec.Struct, frozen=True):
    """The runner's own bounds."""

    fetches_max: int = 256
    parses_max: int = 8  # bodies at the parsers at once
    parse_backlog_max: int = bounds.PARSE_BACKLOG_MAX  # beyond, nothing is granted
    store_backlog_bytes_max: int = bounds.STORE_BACKLOG_BYTES_MAX  # fetched and not yet durable
    pages_max: int | None = None
    time_ms_max: int | None = None
    wait_ms_max: int = 20 * bounds.MINUTE_MS  # how long to linger when nothing is ready


class Engine:
    """Drives the core for one folder. `run` once; `drain`, `stop` and `progress` from the same event loop."""

    def __init__(
        self,
        *,
        owner: Owner,
        db: CrawlDb,
        make_web: Callable[[], Web],
        make_parser: Callable[[], Parser],
        segments: LocalSegments,
        write_log: Callable[[int, Sequence[FetchLogRow]], None],
        limits: Limits,
        seeds: Sequence[DiscoveredUrl],
        now: Callable[[], int],
        publish: Callable[[Progress], None],
        on_new_seeds: Callable[[Sequence[str]], dict[str, bytes]],
        close: Callable[[], None],
        control: ControlFolder | None = None,
        refresh: bool = False,
        allowed_anew: dict[str, bytes] | None = None,
        out: str = "",
        places: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """`now`: UTC in ms. `publish`: takes a snapshot each second. `make_*`: called once the event loop runs.

        `on_new_seeds`: widens the scope by redirect targets of seeds, and says what of it is to be kept.
        `write_log`: (number of the first row, rows) → a durable segment of the fetch log.
        `allowed_anew`: networks are allowed that earlier runs were not; kept once what was refused for it is due.
        `control`: where an operator's changes come from while this runs.
        """
        self._owner = owner
        self._db = db
        self._make_web, self._make_parser = make_web, make_parser
        self._web: Web | None = None
        self._parser: Parser | None = None
        self._segments = segments
        self._ledger = Ledger(db, segments, write_log)
        self._limits = limits
        self._seeds = seeds
        self._now = now
        self._publish = publish
        self._on_new_seeds = on_new_seeds
        self._close_folder = close
        self._control = control
        self._control_ms = self._busy_ms = 0  # when it was last looked into, and when something last happened
        self._refresh = refresh
        self._allowed_anew = allowed_anew
        self._out, self._places = out, places
        self._inbox: deque[Fetched | ParseOutput] = deque()
        self._wake = asyncio.Event()
        self._fetches: set[asyncio.Task[None]] = set()
        self._parses: set[asyncio.Task[None]] = set()
        self._to_parse: deque[tuple[ParseTask, bytes | None]] = deque()
        self._to_parse_bytes = 0
        self._unstored_bytes = 0
        self._reread_max = max(1, limits.parse_backlog_max // 4)  # fresh pages do not wait for long
        self._draining = self._stopping = False
        self._end: tuple[EndReason, str] | None = None
        self._drained_for = EndReason.DRAINED
        self._failure: BaseException | None = None
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="disk")
        self._started_ms = now()
        self._last_group_s = 0.0
        self.tally = Tally(self._started_ms, limits.pages_max, (seed.host_key for seed in seeds))

    # --- the command line's handles --------------------------------------------------------------------------------

    def drain(self) -> None:
        self._draining = True
        self._wake.set()

    def stop(self) -> None:
        self._draining = self._stopping = True
        self._wake.set()

    def progress(self) -> Progress:
        state = State.DONE if self._end else State.DRAINING if self._draining else State.RUNNING
        return self.tally.progress(
            state,
            self._owner,
            self._now(),
            in_flight=len(self._fetches),
            store_backlog=sum(isinstance(item, Fetched) for item in self._inbox),
            parse_backlog=self._parse_backlog(),
        )

    # --- the run ---------------------------------------------------------------------------------------------------

    async def run(self) -> Summary:
        """Until done, drained or failed. The folder is closed when this returns or raises."""
        try:
            return await self._run()
        finally:
            self._db.close()
            self._close_folder()

    async def _run(self) -> Summary:
        reason, detail, exit_code = EndReason.FAILED, "", EXIT_FAILED
        try:
            await self._start()
            while self._end is None:
                await self._group()
            reason, detail = self._end
            exit_code = EXIT_INTERRUPTED if reason is EndReason.STOPPED else 0
        except CrawlError as error:  # a full disk, a lost folder, no parser that starts: people must act
            detail = str(error)
        finally:
            await self._shut_down(clean=exit_code != EXIT_FAILED)
        self._end = (reason, detail)
        progress = msgspec.structs.replace(self.progress(), end_reason=reason, end_detail=detail)
        self._publish(progress)
        left, count = self.tally.hosts_left(self._owner, self._now())
        return Summary(
            progress=progress,
            reason=reason,
            reason_detail=detail,
            exit_code=exit_code,
            hosts_left=left,
            hosts_left_count=count,
            out=self._out,
            places=self._places,
        )

    async def _start(self) -> None:
        """Take over what is durable, then admit the seeds."""
        self._web, self._parser = self._make_web(), self._make_parser()
        await self._commit(self._owner.adopt(self._now(), close_leases=True), Group())
        if self._allowed_anew is not None:
            await self._ask_refused(self._allowed_anew)
        if self._refresh:
            await self._refresh_all()
        for _, raw in self._db.tasks():
            self._to_parse.append((decode_task(raw), None))
        for at in range(0, len(self._seeds), bounds.GROUP_EVENTS_MAX):
            batch = self._seeds[at : at + bounds.GROUP_EVENTS_MAX]
            await self._commit(self._owner.decide([batch], self._now(), 0), Group())
        self._feed_parsers()
        self._publish(self.progress())

    async def _ask_refused(self, meta: dict[str, bytes]) -> None:
        """What was refused for its address is due now; a look at the URLs of those hosts alone that had any."""
        for host_id, raw in self._db.hosts():
            host = decode_host(raw)
            if not host.statuses[Status.REFUSED] and host.last_error != PRIVATE_ADDRESS:
                continue
            batch: list[bytes] = []
            for key, _ in self._db.scan(Family.URL, host_id) if host.statuses[Status.REFUSED] else ():
                batch.append(key)
                if len(batch) >= _START_BATCH:
                    await self._commit(self._owner.allow_addresses(host_id, batch, self._now()), Group())
                    batch = []
            await self._commit(self._owner.allow_addresses(host_id, batch, self._now()), Group())
        self._db.commit(meta=meta)

    async def _refresh_all(self) -> None:
        """Every known URL that rests is due now."""
        while self._owner.index.loading:
            await self._commit(self._owner.load_index(self._now()), Group())
        batch: list[bytes] = []
        for key, _ in self._db.scan(Family.QUEUE):
            if key[10] == QueueClass.REVISIT:
                batch.append(key)
            if len(batch) >= _START_BATCH:
                await self._commit(self._owner.refresh(batch, self._now()), Group())
                batch = []
        await self._commit(self._owner.refresh(batch, self._now()), Group())

    async def _group(self) -> None:
        """Wait for work, then store, decide, make durable, release."""
        await self._work()
        if self._failure is not None:
            raise self._failure
        await self._reread()
        group = Group()
        room = self._room()  # before the answers leave the inbox: they may be pages that count
        events: list[Event] = []
        for _ in range(min(len(self._inbox), bounds.GROUP_EVENTS_MAX)):
            item = self._inbox.popleft()
            if isinstance(item, Fetched) and item.response is not None:
                self._unstored_bytes -= len(item.response.body)
            events += self._ledger.take(item, group)
        policies = self._operator_says()
        events += policies
        turn = self._owner.decide(events, self._now(), room)
        await self._commit(turn, group)
        if self._control is not None and policies:
            self._control.acknowledge(policies)
        if events or turn.leases:
            self._busy_ms = self._now()
        self.tally.turn(turn, group.fetched, group.duplicates)
        self._release(turn, group)
        self._consider_end(turn)

    async def _reread(self) -> None:
        """While the parsers have little to do, give them stored bodies to read again, if there are any to be."""
        place = self._owner.rereading.place
        if place is None or not self._has_room_to_reread():
            return
        rows = self._db.rows_after(place.after, bounds.REREAD_ROWS_MAX)
        at_end = len(rows) < bounds.REREAD_ROWS_MAX
        turn = self._owner.reread(rows, self._now(), at_end=at_end, tasks_max=self._reread_max)
        group = Group()
        await self._commit(turn, group)
        self.tally.turn(turn, group.fetched, group.duplicates)
        self._release(turn, group)

    def _has_room_to_reread(self) -> bool:
        return not self._draining and self._parse_backlog() < self._reread_max

    def _operator_says(self) -> list[HostPolicy]:
        """Changes that wait in the folder's inbox; a look a while."""
        if self._control is None or 0 <= self._now() - self._control_ms < bounds.CONTROL_MS:
            return []
        self._control_ms = self._now()
        return self._control.waiting()

    async def _work(self) -> None:
        """Return when there is something to do, no sooner than a short while after the last group.

        Small groups cost two syncs and a batch each; while requests are out anyway, waiting some ms for the next
        answers costs no throughput. An idle engine does not wait: the first event of a quiet time is decided at once.
        """
        loop = asyncio.get_running_loop()
        while not self._inbox and not self._stopping and self._failure is None:
            wait_ms = max(0, self._owner.next_ms() - self._now())
            if self._owner.rereading.place is not None and self._has_room_to_reread():
                break
            if (wait_ms == 0 and self._room() > 0) or (self._draining and not self._fetches and not self._parses):
                break
            if wait_ms == 0 or wait_ms > bounds.HEARTBEAT_MS:
                wait_ms = bounds.HEARTBEAT_MS
            self._wake.clear()
            timer = loop.call_later(wait_ms / 1_000, self._wake.set)
            await self._wake.wait()
            timer.cancel()
            if wait_ms == bounds.HEARTBEAT_MS:
                break
        pause_s = self._last_group_s + bounds.GROUP_MS_MIN / 1_000 - loop.time()
        if pause_s > 0 and len(self._inbox) < bounds.GROUP_EVENTS_MAX:
            await asyncio.sleep(pause_s)
        self._last_group_s = loop.time()

    def _room(self) -> int:
        """How many leases may be granted now."""
        limits = self._limits
        if self._draining or self._parse_backlog() >= limits.parse_backlog_max:
            return 0
        if self._unstored_bytes >= limits.store_backlog_bytes_max:
            return 0
        room = limits.fetches_max - len(self._fetches)
        if limits.pages_max is not None:
            unsettled = sum(isinstance(item, Fetched) for item in self._inbox)
            room = min(room, limits.pages_max - self.tally.pages - len(self._fetches) - unsettled)
        return max(0, room)

    def _parse_backlog(self) -> int:
        return len(self._to_parse) + len(self._parses)

    async def _commit(self, turn: Turn, group: Group) -> None:
        loop = asyncio.get_running_loop()
        meta = self._on_new_seeds(turn.new_seeds) if turn.new_seeds else {}
        log = self._ledger.log_rows(turn, group, self._owner.epoch)
        if turn.writes or log or group.stored or meta:
            await loop.run_in_executor(self._disk, self._ledger.make_durable, turn, group, meta, log)
        self._owner.committed(turn)
        if self._ledger.log_is_full:
            await loop.run_in_executor(self._disk, self._ledger.seal_log)

    # --- 4 release -------------------------------------------------------------------------------------------------

    def _release(self, turn: Turn, group: Group) -> None:
        for lease in turn.leases:
            task = asyncio.create_task(self._fetch(lease))
            self._fetches.add(task)
        for parse in turn.tasks:
            body = group.bodies.get(parse.url_id)
            if body is not None and self._to_parse_bytes + len(body) > bounds.PARSE_BACKLOG_BYTES_MAX:
                body = None  # it is read back when its turn comes
            self._to_parse_bytes += len(body or b"")
            self._to_parse.append((parse, body))
        self._feed_parsers()

    async def _fetch(self, lease: FetchLease) -> None:
        assert self._web is not None
        try:
            if lease.delay_ms and self._now() <= lease.not_before_ms:
                await asyncio.sleep(_TICK_S)
            fetched = await self._web.fetch(lease)
        except asyncio.CancelledError:
            return
        except BaseException as error:  # a fault of ours: it ends the run, in the task that everybody waits for
            self._fail(error)
            return
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._fetches.discard(task)
        if fetched.response is not None:
            self._unstored_bytes += len(fetched.response.body)
        self._inbox.append(fetched)
        self._wake.set()

    def _feed_parsers(self) -> None:
        while self._to_parse and len(self._parses) < self._limits.parses_max and not self._stopping:
            parse, body = self._to_parse.popleft()
            self._to_parse_bytes -= len(body or b"")
            self._parses.add(asyncio.create_task(self._parse(parse, body)))

    async def _parse(self, task: ParseTask, body: bytes | None) -> None:
        assert self._parser is not None
        try:
            if body is None:
                body = await asyncio.get_running_loop().run_in_executor(None, self._read, task.content)
            if body is None:  # the page keeps its record, and loses links and text
                output = ParseOutput(failed_page(task, "body_unreadable"))
            else:
                output = await self._parser.parse(task, body, generation=self._owner.memo.generation)
            output = msgspec.structs.replace(output, kept=task.kept)
        except asyncio.CancelledError:
            return
        except BaseException as error:  # a fault of ours: it ends the run, in the task that everybody waits for
            self._fail(error)
            return
        finally:
            current = asyncio.current_task()
            assert current is not None
            self._parses.discard(current)
        self._inbox.append(output)
        self._wake.set()
        self._feed_parsers()

    def _read(self, ref: BodyRef) -> bytes | None:
        try:
            return self._segments.read(ref)
        except StoreFailed:
            return None

    def _fail(self, error: BaseException) -> None:
        """A fault of ours in a task: the run ends with it, where it can be seen."""
        self._failure = self._failure or error
        self._wake.set()

    # --- the end ---------------------------------------------------------------------------------------------------

    def _consider_end(self, turn: Turn) -> None:
        now_ms, limits = self._now(), self._limits
        self._publish_each_second(now_ms)
        if limits.time_ms_max is not None and now_ms - self._started_ms >= limits.time_ms_max and not self._draining:
            self._draining = True
            self._drained_for = EndReason.TIME_LIMIT
        if self._stopping:
            self._end = (EndReason.STOPPED, "")
        elif self._fetches or self._inbox or self._parse_backlog() or turn.leases:
            return
        elif self._draining:
            self._end = (self._drained_for, "")
        elif limits.pages_max is not None and self.tally.pages >= limits.pages_max:
            self._end = (EndReason.PAGE_LIMIT, "")
        elif self._owner.rereading.place is None:
            self._end = self._idle_end(now_ms)

    def _idle_end(self, now_ms: int) -> tuple[EndReason, str] | None:
        """Nothing is out: is there anything to wait for?"""
        next_ms = self._owner.next_pending_ms(self._started_ms, now_ms + self._limits.wait_ms_max)
        if next_ms <= now_ms + self._limits.wait_ms_max:
            return None
        totals = self._owner.totals
        if not totals.queued_new and not totals.queued_retry:
            return EndReason.COMPLETE, ""
        if self._owner.oversight.pauses() and now_ms < self._busy_ms + self._limits.wait_ms_max:
            return None  # the operator may let a host go on
        detail = f"within {self._limits.wait_ms_max // 1_000} s"
        if next_ms < NEVER_MS:
            detail += f"; next in {(next_ms - now_ms) // 1_000} s"
        return EndReason.NOTHING_DUE, detail

    def _publish_each_second(self, now_ms: int) -> None:
        if now_ms - self.tally.published_ms >= bounds.SECOND_MS:
            self.tally.published_ms = now_ms
            self._publish(self.progress())

    async def _shut_down(self, *, clean: bool) -> None:
        """Abandon what is out; keep what is decided. Abandoned leases are closed by the next start."""
        for task in (*self._fetches, *self._parses):
            task.cancel()
        await self._closing("requests", asyncio.gather(*self._fetches, *self._parses, return_exceptions=True))
        if self._web is not None:
            await self._closing("connections", self._web.close())
        if self._parser is not None:
            await self._closing("parsers", self._parser.close())
        if clean:
            loop = asyncio.get_running_loop()
            await self._closing("segments", loop.run_in_executor(self._disk, self._ledger.close))
        self._disk.shutdown()

    async def _closing(self, what: str, step: Awaitable[object]) -> None:
        """A slow end says what it waited for: nobody should have to guess why a finished run goes on."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await step
        took_s = loop.time() - began_s
        if took_s * 1_000 > bounds.CLOSING_MS_EXPECTED:
            self.tally.warn(f"closing the {what} took {took_s:.0f} s")
