"""The metrics that alarms and dashboards rest on are those that workers show, by name and labels."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.metrics import METRICS
from streams.fleet.metrics import Metrics

ROOT = Path(__file__).parents[2]
EMITTERS = [
    *sorted((ROOT / "streams" / "fleet").glob("*.py")),
    *sorted((ROOT / "connectors").glob("*.py")),
    *sorted((ROOT / "infra").glob("wiring_*.py")),
]


def emitted() -> Iterator[tuple[str, str]]:
    """(metric, file) of every name that stands in what workers run."""
    for path in EMITTERS:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in METRICS:
                yield node.value, path.name
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not (node.value.startswith("headrace_") and node.value.replace("_", "").isalpha()), node.value


def test_every_metric_is_emitted_and_no_other() -> None:
    """An alarm on a name that nobody emits never comes, and a name that is not declared ends its page."""
    assert {name for name, _ in emitted()} == set(METRICS)


@pytest.mark.parametrize("name", sorted(METRICS))
def test_a_metric_needs_all_its_labels(name: str) -> None:
    """A sample that lacks a label is another series than the one that is asked for."""
    metrics = Metrics("owner", lambda: [(name, ("x",) * (len(METRICS[name].labels) + 1), 1.0)])
    with pytest.raises(ValueError, match="zip"):
        metrics.page()
    metrics.gauges = lambda: [(name, ("x",) * len(METRICS[name].labels), 1.0)]
    assert f'{name}{{stage="owner"' in metrics.page()
