"""A row and its durable form are the same row, whatever is in it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.url_records import decode_state, encode_state
from schemas.codec import BadRecord
from schemas.url_rows import UrlRecord, UrlStatus
from streams.core.rows import Status, UrlRow, is_first
from tests.conformance.url_state_suite import admitted, visited
from tests.property.test_codec import records_of


@given(records_of(UrlRow), st.binary(max_size=16))
def test_a_row_comes_back_exactly(row: UrlRow, lease_id: bytes) -> None:
    """A takeover decides from what is read: every field of a row and its visit, and the accepted lease, come back."""
    assert decode_state(row.url, encode_state(row, lease_id)) == (row, lease_id)


def test_the_record_has_every_field_of_the_row() -> None:
    """A field added to the row alone would be forgotten at the next takeover."""
    row = {field.name for field in msgspec.structs.fields(UrlRow)}
    record = {field.name for field in msgspec.structs.fields(UrlRecord)}
    assert record - {"lease_id"} == row - {"url"}
    assert {status.name for status in UrlStatus} == {status.name for status in Status} | {"DELETED"}


def test_a_deleted_url_reads_as_none() -> None:
    """The table knows no DELETE: the state says it."""
    assert decode_state("https://a.example/", encode_state(None)) == (None, b"")


def test_a_newer_builds_state_is_refused() -> None:
    """A row that this build cannot read must stop it: taken for unknown it would be admitted anew, over what stands."""
    state = encode_state(admitted("https://a.example", 1).row)
    for bad in (b"", state[:-1], state[:2] + bytes(8) + state[10:]):
        with pytest.raises(BadRecord):
            decode_state("https://a.example/1", bad)


def test_what_an_admission_writes_counts_as_first() -> None:
    """The URL's column is written with every row that may be the first of its URL, and not by completions."""
    first, later = admitted("https://a.example", 1).row, visited("https://a.example", 1, "a").row
    assert first is not None
    assert later is not None
    assert is_first(first)
    assert not is_first(later)
    assert not is_first(msgspec.structs.replace(first, version=1))
