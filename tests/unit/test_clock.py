"""The steady clock: time that passed is time that passed, whatever is done to the wall clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.core.clock import SLEW_DIVISOR, SteadyClock

_STEPS = st.lists(st.tuples(st.integers(0, 100_000), st.integers(-10_000, 10_000)), max_size=30)


@given(steps=_STEPS)
def test_jumps_neither_compress_nor_repeat_time(steps: list[tuple[int, int]]) -> None:
    """Protects every delay: between two readings passes what the monotonic clock says, to 0.1 %."""
    clock, monotonic_ms, offset_ms = SteadyClock(1_000_000, 0), 0, 1_000_000
    before_ms = clock.read(1_000_000, 0)
    for passed_ms, jump_ms in steps:
        monotonic_ms += passed_ms
        offset_ms += jump_ms
        now_ms = clock.read(monotonic_ms + offset_ms, monotonic_ms)
        assert abs(now_ms - before_ms - passed_ms) <= passed_ms / SLEW_DIVISOR + 1
        assert now_ms >= before_ms
        before_ms = now_ms


def test_a_difference_is_made_up_in_time() -> None:
    """Protects the bound on the skew between machines: a second's error is gone in twenty minutes."""
    clock = SteadyClock(0, 0)
    for second in range(1_200):
        clock.read(second * 1_000 + 1_000, second * 1_000)
    assert clock.read(1_200_000 + 1_000, 1_200_000) == 1_200_000 + 1_000
