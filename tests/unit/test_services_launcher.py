"""The rules of `headrace services`, on small processes that behave well or badly."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.services import launcher, processes
from infra.services.catalog import HOST
from infra.services.errors import ServiceError
from infra.services.folder import MARK, RECORD, Record, ServiceFolder
from tests.support.fake_services import FakeServices


@pytest.fixture
def fakes(tmp_path: Path) -> Iterator[FakeServices]:
    """Fake services that are gone after the test, whatever it did."""
    fakes = FakeServices(tmp_path)
    yield fakes
    launcher.down(data=fakes.data, say=fakes.said.append, tools=fakes.tools(stop_s=0.1))


def up(fakes: FakeServices, *names: str, fresh: bool = False, ready_s: float = 30.0) -> dict[str, launcher.Running]:
    tools = fakes.tools(ready_s=ready_s)
    return launcher.up(names, data=fakes.data, fresh=fresh, say=fakes.said.append, tools=tools)


def down(fakes: FakeServices, *names: str, stop_s: float = 30.0) -> list[str]:
    return launcher.down(names, data=fakes.data, say=fakes.said.append, tools=fakes.tools(stop_s=stop_s))


def states(fakes: FakeServices) -> dict[str, str]:
    return {one.name: one.state for one in launcher.status(data=fakes.data, tools=fakes.tools())}


def gone(pid: int) -> bool:
    return processes.identity(pid) is None


def test_up_brings_all_and_down_leaves_nothing(fakes: FakeServices) -> None:
    """One command each way: all answer after `up`, and after `down` there is no process and no port."""
    running = up(fakes)
    assert list(running) == ["kafka", "cassandra", "s3", "opensearch", "connect"]
    assert running["s3"].endpoint == f"http://{HOST}:{fakes.ports['s3']}"
    assert all(not gone(one.pid) and one.rss_mb > 0 for one in running.values())
    assert states(fakes) == {**dict.fromkeys(running, "ready"), "registry": "stopped"}
    assert set(down(fakes)) == set(running)
    assert all(gone(one.pid) for one in running.values())
    assert all(processes.is_free(HOST, port) for port in fakes.ports.values())
    assert set(states(fakes).values()) == {"stopped"}
    assert down(fakes) == []


def test_what_runs_is_left_alone(fakes: FakeServices) -> None:
    """A second `up` starts nothing anew, and adds what was not named the first time."""
    first = up(fakes, "kafka")
    second = up(fakes, "kafka", "s3")
    assert second["kafka"].pid == first["kafka"].pid
    assert fakes.events.count("kafka prepared") == 1
    assert states(fakes)["s3"] == "ready"


def test_a_service_starts_after_what_it_needs_answers(fakes: FakeServices) -> None:
    """Connect ends itself when it finds no broker, so it comes with Kafka and after it."""
    assert set(up(fakes, "connect")) == {"kafka", "connect"}
    assert fakes.events == ["kafka prepared", "kafka answered", "connect prepared", "connect answered"]


def test_ending_what_others_need_ends_them_first(fakes: FakeServices) -> None:
    """Connect without Kafka would fill its log for ever."""
    up(fakes, "connect", "s3")
    assert down(fakes, "kafka") == ["connect", "kafka"]
    assert states(fakes)["s3"] == "ready"


def test_a_taken_port_names_its_holder(fakes: FakeServices) -> None:
    """The message says who holds it and how to move; nothing was started, not even those whose ports are free."""
    with socket.create_server((HOST, fakes.ports["kafka.controller"])), pytest.raises(ServiceError) as error:
        up(fakes, "kafka", "s3")
    assert f"kafka.controller needs port {fakes.ports['kafka.controller']} of {HOST}" in str(error.value)
    assert f"taken by pid {os.getpid()} (" in str(error.value)
    assert "HEADRACE_PORTS=+500" in str(error.value)
    assert fakes.events == []


def test_a_port_held_by_our_own_service_says_where_it_was_started(fakes: FakeServices, tmp_path: Path) -> None:
    """Who stands in another folder has other data, sees nothing run there, and must learn what to end."""
    up(fakes, "s3")
    with pytest.raises(ServiceError) as error:
        launcher.up(("s3",), data=tmp_path / "elsewhere", say=fakes.said.append, tools=fakes.tools())
    remedy = f", s3 with its data in {fakes.data}: headrace services down --data {fakes.data} ends it"
    assert remedy in str(error.value)


def test_one_whose_record_cannot_be_kept_is_ended(fakes: FakeServices, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk no service may be left that neither `status` nor `down` knows; the message says which folder."""
    started: list[processes.Identity] = []

    def full(folder: ServiceFolder, record: Record) -> None:
        started.append(record.who)
        raise OSError(errno.ENOSPC, "No space left on device", str(folder.path / RECORD))

    monkeypatch.setattr(ServiceFolder, "keep", full)
    with pytest.raises(ServiceError, match=r"s3 could not be started: .*/s3/.*: No space left on device; make room"):
        up(fakes, "s3")
    assert not processes.is_alive(started[0])
    assert processes.is_free(HOST, fakes.ports["s3"])


def test_an_answer_of_somebody_else_is_none(fakes: FakeServices) -> None:
    """A service that died is not ready because another process, on its port since, says so."""
    with contextlib.ExitStack() as stack:

        def supplant() -> None:
            who = json.loads((fakes.data / "s3" / RECORD).read_bytes())["pid"]
            os.kill(who, signal.SIGKILL)
            poll_until(lambda: gone(who))
            other = stack.enter_context(socket.create_server((HOST, fakes.ports["s3"])))
            stack.enter_context(ThreadPoolExecutor(1)).submit(lambda: other.accept()[0].sendall(b"ready"))

        fakes.interrupt = supplant
        with pytest.raises(ServiceError, match="s3 ended while it started"):
            up(fakes, "s3")


def test_damaged_programs_are_no_reason_to_lose_the_data(fakes: FakeServices) -> None:
    """A jar cut short in the cache is mended by fetching it again; `--fresh` would only take the data away."""
    fakes.manners["kafka"] = "dies"
    fakes.damaged = ["kafka-server.jar"]
    with pytest.raises(ServiceError, match=r"damaged, kafka-server\.jar first: remove /programs/1") as error:
        up(fakes, "kafka")
    assert "--fresh" not in str(error.value)


def test_a_full_disk_is_named_where_a_service_could_not_say_so(fakes: FakeServices) -> None:
    """Its log cannot be written either; and `--fresh` is no remedy."""
    fakes.manners["kafka"] = "dies"
    fakes.free_bytes = 4_096
    with pytest.raises(ServiceError, match=r"the disk of .*/kafka is full: make room there, or name another") as error:
        up(fakes, "kafka")
    assert "--fresh" not in str(error.value)


@pytest.mark.parametrize(
    "kept",
    [
        "{",
        "[]",
        '{"pid": "x", "started": "s", "ports": {"main": 1}, "programs": ""}',
        '{"pid": 1, "started": "s", "ports": {}, "programs": ""}',
    ],
)
def test_an_unreadable_record_is_words(fakes: FakeServices, kept: str) -> None:
    """A record that a crash or a hand spoilt is named with the remedy, whatever it holds instead."""
    up(fakes, "s3")
    down(fakes)
    (fakes.data / "s3" / RECORD).write_text(kept)
    with pytest.raises(ServiceError, match=r"process\.json is unreadable .*; see with ps whether s3 runs"):
        states(fakes)
    (fakes.data / "s3" / RECORD).unlink()


@pytest.mark.parametrize(
    ("manner", "word"), [("dies", "the vault is locked"), ("fails first", "the format is unknown")]
)
def test_one_that_dies_at_the_start_takes_down_what_came_with_it(fakes: FakeServices, manner: str, word: str) -> None:
    """Nothing is left half up; what ran before stays; the message has the last lines of the log."""
    before = up(fakes, "kafka")
    fakes.manners["s3"] = manner
    with pytest.raises(ServiceError, match=f"(?s)s3 ended while it started.*{word}.*--fresh --data {fakes.data}"):
        up(fakes, "kafka", "s3", "cassandra", "opensearch")
    assert states(fakes) == {**dict.fromkeys(states(fakes), "stopped"), "kafka": "ready"}
    assert not gone(before["kafka"].pid)
    assert all(processes.is_free(HOST, fakes.ports[name]) for name in ("s3", "cassandra", "opensearch"))


def test_one_that_never_answers_is_given_up(fakes: FakeServices) -> None:
    """A port that opens is no answer; the reason of the last question is in the message, and nothing runs on."""
    fakes.manners["opensearch"] = "sulks"
    with pytest.raises(ServiceError, match=r"opensearch did not answer within 1 s: I sulk; its log: .*/log"):
        up(fakes, "opensearch", "s3", ready_s=1.0)
    assert set(states(fakes).values()) == {"stopped"}


def test_one_that_runs_but_does_not_answer_is_shown_as_such(fakes: FakeServices) -> None:
    """`status` tells a hung service from a healthy one."""
    fakes.manners["kafka"] = "sulks"
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(up, fakes, "kafka", ready_s=3.0)
        poll_until(lambda: states(fakes)["kafka"] == "not ready")
        with pytest.raises(ServiceError, match="I sulk"):
            starting.result()


def test_a_killed_service_is_brought_back(fakes: FakeServices) -> None:
    """After kill -9 of a server one `up` mends it, with the log of the dead one kept."""
    first = up(fakes, "s3")
    os.kill(first["s3"].pid, signal.SIGKILL)
    poll_until(lambda: states(fakes)["s3"] == "died")
    second = up(fakes, "s3")
    assert second["s3"].pid != first["s3"].pid
    assert (fakes.data / "s3" / "log.1").read_text() == "listening\n"
    assert launcher.logs("s3", data=fakes.data, lines=5) == ["listening"]


def test_one_that_ends_as_we_look_is_brought_back(fakes: FakeServices) -> None:
    """A killed server takes a moment to be gone; an `up` in that moment takes it for running, and must not fail."""
    first = up(fakes, "s3")
    fakes.interrupt = lambda: os.kill(first["s3"].pid, signal.SIGKILL)
    assert up(fakes, "s3")["s3"].pid != first["s3"].pid


def test_a_ctrl_c_leaves_nothing_half_up(fakes: FakeServices) -> None:
    """Who changes his mind while they start finds none of them running."""
    main = threading.main_thread().ident
    assert main is not None
    fakes.manners["cassandra"] = "sulks"
    fakes.interrupt = lambda: signal.pthread_kill(main, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        up(fakes, "s3", "cassandra", "kafka")
    assert set(states(fakes).values()) == {"stopped"}
    assert all(processes.is_free(HOST, port) for port in fakes.ports.values())


def test_a_deaf_service_is_killed_after_the_deadline(fakes: FakeServices) -> None:
    """`down` ends whatever SIGTERM does not, and says so."""
    fakes.manners["s3"] = "deaf"
    pid = up(fakes, "s3")["s3"].pid
    assert down(fakes, stop_s=0.2) == ["s3"]
    assert gone(pid)
    assert "by SIGKILL" in fakes.said[-1]


def test_another_process_with_the_same_pid_is_never_ended(fakes: FakeServices) -> None:
    """After a reboot, or 32,768 processes later, the recorded pid is somebody else's: here, this test's own."""
    up(fakes, "s3")
    record = fakes.data / "s3" / RECORD
    kept = json.loads(record.read_bytes())
    down(fakes)
    record.write_text(json.dumps({**kept, "pid": os.getpid()}))
    assert states(fakes)["s3"] == "died"
    assert down(fakes) == []
    assert states(fakes)["s3"] == "stopped"


def test_fresh_begins_anew_and_only_there(fakes: FakeServices) -> None:
    """`--fresh` takes away what the named services kept, Connect's too when Kafka goes, and nobody else's."""
    up(fakes)
    for name in ("kafka", "s3"):
        (fakes.data / name / "kept").write_text("data")
    again = up(fakes, "kafka", fresh=True)
    assert not (fakes.data / "kafka" / "kept").exists()
    assert (fakes.data / "s3" / "kept").exists()
    assert states(fakes) == {
        **dict.fromkeys(("kafka", "cassandra", "s3", "opensearch"), "ready"),
        **dict.fromkeys(("connect", "registry"), "stopped"),
    }
    assert not gone(again["kafka"].pid)


def test_a_folder_that_is_not_ours_is_not_touched(fakes: FakeServices) -> None:
    """`--data ~` with a folder named kafka in it: refused, and `--fresh` takes nothing away."""
    (fakes.data / "kafka").mkdir(parents=True)
    (fakes.data / "kafka" / "thesis.txt").write_text("do not lose")
    with pytest.raises(ServiceError, match="holds something that is no service's data; name another"):
        up(fakes, "kafka", fresh=True)
    assert [path.name for path in (fakes.data / "kafka").iterdir()] == ["thesis.txt"]
    assert not (fakes.data / "kafka" / MARK).exists()


def test_newer_programs_replace_what_runs(fakes: FakeServices) -> None:
    """After a change of the sink's sources `up` gives Connect the new one, with Kafka left running."""
    first = up(fakes, "connect")
    fakes.versions["connect"] = "2"
    second = up(fakes, "connect")
    assert second["kafka"].pid == first["kafka"].pid
    assert second["connect"].pid != first["connect"].pid
    assert gone(first["connect"].pid)


def test_other_ports_for_what_runs_are_refused(fakes: FakeServices) -> None:
    """`up` does not tell of an endpoint where nobody listens, nor move a service under those who use it."""
    pid = up(fakes, "s3")["s3"].pid
    fakes.environ["HEADRACE_PORTS"] = ""
    with pytest.raises(ServiceError, match=r"s3 runs on port \d+ .* and port 18333 was asked for"):
        up(fakes, "s3")
    assert not gone(pid)
    assert down(fakes) == ["s3"]


def test_an_unknown_name_is_refused_with_the_known_ones(fakes: FakeServices) -> None:
    """A misspelt name must not end, or start, all of them."""
    for verb in (up, down):
        with pytest.raises(ServiceError, match='no service "kafak"; there are: kafka, cassandra'):
            verb(fakes, "kafak")


def poll_until(condition: Callable[[], bool]) -> None:
    """Ask again and again, in bounds; a process that was killed is gone within a moment."""
    assert any(condition() for _ in range(10_000))
