"""A row and its durable form are the same row, whatever is in it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from connectors.url_records import decode_state, encode_state
from schemas.codec import BadRecord
from schemas.url_rows import UrlRecord, UrlStatus
from streams.core.rows import Status, UrlRow, is_first
from tests.conformance.url_state_suite import admitted, visited, written
from tests.property.test_codec import records_of


@given(records_of(UrlRow))
def test_a_row_comes_back_exactly(row: UrlRow) -> None:
    """A takeover decides from what is read: every field of a row and its visit comes back."""
    assert decode_state(row.url, encode_state(row)) == row


def test_the_record_has_every_field_of_the_row() -> None:
    """A field added to the row alone would be forgotten at the next takeover."""
    row = {field.name for field in msgspec.structs.fields(UrlRow)}
    record = {field.name for field in msgspec.structs.fields(UrlRecord)}
    assert record == row - {"url"}
    assert {status.name for status in UrlStatus} == {status.name for status in Status} | {"DELETED"}


def test_a_deleted_url_reads_as_none() -> None:
    """The table knows no DELETE: the state says it."""
    assert decode_state("https://a.example/", encode_state(None)) is None


def test_a_newer_builds_state_is_refused() -> None:
    """A row that this build cannot read must stop it: taken for unknown it would be admitted anew, over what stands."""
    state = encode_state(written(admitted("https://a.example", 1)))
    for bad in (b"", state[:-1], state[:2] + bytes(8) + state[10:]):
        with pytest.raises(BadRecord):
            decode_state("https://a.example/1", bad)


def test_what_an_admission_writes_counts_as_first() -> None:
    """The URL's column is written with every row that may be the first of its URL, and not by completions."""
    assert is_first(written(admitted("https://a.example", 1)))
    assert not is_first(written(visited("https://a.example", 1, "a")))
