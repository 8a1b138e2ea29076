"""Every conformance runner on the cases: the copy in `tests/cases`, and the shared folder where one lies beside."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.conformance.__main__ import load_runner, runner_names
from tests.conformance.cases import CASE_FILES, CaseResult, load_cases

COPY = Path(__file__).resolve().parents[1] / "cases"
BESIDE = Path(__file__).resolve().parents[3] / "shared" / "cases"  # newer than the copy, perhaps
FOLDERS = [COPY, BESIDE] if (BESIDE / "url_cases.jsonl").is_file() else [COPY]


@cache
def _results(runner: str, folder: Path) -> tuple[CaseResult, ...]:
    return tuple(load_runner(runner)(folder))


@pytest.mark.parametrize("folder", FOLDERS, ids=["copy", "beside"][: len(FOLDERS)])
@pytest.mark.parametrize("runner", runner_names())
def test_every_case_gets_an_accepted_answer(runner: str, folder: Path) -> None:
    """Each undisputed case is right and each disputed one is one of the accepted answers."""
    results = _results(runner, folder)
    assert results, f"{runner} answered for no case of {folder}"
    failures = [f"{r.id}: expected {str(r.expected)[:300]}, got {str(r.got)[:300]}" for r in results if not r.passed]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("folder", FOLDERS, ids=["copy", "beside"][: len(FOLDERS)])
def test_no_case_is_left_unanswered(folder: Path) -> None:
    """A runner that goes missing, or skips cases of its file, does not make the run look better."""
    answered = {result.id for runner in runner_names() for result in _results(runner, folder)}
    left = [case["id"] for file in CASE_FILES for case in load_cases(folder / file) if case["id"] not in answered]
    assert not left
