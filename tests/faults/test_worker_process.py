"""A worker's process, whatever its stages do: one port for all, and an end in time. The stages are fakes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_worker import TOLD
from tests.support.fleet_world import ROOT, until
from tests.support.ports import free_port

FAUST = ("-m", "faust", "-A", "tests.support.fake_worker", "worker", "-l", "info")
OURS = (
    "-c",
    "from streams.fleet.carrier import run_worker; from tests.support.fake_worker import app;"
    " raise SystemExit(run_worker(app, 'info'))",
)


class Process:
    """A worker of fakes."""

    def __init__(self, folder: Path, stages: str, *, command: tuple[str, ...] = FAUST, grace_s: float = 30) -> None:
        self.port = free_port()
        self.log = folder / "worker.log"
        told = f"{stages} {folder / 'data'} {self.port} {grace_s}"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                cwd=folder,
                env={**os.environ, TOLD: told, "PYTHONPATH": str(ROOT)},
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
            )

    def get(self, path: str) -> tuple[int, str]:
        """(status, body); 0 while nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def up(self) -> Process:
        until(lambda: self.get("/live")[0] == 200, f"the worker's pages\n{self.said()}", 60)
        return self

    def ended(self) -> int:
        until(lambda: self.process.poll() is not None, f"the worker's end\n{self.said()}", 60)
        return int(self.process.returncode)

    def said(self) -> str:
        return self.log.read_text("utf-8", errors="replace")


@pytest.fixture
def started() -> Iterator[list[Process]]:
    processes: list[Process] = []
    yield processes
    for one in processes:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def test_one_port_serves_all_stages(tmp_path: Path, started: list[Process]) -> None:
    """Every stage runs, its numbers are on the one page under one head a metric, and readiness waits for the last."""
    started.append(worker := Process(tmp_path, "owner,fetch,parse:waits,route").up())
    samples = {f'headrace_dead_letters_total{{stage="{stage}",error="fake"}} 1' for stage in STAGES}
    until(lambda: samples <= set(worker.get("/metrics")[1].splitlines()), f"the stages' agents\n{worker.said()}")
    assert worker.get("/metrics")[1].count("# TYPE headrace_dead_letters_total") == 1
    assert worker.get("/live") == (200, "live\n")
    assert worker.get("/ready") == (503, "parse: the first of its partitions is awaited\n")
    assert worker.get("/explain?partition=1&what=https://a.test/")[0] == 421


STAGES = ("owner", "fetch", "parse", "route")


@pytest.mark.parametrize("command", [FAUST, OURS], ids=["faust", "headrace"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_every_stage_go(
    tmp_path: Path, started: list[Process], command: tuple[str, ...], number: signal.Signals
) -> None:
    """A worker that ends without letting go makes others wait a session for its partitions; exit code 0 is an end."""
    started.append(worker := Process(tmp_path, "owner,route", command=command).up())
    worker.process.send_signal(number)
    assert worker.ended() == 0, worker.said()
    assert "owner is let go" in worker.said()
    assert "route is let go" in worker.said()


def test_a_stage_that_does_not_end_is_left_in_time(tmp_path: Path, started: list[Process]) -> None:
    """Supervisors kill after a minute: a hanging stage must not take the others' orderly end with it, and is named."""
    started.append(worker := Process(tmp_path, "owner,parse:slow,route", grace_s=1).up())
    worker.process.terminate()
    assert worker.ended() == 1, worker.said()
    assert "needed all stages ended within 1 s of SIGTERM, parse did not" in worker.said()
    assert "route is let go" in worker.said()


def test_a_stage_that_crashes_ends_the_worker(tmp_path: Path, started: list[Process]) -> None:
    """A worker that lives on with a dead stage looks well while its partitions stand still."""
    started.append(worker := Process(tmp_path, "owner,parse:crash"))
    assert worker.ended() != 0, worker.said()
    assert "parse cannot go on" in worker.said()
    assert "owner is let go" in worker.said()
