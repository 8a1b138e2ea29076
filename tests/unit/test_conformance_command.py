"""The conformance command itself: what it counts, prints and returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.__main__ import main
from tests.conformance.cases import Case, Verdict, bytes_of, judge, load_cases, text_of


def _folder(directory: Path, *cases: dict[str, Any]) -> Path:
    lines = [json.dumps(case, ensure_ascii=False) for case in cases]
    (directory / "url_cases.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return directory


GOOD = {"id": "good", "href": "http://h/a#b", "base": None, "expected_normalized": "http://h/a"}
DISPUTED = {**GOOD, "id": "disputed", "expected_normalized": None, "disputed": True, "also_accepted": ["http://h/a"]}
WRONG = {**GOOD, "id": "wrong", "expected_normalized": "http://h/b"}


def test_all_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A disputed case passes with any accepted answer, and the count is the last line alone."""
    assert main([str(_folder(tmp_path, GOOD, DISPUTED))]) == 0
    assert capsys.readouterr().out.splitlines() == ["2 passed, 0 failed"]


def test_failures_say_what_came(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A failing case is named with what was expected and what came, and the exit code tells."""
    assert main([str(_folder(tmp_path, GOOD, WRONG))]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "FAILED wrong",
        "  expected: 'http://h/b'",
        "  got:      'http://h/a'",
        "1 passed, 1 failed",
    ]


def test_a_folder_without_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong folder is an error of its own, not a run with no failures."""
    assert main([str(tmp_path)]) == 2
    assert "not a folder of cases" in capsys.readouterr().err


def test_a_broken_case_file_is_named_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line that is no JSON stops the run with file and line, not with a traceback."""
    folder = _folder(tmp_path, GOOD)
    (folder / "http_cases.jsonl").write_text('{"id": "x"}\n{\n', encoding="utf-8")
    assert main([str(folder)]) in {1, 2}
    assert "http_cases.jsonl:2" in "".join(capsys.readouterr())


def test_an_exception_is_its_case_s_failure() -> None:
    """Code that raises for one case fails that case and no other."""

    def check(_: Case) -> Verdict:
        raise ZeroDivisionError("boom")

    result = judge({"id": "x"}, check)
    assert not result.passed
    assert result.got == "ZeroDivisionError: boom"


def test_a_late_answer_is_a_failure() -> None:
    """`timeout_ms` is a limit on answering."""
    assert not judge({"id": "x", "timeout_ms": -1}, lambda _: (True, 1, 1)).passed
    assert judge({"id": "x", "timeout_ms": 60_000}, lambda _: (True, 1, 1)).passed


def test_generated_and_binary_fields() -> None:
    """A field is read from its plain, generated or base64 form alike."""
    generated = {"prefix": "a", "repeat": "bc", "times": 3, "suffix": "d"}
    assert text_of({"x_gen": generated}, "x") == "abcbcbcd"
    assert bytes_of({"x_b64": "/w=="}, "x") == b"\xff"
    assert bytes_of({"x": "é"}, "x") == b"\xc3\xa9"


def test_a_line_separator_inside_a_string_ends_no_case(tmp_path: Path) -> None:
    """U+2028 may stand unescaped in JSON; only a newline ends a case."""
    case = {"id": "x", "href": "a\u2028b"}
    assert load_cases(_folder(tmp_path, case) / "url_cases.jsonl") == [case]
