"""Real services for the tests: started by the launcher as a user would, in a folder and on ports of this run."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.services import catalog, launcher

SHIFTS = range(2_000, 30_000, 500)  # of all ports at once, so that the services of a person who works here stay alone


class Services:
    """The services of this run. Those that a test names are started when first named; all are ended with the run."""

    def __init__(self, data: Path, environ: dict[str, str]) -> None:
        self.endpoints = catalog.endpoints(environ)
        self._data = data
        self._tools = launcher.Tools(environ=environ)
        self._pids: dict[str, int] = {}

    def up(self, *names: str) -> None:
        """Starts those that do not run, with what they need. A service that does not come up fails the test."""
        running = launcher.up(names, data=self._data, tools=self._tools)
        self._pids |= {name: each.pid for name, each in running.items()}

    def kill(self, name: str) -> None:
        """kill -9, as a machine does when it has no memory left."""
        os.kill(self._pids[name], signal.SIGKILL)

    def log(self, name: str) -> str:
        """The end of its log."""
        return "\n".join(launcher.logs(name, data=self._data, lines=5_000))

    def down(self) -> None:
        """Ends all."""
        launcher.down(data=self._data, tools=self._tools)


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """The services of the whole run, none of them started yet."""
    shift = next(shift for shift in SHIFTS if all(_is_free(port + shift) for port in catalog.PORTS.values()))
    made = Services(tmp_path_factory.mktemp("services"), dict(os.environ) | {"HEADRACE_PORTS": f"+{shift}"})
    try:
        yield made
    finally:
        made.down()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((catalog.HOST, port)) != 0
