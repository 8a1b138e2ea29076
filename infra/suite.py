"""The whole test suite in two parts, side by side: `python -m infra.suite [PYTEST ARGUMENTS]`.

Tests with real services wait for them most of the time, and leave a processor to the others meanwhile. Each part is a
pytest of its own. The first one's output is seen as it comes, the services' part's when both are done.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

SERVICES = "tests/services"


def main(arguments: Sequence[str]) -> int:
    pytest = [sys.executable, "-m", "pytest", *arguments]
    return side_by_side([*pytest, f"--ignore={SERVICES}"], [*pytest, SERVICES])


def side_by_side(seen: Sequence[str], kept: Sequence[str]) -> int:
    """Two commands at once. Returns the exit code of `seen` if that failed, else that of `kept`.

    An interrupt from the terminal reaches both; it is waited for both, so that what they started is ended by them.
    """
    began_s = time.monotonic()
    with tempfile.TemporaryFile() as output:
        second = subprocess.Popen(kept, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            first = subprocess.run(seen, stdin=subprocess.DEVNULL, check=False).returncode
        finally:
            print(f"== with services (the others: {time.monotonic() - began_s:.0f} s)", flush=True)
            code = second.wait()
            output.seek(0)
            shutil.copyfileobj(output, sys.stdout.buffer)
            sys.stdout.flush()
    return first or code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
