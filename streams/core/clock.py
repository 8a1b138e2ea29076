"""A process's clock for deciding: near UTC, and steady, whatever is done to the machine's own.

A delay between requests is time that passes, so a wall clock that is set forward by a second must not compress it, and
one that is set back must not run through it twice. `SteadyClock` starts at the wall clock and then goes by the
monotonic one; what the two come to differ by is made up slowly, at most 1 ms in SLEW_DIVISOR ms.
"""

from __future__ import annotations

SLEW_DIVISOR = 1_000  # 0.1 %: a second's difference is gone in a quarter of an hour, a delay errs less than it is read


class SteadyClock:
    """Fed with readings, it has no clock of its own."""

    __slots__ = ("_monotonic_ms", "_now_ms")

    def __init__(self, wall_ms: int, monotonic_ms: int) -> None:
        self._now_ms = float(wall_ms)
        self._monotonic_ms = monotonic_ms

    def read(self, wall_ms: int, monotonic_ms: int) -> int:
        """UTC in ms by two readings of one moment. Never backwards; time that passed counts to 0.1 %."""
        passed = monotonic_ms - self._monotonic_ms
        assert passed >= 0, "a monotonic clock went backwards"
        self._monotonic_ms = monotonic_ms
        slew = passed / SLEW_DIVISOR
        now_ms = self._now_ms + passed
        self._now_ms = now_ms + max(-slew, min(slew, wall_ms - now_ms))
        return int(self._now_ms)
