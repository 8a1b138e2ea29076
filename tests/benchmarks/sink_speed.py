"""How many documents a second the sink brings into OpenSearch: `python -m tests.benchmarks.sink_speed [--documents N]`.

The topic is filled first. Then, for each way to set the connector up: an index made anew, and the time from the first
document in it until the last; then the same records again, all of them stale, until their offsets are committed.
It needs the services of `headrace services up connect`, opensearch among them, and uses topics and indices of its own.
"""

from __future__ import annotations

import argparse
import time
import uuid

from infra.services import catalog
from tests.support.sink_records import Event, document
from tests.support.sink_world import Broker, Connector, Index, until

TEXT = "Some words of a page that nobody reads but everybody searches for, again and again. "
JSON = "org.apache.kafka.connect.json.JsonConverter"
WAYS: dict[str, dict[str, str]] = {
    "as shipped, 1 task": {"tasks.max": "1"},
    "as shipped, 2 tasks": {"tasks.max": "2"},
    "JsonConverter, 2 tasks": {"tasks.max": "2", "value.converter": JSON, "value.converter.schemas.enable": "false"},
}


def _run(endpoints: dict[str, str], topic: str, count: int, changes: dict[str, str]) -> tuple[float, float]:
    """Seconds for all documents, and for all of them again; the latter with up to 5 s until offsets are committed."""
    broker = Broker(endpoints["kafka"])
    index = Index(endpoints["opensearch"], f"{topic}-{uuid.uuid4().hex[:6]}")
    index.make()
    took: list[float] = []
    for name in ("new", "again"):
        connector = Connector(
            endpoints["connect"], endpoints["opensearch"], f"{index.name}-{name}", topic=topic, index=index.name
        )
        connector.config |= changes
        connector.start()
        begin = time.monotonic()
        if name == "new":
            until("the first document", lambda: index.writes() > 0)
            begin = time.monotonic()
            until("the last document", lambda: index.writes() == count)
        else:
            broker.await_read(connector.name, topic)
        took.append(time.monotonic() - begin)
        connector.delete()
    assert index.writes() == count
    index.drop()
    return took[0], took[1]


def main() -> None:
    """Fills a topic, runs each way once and prints a line for it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=50_000)
    parser.add_argument("--text-bytes", type=int, default=4_000)
    given = parser.parse_args()
    endpoints = catalog.endpoints()
    topic = f"speed-{uuid.uuid4().hex[:6]}"
    broker = Broker(endpoints["kafka"])
    broker.make_topic(topic)
    text = (TEXT * (given.text_bytes // len(TEXT) + 1))[: given.text_bytes]
    events = [
        Event(f"{number:032x}", 1 << 20, document(f"{number:032x}", 1 << 20, text=text), (("doc_version", b"1048576"),))
        for number in range(given.documents)
    ]
    broker.send(topic, events)
    for way, changes in WAYS.items():
        new, again = _run(endpoints, topic, given.documents, changes)
        print(
            f"{way}: {given.documents} documents of {given.text_bytes} bytes of text in {new:.1f} s,"
            f" {given.documents / new:,.0f}/s; again in at most {again:.1f} s"
        )
    broker.drop_topic(topic)


if __name__ == "__main__":
    main()
