"""The common stage: nothing is settled before what came of it is acknowledged, and nothing is lost or turned round."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from connectors.group_reader import Input
from connectors.stage_sender import Output
from schemas.codec import decode
from schemas.records import DeadLetter
from streams.core.failures import CrawlError
from streams.fleet.stage import Pace
from tests.support.stages import RunningStage


class Deeds:
    """A work that does what each message's value says: `wait`, `fail`, else an output of the same bytes."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.seen: list[bytes] = []

    async def __call__(self, messages: Sequence[Input]) -> Sequence[Output]:
        values = [one.value or b"" for one in messages]
        self.seen += values
        if any(value.startswith(b"wait") for value in values):
            await self.go_on.wait()
        if b"fail" in values:
            raise ValueError("no such deed")
        if b"end" in values:
            raise CrawlError("no parser process starts")
        return [Output("parsed-pages", one.partition, None, one.value) for one in messages]


def test_input_is_done_only_when_its_outputs_are_acknowledged() -> None:
    """Protects against a crash that loses what a committed message came to."""

    async def run() -> None:
        async with RunningStage(Deeds()) as running:
            running.sender.hold = True
            running.reader.feed(0, b"a", b"b")
            await running.until(lambda: len(running.sender.sent) == 2)
            await running.rest()
            assert running.reader.committed[0] == 0
            running.sender.release()
            await running.until(lambda: running.reader.committed[0] == 2)

    asyncio.run(run())


def test_outputs_of_a_partition_keep_the_order_of_its_input() -> None:
    """Protects versions of a URL from turning round when an earlier message takes longer to work."""

    async def run() -> None:
        deeds = Deeds()
        async with RunningStage(deeds) as running:
            running.reader.feed(0, b"wait", b"b")
            running.reader.feed(1, b"c")
            await running.until(lambda: running.reader.committed[1] == 1)
            await running.rest()
            assert deeds.seen.count(b"b") == 1, "it was worked meanwhile"
            assert running.sender.values("parsed-pages") == [(1, b"c")]
            assert running.reader.committed[0] == 0
            deeds.go_on.set()
            await running.until(lambda: running.reader.committed[0] == 2)
            assert running.sender.values("parsed-pages")[1:] == [(0, b"wait"), (0, b"b")]

    asyncio.run(run())


def test_a_bad_message_goes_to_the_dead_letters_and_the_others_of_its_group_go_on() -> None:
    """Protects good messages from one that nobody can work, and that one from being forgotten."""

    async def run() -> None:
        async with RunningStage(Deeds(), Pace(group_messages_max=3)) as running:
            running.reader.feed(0, b"a", b"fail", b"c")
            await running.until(lambda: running.reader.committed[0] == 3)
            assert [value for _, value in running.sender.values("parsed-pages")] == [b"a", b"c"]
            ((_, value),) = running.sender.values("dead-letters")
            (letter,) = decode(value or b"", DeadLetter)
            assert (letter.stage, letter.record, letter.error) == ("parse", b"fail", "no such deed")
            assert letter.topic == "parse-tasks", "where it goes back to"
            assert "headrace_dead_letters_total" in running.metrics.page()

    asyncio.run(run())


def test_what_no_record_is_to_blame_for_ends_the_worker_and_settles_nothing() -> None:
    """Protects every message from the dead letters when the installation is broken."""

    async def run() -> None:
        async with RunningStage(Deeds()) as running:
            running.reader.feed(0, b"end")
            await running.until(lambda: bool(running.failures))
            assert "no parser process starts" in str(running.failures[0])
            assert (running.sender.sent, running.reader.committed[0]) == ([], 0)

    asyncio.run(run())


def test_a_partition_that_another_worker_has_is_let_go() -> None:
    """Protects against outputs sent twice, and against a commit past what the other worker left undone."""

    async def run() -> None:
        deeds = Deeds()
        async with RunningStage(deeds) as running:
            running.reader.feed(0, b"wait", b"b")
            await running.until(lambda: b"b" in deeds.seen)
            running.reader.lose(0)
            running.reader.gain(0, term=2)
            running.reader.feed(0, b"a2", b"b2")
            deeds.go_on.set()
            await running.until(lambda: running.reader.committed[0] == 2)
            assert [value for _, value in running.sender.values("parsed-pages")] == [b"a2", b"b2"]

    asyncio.run(run())


def test_the_reader_stops_while_too_much_is_open() -> None:
    """Protects memory while work stands still, and sees that reading goes on afterwards."""

    async def run() -> None:
        deeds = Deeds()
        async with RunningStage(deeds, Pace(open_of_partition_max=2, open_messages_max=3, groups_max=1)) as running:
            assert running.stage.room(0)
            running.reader.feed(0, b"wait", b"b")
            assert (running.stage.room(0), running.stage.room(1)) == (False, True)
            running.reader.feed(1, b"c")
            assert not running.stage.room(1)
            deeds.go_on.set()
            await running.until(lambda: running.stage.room(0))
            await running.until(lambda: running.stage.open_messages() == 0)

    asyncio.run(run())


def test_the_age_of_a_commit_is_seen_while_input_waits() -> None:
    """Protects the alarm on a stage that stands still, and no one from an alarm about a quiet one."""

    async def run() -> None:
        deeds = Deeds()
        async with RunningStage(deeds) as running:
            running.reader.feed(0, b"wait")
            await running.until(lambda: b"wait" in deeds.seen)
            running.now_ms += 42_000
            ages = {labels: number for name, labels, number in running.stage.gauges() if "age" in name}
            assert ages == {("0",): 42.0}
            deeds.go_on.set()
            await running.until(lambda: running.reader.committed[0] == 1)
            running.now_ms += 42_000
            assert [number for name, _, number in running.stage.gauges() if "age" in name] == [0.0]

    asyncio.run(run())
