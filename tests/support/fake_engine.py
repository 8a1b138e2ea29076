"""An engine, a reader and a wiring that do as a test scripted, behind the protocols that the verbs count on."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from connectors.exports import PageRow
from infra.settings import Settings
from schemas.records import DeadLetter, DiscoveredUrl, HostPolicy
from streams.cli.fleet.backend import FleetBackend
from streams.cli.shell import Shell
from streams.core.failures import CrawlError
from streams.core.host_policy import Change, Policies, Standing
from streams.core.progress import Counts, EndReason, Progress, State, Summary

NOW_MS = 1_796_000_000_000


class FakeEngine:
    """Shows one snapshot a look, then ends; or runs until it is drained or stopped."""

    def __init__(
        self,
        snapshots: Sequence[Progress] = (),
        *,
        until_told: bool = False,
        failure: CrawlError | OSError | None = None,
        on_look: Callable[[int], None] = lambda look: None,
    ) -> None:
        self._snapshots = list(snapshots) or [Progress(pages=3, elapsed_ms=1_500)]
        self._until_told, self._failure, self._on_look = until_told, failure, on_look
        self._looks = 0
        self._ended: asyncio.Event | None = None
        self.told: list[str] = []
        self.out = ""

    async def run(self) -> Summary:
        self._ended = asyncio.Event()
        if self._failure is not None:
            raise self._failure
        if self._until_told or self._looks < len(self._snapshots):
            await self._ended.wait()
        last = msgspec.structs.replace(self._snapshots[-1], state=State.DONE)
        reason, code = EndReason.COMPLETE, 0
        if "stop" in self.told:
            reason, code = EndReason.STOPPED, 130
        elif "drain" in self.told:
            reason = EndReason.DRAINED
        return Summary(last, reason, exit_code=code, out=self.out, places=(("pages, WARC", "warc/"),))

    def drain(self) -> None:
        self.told.append("drain")

    def stop(self) -> None:
        self.told.append("stop")
        self._end()

    def progress(self) -> Progress:
        snapshot = self._snapshots[min(self._looks, len(self._snapshots) - 1)]
        self._looks += 1
        self._on_look(self._looks)
        if self._looks >= len(self._snapshots) and not self._until_told:
            self._end()
        return snapshot

    def _end(self) -> None:
        if self._ended is not None:
            self._ended.set()


class FakeReader:
    """A folder's content."""

    def __init__(
        self,
        counts: Counts,
        *,
        progress: Progress | None = None,
        last_run: Progress | None = None,
        letters: Sequence[tuple[str, DeadLetter]] = (),
        because: Sequence[tuple[str, str]] = (),
        rows: Sequence[PageRow] = (),
        policies: Policies | None = None,
        changes: Sequence[Change] = (),
    ) -> None:
        self._policies, self._changes = policies or Policies(), changes
        self._counts, self._progress, self._last_run = counts, progress, last_run or progress
        self._letters, self._because, self._rows = letters, because, rows
        self.explained: list[tuple[str, int]] = []
        self.closed = 0

    def progress(self) -> Progress | None:
        return self._progress

    def last_run(self) -> Progress | None:
        return self._last_run

    def counts(self) -> Counts:
        return self._counts

    def explain(self, url_or_host: str, now_ms: int) -> list[tuple[str, str]]:
        self.explained.append((url_or_host, now_ms))
        return list(self._because)

    def pages(self) -> Iterator[PageRow]:
        yield from self._rows

    def position(self) -> tuple[tuple[str, int], ...]:
        return ()

    def is_current(self, url: str, url_version: int) -> bool:
        return True

    def dead_letters(self) -> Iterator[tuple[str, DeadLetter]]:
        yield from self._letters

    def policy_standings(self) -> list[Standing]:
        return list(self._policies.standings.values())

    def policy_changes(self) -> Sequence[Change]:
        return self._changes

    def close(self) -> None:
        self.closed += 1


class FakeBackend:
    """Keeps what it was asked for."""

    def __init__(
        self, engine: FakeEngine | None = None, reader: FakeReader | None = None, failure: CrawlError | None = None
    ) -> None:
        self.engine = engine or FakeEngine()
        self.reader = reader or FakeReader(Counts(pages=812, urls_queued=3_201))
        self._failure = failure
        self.opened: list[tuple[Settings, list[DiscoveredUrl], Path, bool]] = []
        self.requeued: list[tuple[Path, Sequence[str] | str]] = []
        self.policies = Policies()
        self.changed: list[tuple[Path, HostPolicy]] = []
        self.deaf = False

    def open_engine(
        self, settings: Settings, seeds: Sequence[DiscoveredUrl], out: Path, *, refresh: bool = False
    ) -> FakeEngine:
        if self._failure is not None:
            raise self._failure
        self.opened.append((settings, list(seeds), out, refresh))
        self.engine.out = str(out)
        return self.engine

    def open_reader(self, out: Path) -> FakeReader:
        if self._failure is not None:
            raise self._failure
        return self.reader

    def change_host_policies(
        self, out: Path, changes: Sequence[HostPolicy], *, wait_s: float, now_ms: Callable[[], int]
    ) -> list[Change] | None:
        """Applied to no crawl, in order; None while `deaf`."""
        self.changed += [(out, one) for one in changes]
        return None if self.deaf else [change for one in changes if (change := self.policies.change(one, now_ms()))]

    def requeue_dead_letters(self, out: Path, keys: Sequence[str] | Literal["all"]) -> int:
        self.requeued.append((out, keys))
        return 7 if keys == "all" else len(keys)


class Captured(Shell):
    """A shell whose streams are kept."""

    def __init__(
        self,
        backend: FakeBackend | None = None,
        stdin: bytes = b"",
        environ: Mapping[str, str] | None = None,
        *,
        fleet: FleetBackend | None = None,
        now_ms: Callable[[], int] = lambda: NOW_MS,
    ) -> None:
        self.out_text, self.err_text = io.StringIO(), io.StringIO()
        self.fake = backend or FakeBackend()
        super().__init__(
            out=self.out_text,
            err=self.err_text,
            stdin=io.BytesIO(stdin),
            environ=environ or {},
            now_ms=now_ms,
            backend=self.fake,
            fleet=fleet,
        )

    @property
    def printed(self) -> str:
        return self.out_text.getvalue()

    @property
    def said(self) -> str:
        return self.err_text.getvalue()
