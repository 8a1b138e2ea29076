"""A partition's home moves to another region in mid-crawl, in the simulator: two groups of owners, two of fetchers."""

from __future__ import annotations

import pytest

from schemas.records import Kind
from streams.core import policy as bounds
from streams.simulation.faults import Faults
from streams.simulation.fleet_owner import Fleet
from streams.simulation.loop import START_MS, Loop
from streams.simulation.owner_process import Setting
from streams.simulation.region import LOOK_MS, REGIONS
from streams.simulation.run import policy_of, simulate
from streams.simulation.web import Web

END_MS = START_MS + 4 * bounds.HOUR_MS
MOVES_MS = (START_MS + 20 * bounds.MINUTE_MS, START_MS + bounds.HOUR_MS, START_MS + bounds.HOUR_MS + 700)


def two_regions() -> tuple[Loop, Setting, Fleet]:
    """The first seed whose fleet has two regions; nothing goes wrong but what the web does."""
    for seed in range(20):
        loop = Loop(seed)
        faults = Faults(loop.random("faults"), share=0.0)
        web = Web(loop.random("web"), loop.random("answers"), faults, END_MS)
        setting = Setting(loop, web, policy_of(loop.random("setting")), faults, leases_max=64, parses_max=64)
        fleet = Fleet(setting, END_MS)
        if len(fleet.regions) == len(REGIONS):
            return loop, setting, fleet
    pytest.fail("no seed has two regions")


def test_an_owner_with_nothing_to_do_lets_go_when_its_home_went_and_came_back() -> None:
    """Protects a partition from having nobody at home: only a commit meets the fence, and an idle owner makes none.

    Found by this seed: the home moved away and back, and the owner of between held it for good.
    """
    report = simulate(5019)
    assert not report.rule, report.violation


def test_a_home_moves_in_mid_crawl() -> None:
    """The former region's owner goes on until it is fenced, the new one is at work within seconds and knows every
    host's delay and token: no judge sees a breach, no URL is lost, and no page is fetched a second time for it."""
    loop, setting, fleet = two_regions()
    loop.at(START_MS, fleet.start)
    homes = []
    for at_ms in MOVES_MS:
        loop.at(at_ms, fleet.move)
        loop.at(at_ms, lambda: homes.append((fleet.partition.home, fleet.owner)))
    at_ms = START_MS
    while at_ms < END_MS:
        at_ms += 10 * bounds.MINUTE_MS
        loop.run(at_ms)
        setting.judges.flow.look(fleet.store, loop.now_ms)
        fleet.check_home()
    while not fleet.quiet():
        loop.run(loop.now_ms + bounds.SECOND_MS)
    setting.judges.books.audit(fleet.store, fleet.waiting_tasks())
    fleet.check_rows()
    first, second, third = (home for home, _ in homes)
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.epoch < second.epoch < third.epoch
    assert first.region == third.region != second.region
    assert all(owner is not None for _, owner in homes), "somebody owned it at the moment of each move"
    leases = sorted(
        ((region, lease) for region, some in fleet.partition.leases.items() for lease in some),
        key=lambda one: one[1].lease_id,  # by epoch, and in an epoch as granted
    )
    assert {region for region, _ in leases} == set(REGIONS)
    assert len({(region, lease.owner_epoch) for region, lease in leases}) == len({one.owner_epoch for _, one in leases})
    after = next(lease for region, lease in leases if region == first.region and lease.owner_epoch > first.epoch)
    assert after.not_before_ms < MOVES_MS[0] + 3 * LOOK_MS
    pages = [(lease.url, lease.url_version, lease.attempt) for _, lease in leases if lease.kind is Kind.PAGE]
    assert len(pages) == len(set(pages))
