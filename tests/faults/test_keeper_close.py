"""A worker that ends lets all of its partitions go, whatever became of one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from streams.fleet.feed import Pace
from streams.fleet.keeper import Keeper, Limits
from streams.fleet.metrics import Metrics
from streams.fleet.owner import Ports, Setting


class Reader:
    """Of Kafka, as far as it is closed."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def test_a_hand_over_that_was_cut_off_leaves_no_reader_behind(tmp_path: Path) -> None:
    """Protects the others of its group: a worker that ends but goes on reading keeps its partitions from them for ever.

    Found as a worker that was told to end two seconds after another had joined, and hung.
    """
    inbox, follower = Reader(), Reader()

    async def nothing(group: object) -> None: ...

    async def end() -> None:
        keeper = Keeper(
            tmp_path,
            cast(Setting, SimpleNamespace(partitions=1)),
            Ports(urls=cast(Any, None), epochs=cast(Any, None), changelog=cast(Any, None), open_log=cast(Any, None)),
            inbox=cast(Any, inbox),
            follower=cast(Any, follower),
            metrics=Metrics("owner"),
            pace=Pace(),
            limits=Limits(settle_s=5.0),
            carry_out=nothing,
            failed=lambda error: None,
        )
        cut_off = asyncio.create_task(asyncio.Event().wait())
        cut_off.cancel()
        keeper._tasks[0] = cast(Any, cut_off)
        await keeper.close()

    asyncio.run(end())
    assert inbox.closed
    assert follower.closed
