"""Whatever a record holds comes back as it was, and whatever bytes come are read or refused, never anything else."""

from __future__ import annotations

import enum
import io
import types
import typing
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import codec, registry
from schemas.codec import BadRecord
from schemas.records import DiscoveredUrl, FetchLease, HostPolicy, ParsedPage, Source
from tests.support.samples import SAMPLES

PRIMITIVES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(1 << 63), (1 << 63) - 1),
    str: st.text(st.characters(codec="utf-8"), max_size=20),
    bytes: st.binary(max_size=20),
    bool: st.booleans(),
}
UNSIGNED_NUMBERS = st.integers(0, (1 << 64) - 1)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Any value that a field of this type may hold on the wire."""
    if isinstance(hint, types.UnionType):
        return st.one_of([st.none() if member is types.NoneType else values_of(member) for member in hint.__args__])
    if typing.get_origin(hint) is tuple:
        return st.lists(values_of(typing.get_args(hint)[0]), max_size=3).map(tuple)
    if hint in PRIMITIVES:
        return PRIMITIVES[hint]
    if issubclass(hint, enum.Enum):
        return st.sampled_from(list(hint))
    return records_of(hint)


def records_of(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Records of a kind with any value that its types allow; an unsigned number where the codec says so."""
    hints = typing.get_type_hints(kind)
    return st.builds(
        kind,
        **{
            name: UNSIGNED_NUMBERS if (kind, name) in codec.UNSIGNED else values_of(hint)
            for name, hint in hints.items()
        },
    )


ANY_RECORD = st.one_of([records_of(kind) for kind in registry.RECORDS])


@given(ANY_RECORD)
def test_a_record_comes_back(record: msgspec.Struct) -> None:
    """No value of any field is lost or changed by writing and reading it."""
    assert codec.decode(codec.encode(record), type(record)) == (record,)


@given(st.sampled_from(registry.RECORDS).flatmap(lambda kind: st.lists(records_of(kind), min_size=1, max_size=5)))
def test_a_batch_comes_back_in_order(batch: list[msgspec.Struct]) -> None:
    """A batch is its records in their order: results must not overtake one another within a partition."""
    data = codec.encode_batch(batch)
    assert list(codec.decode(data, type(batch[0]))) == batch
    assert list(codec.decode_any(data)) == batch


@given(st.sampled_from(SAMPLES), st.binary(max_size=60), st.integers(0, 400), st.booleans())
def test_damaged_bytes_are_a_bad_record(sample: msgspec.Struct, noise: bytes, at: int, batch: bool) -> None:
    """Bytes that were damaged on the way are read as some record or refused as BadRecord: no other error, no hang."""
    data = codec.encode_batch([sample]) if batch else codec.encode(sample)
    at = codec.HEADER_BYTES + at % (len(data) - codec.HEADER_BYTES)
    try:
        read = codec.decode(data[:at] + noise + data[at + len(noise) :], type(sample))
    except BadRecord:
        return
    assert all(type(record) is type(sample) for record in read)


@given(st.sampled_from(SAMPLES), st.integers(1, 40))
def test_a_cut_record_is_refused(sample: msgspec.Struct, cut: int) -> None:
    """A value that lacks its end, or has something after it, is no record."""
    data = codec.encode(sample)
    with pytest.raises(BadRecord):
        codec.decode(data[: -min(cut, len(data) - 1)], type(sample))
    with pytest.raises(BadRecord):
        codec.decode(data + bytes(cut), type(sample))


def test_what_avro_cannot_hold_is_refused_at_the_writer() -> None:
    """A lone surrogate or a number beyond 64 bits must stop at its maker, not at every reader after it."""
    record = DiscoveredUrl("https://a.example/", "https://a.example", Source.SEED, 1)
    for bad in (
        msgspec.structs.replace(record, url="https://a.example/\ud800"),
        msgspec.structs.replace(record, discovered_ms=1 << 63),
        msgspec.structs.replace(record, lastmod_ms=-(1 << 63) - 1),
    ):
        with pytest.raises(BadRecord, match="writing DiscoveredUrl: needed"):
            codec.encode(bad)
        with pytest.raises(BadRecord, match="writing DiscoveredUrl: needed"):
            codec.encode_batch([record, bad])
    page = next(sample for sample in SAMPLES if isinstance(sample, ParsedPage))
    for beyond in (1 << 64, -1):
        with pytest.raises(BadRecord, match="unsigned"):
            codec.encode(msgspec.structs.replace(page, simhash=beyond))


def test_a_strangers_value_is_refused_with_what_came() -> None:
    """The operator reads in the dead letter whether the sender, the topic or the build is wrong."""
    policy = codec.encode(HostPolicy("*", 1))
    with pytest.raises(BadRecord, match="a record of FetchLease, came one of HostPolicy"):
        codec.decode(policy, FetchLease)
    with pytest.raises(BadRecord, match="a newer build wrote it"):
        codec.decode(b"\xc3\x01" + bytes(8), FetchLease)
    for data in (b"", b"\xc3\x01\x00", b"{}"):
        with pytest.raises(BadRecord, match="single-object encoding"):
            codec.decode(data, FetchLease)


@given(st.sampled_from(registry.RECORDS).flatmap(lambda kind: st.lists(records_of(kind), min_size=2, max_size=4)))
def test_fastavro_reads_the_same_and_writes_the_same_bytes(batch: list[msgspec.Struct]) -> None:
    """The functions made from a schema are Avro's encoding: another implementation reads it, and writes it no other."""
    data = codec.encode_batch(batch)
    newest = registry.newest(type(batch[0]), batch=True)
    read: Any = fastavro.schemaless_reader(io.BytesIO(data[codec.HEADER_BYTES :]), newest.parsed, None)
    again = io.BytesIO()
    fastavro.schemaless_writer(again, newest.parsed, read)
    assert again.getvalue() == data[codec.HEADER_BYTES :]
    assert [codec.from_avro(type(batch[0]), one) for one in read] == batch


@given(st.sampled_from(SAMPLES), st.integers(1, 400))
def test_a_value_that_is_cut_off_is_a_bad_record(sample: msgspec.Struct, cut: int) -> None:
    """However short a value is cut, nothing is read from it: not even with a text at its end that looks whole."""
    data = codec.encode(sample)
    cut = 1 + cut % (len(data) - codec.HEADER_BYTES)
    with pytest.raises(BadRecord):
        codec.decode(data[:-cut], type(sample))


def test_a_long_of_more_than_64_bits_is_a_bad_record() -> None:
    """A number that no schema holds is refused on both ways, as the damage that it is."""
    lease = next(one for one in SAMPLES if isinstance(one, FetchLease))
    with pytest.raises(BadRecord):
        codec.encode(msgspec.structs.replace(lease, delay_ms=1 << 63))
    data = codec.encode(msgspec.structs.replace(lease, delay_ms=0))
    assert data[-1:] == b"\0"
    with pytest.raises(BadRecord):
        codec.decode(data[:-1] + b"\xff" * 9 + b"\x7f", FetchLease)
