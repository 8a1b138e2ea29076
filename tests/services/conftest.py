"""Real services for the tests in this folder: started by the launcher itself, on ports of their own, ended at the end.

A test asks for `fleet` and says what it needs: `fleet.up("kafka", "s3")`. What runs already costs a moment. A service
that does not come up fails the test with the launcher's words; nothing is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from infra.services import catalog, launcher
from tests.support.ports import reserved

# Beside a person's own services, and beside another test run: the first whose ports are all free, held to the end.
_OFFSETS = range(2_000, 3_200, 100)


class Fleet:
    """The services of this test run. While it stands, `catalog.endpoints()` and `catalog.ports()` are theirs."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.said: list[str] = []

    def up(self, *names: str, fresh: bool = False) -> dict[str, str]:
        """Bring up the named services, all without names. Their endpoints."""
        running = launcher.up(names, data=self.data, fresh=fresh, say=self._say)
        return {name: one.endpoint for name, one in running.items()}

    def down(self, *names: str) -> list[str]:
        """End the named services, and who needs them; all without names."""
        return launcher.down(names, data=self.data, say=self._say)

    def status(self) -> Mapping[str, launcher.State]:
        return {one.name: one for one in launcher.status(data=self.data)}

    def _say(self, line: str) -> None:
        self.said.append(line)
        print(line, flush=True)  # shown by pytest when the test fails


@pytest.fixture(scope="package")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Nothing runs yet; what the tests bring up is shared by them all and ended after the last."""
    environment = pytest.MonkeyPatch()
    environment.setenv("HEADRACE_PORTS", f"+{_offset()}")
    fleet = Fleet(tmp_path_factory.mktemp("services"))
    try:
        yield fleet
    finally:
        fleet.down()
        environment.undo()


def _offset() -> int:
    outside = {name: value for name, value in os.environ.items() if name != "HEADRACE_PORTS"}

    def ports(offset: int) -> list[int]:
        return list(catalog.ports({**outside, "HEADRACE_PORTS": f"+{offset}"}).values())

    return reserved("offset", _OFFSETS, ports)
