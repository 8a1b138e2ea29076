"""True time: one heap of what happens next, and the trace of what happened.

Everything of a run hangs on its seed: each part draws from a source of its own, named, so that one part's drawing more
does not change what another draws. Equal seeds give equal traces, to the digest.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable
from hashlib import blake2b
from random import Random
from typing import Any

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
_HOST_EVENTS_KEPT = 40

Action = Callable[..., None]


class Violation(Exception):  # not an error of the program: what a checker saw
    """A rule of the design was broken."""

    def __init__(self, rule: str, text: str, host_key: str = "") -> None:
        super().__init__(f"{rule}: {text}")
        self.rule, self.text, self.host_key = rule, text, host_key


class Loop:
    """The one clock that is right; nobody but the hosts and the checkers may look at it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_ms = START_MS
        self.events = 0
        self._heap: list[tuple[int, int, Action, tuple[Any, ...]]] = []
        self._order = 0
        self._digest = blake2b(digest_size=16)
        self._recent: dict[str, deque[tuple[int, str]]] = defaultdict(lambda: deque(maxlen=_HOST_EVENTS_KEPT))

    def random(self, part: str) -> Random:
        """The part's own source."""
        return Random(f"{self.seed}/{part}")

    def at(self, at_ms: int, action: Action, *arguments: Any) -> None:
        """Call at this instant of true time; in the order given among equals. The past is now."""
        self._order += 1
        heapq.heappush(self._heap, (max(at_ms, self.now_ms), self._order, action, arguments))

    def after(self, wait_ms: int, action: Action, *arguments: Any) -> None:
        self.at(self.now_ms + wait_ms, action, *arguments)

    def run(self, until_ms: int) -> None:
        heap = self._heap
        while heap and heap[0][0] <= until_ms:
            self.now_ms, _, action, arguments = heapq.heappop(heap)
            self.events += 1
            action(*arguments)
        self.now_ms = until_ms

    def note(self, host_key: str, text: str) -> None:
        """What happened, of which host ("" for the whole), for the trace."""
        self._recent[host_key].append((self.now_ms, text))
        self._digest.update(b"%d %b %b\n" % (self.now_ms, host_key.encode(), text.encode()))

    def digest(self) -> str:
        return self._digest.hexdigest()

    def recent(self, host_key: str) -> list[str]:
        """The last events of a host and of the whole, with hours since the start."""
        events = sorted([*self._recent.get(host_key, ()), *self._recent.get("", ())])[-_HOST_EVENTS_KEPT:]
        return [f"{(at_ms - START_MS) / 3_600_000:9.5f} h  {text}" for at_ms, text in events]
