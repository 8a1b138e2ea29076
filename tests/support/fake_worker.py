"""A worker whose stages know no Kafka: `faust -A tests.support.fake_worker worker`, told by the environment what to do.

Each stage is a Faust app with an agent, as the real ones are, and does what `FAKE_STAGES` says of it: `name` runs,
`name:slow` does not end when it is let go, `name:crash` fails once it is up, `name:waits` is not ready.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, cast

import faust

from streams.fleet.carrier import Carrier, NoKafka, carrier
from streams.fleet.faust_mends import GroupChannel
from streams.fleet.metrics import Metrics

TOLD = "FAKE_STAGES"


class FakeStage(faust.App):
    """One app, one agent on a channel."""

    BootStrategy = NoKafka

    def __init__(self, word: str, data: str) -> None:
        name, _, self.what = word.partition(":")
        super().__init__(f"headrace-{name}", broker="kafka://", store="memory://", datadir=data, autodiscover=False)
        self.stage = name
        self.metrics = Metrics(name)
        self.taken: list[Any] = []
        self.channel_of_it = GroupChannel(self)

        @self.agent(self.channel_of_it)
        async def take(stream: Any) -> None:
            async for one in stream:
                self.taken.append(one)
                self.metrics.count("headrace_dead_letters_total", 1, ("fake",))

    async def on_start(self) -> None:
        self.finalize()

    async def on_started(self) -> None:
        await self.channel_of_it.put(cast(Any, self.stage))
        if self.what == "crash":
            self.add_future(self.fail())

    async def on_stop(self) -> None:
        print(f"{self.stage} is let go", flush=True)
        if self.what == "slow":
            await asyncio.Event().wait()

    async def fail(self) -> None:
        raise RuntimeError(f"{self.stage} cannot go on")

    def alive(self) -> str | None:
        return None

    def ready(self) -> str | None:
        return "the first of its partitions is awaited" if self.what == "waits" else None


def build(words: str, data: str, port: int, grace_s: float) -> Carrier:
    made = carrier(
        [FakeStage(word, data) for word in words.split(",")], data=data, bind="127.0.0.1", port=port, host="127.0.0.1"
    )
    made.grace_s = grace_s
    return made


if TOLD in os.environ:
    words, data, port, grace_s = os.environ[TOLD].split(" ")
    app = build(words, data, int(port), float(grace_s))
