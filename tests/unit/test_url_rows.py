"""Rows that others wrote into the URL store: each is refused by itself, and none is taken for one of ours."""

from __future__ import annotations

import msgspec
import pytest

from connectors.url_records import encode_state
from connectors.url_rows import RowReader
from schemas.codec import MARKER
from streams.core.failures import CrawlError
from streams.core.rows import decode_row
from streams.core.rules.urls import url_id
from tests.conformance.url_state_suite import deleted, visited, written

HOST = "https://a.example"
WRITE = visited(HOST, 1, "a")
ROW = written(WRITE)
STATE = encode_state(ROW)


def test_a_row_of_ours_is_read() -> None:
    """The checks must not refuse what owners write, nor count a deletion."""
    reader = RowReader()
    raw = reader.row(HOST, WRITE.url_id, ROW.url, STATE)
    assert raw is not None
    assert decode_row(raw) == ROW
    assert deleted(WRITE).row is None
    assert reader.row(HOST, WRITE.url_id, None, encode_state(None)) is None
    assert reader.refused == 0


@pytest.mark.parametrize(
    ("url_id_", "url", "state"),
    [
        (WRITE.url_id, None, STATE),  # half a row: an UPDATE of what was never inserted
        (WRITE.url_id, ROW.url, None),  # the other half
        (WRITE.url_id, ROW.url, b"{}"),
        (WRITE.url_id, ROW.url, STATE[:-1]),
        (url_id("https://b.example/1"), "https://b.example/1", STATE),  # a host under another one's politeness
        (b"\0" * 16, ROW.url, STATE),
        (WRITE.url_id, ROW.url, encode_state(msgspec.structs.replace(ROW, place=b"\0\0\0"))),
    ],
)
def test_what_no_owner_wrote_is_absent_and_counted(url_id_: bytes, url: str | None, state: bytes | None) -> None:
    """A stranger's row must cost itself alone, and be seen by whoever looks at the numbers."""
    reader = RowReader()
    assert reader.row(HOST, url_id_, url, state) is None
    assert reader.refused == 1


def test_a_newer_builds_row_is_not_written_over() -> None:
    """Read as absent it would be admitted anew, and after a downgrade the whole store be lost in this way."""
    with pytest.raises(CrawlError, match=r"url row .* of https://a\.example: .*; a newer build wrote it"):
        RowReader().row(HOST, WRITE.url_id, ROW.url, MARKER + b"\1" * 8 + b"x")
