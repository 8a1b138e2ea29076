"""How many documents wait for the index: the sink is no worker of ours and shows no numbers, its group's offsets do.

Each route worker looks now and then and shows the same number, so that it is seen while any of them runs: the alarm
takes the largest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from streams.core.failures import CrawlError
from streams.fleet.metrics import Labels

__all__ = ["SinkLag"]

log = logging.getLogger(__name__)

LOOK_S = 60.0


class SinkLag:
    """For one event loop, from `start` to `close`."""

    def __init__(self, ask: Callable[[], int], *, look_s: float = LOOK_S) -> None:
        """`ask`: the documents that the sink has not taken; called in a thread. Raises CrawlError when nobody says."""
        self._ask, self._look_s = ask, look_s
        self._records: int | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._look())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def gauges(self) -> Iterable[tuple[str, Labels, float]]:
        """Nothing before it was known once; the last number while the brokers are away."""
        if self._records is not None:
            yield "headrace_index_lag_records", (), self._records

    async def _look(self) -> None:
        while True:
            try:
                self._records = await asyncio.to_thread(self._ask)
            except CrawlError as error:
                log.warning("route: how far the sink is behind is not known: %s", error)
            await asyncio.sleep(self._look_s)
