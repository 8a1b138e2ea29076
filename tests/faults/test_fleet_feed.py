"""Groups of a partition: what goes first, when a group is made, and how a bad one is found."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from connectors.inbox_kafka import Message
from streams.core.failures import CrawlError
from streams.core.hosts import NEVER_MS
from streams.core.policy import GROUP_BYTES_MAX
from streams.fleet.feed import Feed, Group, Pace
from streams.fleet.owner import PartitionOwner, Undecidable


class FakeOwner:
    """Takes everything but what is `poison`; counts the groups."""

    partition = 0

    def __init__(self, *, damaged: bool = False, next_ms: int = NEVER_MS) -> None:
        self.positions: dict[str, int] = {}
        self.groups: list[list[bytes | None]] = []
        self.given_up: list[bytes | None] = []
        self.damaged = damaged
        self._next_ms = next_ms

    def next_ms(self) -> int:
        return self._next_ms

    def run(self, messages: Sequence[Message]) -> None:
        values = [message.value for message in messages]
        if self.damaged or b"poison" in values:
            raise Undecidable("cannot")
        self.groups.append(values)

    def give_up(self, message: Message, error: str) -> None:
        self.given_up.append(message.value)


def message(value: bytes, topic: str = "discovered-urls", offset: int = 0) -> Message:
    return Message(topic, offset, value, 0)


async def feed_until(owner: FakeOwner, messages: Sequence[Message], groups: int) -> Feed:
    """Fed with these, until so many groups have come through."""
    done = asyncio.Event()

    async def carry_out(group: Group) -> None:
        owner.run(group.messages)
        if sum(map(len, owner.groups)) + len(owner.given_up) >= groups:
            done.set()

    async def in_thread(call: Any, *arguments: Any) -> None:
        call(*arguments)
        if sum(map(len, owner.groups)) + len(owner.given_up) >= groups:
            done.set()

    feed = Feed(
        cast(PartitionOwner, owner),
        Pace(group_ms=1, messages_max=8),
        now=lambda: 1_000,
        carry_out=carry_out,
        in_thread=in_thread,
        applied=lambda positions: None,
    )
    feed.reader().take(messages)
    running = asyncio.create_task(feed.run())
    waiting = asyncio.create_task(done.wait())
    await asyncio.wait((running, waiting), timeout=10, return_when=asyncio.FIRST_COMPLETED)
    feed.stop()
    waiting.cancel()
    await running
    return feed


def test_results_go_ahead_of_discoveries() -> None:
    """A flood of links does not hold up the results, which give tokens back."""
    owner = FakeOwner()
    messages = [message(b"url")] * 8 + [message(b"result", "fetch-results")]
    asyncio.run(feed_until(owner, messages, 9))
    assert owner.groups[0][0] == b"result"


def test_a_flood_of_seeds_is_no_group_of_its_own() -> None:
    """A message is a batch: five hundred are a hundred thousand URLs, whose rows are minutes of Cassandra's work,
    and results that come meanwhile would wait for all of them."""
    owner = FakeOwner()
    batch = b"u" * (GROUP_BYTES_MAX // 3 + 1)
    asyncio.run(feed_until(owner, [message(batch)] * 7, 7))
    assert [len(group) for group in owner.groups] == [3, 3, 1]


def test_a_poisonous_message_is_found_and_given_up() -> None:
    """The others of its group are decided, each once and in their order."""
    owner = FakeOwner()
    values = [b"1", b"2", b"3", b"poison", b"4", b"5"]
    asyncio.run(feed_until(owner, [message(value) for value in values], 6))
    assert owner.given_up == [b"poison"]
    assert [value for group in owner.groups for value in group] == [b"1", b"2", b"3", b"4", b"5"]


def test_an_owner_that_cannot_go_on_at_all_blames_no_message() -> None:
    """A damaged state fails without any message, too: the worker ends and says so, and nothing is thrown away."""
    owner = FakeOwner(damaged=True, next_ms=0)
    with pytest.raises(CrawlError, match="damaged"):
        asyncio.run(feed_until(owner, [], 1))
    assert owner.given_up == []


def test_a_topic_has_room_for_so_much() -> None:
    """What is read ahead is bounded, topic by topic."""

    async def room() -> tuple[bool, bool]:
        feed = Feed(
            cast(PartitionOwner, FakeOwner()),
            Pace(),
            now=lambda: 0,
            carry_out=cast(Any, None),
            in_thread=cast(Any, None),
            applied=lambda positions: None,
        )
        reader = feed.reader()
        reader.take([message(b"url")] * 5_000)
        return reader.room("discovered-urls"), reader.room("fetch-results")

    assert asyncio.run(room()) == (False, True)
