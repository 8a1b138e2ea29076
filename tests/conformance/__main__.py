"""`python -m tests.conformance DIR`: run every conformance runner on a folder laid out like the shared cases.

Prints each failing id with what was expected and what came, then `N passed, N failed` alone on the last line.
Exit code 0 when all passed, 1 when some failed, 2 when DIR is not a folder of cases.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import tests.conformance
from tests.conformance.cases import CASE_FILES, CaseResult, load_cases

SHOWN_CHARS_MAX = 2_000  # of one expected or received value

Runner = Callable[[Path], list[CaseResult]]


def runner_names() -> list[str]:
    """The names of all `run_*` modules of this package, sorted."""
    return sorted(m.name for m in pkgutil.iter_modules(tests.conformance.__path__) if m.name.startswith("run_"))


def load_runner(name: str) -> Runner:
    """The `run` function of one runner module."""
    runner: Runner = importlib.import_module(f"tests.conformance.{name}").run
    return runner


def run_all(directory: Path) -> list[CaseResult]:
    """Every runner's results; a case of a known file that no runner answered for is a failure too."""
    results: list[CaseResult] = []
    for name in runner_names():
        try:
            results.extend(load_runner(name)(directory))
        except Exception:  # a runner that breaks off must not hide the results of the others
            print(f"{name} broke off:\n{traceback.format_exc()}")
    answered = {result.id for result in results}
    for file in CASE_FILES:
        for case in load_cases(directory / file):
            if case["id"] not in answered:
                disputed = bool(case.get("disputed", False))
                results.append(CaseResult(case["id"], False, "an answer", f"no runner answered for {file}", disputed))
    return results


def report(results: list[CaseResult]) -> int:
    """Print the failures and the count; the number of failures."""
    failures = [result for result in results if not result.passed]
    for result in failures:
        print(f"FAILED {result.id}{' (disputed)' if result.disputed else ''}")
        print(f"  expected: {_shown(result.expected)}")
        print(f"  got:      {_shown(result.got)}")
    print(f"{len(results) - len(failures)} passed, {len(failures)} failed")
    return len(failures)


def main(arguments: list[str]) -> int:
    """The command; returns the exit code."""
    if len(arguments) != 1:
        print("usage: python -m tests.conformance DIR", file=sys.stderr)
        return 2
    directory = Path(arguments[0])
    if not any((directory / file).is_file() for file in CASE_FILES):
        wanted = ", ".join(CASE_FILES)
        print(f"{directory} is not a folder of cases: it needs at least one of {wanted}.", file=sys.stderr)
        return 2
    try:
        return 1 if report(run_all(directory)) else 0
    except ValueError as error:
        print(f"A case file cannot be read: {error}", file=sys.stderr)
        return 2


def _shown(value: object) -> str:
    """Printable on one line and on any terminal, cut when long."""
    shown = ascii(value)
    if len(shown) > SHOWN_CHARS_MAX:
        return f"{shown[:SHOWN_CHARS_MAX]}... ({len(shown)} characters)"
    return shown


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
