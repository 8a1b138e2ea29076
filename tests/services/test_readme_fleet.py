"""The README's section on a fleet, each command run as it is written, in one shell, against a small site of ours.

Changed are only what a reader changes, too (the site), and where the services of this test run are.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.bootstrap import LOCKS, STAMPS
from infra.services import catalog
from tests.services.conftest import Fleet
from tests.support.fleet_world import ROOT, remove_topics, until
from tests.support.ports import free_port
from tests.support.site import ServedSite

PAGES = 12
FOUND_S_MAX = 180
_END = re.compile(r"^<<(\d+)>>$")


def section() -> tuple[str, list[str]]:
    """(the settings file, the commands) of the section."""
    text = (ROOT / "README.md").read_text("utf-8").partition("\n## A fleet\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert [kind for kind, _ in blocks] == ["toml", "sh"]
    return blocks[0][1], blocks[1][1].splitlines()


class Terminal:
    """A shell that a person types into: one command after another, each with what it prints and its exit code."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.shell = subprocess.Popen(
            ["/bin/bash"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def type(self, command: str) -> tuple[int, str]:
        """(exit code, what it printed)."""
        assert self.shell.stdin is not None
        assert self.shell.stdout is not None
        self.shell.stdin.write(f'{command}\ncode=$?; echo; echo "<<$code>>"\n')
        self.shell.stdin.flush()
        said: list[str] = []
        for line in self.shell.stdout:
            if ended := _END.match(line.strip()):
                return int(ended.group(1)), "".join(said)
            said.append(line)
        raise AssertionError(f"the shell ended at {command}\n{''.join(said)}")

    def close(self) -> None:
        """Whatever it started ends with it: the group is its own."""
        if self.shell.poll() is None:
            os.killpg(self.shell.pid, signal.SIGKILL)
        self.shell.wait()
        for stream in (self.shell.stdin, self.shell.stdout):
            if stream is not None:
                stream.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ServedSite]:
    """A start page and others that it links to."""
    root = tmp_path / "site"
    root.mkdir()
    links = "".join(f'<p><a href="p{number}.html">page {number}</a></p>' for number in range(PAGES))
    (root / "index.html").write_text(f"<html><title>An example of a start</title><body>{links}</body></html>")
    for number in range(PAGES):
        (root / f"p{number}.html").write_text(
            f"<html><title>Page {number}, an example</title><body><p>words of {number}</p></body></html>"
        )
    with ServedSite(root) as served:
        yield served


@pytest.fixture
def terminal(fleet: Fleet, tmp_path: Path) -> Iterator[Terminal]:
    """In a checkout whose environment is this one, and whose services are this run's."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "infra").symlink_to(ROOT / "infra")
    environment = tmp_path / "environment"
    (environment / "bin").mkdir(parents=True)
    python = environment / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (environment / STAMPS).mkdir()
    for lock in LOCKS.values():
        shutil.copy(lock, environment / STAMPS / lock.name)
    made = Terminal(
        checkout,
        {
            **os.environ,
            "HEADRACE_VENV": str(environment),
            "HEADRACE_SERVICES": str(fleet.data),
            "HEADRACE_FLEET__WEB_PORT": str(free_port()),
            "HEADRACE_CRAWL__ALLOW_ADDRESSES": "127.0.0.0/8",
            "HEADRACE_POLITENESS__DELAY": "50ms",
            "HEADRACE_FLEET__SEAL_S": "2",
            "PYTHONUNBUFFERED": "1",
        },
    )
    try:
        yield made
    finally:
        made.close()


def test_the_section_is_true(fleet: Fleet, terminal: Terminal, site: ServedSite, tmp_path: Path) -> None:
    """Followed line by line it leads to a search that finds the page, and leaves nothing running."""
    remove_topics(fleet.up()["kafka"])  # owners of other tests kept their rows elsewhere
    toml, commands = section()
    at = catalog.endpoints()
    port = terminal.type("echo $HEADRACE_FLEET__WEB_PORT")[1].strip()
    home = site.url("/").rstrip("/")

    def here(text: str) -> str:
        changed = text.replace("https://example.org", home).replace(r"https://example\.org", re.escape(home))
        return changed.replace("http://127.0.0.1:19200", at["opensearch"]).replace(":6066", f":{port}")

    (tmp_path / "checkout" / "headrace.toml").write_text(here(toml))
    for line in commands:
        command = here(line.partition("  #")[0].rstrip())
        began = time.monotonic()
        code, text = terminal.type(command)
        if _waits(command) and (code or not _shows(command, text)):
            # What takes effect a while after the command before it is asked again, as a person does.
            came = [(code, text)]

            def again(command: str = command, came: list[tuple[int, str]] = came) -> bool:
                came.append(terminal.type(command))
                return came[-1][0] == 0 and _shows(command, came[-1][1])

            until(again, f"{command}\n{text}\n{terminal.type('tail -60 worker.log')[1]}", FOUND_S_MAX)
            code, text = came[-1]
        print(f"$ {command}\n{text}[{code}, {time.monotonic() - began:.1f} s]", flush=True)
        assert code == 0, (command, text, terminal.type("tail -60 worker.log")[1])
    assert terminal.type("jobs")[1].strip() == ""
    assert "signal" in terminal.type("cat worker.log")[1].lower()
    asked = [one.path for one in site.log()]
    assert sorted(asked) == sorted(set(asked)), "a page was asked twice"
    assert {f"/p{number}.html" for number in range(PAGES)} | {"/", "/robots.txt"} == set(asked)


def _waits(command: str) -> bool:
    return any(word in command for word in ("tail", "explain", "_search", "/metrics", "status --fleet"))


def _shows(command: str, text: str) -> bool:
    """Whether what the reader is promised is there."""
    if "_search" in command:
        return '"_source"' in text
    if "tail" in command:
        return "index" in text or "http" in text
    if "status --fleet" in command:
        return "4 of 4 partitions owned" in text and f"{PAGES + 1} pages stored" in text
    return True
