"""What stock Faust does wrong, and that the mend does not: each runs both, so a version that is right shows."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Any, cast

import faust
import pytest
from faust.types import TP
from mode.supervisors import OneForOneSupervisor
from mode.utils.times import rate_limit

from streams.core.failures import CrawlError
from streams.fleet import faust_mends
from streams.fleet.faust_mends import MENDED, GroupChannel, OwnerTableManager, Patient, check_versions


def app() -> faust.App:
    return faust.App("mends", broker="kafka://127.0.0.1:1", store="memory://", TableManager=OwnerTableManager)


async def kept_over_a_rebalance(channel: Any, of: faust.App) -> bool:
    """Whether what was put before the flow resumed is still there after it."""
    of.flow_control.resume()
    channel.queue.put_nowait(1)
    of.flow_control.suspend()
    of.flow_control.resume()
    return not channel.queue.empty()


def test_a_group_outlives_a_rebalance() -> None:
    """A stock channel loses what waits in it: the group's feed would wait for ever, and its partition stand still."""

    async def both() -> tuple[bool, bool]:
        one = app()
        return (
            await kept_over_a_rebalance(one.channel(), one),
            await kept_over_a_rebalance(GroupChannel(one), one),
        )

    assert asyncio.run(both()) == (False, True)


@pytest.mark.parametrize(("kind", "restarts"), [(OneForOneSupervisor, 1), (Patient, 100)])
def test_an_agent_may_fail_more_than_once(kind: type[OneForOneSupervisor], restarts: int) -> None:
    """Stock, two failures within some 10 ms end the worker, for the bucket of restarts holds one token."""
    supervisor = kind(max_restarts=100.0, over=1.0)
    bucket = rate_limit(supervisor.max_restarts, supervisor.over)
    poured = 0
    while poured < 1_000 and bucket.pour():
        poured += 1
    assert restarts <= poured <= restarts + 5


def test_nothing_of_the_owners_table_is_fausts_to_recover() -> None:
    """Faust would wait for an offset that never comes, and apply what was undone."""

    async def recovery() -> tuple[set[TP], set[TP]]:
        one = app()
        found = cast(OwnerTableManager, one.tables).recovery
        table = one.Table("hosts", key_type=bytes, value_type=bytes)
        found.add_active(table, TP("t", 0))
        found.add_standby(table, TP("t", 1))
        return found.active_tps, found.standby_tps

    assert asyncio.run(recovery()) == (set(), set())


def test_versions_that_nobody_looked_at_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mend for one version may break another: the worker says which it needs and does not start."""
    check_versions()
    assert {name: version(name) for name in MENDED} == MENDED
    monkeypatch.setattr(faust_mends, "MENDED", {"faust-streaming": "0.15.2"})
    with pytest.raises(CrawlError, match=r"needed faust-streaming 0\.15\.2"):
        check_versions()
