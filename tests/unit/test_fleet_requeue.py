"""Dead letters of parse and route, sent again by the operator's verb: back to their topic, and worked there."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from connectors.stage_sender import Output
from schemas.codec import encode
from schemas.records import BodyRef
from schemas.topics import partition_for
from tests.support.fake_engine import Captured
from tests.support.fake_kafka import FakeFleet
from tests.unit import test_fleet_parse as parse
from tests.unit import test_fleet_route as route
from tests.unit.test_fleet_topics import run

NEWER = b"\xc3\x01newer build's"  # the codec's marker, and a schema that nobody here knows


def requeued(sent: Sequence[Output], topic: str) -> tuple[list[tuple[int, bytes]], Captured]:
    """(partition, value) of all that the verb sends to the topic for these letters, and what it says."""
    fleet = FakeFleet()
    for one in sent:
        if one.topic == "dead-letters":
            assert one.value is not None
            fleet.broker.append(one.topic, one.partition, one.value)
    shell = run(fleet, "dead-letters", "--fleet", "requeue", "--all")
    return fleet.broker.values(topic), shell


def test_a_body_that_could_not_be_read_is_parsed_once_it_can() -> None:
    """A segment that was away costs no page for good."""
    world = parse.World()
    lost = BodyRef("warc/lost.warc.gz", 1, 1)
    sent = world.work(msgspec.structs.replace(parse.task("/lost"), content=lost)).sender.sent
    [(partition, value)], _ = requeued(sent, "parse-tasks")
    assert partition == partition_for(parse.HOST, 4)
    world.bodies[lost] = parse.BODY
    (page,) = parse.pages(world.work_value(value))
    assert (page.url, page.error, page.title) == (parse.HOST + "/lost", "", "Hi")


def test_a_text_that_could_not_be_read_becomes_a_document_once_it_can() -> None:
    """A lost document is made again, in the version that it would have had."""
    world = route.World()
    lost = BodyRef("parsed/lost.warc.gz", 1, 1)
    sent = world.route(encode(route.page(text=lost)))
    [(partition, value)], _ = requeued(sent, "parsed-pages")
    assert partition == partition_for(route.HOST, 4)
    world.texts.texts[lost] = b"found again"
    (event,) = route.events(world.route(value))
    assert event.value is not None
    assert b"found again" in event.value
    assert event.headers == route.events(route.World().route(encode(route.page())))[0].headers


def test_messages_that_a_stage_cannot_read_go_back_as_they_were() -> None:
    """What an older worker gave up may be readable by the next: it was refused, since no letter named its topic."""
    sent = parse.World().work_value(NEWER).sender.sent
    assert requeued(sent, "parse-tasks")[0] == [(0, NEWER)]
    assert requeued(route.World().route(NEWER), "parsed-pages")[0] == [(0, NEWER)]
