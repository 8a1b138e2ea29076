"""What the verbs need of the engine and its folder. `infra.wiring` provides it; tests bring a fake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from infra.settings import Settings
from schemas.records import DeadLetter, DiscoveredUrl
from streams.core.progress import Counts, Progress, Summary

if TYPE_CHECKING:
    from connectors.exports import PageRow
    from schemas.records import HostPolicy
    from streams.core.host_policy import Change, Standing

__all__ = ["Backend", "CrawlReader", "Engine", "default_backend"]


class Engine(Protocol):
    """A crawl that is open and holds its folder."""

    async def run(self) -> Summary:
        """Until done, drained or failed."""
        ...

    def drain(self) -> None:
        """No more grants; finish what is in flight, commit, end."""
        ...

    def stop(self) -> None:
        """Abandon fetches, commit what is decided, end."""
        ...

    def progress(self) -> Progress: ...


class CrawlReader(Protocol):
    """A crawl's folder, read only, also while a crawl runs in it."""

    def progress(self) -> Progress | None:
        """The last snapshot of the run that holds the folder; None when none does."""
        ...

    def last_run(self) -> Progress | None:
        """The last snapshot of the last run, whether it goes on or not; None when there was none."""
        ...

    def counts(self) -> Counts: ...

    def explain(self, url_or_host: str, now_ms: int) -> list[tuple[str, str]]:
        """(label, sentence), the decisive one first."""
        ...

    def pages(self) -> Iterator[PageRow]:
        """Every known URL, a row each."""
        ...

    def position(self) -> tuple[tuple[str, int], ...]:
        """How far an export may read the open segments."""
        ...

    def is_current(self, url: str, url_version: int) -> bool:
        """Whether a parsed page is what its URL stands for now."""
        ...

    def dead_letters(self) -> Iterator[tuple[str, DeadLetter]]:
        """By key, oldest first."""
        ...

    def policy_standings(self) -> Sequence[Standing]:
        """What an operator's words come to now, by key."""
        ...

    def policy_changes(self) -> Sequence[Change]:
        """Every change of the policy, the oldest first."""
        ...

    def close(self) -> None: ...


class Backend(Protocol):
    """All of these raise `CrawlError` with a sentence for people."""

    def open_engine(
        self, settings: Settings, seeds: Sequence[DiscoveredUrl], out: Path, *, refresh: bool = False
    ) -> Engine: ...

    def open_reader(self, out: Path) -> CrawlReader: ...

    def change_host_policies(
        self, out: Path, changes: Sequence[HostPolicy], *, wait_s: float, now_ms: Callable[[], int]
    ) -> Sequence[Change] | None:
        """What was applied; None: it waits in the folder, durably."""
        ...

    def requeue_dead_letters(self, out: Path, keys: Sequence[str] | Literal["all"]) -> int: ...


def default_backend() -> Backend:
    """The real one. A module fits a protocol of functions."""
    from infra import wiring

    return wiring
