"""The services of a fleet as provisioning sees them, in memory: they keep what they are given and refuse as real ones.

Each counts its deeds, so that a test can say that nothing was touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from infra.provision.cql import Table, table_of
from infra.provision.rest import Answer
from infra.provision.topics import TopicThere


class FakeKafka:
    """A cluster; `defaults` are what a topic has of settings that nobody gave."""

    def __init__(self, brokers: int = 1) -> None:
        self.count = brokers
        self.kept: dict[str, TopicThere] = {}
        self.deeds: list[str] = []
        self.defaults = {"retention.ms": "604800000", "max.message.bytes": "1048588", "min.insync.replicas": "1"}

    def brokers(self) -> int:
        return self.count

    def topics(self, names: Sequence[str]) -> dict[str, TopicThere]:
        return {name: self.kept[name] for name in names if name in self.kept}

    def create(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> None:
        assert name not in self.kept, name
        assert replication <= self.count
        self.deeds.append(f"create {name}")
        self.kept[name] = TopicThere(partitions, replication, self.defaults | dict(config))

    def configure(self, name: str, config: Mapping[str, str]) -> None:
        self.deeds.append(f"configure {name}")
        self.set(name, **{key.replace(".", "_"): value for key, value in config.items()})

    def grow(self, name: str, partitions: int) -> None:
        assert partitions > self.kept[name].partitions
        self.deeds.append(f"grow {name}")
        self.kept[name] = msgspec.structs.replace(self.kept[name], partitions=partitions)

    def set(self, name: str, **config: str) -> None:
        """Settings changed by somebody; dots as underscores."""
        there = self.kept[name]
        changed = {key.replace("_", "."): value for key, value in config.items()}
        self.kept[name] = msgspec.structs.replace(there, config={**there.config, **changed})


class FakeCassandra:
    """A cluster of one or more datacenters."""

    def __init__(self, nodes: Mapping[str, int] | None = None) -> None:
        self._nodes = dict(nodes or {"datacenter1": 1})
        self.keyspaces: dict[str, dict[str, str]] = {}
        self.kept: dict[str, Table] = {}
        self.deeds: list[str] = []

    def nodes(self) -> dict[str, int]:
        return self._nodes

    def datacenter(self) -> str:
        return next(iter(self._nodes))

    def replication(self, keyspace: str) -> dict[str, str] | None:
        return self.keyspaces.get(keyspace)

    def tables(self, keyspace: str) -> dict[str, Table]:
        assert keyspace in self.keyspaces
        return self.kept

    def execute(self, statement: str, keyspace: str | None = None) -> None:
        self.deeds.append(statement.split("(")[0].strip())
        if statement.startswith("CREATE KEYSPACE"):
            name, _, replication = statement.removeprefix("CREATE KEYSPACE ").partition(" WITH replication = ")
            pairs = (pair.split(": ") for pair in replication.strip("{}").split(", "))
            self.keyspaces[name] = {key.strip("'"): value.strip("'") for key, value in pairs}
        elif statement.startswith("CREATE TABLE"):
            assert keyspace in self.keyspaces, "a table before its keyspace"
            table = table_of(statement)
            self.kept[table.name] = table
        else:
            assert statement.startswith("ALTER TABLE"), statement
            name, _, added = statement.removeprefix("ALTER TABLE ").partition(" ADD ")
            columns = dict(pair.split(" ", 1) for pair in added.strip("()").split(", "))
            self.kept[name] = msgspec.structs.replace(self.kept[name], columns={**self.kept[name].columns, **columns})


class FakeStore:
    """An object store. `others`: buckets that belong to somebody else."""

    def __init__(self, others: Sequence[str] = ()) -> None:
        self.buckets: dict[str, bool] = {}  # whether unfinished uploads end
        self.others = set(others)

    def has_bucket(self, name: str) -> bool | None:
        return None if name in self.others else name in self.buckets

    def create_bucket(self, name: str) -> None:
        assert name not in self.buckets
        self.buckets[name] = False

    def end_unfinished_uploads(self, name: str) -> None:
        self.buckets[name] = True


class FakeOpenSearch:
    """One index at most; answers as OpenSearch words it: settings as text, defaults of a mapping left out."""

    address = "http://search.test:9200"

    def __init__(self) -> None:
        self.name = ""
        self.settings: dict[str, str] = {}
        self.mappings: dict[str, Any] = {}
        self.deeds: list[str] = []
        self.alias = ""

    def request(self, method: str, path: str, body: Any = None) -> Answer:
        if method == "GET":
            if not self.name or path not in (f"/{self.name}", f"/{self.alias}"):
                return Answer(404, {"error": {"reason": "no such index"}, "status": 404})
            return Answer(200, {self.name: {"settings": {"index": self._nested()}, "mappings": _worded(self.mappings)}})
        self.deeds.append(f"{method} {path}")
        if path == f"/{self.name}/_settings":
            self.settings |= body["index"]
        elif path == f"/{self.name}/_mapping":
            for name, field in body.get("properties", {}).items():
                if "type" not in field and "properties" not in field:
                    return Answer(400, {"error": {"reason": f"No type specified for field [{name}]"}})
            _lay_over(self.mappings, body)
        else:
            self.name, self.settings = path.strip("/"), dict(body["settings"]["index"])
            self.mappings = body["mappings"]
        return Answer(200, {"acknowledged": True})

    def _nested(self) -> Any:
        nested: Any = {"uuid": "x", "creation_date": "1"}
        for key, value in self.settings.items():
            *path, last = key.split(".")
            at: Any = nested
            for part in path:
                at = at.setdefault(part, {})
            at[last] = value
        return nested


def _worded(mapping: Mapping[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for key, value in mapping.items():
        if isinstance(value, dict):
            said[key] = _worded(value)
        elif key == "dynamic":
            said[key] = str(value).lower()
        elif not (key in ("index", "doc_values", "norms") and value is True):
            said[key] = value
    return said


def _lay_over(mapping: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(mapping.get(key), dict):
            _lay_over(mapping[key], value)
        else:
            mapping[key] = value


class FakeConnect:
    """Connect with at most one connector. `busy`: requests that it answers by 409 first; `trace`: its task fails so."""

    address = "http://connect.test:8083"

    def __init__(self, busy: int = 0, trace: str = "", plugin: bool = True) -> None:
        self.config: dict[str, str] | None = None
        self.busy, self.trace, self.plugin = busy, trace, plugin
        self.starting = 2  # looks at the status until the task runs
        self.deeds: list[str] = []

    def request(self, method: str, path: str, body: Any = None) -> Answer:
        if self.busy:
            self.busy -= 1
            return Answer(409, {"error_code": 409, "message": "rebalance in progress"})
        if path.endswith("/status"):
            return self._status()
        if method == "PUT":
            if not self.plugin:
                words = f"Failed to find any class that implements Connector: {body['connector.class']}, available"
                return Answer(500, {"error_code": 500, "message": f"{words} connectors are: PluginDesc, and many more"})
            self.deeds.append(f"{method} {path}")
            self.config = {"name": path.split("/")[2], **body}
            return Answer(201, {})
        if self.config is None:
            return Answer(404, {"error_code": 404, "message": "Connector not found"})
        return Answer(200, self.config)

    def _status(self) -> Answer:
        if self.trace:
            task = {"id": 0, "state": "FAILED", "trace": self.trace}
            return Answer(200, {"connector": {"state": "RUNNING"}, "tasks": [task]})
        if self.starting:
            self.starting -= 1
            return Answer(200, {"connector": {"state": "RUNNING"}, "tasks": []})
        return Answer(200, {"connector": {"state": "RUNNING"}, "tasks": [{"id": 0, "state": "RUNNING"}]})
