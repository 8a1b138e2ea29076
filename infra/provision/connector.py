"""The sink's connector in Kafka Connect, by `connectors/sink/pages-sink.json`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from infra.provision.rest import Answer, Rest
from infra.provision.steps import Step, Verdict
from infra.settings_fleet import Fleet
from streams.core.failures import EXIT_FAILED, CrawlError

__all__ = ["PAGES_SINK", "plan", "wanted_connector"]

PAGES_SINK = Path(__file__).resolve().parents[2] / "connectors" / "sink" / "pages-sink.json"

_TRIES_MAX = 60  # Connect answers 409 while its workers share out their tasks
_TRY_S = 0.5
_SECRET = ("password", "secret", "jaas")


def wanted_connector(document: Mapping[str, Any], fleet: Fleet) -> tuple[str, dict[str, str]]:
    """The connector's name and configuration: the file's, with the fleet's addresses, keys and sizes in it."""
    config = {key: _text(value) for key, value in document["config"].items()}
    config["connection.url"] = fleet.opensearch
    config["index"] = fleet.index
    if fleet.opensearch_user:
        config |= {"connection.username": fleet.opensearch_user, "connection.password": fleet.opensearch_password}
    if fleet.opensearch_ca:
        config |= {"connection.ssl.truststore.location": fleet.opensearch_ca, "connection.ssl.truststore.type": "PEM"}
    config["errors.deadletterqueue.topic.replication.factor"] = str(fleet.replication)
    return str(document["name"]), config


def plan(
    rest: Rest, fleet: Fleet, *, document: Mapping[str, Any] | None = None, pause: Callable[[float], None] = time.sleep
) -> Iterator[Step]:
    """What is to be done so that the connector runs. `document`: for tests; else the file's."""
    name, config = wanted_connector(_read() if document is None else document, fleet)
    thing = f"connector {name}"
    answer = _patient(rest, "GET", f"/connectors/{name}/config", None, pause)

    def put() -> None:
        _done(_patient(rest, "PUT", f"/connectors/{name}/config", config, pause), rest, thing)
        _await_running(rest, name, pause)

    where = f"{config.get('topics', '?')} to {fleet.opensearch}/{fleet.index}, {config.get('tasks.max', '1')} tasks"
    if answer.status == 404:
        yield Step(thing, Verdict.MADE, where, deed=put)
        return
    _done(answer, rest, f"a look at {thing}")
    found = {key: value for key, value in answer.body.items() if key != "name"}
    differ = sorted(key for key in config.keys() | found.keys() if config.get(key) != found.get(key))
    if differ:
        said = ", ".join(_change(key, found.get(key), config.get(key)) for key in differ)
        yield Step(thing, Verdict.CHANGED, said, deed=put)
        return
    failed = _failure(_patient(rest, "GET", f"/connectors/{name}/status", None, pause))
    if failed:
        yield Step(
            thing,
            Verdict.REFUSED,
            f"needed it running, is there and {failed}",
            "mend the cause, then: curl -X POST"
            f" '{rest.address}/connectors/{name}/restart?includeTasks=true&onlyFailed=true'",
        )
    else:
        yield Step(thing, Verdict.STANDS, where)


def _change(key: str, found: str | None, wanted: str | None) -> str:
    if any(word in key for word in _SECRET):
        return f"{key} changed"
    return f"{key} {found if found is not None else 'unset'} to {wanted if wanted is not None else 'unset'}"


def _await_running(rest: Rest, name: str, pause: Callable[[float], None]) -> None:
    """Until every task runs; a connector whose plugin starts and whose tasks then fail is not provisioned."""
    for _ in range(_TRIES_MAX):
        status = rest.request("GET", f"/connectors/{name}/status")
        failed = _failure(status)
        if failed:
            raise CrawlError(
                f"connect at {rest.address}: needed connector {name} running, got: {failed}; Connect's log has more",
                EXIT_FAILED,
            )
        states = _states(status)
        if len(states) > 1 and set(states) == {"RUNNING"}:
            return
        pause(_TRY_S)
    raise CrawlError(
        f"connect at {rest.address}: needed connector {name} running within {_TRIES_MAX * _TRY_S:.0f} s, got:"
        f" {', '.join(_states(status)) or status.reason()}; Connect's log has more",
        EXIT_FAILED,
    )


def _states(status: Answer) -> list[str]:
    """The connector's own state, then those of its tasks; empty while Connect does not know it yet."""
    if status.status != 200:
        return []
    return [status.body["connector"]["state"], *(task["state"] for task in status.body.get("tasks", ()))]


def _failure(status: Answer) -> str:
    if status.status != 200:
        return ""
    for part in (status.body["connector"], *status.body.get("tasks", ())):
        if part["state"] == "FAILED":
            lines = str(part.get("trace") or "no trace").splitlines()
            causes = [line for line in lines if line.startswith("Caused by: ")]
            return f"failed: {(causes or lines)[-1 if causes else 0].removeprefix('Caused by: ')}"
    return ""


def _patient(rest: Rest, method: str, path: str, body: Any, pause: Callable[[float], None]) -> Answer:
    answer = rest.request(method, path, body)
    for _ in range(_TRIES_MAX):
        if answer.status != 409:
            break
        pause(_TRY_S)
        answer = rest.request(method, path, body)
    return answer


def _done(answer: Answer, rest: Rest, needed: str) -> None:
    if answer.status < 300:
        return
    said = answer.reason()
    if "Failed to find any class" in said:
        said = said.partition(", available connectors")[0]
        remedy = (
            "put the sink's jar into a folder of Connect's plugin.path (mvn -f connectors/sink package), restart it"
        )
    else:
        remedy = "Connect's log has more"
    raise CrawlError(f"connect at {rest.address}: needed {needed}, got: {said}; {remedy}", EXIT_FAILED)


def _text(value: Any) -> str:
    """Connect takes texts only; a number or truth value of the file is written as JSON has it."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _read() -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(PAGES_SINK.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise CrawlError(
            f"{PAGES_SINK}: needed the sink's configuration, got: {error.strerror}", EXIT_FAILED
        ) from error
