"""Real services for tests and benchmarks: by the launcher itself, on ports that no other run has, in a folder of their
own, ended at the end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from infra.provision.everything import provision
from infra.provision.steps import Step
from infra.services import catalog, launcher
from infra.settings_fleet import Fleet as FleetSettings
from tests.support.ports import reserved

# Beside a person's own services, and beside another test run: the first whose ports are all free, held to the end.
_OFFSETS = range(2_000, 3_200, 100)


class Fleet:
    """The services of this run. While it stands, `catalog.endpoints()` and `catalog.ports()` are theirs."""

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

    @contextlib.contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """The service stands still meanwhile (SIGSTOP): its connections stay, and nothing is answered."""
        pid = self.status()[name].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def keyspace(self, name: str) -> FleetSettings:
        """Cassandra up, with the tables in this keyspace: settings that say so."""
        settings = FleetSettings(cassandra=(self.up("cassandra")["cassandra"],), keyspace=name)
        for _, step in provision(settings, ["keyspace"]):
            assert isinstance(step, Step), step
        return settings

    def _say(self, line: str) -> None:
        self.said.append(line)
        print(line, flush=True)  # shown by pytest when the test fails


def port_offset() -> str:
    """For HEADRACE_PORTS."""
    outside = {name: value for name, value in os.environ.items() if name != "HEADRACE_PORTS"}

    def ports(offset: int) -> list[int]:
        return list(catalog.ports({**outside, "HEADRACE_PORTS": f"+{offset}"}).values())

    return f"+{reserved('offset', _OFFSETS, ports)}"
