"""The fetch stage's Faust app, without any broker: it begins, hands leases to the fetcher, and ends in good order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from connectors.lease_reader import LeaseReader, Received
from schemas.codec import encode_batch
from schemas.topics import partition_for
from streams.fleet.fetch_app import FetchApp, Opened, Tell, fetch_app
from streams.fleet.metrics import Metrics
from tests.support.fetcher_world import PARTITIONS, FetcherWorld, fetched, lease


def test_its_life(tmp_path: Path) -> None:
    """Records go from the reader's thread through the agent; ready once it is in its group, with partitions or none,
    and not while the group does not hear of it; at the end the fetcher has left the group, sealed and announced."""
    world = FetcherWorld(tmp_path)

    async def act() -> None:
        tells: list[Tell] = []

        async def open_fetcher(metrics: Metrics, hand_on: Callable[[Sequence[Received]], None]) -> Opened:
            world.open()
            world.fetcher.revoked(range(PARTITIONS))
            tells.append(Tell(world.fetcher, hand_on))

            async def close() -> None:
                world.kill()

            return Opened(world.fetcher, cast(LeaseReader, world.reader), world.objects, close)

        app: FetchApp = fetch_app("headrace-fetch-test", data=str(tmp_path / "faust"), open_fetcher=open_fetcher)
        app.conf.web_enabled = False
        assert (app.stage, app.alive(), app.ready()) == ("fetch", None, "it has not begun yet")
        await app.start()
        assert app.ready() is None, "a fetcher more than there are partitions is in its group, with nothing to do"
        world.reader.member = False
        assert app.ready() == "it is not a member of its group now"
        world.reader.member = True
        one = lease(1)
        partition = partition_for(one.host_key, PARTITIONS)

        def tell() -> None:
            tells[0].assigned({partition: 100})
            tells[0].received([Received(partition, 100, encode_batch([one]))])

        await asyncio.get_running_loop().run_in_executor(None, tell)
        await world.until(lambda: len(world.results()) == 1, "the lease's result")
        assert (app.alive(), app.ready()) == (None, None)
        world.reader.closed = True
        assert "has ended" in (app.alive() or "")
        world.reader.closed = False
        assert tells[0].room()
        world.reader.good = False
        assert "it starts nothing" in (app.ready() or "")
        assert 'headrace_service_away_seconds{stage="fetch",service="s3"} 0' in app.metrics.page()
        await app.stop()
        assert world.reader.closed
        assert fetched(world.results()) == [1]
        assert len(world.stored()) == 1

    asyncio.run(asyncio.wait_for(act(), 60))
