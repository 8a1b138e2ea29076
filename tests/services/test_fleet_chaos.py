"""A whole fleet under load, two workers a stage: each kind of worker and each service killed once, a fetcher stopped
and woken; judged by the site's own log, the index and the tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.conftest import Fleet
from tests.support.chaos import Chaos
from tests.support.whole_fleet import STAGES

SEED = 7
HOSTS_FIRST = 4


@pytest.fixture
def chaos(fleet: Fleet, tmp_path: Path) -> Iterator[Chaos]:
    made = Chaos(fleet, tmp_path, pages=30, hosts_max=60, delay_ms=100, seed=SEED)
    try:
        made.whole.start()
        yield made
    finally:
        made.close()


def test_one_of_each_kind_dies_under_load(chaos: Chaos) -> None:
    """kill -9 of one of each stage's workers, a fetcher stopped past its session and woken, kill -9 of the broker, of
    Cassandra, S3, Connect and OpenSearch: nothing is lost, the index is what a walk says, each URL is completed once,
    the site's log shows no breach, and no worker ends for a service that was away."""
    chaos.feed(HOSTS_FIRST)
    chaos.goes_on()
    for name, act in chaos.deeds().items():
        chaos.deed(name, act)
    assert {stage: len(chaos.whole.running(stage)) for stage in STAGES} == dict.fromkeys(STAGES, 2), chaos.whole.said()
    again = chaos.check()
    print(f"{len(chaos.log())} requests, {again.total()} of them again")
