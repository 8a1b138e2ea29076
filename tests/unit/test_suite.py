"""The two parts of the test suite that run side by side."""

from __future__ import annotations

import subprocess
import sys

import pytest

RUN = """
import sys
from infra.suite import side_by_side
def part(word, code):
    return [sys.executable, "-c", f"print({word!r}); raise SystemExit({code})"]
sys.exit(side_by_side(part("first", {first}), part("second", {second})))
"""


@pytest.mark.parametrize(("first", "second", "code"), [(0, 0, 0), (3, 0, 3), (0, 4, 4), (3, 4, 3)])
def test_a_failure_of_either_part_fails_the_run(first: int, second: int, code: int) -> None:
    """Protects CI from calling a run green whose other part failed, and from swallowing what that part said."""
    script = RUN.replace("{first}", str(first)).replace("{second}", str(second))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines()[0] == "first"
    assert done.stdout.splitlines()[-1] == "second"
