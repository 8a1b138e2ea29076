"""The verb `services`: what it prints, its exit codes, and its complaints. What it starts are small fakes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.services import launcher
from streams.cli import main
from tests.support.fake_engine import Captured
from tests.support.fake_services import FakeServices


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServices]:
    """Fake services behind the verb, with their data where the environment says."""
    fakes = FakeServices(tmp_path)
    fakes.environ["HEADRACE_SERVICES"] = str(fakes.data)
    tools = fakes.tools(ready_s=5.0)
    monkeypatch.setattr(launcher, "Tools", lambda environ: tools)
    yield fakes
    launcher.down(data=fakes.data, say=fakes.said.append, tools=fakes.tools(stop_s=0.1))


def run(fakes: FakeServices, *words: str) -> tuple[int, Captured]:
    shell = Captured(environ=fakes.environ)
    return main(["services", *words], shell), shell


def test_up_shows_where_each_is(fakes: FakeServices) -> None:
    """Endpoint, pid and memory of each, and of all together, as the result; the progress goes to stderr."""
    code, shell = run(fakes, "up", "kafka", "s3")
    assert code == 0
    head, kafka, s3, together = shell.printed.splitlines()
    assert head.split() == ["service", "state", "endpoint", "pid", "memory"]
    assert kafka.split()[:3] == ["kafka", "ready", f"127.0.0.1:{fakes.ports['kafka']}"]
    assert s3.split()[:3] == ["s3", "ready", f"http://127.0.0.1:{fakes.ports['s3']}"]
    assert int(kafka.split()[3]) > 1
    assert together.split()[0] == "together"
    assert together.endswith(" MB")
    assert "kafka: ready after" in shell.said


def test_status_is_for_scripts_too(fakes: FakeServices) -> None:
    """Exit code 0 when all that were named are ready, 1 when not; --json gives one object a line."""
    assert run(fakes, "status")[0] == 1
    run(fakes, "up", "s3")
    code, shell = run(fakes, "status", "s3", "--json")
    state = json.loads(shell.printed)
    assert (code, state["name"], state["state"], state["note"]) == (0, "s3", "ready", "")
    assert run(fakes, "status")[0] == 1
    run(fakes, "up")
    assert run(fakes, "status")[0] == 0, "the optional registry is not missed"
    assert run(fakes, "status", "registry")[0] == 1


def test_down_says_what_it_ended(fakes: FakeServices) -> None:
    """And when there was nothing to end, where it looked."""
    run(fakes, "up", "s3")
    code, shell = run(fakes, "down")
    assert (code, shell.said.startswith("s3: ended pid ")) == (0, True)
    code, shell = run(fakes, "down")
    assert (code, shell.said) == (0, f"nothing ran that was started with its data in {fakes.data}\n")


def test_logs_shows_the_end_of_each(fakes: FakeServices) -> None:
    """Without a name those that have one; with a name that one."""
    assert "no logs in" in run(fakes, "logs")[1].said
    run(fakes, "up", "s3")
    assert run(fakes, "logs", "--lines", "5")[1].printed == f"== s3: {fakes.data}/s3/log\nlistening\n"
    assert run(fakes, "logs", "kafka")[1].printed == f"== kafka: {fakes.data}/kafka/log\n"


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("up", "kafak"), 2, 'no service "kafak"; there are: kafka, cassandra, s3, opensearch, connect, registry'),
        (("down", "--fresh"), 2, "--fresh belongs to `services up`, came `services down`"),
        (("start",), 2, "invalid choice"),
        ((), 2, "the following arguments are required: what; headrace services --help"),
    ],
)
def test_wrong_words_end_nothing(fakes: FakeServices, words: tuple[str, ...], code: int, complaint: str) -> None:
    """One line that says what is right; what runs goes on."""
    run(fakes, "up", "s3")
    came, shell = run(fakes, *words)
    assert came == code
    assert complaint in shell.said
    assert run(fakes, "status", "s3")[0] == 0


def test_without_the_fleet_s_packages_it_says_how_to_get_them(
    fakes: FakeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation without the extra gets the remedy, not an ImportError out of a thread."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "cassandra" else name)
    code, shell = run(fakes, "up", "s3")
    assert code == 1
    assert "cassandra is not installed; start it by ./infra/headrace" in shell.said
    assert "headrace[fleet]" in shell.said
    assert run(fakes, "down")[0] == 0


def test_a_failure_is_words_and_code_1(fakes: FakeServices) -> None:
    """No traceback for a service that dies."""
    fakes.manners["s3"] = "dies"
    code, shell = run(fakes, "up", "s3")
    assert code == 1
    assert "the vault is locked" in shell.said
    assert "Traceback" not in shell.said
