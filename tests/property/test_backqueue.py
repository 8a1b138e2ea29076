"""The window of a back queue gives what the whole durable queue would give, whatever happens in between."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.core import backqueue
from streams.core.backqueue import BackQueue
from streams.core.rows import PLACE_BYTES, QueueClass, place


def _tail(rank: int, number: int) -> bytes:
    return place(QueueClass.NEW, 0, rank) + number.to_bytes(16, "big")


# Long stretches without a commit, so that more than a window's entries are fresh at once.
_STEPS = ["push"] * 12 + ["pop"] * 10 + ["finish"] * 3 + ["remove", "commit", "reload"]


@settings(max_examples=300, deadline=None)
@given(
    start_empty=st.booleans(),
    steps=st.lists(
        st.tuples(st.sampled_from(_STEPS), st.integers(0, 6)),
        min_size=60,
        max_size=160,
    ),
)
def test_the_window_gives_the_least_entry_of_the_whole_queue(start_empty: bool, steps: list[tuple[str, int]]) -> None:
    """Protects the invariant of `scanned_to`: no entry is passed over, none given twice, however small the window."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(backqueue, "WINDOW_URLS_MAX", 3)
        _run(start_empty, steps)


def _run(start_empty: bool, steps: list[tuple[str, int]]) -> None:
    durable: set[bytes] = set() if start_empty else {_tail(rank, 10_000 + rank) for rank in range(7)}
    current = set(durable)  # with this turn's changes
    in_flight: dict[bytes, bytes] = {}
    queue = BackQueue(empty=start_empty)

    def scan(host_id: bytes, cls: int, after: bytes, most: int) -> list[bytes]:
        return sorted(tail for tail in durable if tail[0] == cls and tail > after)[:most]

    for number, (what, rank) in enumerate(steps):
        waiting = sorted(tail for tail in current if tail[PLACE_BYTES:] not in in_flight)
        if what == "push":
            tail = _tail(rank, number)
            queue.push(tail)
            current.add(tail)
        elif what == "pop":
            head = queue.head(QueueClass.NEW, scan, b"h", in_flight)
            assert head == (waiting[0] if waiting else None)
            if head is not None:
                assert queue.pop(QueueClass.NEW) == head
                in_flight[head[PLACE_BYTES:]] = head
        elif what == "finish" and in_flight:
            url_id, tail = in_flight.popitem()
            queue.remove(tail)
            current.discard(tail)
            back = _tail(rank, int.from_bytes(url_id, "big"))
            if rank % 2:
                queue.push(back)
                current.add(back)
        elif what == "remove" and waiting:
            tail = waiting[rank % len(waiting)]
            queue.remove(tail)
            current.discard(tail)
        elif what == "commit":
            durable = set(current)
            queue.committed()
        elif what == "reload" and durable == current:
            queue = BackQueue()
    waiting = sorted(tail for tail in current if tail[PLACE_BYTES:] not in in_flight)
    assert queue.head(QueueClass.NEW, scan, b"h", in_flight) == (waiting[0] if waiting else None)
