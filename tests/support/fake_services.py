"""Services that are a few lines of Python each, for the launcher's rules: processes, ports and signals are real."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from infra.services import catalog
from infra.services.catalog import HOST, Bundle
from infra.services.commands import Command, Place
from infra.services.java import Java
from infra.services.launcher import Tools
from infra.services.ready import NotReadyError

__all__ = ["FakeServices", "free_ports"]

# Arguments: how it behaves, then the ports. Whoever connects is told "ready", or "I sulk".
_SERVER = """
import select, signal, socket, sys
manner, ports = sys.argv[1], [int(word) for word in sys.argv[2:]]
if manner == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if manner == "dies":
    sys.exit("line one\\nthe vault is locked")
servers = [socket.create_server(("127.0.0.1", port)) for port in ports]
print("listening", flush=True)
while True:
    for server in select.select(servers, [], [])[0]:
        connection = server.accept()[0]
        connection.sendall(b"I sulk" if manner == "sulks" else b"ready")
        connection.close()
"""


class FakeServices:
    """What `launcher` is given: `manners` says how a service behaves (`deaf`, `dies`, `sulks`), the rest behave well.

    `events` tells, in order, who was prepared and who first answered.
    """

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.manners: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self.events: list[str] = []
        self.said: list[str] = []
        self.damaged: list[str] = []
        self.free_bytes = 1 << 40
        self.interrupt: Callable[[], None] | None = None  # called at the first question
        self.environ = {"PATH": "/usr/bin:/bin", "HEADRACE_PORTS": free_ports()}

    def tools(self, *, ready_s: float = 30.0, stop_s: float = 30.0) -> Tools:
        return Tools(
            fetch=self._fetch,
            sink_plugins=lambda environ, say: Path("/plugins") / self.versions.get("connect", "1"),
            damaged=lambda bundle, folder: self.damaged,
            free_bytes=lambda path: self.free_bytes,
            find_java=lambda who, span, environ: Java(Path("/java"), span[0]),
            prepare=self._prepare,
            ask=self._ask,
            environ=self.environ,
            ready_s=ready_s,
            stop_s=stop_s,
        )

    @property
    def ports(self) -> dict[str, int]:
        return catalog.ports(self.environ)

    def _fetch(
        self, bundles: Iterable[Bundle], environ: Mapping[str, str], say: Callable[[str], None]
    ) -> dict[str, Path]:
        return {bundle.name: Path("/programs") / self.versions.get(bundle.name, "1") for bundle in bundles}

    def _prepare(self, place: Place) -> Command:
        name = place.service.name
        self.events.append(f"{name} prepared")
        ports = [str(port) for port in place.own.values()]
        argv = [sys.executable, "-I", "-S", "-c", _SERVER, self.manners.get(name, "behaves"), *ports]
        return Command(argv, {}, self._first(name))

    def _first(self, name: str) -> list[str] | None:
        if self.manners.get(name) != "fails first":
            return None
        return [sys.executable, "-I", "-S", "-c", "import sys; sys.exit('the format is unknown')"]

    def _ask(self, name: str, ports: Mapping[str, int], folder: Path) -> None:
        if self.interrupt is not None:
            now, self.interrupt = self.interrupt, None
            now()
        try:
            with socket.create_connection((HOST, ports[name]), timeout=5) as connection:
                answer = connection.recv(16).decode()
        except OSError as error:
            raise NotReadyError(str(error)) from error
        if answer != "ready":
            raise NotReadyError(answer)
        if f"{name} answered" not in self.events:
            self.events.append(f"{name} answered")


def free_ports() -> str:
    """HEADRACE_PORTS with a port for every name that nobody has now."""
    with contextlib.ExitStack() as stack:
        sockets = {name: stack.enter_context(socket.create_server((HOST, 0))) for name in catalog.PORTS}
        return ",".join(f"{name}={server.getsockname()[1]}" for name, server in sockets.items())
