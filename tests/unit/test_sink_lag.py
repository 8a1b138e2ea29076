"""How far the sink is behind, as route workers show it: the alarm on the index rests on this number alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from infra.wiring_route import sink_lag
from schemas.topics import SINK_GROUP
from streams.core.failures import EXIT_FAILED, CrawlError
from streams.fleet.metrics import Metrics
from streams.fleet.sink_lag import SinkLag


class Offsets:
    """Three partitions of index-events: one taken in part, one of which retention took more than the sink had, one
    that it never read."""

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        assert group == SINK_GROUP
        return {("index-events", 0): 40, ("index-events", 1): 5, ("another", 2): 1_000}

    def bounds(self, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        bounds = [(0, 100), (10, 12), (3, 7)]
        return {place: bounds[place[1]] for place in places}


def test_what_the_sink_has_not_taken_is_counted() -> None:
    """Protects the alarm from being silent for a sink that never began, and from counting what is gone."""
    assert sink_lag(Offsets(), 3) == 60 + 2 + 4


def test_it_is_shown_and_outlives_brokers_that_are_away() -> None:
    """A look that fails must not end the looking, nor the worker; before the first answer there is no number."""

    async def act() -> None:
        loop = asyncio.get_running_loop()
        third = asyncio.Event()
        answers = iter([0, 7, 7])

        def ask() -> int:
            answer = next(answers)
            if not answer:
                raise CrawlError("kafka is away", EXIT_FAILED)
            return answer

        def asked() -> int:
            try:
                return ask()
            except StopIteration:
                loop.call_soon_threadsafe(third.set)
                return 7

        lag = SinkLag(asked, look_s=0.001)
        metrics = Metrics("route", lag.gauges)
        assert "headrace_index_lag_records" not in metrics.page()
        lag.start()
        await asyncio.wait_for(third.wait(), 20)
        assert 'headrace_index_lag_records{stage="route"} 7\n' in metrics.page()
        lag.close()

    asyncio.run(act())
