"""An operator who changes hosts' policies while the crawl runs."""

from __future__ import annotations

from collections.abc import Callable

from schemas.records import HostPolicy
from streams.core import policy as bounds
from streams.core.owner import Event
from streams.simulation.loop import START_MS
from streams.simulation.owner_process import Setting

WORDS = 12  # in a run


class Operator:
    """Pauses and resumes hosts, slows them down, blocks a part of them. What a crash swallows is not said again."""

    def __init__(self, setting: Setting, send: Callable[[Event], None], end_ms: int) -> None:
        self._loop, self._faults, self._send = setting.loop, setting.faults, send
        self._keys = list(setting.web.hosts)
        self._random = setting.loop.random("operator")
        self._said = 0
        for _ in range(WORDS):
            self._loop.at(self._random.randrange(START_MS + bounds.MINUTE_MS, end_ms), self._speak)

    def _speak(self) -> None:
        key = self._random.choice(self._keys)
        kind = self._random.choice(("pause", "delay", "block"))
        if kind == "pause":
            self._say(HostPolicy(key, 0, paused=True))
            self._loop.after(
                self._random.choice((10, 90)) * bounds.MINUTE_MS, self._say, HostPolicy(key, 0, paused=False)
            )
        elif kind == "delay":
            self._say(HostPolicy(key, 0, delay_ms=self._random.choice((500, 4_000, 20_000))))
        else:
            self._say(HostPolicy(key, 0, block=("/p/2",)))

    def _say(self, word: HostPolicy) -> None:
        self._said += 1
        self._faults.count("policy_changed")
        word = HostPolicy(
            word.host_key,
            word.policy_version,
            delay_ms=word.delay_ms,
            paused=word.paused,
            block=word.block,
            request_id=f"{self._said}",
        )
        self._loop.note(word.host_key, f"the operator: delay {word.delay_ms}, paused {word.paused}, block {word.block}")
        self._send(word)
