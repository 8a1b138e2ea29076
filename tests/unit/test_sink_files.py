"""The files that the sink and its index are set up from agree with the records, the topics and one another."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from schemas.records import IndexEvent
from schemas.topics import TOPICS

ROOT = Path(__file__).resolve().parents[2]
SINK = ROOT / "connectors" / "sink"
DAY_MS = 86_400_000


def _read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def _index() -> Any:
    return _read(ROOT / "schemas" / "pages-index.json")


def test_the_mapping_has_the_fields_of_the_event() -> None:
    """The mapping is strict: a field that it lacks sends every document to the dead letters."""
    assert _index()["mappings"]["dynamic"] == "strict"
    assert set(_index()["mappings"]["properties"]) == {field.name for field in msgspec.structs.fields(IndexEvent)}


def test_versions_of_deletes_outlive_the_topic() -> None:
    """A delete's version is forgotten after gc_deletes; a record older than the delete must not be readable by then."""
    days = re.fullmatch(r"(\d+)d", _index()["settings"]["index"]["gc_deletes"])
    retention_ms = TOPICS["index-events"].retention_ms
    assert days is not None
    assert retention_ms is not None
    assert int(days[1]) * DAY_MS > retention_ms


def test_an_answer_means_synced() -> None:
    """Offsets are committed for what the index acknowledged, so an acknowledgement has to outlive a power cut."""
    assert _index()["settings"]["index"]["translog"] == {"durability": "request"}


def test_the_sink_is_set_up_by_settings_that_it_has() -> None:
    """A misspelt setting would be ignored without a word."""
    source = (SINK / "src/main/java/io/headrace/sink/SinkSettings.java").read_text("utf-8")
    ours = set(re.findall(r'static final String \w+ = "([^"]+)"', source))
    of_connect = re.compile(
        r"connector\.class|tasks\.max|topics|(key|value|header)\.converter.*|errors\..*|consumer\.override\..*"
    )
    config = _read(SINK / "pages-sink.json")["config"]
    assert [key for key in config if key not in ours and not of_connect.fullmatch(key)] == []
    assert all(isinstance(value, str) for value in config.values())


def test_both_connectors_read_the_same_topic_into_the_same_index() -> None:
    """The configuration for Aiven's connector takes the place of ours and of nothing else."""
    ours, other = (_read(SINK / name) for name in ("pages-sink.json", "aiven-opensearch.json"))
    assert ours["name"] == "headrace-pages"
    assert ours["name"] != other["name"], "two groups, each with offsets of its own"
    assert ours["config"]["topics"] == other["config"]["topics"] == "index-events"
    assert ours["config"]["index"] == other["config"]["transforms.toIndex.replacement"] == "pages"
    for key in ("errors.tolerance", "errors.deadletterqueue.topic.name", "connection.url", "key.converter"):
        assert ours["config"][key] == other["config"][key]
