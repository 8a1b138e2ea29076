"""A whole fleet for tests and measurements: all services, workers of all stages by the real command, what came of it.

Whatever another left in the topics is gone; keyspace, bucket and index are the fleet's own. Its hosts are names that
all lead to a site on this machine.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from infra.provision.everything import provision
from infra.provision.steps import Step
from infra.provision.topics import wanted
from infra.settings import load
from infra.wiring_fleet import open_link, open_url_state
from schemas.records import DeadLetter
from schemas.topics import WORKER_GROUPS
from streams.core.rows import UrlRow, decode_row
from tests.benchmarks.measured import resident_bytes
from tests.support.fleet_world import until
from tests.support.ports import free_port
from tests.support.services import Fleet
from tests.support.site import PROJECT
from tests.support.topic_records import records_of

STAGES = tuple(group.value for group in WORKER_GROUPS)
SESSION_S = 6
CONNECTOR = "headrace-pages"
_TICKS = os.sysconf("SC_CLK_TCK")
_ROWS_OF_A_HOST_MAX = 100_000
_DEED_S_MAX = 60.0
_PAGE = 1_000  # documents of one search


class StageProcess:
    """One worker, in a session of its own, with what its parsers use."""

    def __init__(self, stage: str, name: str, folder: Path, environment: dict[str, str], module: str) -> None:
        self.stage, self.name, self.log, self.port = stage, name, folder / f"{name}.log", free_port()
        command = [sys.executable, "-m", module, "worker", "--stage", stage, "--data", str(folder / name)]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [*command, "--web-port", str(self.port)],
                cwd=folder,
                env={**environment, "PYTHONPATH": str(PROJECT)},
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def runs(self) -> bool:
        return self.process.poll() is None

    def ready(self) -> bool:
        """By its own page."""
        assert self.runs(), f"{self.name} ended by itself\n{self.said()}"
        return self._asked("/ready") is not None

    def metric(self, name: str) -> float:
        """The sum of all samples of a metric, -1.0 while its page does not answer."""
        text = self._asked("/metrics")
        if text is None:
            return -1.0
        lines = (line for line in text.splitlines() if line.startswith((name + "{", name + " ")))
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def cpu_s(self) -> float:
        """Of all processes of its session so far, and of those that it has waited for."""
        return sum(sum(map(int, fields[11:15])) for fields in _session(self.pid)) / _TICKS

    def rss_mb(self) -> float:
        return resident_bytes(self.pid) / 1e6

    def stop(self) -> None:
        """It stands still, its parsers, too."""
        os.killpg(self.pid, signal.SIGSTOP)

    def wake(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """kill -9 of the worker alone; its parsers must see to themselves, and are waited for."""
        if self.runs():
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        until(lambda: not _session(self.pid), f"the children of {self.name} to end", 30.0)

    def terminate(self, within_s: float = 120.0) -> int:
        """SIGTERM; its exit code."""
        self.process.terminate()
        until(lambda: not self.runs(), f"{self.name} to end\n{self.said()}", within_s)
        return int(self.process.returncode)

    def said(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text("utf-8", errors="replace").splitlines()[-lines:])

    def _asked(self, path: str) -> str | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:  # not there yet, or not well
            return None


class WholeFleet:
    """Services, topics made anew, and no worker yet."""

    def __init__(
        self,
        services: Fleet,
        folder: Path,
        hosts: Sequence[str],
        *,
        name: str = "whole",
        module: str = "streams.cli",
        **settings: Any,
    ) -> None:
        """`settings`: `section__key` as in the environment. `module`: whose command a worker is. All hosts lead to this
        machine."""
        folder.mkdir(parents=True, exist_ok=True)
        self._module = module
        self.services, self.folder, self.hosts = services, folder, hosts
        self.at = services.up()
        self.workers: list[StageProcess] = []
        told = {
            "fleet__kafka": self.at["kafka"],
            "fleet__cassandra": self.at["cassandra"],
            "fleet__s3_endpoint": self.at["s3"],
            "fleet__connect": self.at["connect"],
            "fleet__opensearch": self.at["opensearch"],
            "fleet__keyspace": name,
            "fleet__bucket": name,
            "fleet__index": name,
            "fleet__session_s": SESSION_S,
            "fleet__seal_s": 2,
            "crawl__user_agent": "HeadraceTest/1.0 (+https://example.org/bot)",
            "crawl__allow_addresses": "127.0.0.0/8",
            "crawl__workers": 1,
            "crawl__include": rf"https?://({'|'.join(map(re.escape, hosts))})(:\d+)?/.*",
            "dns__resolve": ",".join(f"{host}=127.0.0.1" for host in hosts),
            **settings,
        }
        outside = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
        self.environment = outside | {f"HEADRACE_{key.upper()}": str(value) for key, value in told.items()}
        self.settings = load(environ=self.environment)
        self.clear()
        for _, step in provision(self.settings.fleet):
            assert isinstance(step, Step), step
        self._link = open_link(self.settings.fleet, print)
        self._urls = open_url_state(self._link)

    def worker(self, stage: str, name: str = "") -> StageProcess:
        """Started; `name` is its folder, which a later one of the same name finds again."""
        made = StageProcess(stage, name or f"{stage}-{len(self.workers)}", self.folder, self.environment, self._module)
        self.workers.append(made)
        return made

    def start(self, each: int = 2) -> None:
        """So many workers of each stage, ready."""
        made = [self.worker(stage, f"{stage}-{number}") for stage in STAGES for number in range(each)]
        self.until(lambda: all(one.ready() for one in made), "all to be ready", 180)

    def until(self, holds: Callable[[], bool], what: str, within_s: float = 120.0) -> None:
        """Wait for it; fail with what was waited for and with what the workers said last."""
        try:
            until(holds, what, within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from None

    def running(self, stage: str) -> list[StageProcess]:
        return [one for one in self.workers if one.stage == stage and one.runs()]

    def seed(self, urls: Iterable[str]) -> None:
        """By the real command; acknowledged when this returns."""
        self.command("seeds", "-", given="\n".join(urls))

    def command(self, *words: str, given: str = "") -> str:
        """What the real command prints."""
        done = subprocess.run(
            [sys.executable, "-m", "streams.cli", *words],
            cwd=self.folder,
            env={**self.environment, "PYTHONPATH": str(PROJECT)},
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def documents(self) -> Counter[str]:
        """URL to how many documents of the index have it."""
        found: Counter[str] = Counter()
        self._search("POST", f"/{self.settings.fleet.index}/_refresh")
        after: list[Any] | None = None
        while True:
            query: dict[str, Any] = {"size": _PAGE, "sort": [{"url_id": "asc"}], "_source": ["url"]}
            if after is not None:
                query["search_after"] = after
            hits = self._search("POST", f"/{self.settings.fleet.index}/_search", query)["hits"]["hits"]
            found.update(hit["_source"]["url"] for hit in hits)
            if len(hits) < _PAGE:
                return found
            after = hits[-1]["sort"]

    def count_documents(self) -> int:
        """Of the index as it is shown now; -1 while it does not answer."""
        try:
            self._search("POST", f"/{self.settings.fleet.index}/_refresh")
            return int(self._search("GET", f"/{self.settings.fleet.index}/_count")["count"])
        except OSError:
            return -1

    def rows(self, host_keys: Iterable[str]) -> dict[str, UrlRow]:
        """The URL table of these hosts, by URL."""
        found: dict[str, UrlRow] = {}
        for host in host_keys:
            rows = [decode_row(raw) for _, raw in self._urls.scan(host, b"", _ROWS_OF_A_HOST_MAX)]
            found |= {row.url: row for row in rows}
        return found

    def dead_letters(self) -> list[DeadLetter]:
        return records_of(self.at["kafka"], "dead-letters", DeadLetter)

    def said(self, lines: int = 12) -> str:
        """The last words of every worker."""
        return "\n".join(f"--- {one.name}\n{one.said(lines)}" for one in self.workers)

    def clear(self) -> None:
        """No connector and no topics: neither of this fleet nor of another."""
        self._rest("DELETE", f"{self.at['connect']}/connectors/{CONNECTOR}")
        admin: Any = AdminClient({"bootstrap.servers": self.at["kafka"]})
        names = {topic.name for topic in wanted()}

        def there() -> list[str]:
            return [name for name in admin.list_topics(timeout=15).topics if name in names]

        if there():
            for future in admin.delete_topics(there(), operation_timeout=_DEED_S_MAX).values():
                future.result(_DEED_S_MAX)
        until(lambda: not there(), "the topics to be gone")

    def close(self) -> None:
        """No worker runs and no topic is left: the next one's counts begin at nothing."""
        for one in self.workers:
            if one.runs():
                os.killpg(one.pid, signal.SIGKILL)
                one.process.wait()
        self._link.close()
        self.clear()

    def _search(self, method: str, path: str, body: object = None) -> Any:
        return self._rest(method, self.at["opensearch"] + path, body)

    def _rest(self, method: str, url: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            if method == "DELETE" and error.code == 404:
                return None
            raise


def _session(session: int) -> list[list[str]]:
    """The fields of /proc/PID/stat after the name, of all processes of a session that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text("utf-8").rpartition(")")[2].split()
        except OSError:  # it ended while we looked
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(fields)
    return found
