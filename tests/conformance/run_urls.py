"""Conformance of the URL normal form: `url_cases.jsonl`."""

from __future__ import annotations

from pathlib import Path

from streams.core.rules.urls import normalize
from tests.conformance.cases import Case, CaseResult, Verdict, answers, expand, run_each, text_of


def run(directory: Path) -> list[CaseResult]:
    """Normalize every href of `url_cases.jsonl`; a null expectation means that the href is refused."""
    return run_each(directory / "url_cases.jsonl", _check)


def _check(case: Case) -> Verdict:
    expected = expand(case["expected_gen"]) if "expected_gen" in case else case["expected_normalized"]
    got = normalize(text_of(case, "href"), case.get("base"), case.get("document_encoding") or "utf-8")
    accepted = answers(case, expected, "also_accepted")
    return got in accepted, expected if len(accepted) == 1 else accepted, got
