"""The files that run and watch a fleet agree with one another, with the sizing, and with what they are written for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from infra import production, settings
from infra.fleet_checks import check_data
from infra.production import sizing
from schemas.metrics import METRICS, MetricKind
from schemas.topics import TOPICS, WORKER_GROUPS
from streams.topology import STAGES
from tests.unit.test_metrics_emitted import emitted

FOLDER = Path(production.__file__).parent
WORKERS = {stage.group.value for stage in STAGES}
OTHERS = {"up", "node_timex_offset_seconds", "node_filesystem_avail_bytes", "node_filesystem_size_bytes"}
RULES = [rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
METRIC = re.compile(r"\b(?:headrace|node)_[a-z_]+\b|\bup\b")


def manifests(name: str) -> list[dict[str, Any]]:
    """The objects of one file of Kubernetes."""
    return list(yaml.safe_load_all((FOLDER / "kubernetes" / f"{name}.yaml").read_text()))


def unit(stage: str) -> dict[str, list[str]]:
    """A stage's systemd unit: key to its values, in order."""
    keys: dict[str, list[str]] = {}
    for line in (FOLDER / "systemd" / f"headrace-{stage}@.service").read_text().splitlines():
        if line and line[0] not in "#[":
            key, equals, value = line.partition("=")
            assert equals, line
            keys.setdefault(key, []).append(value)
    return keys


# --- alarms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alarm_is_well_made(rule: dict[str, Any]) -> None:
    """A rule that Prometheus does not take, or that asks for a metric nobody has, is an alarm that never comes."""
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert re.fullmatch(r"\d+[mh]", rule["for"])
    assert set(rule["annotations"]) == {"summary", "action"}
    promql_parser.parse(rule["expr"])
    for name in METRIC.findall(re.sub(r'"[^"]*"', "", rule["expr"])):
        bare = name.removesuffix("_bucket")
        assert name in OTHERS or bare in METRICS, name
        if bare in METRICS:
            assert name.endswith("_bucket") == (METRICS[bare].kind is MetricKind.HISTOGRAM), name


def test_what_an_alarm_asks_for_is_emitted() -> None:
    """A name that no worker emits, or a topic that no worker reads, is silence where an alarm was meant."""
    shown = {name for name, _ in emitted()}
    for rule in RULES:
        asked = re.findall(r"headrace_[a-z_]+", re.sub(r'"[^"]*"', "", rule["expr"]))
        assert {name.removesuffix("_bucket") for name in asked} <= shown, rule["alert"]
        for topic in re.findall(r'topic="([^"]+)"', rule["expr"]):
            assert TOPICS[topic].group in WORKER_GROUPS, (rule["alert"], topic)


def test_rates_are_of_counters_only() -> None:
    """A rate of a gauge looks like a number and means nothing."""
    for rule in RULES:
        for name in re.findall(r"(?:rate|increase)\((\w+)", rule["expr"]):
            assert name.endswith(("_total", "_bucket")), rule["alert"]


def test_labels_asked_are_labels_given() -> None:
    """A selector on a label that a metric does not have matches nothing, for ever."""
    for rule in RULES:
        for name, selector in re.findall(r"(headrace_\w+)\{([^}]*)\}", rule["expr"]):
            metric = METRICS[name.removesuffix("_bucket")]
            for label in re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selector):
                assert label in (*metric.labels, "stage"), (rule["alert"], label)


def test_metrics_are_named_as_prometheus_wants_them() -> None:
    """Counters end in _total and nothing else does; a unit is a base unit."""
    for metric in METRICS.values():
        assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER), metric.name
        assert not metric.name.endswith(("_ms", "_kb", "_mb")), metric.name
        assert metric.meaning


def test_the_page_names_every_alarm() -> None:
    """Who is woken at night looks there."""
    page = (FOLDER / "README.md").read_text()
    said = dict(re.findall(r"^\| (Headrace\w+) \| (\w+) \|", page, re.MULTILINE))
    assert said == {rule["alert"]: rule["labels"]["severity"] for rule in RULES}


# --- workers ------------------------------------------------------------------------------------------------------


def test_each_stage_has_its_worker_in_both_forms() -> None:
    """A stage without workers stops the flow; every consumer group has one unit and one workload."""
    units = {path.name.removeprefix("headrace-").removesuffix("@.service") for path in FOLDER.glob("systemd/*.service")}
    assert units == WORKERS
    for stage in WORKERS:
        words = f"worker --stage {stage} --config /etc/headrace/fleet.toml"
        assert unit(stage)["ExecStart"][0].endswith(f"/headrace {words}")
        workload = manifests(stage)[0]
        container = workload["spec"]["template"]["spec"]["containers"][0]
        assert container["args"] == words.split()


@pytest.mark.parametrize("stage", sorted(WORKERS))
def test_both_forms_give_a_worker_the_same(stage: str) -> None:
    """A drain that is cut off in one of them loses leases there; memory that differs was forgotten in one."""
    pod = manifests(stage)[0]["spec"]["template"]["spec"]
    keys = unit(stage)
    assert [str(pod["terminationGracePeriodSeconds"])] == keys["TimeoutStopSec"]
    assert [pod["containers"][0]["resources"]["limits"]["memory"].removesuffix("i")] == keys["MemoryMax"]
    cores = int(pod["containers"][0]["resources"]["limits"]["cpu"].removesuffix("m")) / 10
    assert keys["CPUQuota"] == [f"{cores:.0f}%"]


def test_a_fetcher_may_finish_its_requests() -> None:
    """It drains for as long as a request may take, and then uploads; cut off, each request is made again."""
    fetch = settings.Settings().fetch.duration_ms_max // 1_000
    assert int(unit("fetch")["TimeoutStopSec"][0]) >= fetch + 60


@pytest.mark.parametrize("stage", sorted(WORKERS))
def test_a_workload_is_bounded_and_probed(stage: str) -> None:
    """Without limits one worker takes a machine; without probes one that hangs keeps its partitions for ever."""
    workload, budget = manifests(stage)
    spec, pod = workload["spec"], workload["spec"]["template"]["spec"]
    container = pod["containers"][0]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in ("/live", "/ready")
    assert container["livenessProbe"]["httpGet"]["path"] == "/live"  # not ready is no reason to be ended
    assert set(container["resources"]) == {"requests", "limits"}
    assert container["resources"]["requests"]["memory"] == container["resources"]["limits"]["memory"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels == budget["spec"]["selector"]["matchLabels"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    claimed = {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", ())}
    assert mounted == {volume["name"] for volume in pod["volumes"]} | claimed


@pytest.mark.parametrize("stage", sorted(WORKERS))
def test_replicas_and_disk_are_the_sizings(stage: str) -> None:
    """Manifests with other numbers than the page are a fleet that nobody reckoned."""
    sized = sizing.size(sizing.read(sizing.FIGURES.read_text())["refresh"])
    spec = manifests(stage)[0]["spec"]
    assert spec["replicas"] == sized.value(stage, "workers")
    memory = int(spec["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"].removesuffix("Gi"))
    if stage == "fetch":
        assert memory * (1 << 30) >= sized.value("fetch", "memory a worker")
    if stage == "owner":
        asked = spec["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"]
        assert int(asked.removesuffix("Gi")) * (1 << 30) >= 2 * sized.value("owner", "disk a worker")


def environment_in_pod(stage: str) -> dict[str, str]:
    """What a worker of the stage is told by its manifest; an address that the cluster fills in is any."""
    pod = manifests(stage)[0]["spec"]["template"]["spec"]
    assert pod["enableServiceLinks"] is False  # they are called HEADRACE_..., and are no settings
    return {one["name"]: one.get("value", "10.1.2.3") for one in pod["containers"][0]["env"]}


def environment_in_unit(stage: str) -> dict[str, str]:
    """The same by its systemd unit, of the first instance; %S is /var/lib."""
    words = " ".join(unit(stage)["Environment"]).replace("%i", "1").replace("%S", "/var/lib").split()
    return {name: value for name, _, value in (word.partition("=") for word in words)}


@pytest.mark.parametrize("stage", sorted(WORKERS))
def test_a_worker_takes_what_it_is_told(stage: str) -> None:
    """A variable that is no setting ends the worker at its start, or is another's that nobody reads."""
    for environ in (environment_in_pod(stage), environment_in_unit(stage)):
        fleet = settings.load(environ=environ).fleet
        check_data(fleet, environ)
        assert fleet.web_bind == "0.0.0.0"
        assert Path(fleet.data).is_absolute()
        assert all(name.startswith("HEADRACE_") for name in environ), environ
    port = manifests(stage)[0]["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"]
    assert settings.load(environ=environment_in_pod(stage)).fleet.web_port == port


def test_owners_keep_their_folder_and_a_standby() -> None:
    """An owner that comes back elsewhere, without its RocksDB, reads all of its changelog before the first grant."""
    workload = manifests("owner")[0]
    assert workload["kind"] == "StatefulSet"
    assert settings.load(environ=environment_in_pod("owner")).fleet.standbys == 1
    assert settings.load(environ=environment_in_unit("owner")).fleet.standbys == 1
    for stage in WORKERS:
        assert any(f"/{stage}-%i" in value for value in unit(stage)["Environment"]), "two instances, one folder"


def test_everything_is_applied_and_configured() -> None:
    """A manifest that no kustomization names is never there; a settings file that is refused ends every worker."""
    named = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    assert sorted(named["resources"]) == sorted(f"kubernetes/{path.name}" for path in FOLDER.glob("kubernetes/*.yaml"))
    assert named["configMapGenerator"][0]["files"] == ["fleet.toml"]
    fleet = settings.load(config=FOLDER / "fleet.toml", environ={}).fleet
    given = sizing.read(sizing.FIGURES.read_text())["refresh"]
    assert (fleet.partitions, fleet.replication) == (given["partitions"], given["replication"])
    assert fleet.index_shards == sizing.size(given).value("index", "primary shards")


def test_secrets_are_settings() -> None:
    """A secret under a name that no setting has would be refused at the start of every worker."""
    lines = (FOLDER / "systemd" / "fleet.env").read_text().splitlines()
    environ = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert settings.load(environ=environ).fleet.kafka_password == ""
    assert all(key.startswith("HEADRACE_FLEET__") for key in environ)
