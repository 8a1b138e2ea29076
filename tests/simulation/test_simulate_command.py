"""`headrace simulate`: what it says of seeds that hold, and of one that does not."""

from __future__ import annotations

import json

import pytest

from streams.cli import main
from streams.core.failures import EXIT_DONE, EXIT_FAILED, EXIT_USAGE
from streams.simulation.faults import OPPORTUNITIES
from tests.simulation.broken_rules import delay_ignored
from tests.support.fake_engine import Captured


def test_a_seed_that_holds_is_told_with_its_faults() -> None:
    """Protects the report: every kind of fault has its line, and the exit code is 0."""
    shell = Captured()
    assert main(["simulate", "--seed", "5"], shell) == EXIT_DONE
    lines = shell.printed.splitlines()
    assert all(any(line.startswith(f"  {kind} ") for line in lines) for kind in OPPORTUNITIES)
    assert lines[-1] == "no violation"


def test_a_failure_tells_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects the way from a failure to its cause: seed, rule, the host's last events, the command; exit code 1."""
    delay_ignored(monkeypatch)
    shell = Captured()
    assert main(["simulate", "--seeds", "2", "--seed", "5", "--processes", "1"], shell) == EXIT_FAILED
    assert "again: headrace simulate --seed 5" in shell.printed
    assert "delay: " in shell.printed
    assert " asks " in shell.printed
    assert "2 of 2 seeds broke a rule" in shell.said
    shell = Captured()
    assert main(["simulate", "--seed", "5", "--json"], shell) == EXIT_FAILED
    assert json.loads(shell.printed)["failures"][0]["rule"] == "delay"


def test_a_seed_that_is_no_number_is_refused() -> None:
    """Protects a typo from running something else."""
    shell = Captured()
    assert main(["simulate", "--seed", "x"], shell) == EXIT_USAGE
    assert 'came "x"' in shell.said
