"""Every conformance runner on the shared cases, which lie beside the project."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.conformance.__main__ import load_runner, runner_names
from tests.conformance.cases import CASE_FILES, CaseResult, load_cases

SHARED_CASES = Path(__file__).resolve().parents[3] / "shared" / "cases"


@cache
def _results(runner: str) -> tuple[CaseResult, ...]:
    if not (SHARED_CASES / "url_cases.jsonl").is_file():
        pytest.fail(f"The shared cases are needed at {SHARED_CASES}: a checkout stands beside the folder shared.")
    return tuple(load_runner(runner)(SHARED_CASES))


@pytest.mark.parametrize("runner", runner_names())
def test_every_case_gets_an_accepted_answer(runner: str) -> None:
    """Each undisputed case is right and each disputed one is one of the accepted answers."""
    results = _results(runner)
    assert results, f"{runner} answered for no case of {SHARED_CASES}"
    failures = [f"{r.id}: expected {str(r.expected)[:300]}, got {str(r.got)[:300]}" for r in results if not r.passed]
    assert not failures, "\n".join(failures)


def test_no_case_is_left_unanswered() -> None:
    """A runner that goes missing, or skips cases of its file, does not make the run look better."""
    answered = {result.id for runner in runner_names() for result in _results(runner)}
    left = [case["id"] for file in CASE_FILES for case in load_cases(SHARED_CASES / file) if case["id"] not in answered]
    assert not left
