"""The sink between a real Kafka, Connect and OpenSearch: the index is what was sent, whatever happens between."""

from __future__ import annotations

import os
import random
import signal
import uuid
from collections import Counter
from collections.abc import Iterator

import pytest

from infra.services import launcher
from tests.services.conftest import Fleet
from tests.support.sink_records import Event, Flaw, bad, expected, good, history
from tests.support.sink_world import Broker, Connector, Document, Index, Place, until

DOCUMENTS = 10_000
BAD_EACH = 8  # of every flaw
STOP_S_MAX = 10.0  # Connect gives a task 5 s to end by itself; the rest is its own round through the group


class World:
    """A topic, an index and a connector between them, all of one test."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.endpoints = fleet.up("connect", "opensearch")
        self.name = f"pages-{uuid.uuid4().hex[:8]}"
        self.broker = Broker(self.endpoints["kafka"])
        self.index = Index(self.endpoints["opensearch"], self.name)
        self.sent: list[Event] = []
        self.connectors: list[Connector] = []

    def connector(self, name: str = "") -> Connector:
        """One that reads the topic from its beginning."""
        made = Connector(
            self.endpoints["connect"],
            self.endpoints["opensearch"],
            f"{self.name}{name}",
            topic=self.name,
            index=self.name,
        )
        self.connectors.append(made)
        return made

    def kill_index(self) -> None:
        """kill -9, as a machine does that has no memory left."""
        os.kill(self._fleet.status()["opensearch"].pid, signal.SIGKILL)

    def revive_index(self) -> None:
        """Starts it again on what it had on disk."""
        self._fleet.up("opensearch")

    def connect_said(self) -> str:
        """The end of Connect's log."""
        return "\n".join(launcher.logs("connect", data=self._fleet.data, lines=2_000))

    def send(self, events: list[Event]) -> Counter[Place]:
        """Sends them; the places of the bad ones."""
        self.sent += events
        places = self.broker.send(self.name, events)
        return Counter(place for event, place in zip(events, places, strict=True) if event.flaw is not None)

    def holds(self) -> dict[str, Document]:
        """All documents, after a check that they are the expected ones."""
        found = self.index.documents()
        assert {key: (each.version, each.source) for key, each in found.items()} == expected(self.sent)
        return found


@pytest.fixture
def world(fleet: Fleet) -> Iterator[World]:
    """A world of its own for each test, taken down at its end."""
    made = World(fleet)
    made.broker.make_topic(made.name)
    made.index.make()
    yield made
    for connector in made.connectors:
        connector.delete()


def test_the_index_is_what_was_sent(world: World) -> None:
    """Repeats, deletes, late versions, bad records, a killed index, a stopped task: no document lost, doubled or old.

    Then all of it is read again by another group, and again from a topic made anew: not one write of what is there.
    """
    rng = random.Random(5)
    events = history(DOCUMENTS, rng, bad_each=BAD_EACH)
    half = len(events) // 2
    connector = world.connector()
    connector.start()
    bad_places = world.send(events[:half])
    until("the index takes records", lambda: world.index.writes() > half // 3)
    world.kill_index()
    bad_places += world.send(events[half:])
    assert connector.stop() < STOP_S_MAX, "a task that repeats has to let itself be stopped"
    connector.resume()
    world.revive_index()
    world.broker.await_read(connector.name, world.name)
    found = world.holds()
    assert len(found) > DOCUMENTS * 0.6
    assert world.broker.dead_letters(connector.dead_letters) == bad_places

    writes = world.index.writes()
    again = world.connector("-again")
    again.start()
    world.broker.await_read(again.name, world.name)
    assert world.holds() == found
    assert world.index.writes() == writes, "a replay writes nothing, not even the same again"
    assert world.broker.dead_letters(again.dead_letters) == bad_places
    again.delete()

    connector.stop()
    world.broker.drop_topic(world.name)
    world.broker.make_topic(world.name)
    connector.forget_offsets()
    world.send(rng.sample([event for event in events if event.flaw is None], 500))
    newer = [good(key, (2 << 20) | 1, delete=key.endswith("0")) for key in sorted(found)[:500]]
    world.send(newer)
    connector.resume()
    world.broker.await_read(connector.name, world.name)
    world.holds()
    assert world.index.writes() == writes + len(newer), "newer versions at low offsets arrive, and nothing else"


def test_a_missing_index_waits(world: World) -> None:
    """A sink that was started before the index was made waits for it, and lets OpenSearch make none by itself."""
    late = Index(world.endpoints["opensearch"], f"{world.name}-late")
    connector = world.connector()
    connector.config["index"] = late.name
    connector.start()
    world.send([good("a", 1), good("b", 1, delete=True), bad("c", 1, Flaw.WRONG_TYPE)])
    until("the first failures", lambda: "there is no such index" in world.connect_said())
    assert late.written() is None
    late.make()
    world.broker.await_read(connector.name, world.name)
    assert set(late.documents()) == {"a"}
