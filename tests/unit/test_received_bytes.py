"""The limit of all bodies being received: who goes on at it, who waits, and who is told."""

from __future__ import annotations

import asyncio

from connectors.received_bytes import ReceivedBytes
from tests.support.stages import turn


class Connection:
    """Notes that it may go on."""

    def __init__(self) -> None:
        self.told = 0

    def go_on(self) -> None:
        self.told += 1


def test_the_first_goes_on_and_the_others_are_told() -> None:
    """If nobody went on at the limit, all would wait for their deadline; if one were forgotten, it would."""
    received = ReceivedBytes(100)
    first, second, third = Connection(), Connection(), Connection()
    for one in (first, second):
        assert received.may_go_on(one)
        received.holds(one, 50)
    assert received.may_go_on(first)
    assert not received.may_go_on(second)
    assert not received.may_go_on(third)
    received.holds(first, 90)
    assert received.total == 140
    received.released(first)
    assert (received.total, second.told, third.told) == (50, 1, 1)
    assert received.may_go_on(third)
    received.holds(third, 60)
    assert received.may_go_on(second), "it is the first now"
    assert not received.may_go_on(third)
    received.released(third)  # given up while it waits
    received.released(second)
    assert (received.total, third.told) == (0, 1)


def test_no_request_is_sent_at_the_limit() -> None:
    """Its answer could not be taken, and its host's time would run."""

    async def act() -> None:
        received, one = ReceivedBytes(100), Connection()
        await received.room()
        assert received.may_go_on(one)
        received.holds(one, 100)
        waiting = asyncio.create_task(received.room())
        await turn()
        assert not waiting.done()
        received.released(one)
        await asyncio.wait_for(waiting, 20)

    asyncio.run(act())
