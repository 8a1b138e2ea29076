"""What a worker shows of its stages, asked without any server."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from connectors.owner_page import PATH, NotTheOwner
from schemas.metrics import METRICS
from streams.core.failures import EXIT_FAILED, UsageError
from streams.fleet.metrics import Metrics
from streams.fleet.pages import PATHS, Stage, texts


class FakeStage:
    """Says what it is told to say."""

    def __init__(self, stage: str, alive: str | None = None, ready: str | None = None) -> None:
        self.stage, self.metrics = stage, Metrics(stage)
        self._alive, self._ready = alive, ready

    def alive(self) -> str | None:
        return self._alive

    def ready(self) -> str | None:
        return self._ready


class FakeOwner(FakeStage):
    """Owns partition 3 in epoch 7."""

    def __init__(self, explain: Callable[[str], Sequence[tuple[str, str]]]) -> None:
        super().__init__("owner")
        self._explain = explain

    def explainer(self, partition: int) -> tuple[int, Callable[[str], Sequence[tuple[str, str]]]] | None:
        return (7, self._explain) if partition == 3 else None


def show(path: str, *stages: Stage, **query: str) -> tuple[int, str]:
    status, _, body = texts(path, query, stages)
    return status, body.decode()


def test_well_is_when_every_stage_is() -> None:
    """One stage that cannot go on must not hide behind the others: the page names it and says why."""
    well, waits, dead = FakeStage("route"), FakeStage("owner", ready="it waits"), FakeStage("parse", alive="it is dead")
    assert show("/live", well, waits) == (200, "live\n")
    assert show("/ready", well) == (200, "ready\n")
    assert show("/ready", well, waits) == (503, "owner: it waits\n")
    assert show("/live", waits, dead) == (503, "parse: it is dead\n")


def test_a_metric_has_one_head_whoever_counts_it() -> None:
    """Prometheus refuses a page that declares a metric twice, and with it every number of the worker."""
    one, two = FakeStage("owner"), FakeStage("parse")
    one.metrics.count("headrace_dead_letters_total", 2, ("bad_record",))
    two.metrics.count("headrace_dead_letters_total", 12_345_678, ('a "quoted"\\ error',))
    two.metrics.observe("headrace_parse_seconds", 0.2)
    one.metrics.gauges = lambda: [("headrace_partitions_owned", (), 4)]
    status, page = show("/metrics", one, two)
    assert status == 200
    assert page.splitlines()[:4] == [
        f"# HELP headrace_dead_letters_total {METRICS['headrace_dead_letters_total'].meaning}",
        "# TYPE headrace_dead_letters_total counter",
        'headrace_dead_letters_total{stage="owner",error="bad_record"} 2',
        'headrace_dead_letters_total{stage="parse",error="a \\"quoted\\"\\\\ error"} 12345678',
    ]
    assert 'headrace_parse_seconds_bucket{stage="parse",le="0.25"} 1' in page
    assert 'headrace_parse_seconds_bucket{stage="parse",le="0.1"} 0' in page
    assert 'headrace_parse_seconds_sum{stage="parse"} 0.2' in page
    assert 'headrace_partitions_owned{stage="owner"} 4' in page
    heads = [line for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads)) == 3


def test_the_owner_explains_what_it_owns() -> None:
    """The answer names the epoch; another partition, and a worker without owners, say that they do not own it."""
    owner = FakeOwner(lambda what: [("now", f"{what} is due")])
    status, body = show(PATH, FakeStage("route"), owner, partition="3", what="https://a.test/x")
    assert (status, json.loads(body)) == (
        200,
        {"partition": 3, "epoch": 7, "because": [["now", "https://a.test/x is due"]]},
    )
    assert show(PATH, owner, partition="4", what="a.test")[0] == 421
    assert show(PATH, FakeStage("route"), partition="3", what="a.test")[0] == 421
    assert show(PATH, owner, partition="x", what="a.test")[0] == 400


@pytest.mark.parametrize(
    ("error", "status"),
    [(UsageError("explain: needed a URL"), 400), (NotTheOwner("partition 3: let go meanwhile", EXIT_FAILED), 421)],
)
def test_what_an_explanation_cannot_say_is_a_status(error: Exception, status: int) -> None:
    """A partition that is let go while it is read is asked of its next owner; nothing is an error 500."""

    def explain(what: str) -> Sequence[tuple[str, str]]:
        raise error

    answered, body = show(PATH, FakeOwner(explain), partition="3", what="a.test")
    assert (answered, json.loads(body)["error"]) == (status, str(error))


def test_all_pages_are_served() -> None:
    """Probes, alarms and operators ask for these by name."""
    assert set(PATHS) == {"/live", "/ready", "/metrics", "/explain"}
    for path in PATHS:
        assert texts(path, {"partition": "1", "what": "a.test"}, [FakeStage("owner")])[0] in (200, 421)
