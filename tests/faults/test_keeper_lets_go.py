"""A worker lets its partitions go: all of them as it ends, and one that another took while nothing was to be done."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from connectors.url_state_memory import MemoryEpochs
from streams.core.homes import Home
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


def keeper_of(folder: Path, *, epochs: Any = None, inbox: Any = None, follower: Any = None) -> Keeper:
    async def nothing(group: object) -> None: ...

    return Keeper(
        folder,
        cast(Setting, SimpleNamespace(partitions=1, region="north")),
        Ports(urls=cast(Any, None), epochs=epochs, changelog=cast(Any, None), open_log=cast(Any, None)),
        inbox=inbox,
        follower=follower,
        metrics=Metrics("owner"),
        pace=Pace(),
        limits=Limits(settle_s=5.0, own_look_s=0.0),
        carry_out=nothing,
        failed=lambda error: None,
    )


def test_a_hand_over_that_was_cut_off_leaves_no_reader_behind(tmp_path: Path) -> None:
    """Protects the others of its group: a worker that ends but goes on reading keeps its partitions from them for ever.

    Found as a worker that was told to end two seconds after another had joined, and hung.
    """
    inbox, follower = Reader(), Reader()

    async def end() -> None:
        keeper = keeper_of(tmp_path, inbox=inbox, follower=follower)
        cut_off = asyncio.create_task(asyncio.Event().wait())
        cut_off.cancel()
        keeper._tasks[0] = cast(Any, cut_off)
        await keeper.close()

    asyncio.run(end())
    assert inbox.closed
    assert follower.closed


def test_an_idle_owner_sees_that_it_was_overtaken(tmp_path: Path) -> None:
    """Protects a partition from having nobody: what has nothing to commit meets no fence, so it looks at the record.

    A number is in the record before the owner that took it knows of it: one look alone says nothing.
    """
    epochs = MemoryEpochs("north")
    owner = cast(Any, SimpleNamespace(partition=0, epoch=epochs.take(0)))
    looks: list[int] = []

    class Watched:
        def home(self, partition: int) -> Home | None:
            looks.append(owner.epoch)
            if len(looks) == 3:  # the owner takes a number of its own, and knows it a look later
                epochs.take(partition)
            elif len(looks) == 4:
                owner.epoch = 2
            elif len(looks) == 6:
                epochs.move(partition, "south")
            elif len(looks) == 8:
                epochs.move(partition, "north")
            return epochs.home(partition)

    async def watch() -> None:
        keeper = keeper_of(tmp_path, epochs=Watched())
        keeper.owners[0] = owner
        await asyncio.wait_for(keeper._overtaken(owner), 60)

    asyncio.run(watch())
    assert len(looks) == 9
