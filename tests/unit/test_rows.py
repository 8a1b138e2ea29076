"""Rows and places: bytes order is queue order."""

from __future__ import annotations

import pytest

from schemas.records import BodyRef, Kind, Source
from streams.core.rows import (
    PLACE_BYTES,
    QueueClass,
    UrlRow,
    Visit,
    decode_row,
    due_ms_of,
    encode_row,
    place,
    rank,
    rank_of,
)

NOW_MS = 1_700_000_000_123


def test_a_retry_is_never_early() -> None:
    """Protects Retry-After and the retry delays: a second that has begun is rounded up."""
    assert NOW_MS <= due_ms_of(place(QueueClass.RETRY, NOW_MS, 0)) < NOW_MS + 1_000
    assert due_ms_of(place(QueueClass.RETRY, 5_000, 0)) == 5_000


def test_revisits_of_one_slot_are_ordered_by_rank() -> None:
    """Protects value over minutes: what is due within one slot goes by rank, and slots go by time."""
    slot_ms = 600_000
    start_ms = NOW_MS - NOW_MS % slot_ms
    early_poor = place(QueueClass.REVISIT, start_ms + 1_000, rank(0, 3))
    late_rich = place(QueueClass.REVISIT, start_ms + slot_ms - 1, rank(255, 0))
    next_slot = place(QueueClass.REVISIT, start_ms + slot_ms, rank(255, 0))
    assert late_rich < early_poor < next_slot


def test_new_urls_go_by_value_then_breadth_first() -> None:
    """Protects the order of new URLs."""
    order = [rank(255, 0), rank(128, 0), rank(128, 1), rank(128, 255), rank(127, 0), rank(0, 0)]
    assert order == sorted(order)
    assert rank(128, 255) == rank(128, 100_000)  # deeper than a byte holds is as deep as it holds


@pytest.mark.parametrize("queue", list(QueueClass))
def test_place_tells_what_it_was_made_of(queue: QueueClass) -> None:
    """Protects the way from an entry back to its due instant and rank."""
    one = place(queue, 1_200_000, 0x1234)
    assert len(one) == PLACE_BYTES
    assert one[0] == queue
    assert rank_of(one) == 0x1234
    assert due_ms_of(one) == (0 if queue is QueueClass.NEW else 1_200_000)


def test_a_due_instant_beyond_the_field_stays_the_last() -> None:
    """Protects the order from an instant that 32 bits of seconds cannot hold."""
    assert place(QueueClass.RETRY, 1 << 62, 0) > place(QueueClass.RETRY, NOW_MS, 0)


def test_row_survives_its_encoding_whole() -> None:
    """Protects what is durable of a URL."""
    ref = BodyRef("warc/1.warc.gz", 7, 9)
    visit = Visit(NOW_MS, 200, 3, body=ref, content=ref, content_hash=b"h" * 32, robots_tags=("noindex",), title="t")
    row = UrlRow("http://a.test/", Source.LINK, Kind.PAGE, 2, 1, b"p" * 16, 128, NOW_MS, visit=visit, place=b"1234567")
    assert decode_row(encode_row(row)) == row
