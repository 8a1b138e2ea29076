"""A crawl of the judge's web by the real command, killed and started again in the middle, and what the judge says."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec

from tests.support import judge_web
from tests.support.access_log_oracle import Breach
from tests.support.crawls import COMMAND, crawl_words
from tests.support.judge import Line, Policies, judge, read_lines
from tests.support.site import PROJECT

START_S_MAX = 60.0
DRAIN_S_MAX = 180.0  # after the time limit of a run: what is in flight comes back


class Judged(msgspec.Struct, frozen=True):
    """What was asked and how it was answered: a crawl that meets no kind of answer shows nothing of it."""

    requests: int
    hosts: int
    kills: int
    statuses: dict[int, int]
    robots_answers: int
    breaches: list[Breach]


class JudgedSite:
    """`with JudgedSite(folder, delay_ms) as site:` serves until the block ends; its log and policies stay there."""

    def __init__(self, folder: Path, delay_ms: int) -> None:
        self.log_path, self.policies_path = folder / "access.log", folder / "policies.json"
        self._delay_ms = delay_ms
        self._lines: list[Line] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, name="judge's log", daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        words = ["--log", str(self.log_path), "--policies", str(self.policies_path), "--delay-ms", str(self._delay_ms)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.judge_site", *words], cwd=PROJECT, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        first = self._process.stdout.readline()
        assert first, "the judge's site did not start"
        self.port = msgspec.json.decode(first)["port"]
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def words(self, out: Path, seconds: int) -> list[str]:
        """The command line of a crawl of all hosts from their roots."""
        seeds = [f"http://{judge_web.host(index)}:{self.port}/" for index in range(judge_web.HOSTS)]
        words = crawl_words(out, *seeds, delay=f"{self._delay_ms}ms", concurrency=None)
        for index in range(judge_web.HOSTS):
            words += ["--resolve", f"{judge_web.host(index)}={judge_web.address(index)}"]
        return [*words, "--time", f"{seconds}s"]

    def wait_for(self, enough: Callable[[Sequence[Line]], bool], seconds_max: float) -> None:
        with self._news:
            assert self._news.wait_for(lambda: enough(self._lines), seconds_max), f"{len(self._lines)} requests"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            line = msgspec.json.decode(raw, type=Line)
            with self._news:
                self._lines.append(line)
                self._news.notify_all()


def judged_crawl(folder: Path, *, seconds: int, kills: int, delay_ms: int) -> Judged:
    """Crawl for about so long, with kill -9 and a new start so often in between; judged from log and policies alone."""
    out = folder / "crawl"
    with JudgedSite(folder, delay_ms) as site:
        share_s = seconds / (kills + 1)
        for number in range(kills + 1):
            said = folder / f"run-{number}.out"  # a pipe that nobody reads would stop the crawl once it is full
            words = site.words(out, round(seconds - share_s * number))
            with said.open("wb") as stream, _started(words, stream) as running:
                try:
                    if number < kills:
                        site.wait_for(_has_run_for(share_s * (number + 1) * 1e3), share_s * 2 + START_S_MAX)
                    else:
                        running.wait(share_s + START_S_MAX + DRAIN_S_MAX)
                        assert running.returncode == 0, (running.returncode, said.read_text()[-4_000:])
                finally:
                    running.kill()
    lines = read_lines(site.log_path)
    policies = msgspec.json.decode(site.policies_path.read_bytes(), type=Policies)
    return Judged(
        requests=len(lines),
        hosts=len({line.host for line in lines}),
        kills=kills,
        statuses=dict(sorted(Counter(line.status for line in lines).items())),
        robots_answers=sum(line.path.startswith("/robots") for line in lines),
        breaches=judge(lines, policies),
    )


def _started(words: Sequence[str], stream: BinaryIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*COMMAND, *words], cwd=PROJECT, stdout=stream, stderr=stream)


def _has_run_for(span_ms: float) -> Callable[[Sequence[Line]], bool]:
    return lambda lines: bool(lines) and lines[-1].start_ms - lines[0].start_ms >= span_ms
