"""What parse and route gave up is sent again to the topic that it came from, and worked once its cause is mended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from connectors.group_reader import Input
from connectors.stage_sender import Output
from schemas.codec import decode, encode
from schemas.records import DeadLetter, ParsedPage
from streams.cli import main
from tests.support.fake_engine import Captured
from tests.support.fake_kafka import FakeFleet
from tests.support.stages import RunningStage
from tests.unit import test_fleet_parse, test_fleet_route


def requeued(sent: Sequence[Output], topic: str) -> list[tuple[int, bytes]]:
    """(partition, value) of what lies in the topic after all letters of these outputs were requeued."""
    fleet = FakeFleet()
    for one in sent:
        if one.topic == "dead-letters":
            fleet.broker.append(one.topic, one.partition, one.value, one.key)
    shell = Captured(fleet=fleet)
    assert main(["dead-letters", "--fleet", "requeue", "--all"], shell) == 0, shell.said
    assert shell.printed == f"1 record sent again to {topic}\n"
    return fleet.broker.values(topic)


def test_a_task_whose_body_could_not_be_read_is_parsed_again() -> None:
    """The store was mended: the page is parsed from the very task."""
    world = test_fleet_parse.World()
    task = test_fleet_parse.task()
    bodies, world.bodies = world.bodies, {}
    (page,) = test_fleet_parse.pages(first := world.work(task))
    assert page.error == "body_unreadable"
    [(_, value)] = requeued(first.sender.sent, "parse-tasks")
    world.bodies = bodies
    (page,) = test_fleet_parse.pages(asyncio.run(world._work(value)))
    assert (page.error, page.url) == ("", task.url)


def test_a_page_whose_text_could_not_be_read_is_routed_again() -> None:
    """Its document comes after all; its letter names the page, not the document."""
    world = test_fleet_route.World()
    texts, world.texts.texts = world.texts.texts, {}
    sent = world.route(encode(test_fleet_route.page()))
    assert test_fleet_route.events(sent) == []
    [(_, value)] = requeued(sent, "parsed-pages")
    assert decode(value, ParsedPage) == (test_fleet_route.page(),)
    world.texts.texts = texts
    assert len(test_fleet_route.events(world.route(value))) == 1


def test_a_message_that_a_stage_gave_up_goes_back_to_its_partition() -> None:
    """By its kind alone it could not go anywhere when it was unreadable, and a mended worker never saw it again."""

    async def give_up(messages: Sequence[Input]) -> Sequence[Output]:
        raise ValueError("a fault of ours")

    async def run(topic: str, value: bytes) -> list[Output]:
        async with RunningStage(give_up, topic=topic) as running:
            running.reader.feed(2, value)
            await running.until(lambda: running.reader.committed[2] == 1)
            return running.sender.sent

    for topic in ("parse-tasks", "parsed-pages"):
        sent = asyncio.run(run(topic, b"\xc3\1of a newer build"))
        (letter,) = decode(sent[0].value or b"", DeadLetter)
        assert letter.topic == topic
        assert requeued(sent, topic) == [(2, b"\xc3\1of a newer build")]
