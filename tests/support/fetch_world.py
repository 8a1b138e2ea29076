"""Fetchers for tests on a real Kafka and a real S3 store, in front of a site that keeps a log of its own."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Producer

from connectors.bodies_s3 import S3Bodies
from connectors.object_store import ObjectStore
from infra.provision import bucket
from infra.provision.s3_store import BotoStore, open_client
from infra.settings import load
from schemas.codec import encode_batch
from schemas.records import FetchLease, FetchResult, Kind, Outcome, StoredResult
from schemas.topics import partition_for
from tests.support.fetch_worker import TOLD
from tests.support.fleet_world import ROOT, FleetWorld, until
from tests.support.ports import free_port

HOSTS = 40
PAGES = 50
SESSION_S = 6


class SiteLine(msgspec.Struct, frozen=True):
    """One request, as the site saw it."""

    start_ms: float
    host: str
    path: str
    status: int
    user_agent: str


class FetchWorld:
    """Topics made anew, a bucket, the site, and fetchers."""

    def __init__(self, kafka: str, s3: str, folder: Path, *, pages: int = PAGES, page_bytes: int = 2_000) -> None:
        self.fleet = FleetWorld(kafka, folder)
        self.folder = folder
        self._environment = {
            "HEADRACE_FLEET__KAFKA": kafka,
            "HEADRACE_FLEET__S3_ENDPOINT": s3,
            "HEADRACE_FLEET__SESSION_S": str(SESSION_S),
            "HEADRACE_CRAWL__ALLOW_ADDRESSES": "127.0.0.0/8",
            "HEADRACE_DNS__RESOLVE": ",".join(f"h{number}.test=127.0.0.1" for number in range(HOSTS)),
        }
        settings = load(environ={**os.environ, **self._environment})
        for step in bucket.plan(BotoStore(settings.fleet), bucket=settings.fleet.bucket):
            if step.deed is not None:
                step.deed()
        self.objects = ObjectStore(open_client(settings.fleet), settings.fleet.bucket)
        self.bodies = S3Bodies(self.objects)
        self.fetchers: list[FetcherProcess] = []
        self._site_log = folder / "site.log"
        self._site, self.port = self._start_site(pages, page_bytes)
        self._numbers = itertools.count(1)

    def fetcher(self, name: str, **settings: Any) -> FetcherProcess:
        """Started; its name is its folder and its user agent. `seal_s` and others: of the section fleet."""
        given = {f"HEADRACE_FLEET__{key.upper()}": str(value) for key, value in settings.items()}
        made = FetcherProcess(self, name, {**self._environment, **given})
        self.fetchers.append(made)
        return made

    def site_lines(self) -> list[SiteLine]:
        """The site's log, without robots.txt."""
        data = self._site_log.read_bytes() if self._site_log.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        lines = [msgspec.json.decode(line, type=SiteLine) for line in whole.splitlines()]
        return [line for line in lines if line.path != "/robots.txt"]

    def url(self, number: int) -> str:
        """A page that nobody else of this world was given: hosts in turn, and a query of its own."""
        copy = number // PAGES  # no two pages have the same bytes
        return f"http://h{number % HOSTS}.test:{self.port}/{copy}/p{number % PAGES}.html?n={number}"

    def lease(self, *, start_in_ms: int = 0, start_within_ms: int = 20_000) -> FetchLease:
        number = next(self._numbers)
        url = self.url(number)
        first_ms = time.time_ns() // 1_000_000 + start_in_ms
        return FetchLease(
            lease_id=number.to_bytes(16, "big"),
            host_key=f"http://h{number % HOSTS}.test:{self.port}",
            url_id=number.to_bytes(16, "big"),
            url=url,
            url_version=1,
            kind=Kind.PAGE,
            attempt=0,
            policy_version=0,
            owner_epoch=1,
            not_before_ms=first_ms,
            start_by_ms=first_ms + start_within_ms,
            duration_ms_max=10_000,
        )

    def lend(self, count: int, **lease: Any) -> list[FetchLease]:
        """So many leases are on the topic, batched by partition, acknowledged."""
        made = [self.lease(**lease) for _ in range(count)]
        by_partition: dict[int, list[FetchLease]] = {}
        for one in made:
            by_partition.setdefault(partition_for(one.host_key, self.fleet.partitions), []).append(one)
        self.fleet.send(
            "fetch-leases",
            [
                (partition, encode_batch(several[at : at + 100]))
                for partition, several in by_partition.items()
                for at in range(0, len(several), 100)
            ],
        )
        return made

    def results(self) -> list[FetchResult]:
        return self.fleet.read("fetch-results", FetchResult)

    def fetched(self) -> set[bytes]:
        """Leases whose page came."""
        return {one.lease_id for one in self.results() if one.outcome is Outcome.FETCHED}

    def stored(self) -> list[StoredResult]:
        return self.fleet.read("stored-results", StoredResult)

    def close(self) -> None:
        for one in self.fetchers:
            one.kill()
        self.fleet.close()
        self._site.kill()
        self._site.wait()

    def _start_site(self, pages: int, page_bytes: int) -> tuple[subprocess.Popen[bytes], int]:
        root = self.folder / "site"
        root.mkdir()
        for number in range(pages):
            words = f"page {number} ".encode()
            (root / f"p{number}.html").write_bytes(b"<p>" + words * (page_bytes // len(words)))
        command = [sys.executable, "-m", "tests.support.site_server", str(root), "--log", str(self._site_log)]
        command += ["--copies", "1000000"]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert process.stdout is not None
        return process, int(json.loads(process.stdout.readline())["port"])


class FetcherProcess:
    """One process."""

    def __init__(self, world: FetchWorld, name: str, environment: dict[str, str]) -> None:
        self.name, self._world = name, world
        self.log = world.folder / f"{name}.log"
        data = world.folder / name
        data.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            **environment,
            TOLD: "1",
            "HEADRACE_FLEET__DATA": str(data),
            "HEADRACE_CRAWL__USER_AGENT": f"{name}/1.0",
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "-m", "faust", "-A", "tests.support.fetch_worker", "worker", "-l", "info"]
        command += ["--web-bind", "127.0.0.1", "--web-port", str(free_port()), "--web-host", "127.0.0.1"]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                command, cwd=data, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )

    def lines(self) -> list[SiteLine]:
        """What the site saw of it."""
        return [line for line in self._world.site_lines() if line.user_agent.startswith(f"{self.name}/")]

    def has(self, partitions: int) -> bool:
        """Whether it said that so many partitions became its own, all of its life counted."""
        return self.said(100_000).count("are ours") > 0 and self.owned() >= partitions

    def owned(self) -> int:
        """Partitions that it said to be its own."""
        return sum(line.count(",") + 1 for line in self.said(100_000).splitlines() if "are ours" in line)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        self.process.terminate()

    def ended(self, within_s: float = 60.0) -> int:
        """Its exit code, once it has ended by itself."""
        until(lambda: self.process.poll() is not None, f"fetcher {self.name} to end\n{self.said()}", within_s)
        return int(self.process.returncode)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def said(self, lines: int = 60) -> str:
        return "\n".join(self.log.read_text("utf-8", errors="replace").splitlines()[-lines:])


class Lending:
    """Leases at a steady pace, from `start` to `stop`; `made` is all of them, with when each was acknowledged."""

    def __init__(self, world: FetchWorld, a_second: int) -> None:
        self._world, self._every_s = world, 1 / a_second
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.made: list[tuple[float, FetchLease]] = []

    def __enter__(self) -> Lending:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        producer: Any = Producer({"bootstrap.servers": self._world.fleet.kafka, "acks": "all", "linger.ms": 1})
        while not self._stopping.wait(self._every_s):
            one = self._world.lease()
            partition = partition_for(one.host_key, self._world.fleet.partitions)
            producer.produce("fetch-leases", encode_batch([one]), partition=partition)
            producer.flush(10)
            self.made.append((time.time() * 1_000, one))

    def count(self) -> int:
        return len(self.made)


def numbers(lines: Iterable[SiteLine]) -> list[int]:
    """Which leases' URLs were asked, with repeats."""
    return sorted(int(line.path.partition("?n=")[2]) for line in lines)


def number_of(lease_id: bytes) -> int:
    return int.from_bytes(lease_id, "big")


def holds_within(
    holds: Callable[[], bool], what: str, fetchers: Iterable[FetcherProcess], within_s: float = 60
) -> None:
    """`until`, with what the fetchers said."""
    until(holds, "\n".join([what, *(f"--- {one.name}\n{one.said(25)}" for one in fetchers)]), within_s)
