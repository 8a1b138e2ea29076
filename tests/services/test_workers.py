"""Whole workers, as operators start them: found by their record, asked at their page, replaced, and ended in time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from infra import fleet_clients
from infra.provision.everything import provision
from infra.provision.steps import Step
from infra.settings import load
from infra.settings_fleet import STAGES
from schemas.topics import partition_for
from streams.cli import main
from tests.services.conftest import Fleet as Services
from tests.support.fake_engine import Captured
from tests.support.fleet_world import ROOT, remove_topics, until
from tests.support.ports import free_port
from tests.support.site import ServedSite

OURS = ("-m", "streams.cli", "worker")
FAUST = ("-m", "faust", "-A", "streams.app", "worker", "-l", "info", "--web-port")


NAMES = tuple(f"h{number}.test" for number in range(8))


ALARMS = ("headrace_consumer_lag_records", "headrace_commit_age_seconds")


class Worker:
    """One process, in a folder of its own."""

    def __init__(self, folder: Path, environ: dict[str, str], *command: str, stages: str = "") -> None:
        folder.mkdir()
        self.port = free_port()
        self.log = folder / "worker.log"
        told = {"HEADRACE_FLEET__DATA": str(folder / "data"), "HEADRACE_FLEET__WEB_PORT": str(self.port)}
        if stages:
            told["HEADRACE_FLEET__STAGES"] = stages
        words = [*command, str(self.port)] if command == FAUST else list(command)
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, *words],
                cwd=folder,
                env={**environ, **told, "PYTHONPATH": str(ROOT)},
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
            )

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            assert self.process.poll() is None, self.said()
            return False

    def said(self) -> str:
        return self.log.read_text("utf-8", errors="replace")[-6_000:]

    def ended(self, within_s: float) -> int:
        until(lambda: self.process.poll() is not None, f"the worker's end\n{self.said()}", within_s)
        return int(self.process.returncode)


class World:
    """Services with the fleet's things made, and what was started here."""

    def __init__(self, fleet: Services, folder: Path) -> None:
        at = fleet.up("kafka", "cassandra", "s3")
        remove_topics(at["kafka"])  # owners of other tests kept their rows elsewhere
        self.folder = folder
        self.environ = {
            **os.environ,
            "HEADRACE_FLEET__KAFKA": at["kafka"],
            "HEADRACE_FLEET__CASSANDRA": at["cassandra"],
            "HEADRACE_FLEET__S3_ENDPOINT": at["s3"],
            "HEADRACE_FLEET__SEAL_S": "1",
            "HEADRACE_FLEET__SESSION_S": "6",
            "HEADRACE_DNS__RESOLVE": ",".join(f"{name}=127.0.0.1" for name in NAMES),
            "HEADRACE_CRAWL__ALLOW_ADDRESSES": "127.0.0.0/8",
            "HEADRACE_CRAWL__WORKERS": "1",
            "HEADRACE_POLITENESS__DELAY": "50ms",
        }
        self.settings = load(environ=self.environ).fleet
        made = list(provision(self.settings, ["topics", "keyspace", "bucket"]))
        assert all(isinstance(said, Step) for _, said in made), made
        self.workers: list[Worker] = []

    def worker(self, *command: str, stages: str = "") -> Worker:
        made = Worker(self.folder / f"w{len(self.workers)}", self.environ, *command, stages=stages)
        self.workers.append(made)
        return made

    def run(self, *words: str, code: int = 0) -> Captured:
        shell = Captured(environ=self.environ, fleet=fleet_clients, now_ms=lambda: time.time_ns() // 1_000_000)
        assert main(list(words), shell) == code, shell.said
        return shell

    def close(self) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait()


def alarmed(worker: Worker) -> set[tuple[str, str]]:
    """(metric, stage) of the numbers that the alarms on lag and commit age rest on, as the worker shows them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{worker.port}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    samples = re.findall(r'^(\w+)\{stage="(\w+)"', page, re.MULTILINE)
    return {(name, stage) for name, stage in samples if name in ALARMS}


@pytest.fixture
def world(fleet: Services, tmp_path: Path) -> Iterator[World]:
    made = World(fleet, tmp_path)
    yield made
    made.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ServedSite]:
    root = tmp_path / "site"
    root.mkdir()
    (root / "index.html").write_text("<title>start</title><p>words</p>")
    with ServedSite(root) as served:
        yield served


def test_an_owner_is_found_wherever_it_is(world: World, site: ServedSite) -> None:
    """Two workers, one by our verb and one by Faust's command, share the partitions; a host's owner answers whichever
    it is, also after the other was killed; and one that is told to end does so in time, with exit code 0."""
    first = world.worker(*OURS)
    until(first.ready, "the first worker\n" + first.said(), 90)
    second = world.worker(*FAUST, stages="owner,route")
    until(second.ready, "the second worker\n" + second.said(), 90)
    pages = {f"http://127.0.0.1:{worker.port}" for worker in (first, second)}
    until(lambda: {page for page in pages if page in world.run("status", "--fleet").printed} == pages, "both to own")
    hosts = [f"http://{name}:{site.url('/').rpartition(':')[2].rstrip('/')}" for name in NAMES]
    assert len({partition_for(host, world.settings.partitions) for host in hosts}) > 2
    world.run("seeds", *(f"{host}/" for host in hosts))

    def explained(host: str) -> str:
        return world.run("explain", "--fleet", f"{host}/").printed

    def stored(host: str) -> bool:
        return "its page is stored" in explained(host)

    for host in hosts:
        until(partial(stored, host), f"{host}\n{first.said()}", 90)
    assert alarmed(first) == {(name, stage) for name in ALARMS for stage in STAGES}
    first.process.kill()
    first.process.wait()
    until(lambda: f"{second.port}: partitions 0-3" in world.run("status", "--fleet").printed, second.said(), 90)
    assert all(map(stored, hosts))
    counts = world.run("status", "--fleet").printed
    assert f"{len(hosts)} pages stored" in counts
    began = time.monotonic()
    second.process.send_signal(signal.SIGTERM)
    assert second.ended(60) == 0, second.said()
    print(f"ended after {time.monotonic() - began:.1f} s")


def test_a_second_reader_of_leases_is_refused(world: World) -> None:
    """A worker does not start beside a group that reads its topics, too: each site would be asked twice."""
    stranger = Consumer({"bootstrap.servers": world.environ["HEADRACE_FLEET__KAFKA"], "group.id": "copy-of-leases"})
    stranger.subscribe(["fetch-leases"])
    until(lambda: stranger.poll(0.1) is None and len(stranger.assignment()) == 4, "the stranger to read")
    worker = world.worker(*OURS, stages="fetch")
    assert worker.ended(60) == 1
    assert "needed headrace-fetch to be the one group that reads it, came copy-of-leases" in worker.said()
    by_faust = world.worker(*FAUST, stages="fetch")
    assert by_faust.ended(60) == 1
    assert "came copy-of-leases" in by_faust.said()
    stranger.close()
