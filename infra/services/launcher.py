"""Starts and ends the services: `up`, `down`, `status`, `logs`.

The rules:
1. `up` looks first (programs, Java, ports, folders) and starts nothing when something is missing.
2. Then all start at once, each after those that it needs are ready. Ready is what `ready.ask` says.
3. Whoever fails, or a Ctrl-C, ends all that this `up` started; what ran before stays.
4. What runs already is left alone; what runs from older programs is started anew.
5. `down` ends what was started here, known by pid and start, and who needs it before it. Nothing else.
6. One `up` or `down` at a time for a data folder; the second waits.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

from infra.services import catalog, ready
from infra.services.catalog import HOST, Bundle, Service
from infra.services.commands import Command, Place, prepare
from infra.services.errors import ServiceError
from infra.services.fetch import damaged, sink_plugins
from infra.services.fetch import fetch as fetch_bundles
from infra.services.folder import Record, ServiceFolder, at_work_in, locked
from infra.services.java import Java, find_java
from infra.services.processes import end, identity, is_free, listener, rss_mb, spawn

__all__ = ["Running", "State", "Tools", "data_folder", "down", "logs", "status", "up"]

READY_S = 180.0  # Cassandra took 27 s on two busy cores
LOOK_S = 0.25  # between two questions to a service that does not answer yet
TAIL_LINES = 12
ROOM_BYTES = 4 << 20  # below this a service that ended may not have been able to write why


class Running(NamedTuple):
    """A service that answers. `rss_mb`: resident memory, MB of 1,000,000 bytes."""

    name: str
    pid: int
    endpoint: str
    rss_mb: int


class State(NamedTuple):
    """How a service stands: `ready`, `not ready` (it runs, `note` says why), `died`, or `stopped`."""

    name: str
    state: str
    endpoint: str
    pid: int
    rss_mb: int
    note: str


class Tools(NamedTuple):
    """What the launcher uses of the world; tests hand in fake services."""

    fetch: Callable[[Iterable[Bundle], Mapping[str, str], Callable[[str], None]], dict[str, Path]] = fetch_bundles
    sink_plugins: Callable[[Mapping[str, str], Callable[[str], None]], Path] = sink_plugins
    damaged: Callable[[Bundle, Path], list[str]] = damaged
    find_java: Callable[[str, tuple[int, int], Mapping[str, str]], Java] = find_java
    prepare: Callable[[Place], Command] = prepare
    ask: Callable[[str, Mapping[str, int], Path], None] = ready.ask
    free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free
    environ: Mapping[str, str] = os.environ
    ready_s: float = READY_S
    stop_s: float | None = None  # in place of each service's own


def data_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """`HEADRACE_SERVICES`, or `services-data` where one stands."""
    return Path(environ.get("HEADRACE_SERVICES") or "services-data").absolute()


def up(
    names: Iterable[str] = (),
    *,
    data: Path,
    fresh: bool = False,
    say: Callable[[str], None] = print,
    tools: Tools | None = None,
) -> dict[str, Running]:
    """Start the services of `names` and what they need, without names all but the optional; return when they answer.

    `fresh` first ends them, and who needs them, and takes their data away. Raises `ServiceError`; then nothing that
    this call started is left.
    """
    tools = tools or Tools()
    services = catalog.chosen(names)
    ports = catalog.ports(tools.environ)
    with locked(data, "--data", say):
        if fresh:
            named = {service.name for service in services}
            _end(_with_dependants(named), data, say, tools)
            for service in services:
                ServiceFolder(data, service.name).wipe()
        places = _places(services, data, ports, say, tools)
        starting = [place for place in places if _must_start(place, say, tools)]
        _check_ports(starting)
        _start(places, starting, say, tools)
    return {place.service.name: _running(place, tools) for place in places}


def down(
    names: Iterable[str] = (),
    *,
    data: Path,
    say: Callable[[str], None] = print,
    tools: Tools | None = None,
) -> list[str]:
    """End the services of `names` and who needs them, without names all. Gives the names of those that ran."""
    named = list(names)
    for name in named:
        catalog.chosen([name])
    if not data.is_dir():
        return []
    with locked(data, "--data", say):
        return _end(_with_dependants(named or catalog.SERVICES), data, say, tools or Tools())


def status(names: Iterable[str] = (), *, data: Path, tools: Tools | None = None) -> list[State]:
    """How the services of `names` stand, without names all. Asks each that runs; changes nothing."""
    tools = tools or Tools()
    named = list(names)
    for name in named:
        catalog.chosen([name])
    with ThreadPoolExecutor(len(catalog.SERVICES)) as pool:
        return list(pool.map(lambda name: _state(name, data, tools), named or catalog.SERVICES))


def logs(name: str, *, data: Path, lines: int) -> list[str]:
    """The last lines of a service's log."""
    catalog.chosen([name])
    return ServiceFolder(data, name).last_lines(lines)


# --- before anything starts -----------------------------------------------------------------------------------------


def _places(
    services: Sequence[Service], data: Path, ports: Mapping[str, int], say: Callable[[str], None], tools: Tools
) -> list[Place]:
    """Where each will run, with its programs fetched and its Java found."""
    javas = {
        service.name: tools.find_java(service.name, service.java, tools.environ) for service in services if service.java
    }
    bundles = {service.bundle.name: service.bundle for service in services}
    programs = tools.fetch(bundles.values(), tools.environ, say)
    places = []
    for service in services:
        plugins = tools.sink_plugins(tools.environ, say) if service.name == "connect" else None
        folder = ServiceFolder(data, service.name)
        folder.claim()
        java = javas.get(service.name)
        places.append(Place(service, folder.path, programs[service.bundle.name], ports, java, plugins))
    return places


def _must_start(place: Place, say: Callable[[str], None], tools: Tools) -> bool:
    """False when it runs as it should. What runs from older programs is ended here, to be started anew."""
    folder = _folder(place)
    record = folder.running()
    if record is None:
        return True
    name = place.service.name
    if dict(record.ports) != place.own:
        raise ServiceError(
            f"{name} runs on port {record.ports['main']} with its data in {place.folder}, and port {place.own['main']} "
            "was asked for; use that one, end it first (headrace services down), or name another folder with --data"
        )
    if record.programs != _programs(place):
        say(f"{name}: ending pid {record.who.pid}, which runs older programs")
        end(record.who, patience_s=_patience_s(name, tools))
        folder.forget()
        return True
    return False


def _check_ports(starting: Iterable[Place]) -> None:
    taken: dict[tuple[str, str], list[str]] = {}  # (service, who holds them): its ports, by name
    for place in starting:
        service = place.service.name
        for part, port in place.own.items():
            if not is_free(HOST, port):
                name = service if part == "main" else f"{service}.{part}"
                taken.setdefault((service, _holder(port)), []).append(f"{name} needs port {port}")
    if taken:
        lines = [f"{', '.join(needs)} of {HOST}, taken{holder}" for (_, holder), needs in taken.items()]
        raise ServiceError(
            "\n  ".join(lines) + "\n  end that process, or move: HEADRACE_PORTS=+500 for all, "
            "HEADRACE_PORTS=NAME=PORT for one; nothing was started"
        )


def _holder(port: int) -> str:
    """Who has the port, in words to stand behind "taken"; empty when nobody listens there."""
    holder = listener(port)
    if holder is None:
        return ""
    if holder.pid == 0:
        return " by another user's process, or one that is just ending"
    words = f" by pid {holder.pid} ({holder.command})"
    own = at_work_in(holder.pid)
    if own is not None:  # the folder of data goes by where one stands, unless it is named
        words += f", {own.name} with its data in {own.parent}: headrace services down --data {own.parent} ends it"
    return words


# --- starting -------------------------------------------------------------------------------------------------------


def _start(places: Sequence[Place], starting: Sequence[Place], say: Callable[[str], None], tools: Tools) -> None:
    """Start those of `starting` and wait for all `places`. On a failure end what was started here."""
    stop = threading.Event()
    answers = {place.service.name: threading.Event() for place in places}
    new: set[str] = set()

    def start(place: Place) -> None:
        name = place.service.name
        new.add(name)
        try:
            _launch(place, tools)
        except OSError as error:
            raise ServiceError(
                f"{name} could not be started: {error.filename or place.folder}: {error.strerror}; "
                "make room or grant the right there, or name another folder with --data"
            ) from error

    def bring(place: Place) -> None:
        for need in place.service.needs:
            while not answers[need].wait(LOOK_S):
                if stop.is_set():
                    return
        _bring(place, start, place in starting, stop, say, tools)
        answers[place.service.name].set()

    # The pool forgets a thread when a Ctrl-C falls into its start; so we count ourselves who is at work.
    at_work = 0
    changed = threading.Condition()

    def work(place: Place) -> None:
        nonlocal at_work
        with changed:
            if stop.is_set():
                return
            at_work += 1
        try:
            bring(place)
        finally:
            with changed:
                at_work -= 1
                changed.notify()

    pool = ThreadPoolExecutor(len(places))
    try:
        _first_failure([pool.submit(work, place) for place in places])
    except BaseException:  # a Ctrl-C, too, at whichever of these steps: nothing may be left half up
        with changed:
            stop.set()
            changed.wait_for(lambda: at_work == 0)
        _end(_in_order_of_ending(new), places[0].folder.parent, say, tools)
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _first_failure(futures: Sequence[Future[None]]) -> None:
    """Return when all are done, raise the first failure as soon as there is one."""
    pending: set[Future[None]] = set(futures)
    while pending:
        done, pending = wait(pending, timeout=1.0, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()


def _bring(
    place: Place,
    start: Callable[[Place], None],
    is_new: bool,
    stop: threading.Event,
    say: Callable[[str], None],
    tools: Tools,
) -> None:
    """Start one service, unless it runs, and return when it answers or `stop` is set."""
    name, folder = place.service.name, _folder(place)
    began = time.monotonic()
    if is_new:
        start(place)
    while not stop.is_set():
        if folder.running() is None:
            if is_new:
                raise _died(place, tools)
            is_new = True  # it ran when we looked, and was about to end
            start(place)
        try:
            tools.ask(name, place.ports, place.folder)
        except ready.NotReadyError as error:
            if time.monotonic() - began > tools.ready_s:
                raise ServiceError(
                    f"{name} did not answer within {tools.ready_s:.0f} s: {error}; its log: {folder.log}; "
                    "a busy machine may need a second try, otherwise mend what the log says"
                ) from error
        else:
            if folder.running() is None:
                continue  # somebody else answered
            if is_new:
                say(f"{name}: ready after {time.monotonic() - began:.1f} s")
            return
        stop.wait(LOOK_S)


def _launch(place: Place, tools: Tools) -> None:
    folder = _folder(place)
    folder.new_log()
    command = tools.prepare(place)
    if command.first is not None:
        _run_first(place, command, tools)
    process = _spawn(place, command, tools)
    who = identity(process.pid)
    if who is None:
        raise _died(place, tools)
    try:
        folder.keep(Record(who, place.own, _programs(place)))
    except OSError:  # a full disk: without its record nobody would find it again
        end(who, patience_s=_patience_s(place.service.name, tools))
        raise


def _run_first(place: Place, command: Command, tools: Tools) -> None:
    assert command.first is not None
    with open(_folder(place).log, "ab") as log:
        done = subprocess.run(
            command.first,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=place.folder,
            env=_environ(command, tools),
            check=False,
        )
    if done.returncode != 0:
        raise _died(place, tools)


def _spawn(place: Place, command: Command, tools: Tools) -> subprocess.Popen[bytes]:
    try:
        return spawn(command.argv, log=_folder(place).log, cwd=place.folder, environ=_environ(command, tools))
    except OSError as error:
        raise ServiceError(f"{place.service.name} could not be started: {command.argv[0]}: {error.strerror}") from error


def _environ(command: Command, tools: Tools) -> dict[str, str]:
    # glibc keeps an arena of 64 MB for each of many threads otherwise.
    return {**tools.environ, "MALLOC_ARENA_MAX": "2", **command.environ}


def _died(place: Place, tools: Tools) -> ServiceError:
    folder = _folder(place)
    folder.forget()
    lines = folder.last_lines(TAIL_LINES) or ["(its log is empty)"]
    odd = tools.damaged(place.service.bundle, place.programs)
    if odd:  # its data may be sound, and beginning without it would mend nothing
        remedy = f"its programs are damaged, {odd[0]} first: remove {place.programs}; the next `up` fetches them again"
    elif tools.free_bytes(folder.path) < ROOM_BYTES:
        remedy = f"the disk of {folder.path} is full: make room there, or name another folder with --data"
    else:
        anew = f"headrace services up {place.service.name} --fresh --data {folder.path.parent}"
        remedy = f"mend what it says, or begin anew without its data: {anew}"
    return ServiceError(
        f"{place.service.name} ended while it started; the last lines of {folder.log}:\n  "
        + "\n  ".join(line[:300] for line in lines)
        + f"\n  {remedy}"
    )


# --- ending and looking ---------------------------------------------------------------------------------------------


def _end(names: Sequence[str], data: Path, say: Callable[[str], None], tools: Tools) -> list[str]:
    """End those of `names` that run: first who needs others, then the rest, side by side."""
    ran: list[str] = []
    levels = [[name for name in names if catalog.SERVICES[name].needs], names]
    for level in levels:
        records = {name: ServiceFolder(data, name).running() for name in level}
        running = {name: record.who for name, record in records.items() if record is not None}
        with ThreadPoolExecutor(len(catalog.SERVICES)) as pool:
            waits = [_patience_s(name, tools) for name in running]
            ends = pool.map(lambda who, patience_s: end(who, patience_s=patience_s), running.values(), waits)
            for name, patience_s, gently in zip(running, waits, ends, strict=True):
                by = "" if gently else f" by SIGKILL: it had not ended {patience_s:g} s after SIGTERM"
                say(f"{name}: ended pid {running[name].pid}{by}")
        ran += running
        for name in level:
            ServiceFolder(data, name).forget()
    return ran


def _patience_s(name: str, tools: Tools) -> float:
    return catalog.SERVICES[name].stop_s if tools.stop_s is None else tools.stop_s


def _with_dependants(names: Iterable[str]) -> list[str]:
    wanted = set(names)
    wanted |= {service.name for service in catalog.SERVICES.values() if wanted & set(service.needs)}
    return _in_order_of_ending(wanted)


def _in_order_of_ending(names: Iterable[str]) -> list[str]:
    wanted = set(names)
    return [name for name in reversed(list(catalog.SERVICES)) if name in wanted]


def _state(name: str, data: Path, tools: Tools) -> State:
    folder = ServiceFolder(data, name)
    record = folder.record()
    if record is None:
        return State(name, "stopped", "", 0, 0, "")
    endpoint = _endpoint(name, record.ports)
    if folder.running() is None:
        return State(name, "died", endpoint, 0, 0, f"pid {record.who.pid} is gone; its log: {folder.log}")
    pid = record.who.pid
    ports = {name if part == "main" else f"{name}.{part}": port for part, port in record.ports.items()}
    try:
        tools.ask(name, ports, folder.path)
    except ready.NotReadyError as error:
        return State(name, "not ready", endpoint, pid, rss_mb(pid), str(error))
    return State(name, "ready", endpoint, pid, rss_mb(pid), "")


def _running(place: Place, tools: Tools) -> Running:
    record = _folder(place).record()
    assert record is not None, place.service.name
    name, pid = place.service.name, record.who.pid
    return Running(name, pid, catalog.endpoints(tools.environ)[name], rss_mb(pid))


def _endpoint(name: str, own: Mapping[str, int]) -> str:
    return catalog.endpoint(name, own["main"])


def _folder(place: Place) -> ServiceFolder:
    return ServiceFolder(place.folder.parent, place.service.name)


def _programs(place: Place) -> str:
    return " ".join(str(path) for path in (place.programs, place.plugins) if path is not None)
