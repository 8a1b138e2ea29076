"""How long an owner stays in its group."""

from __future__ import annotations

from pathlib import Path

from tests.support.fleet_worker import Order, build

A_YEAR_S = 365 * 86_400


def test_an_owner_that_reads_nothing_stays_in_its_group(tmp_path: Path) -> None:
    """aiokafka's consumer leaves for good after max_poll_interval without a read, and Faust's reads nothing in an
    owner: with the usual five minutes nobody took over after that."""
    app = build(Order(kafka="127.0.0.1:1", data=str(tmp_path), rows=str(tmp_path / "rows.sqlite")))
    assert app.conf.broker_max_poll_interval > A_YEAR_S
