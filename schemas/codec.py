"""Records to bytes and back: Avro's single-object encoding, and batches of records in the same.

    C3 01 | 8 bytes: the schema's fingerprint, little-endian | the value in Avro's binary encoding

A value is one record or a batch, the array of one kind of record. The writer's schema is found by its fingerprint
among all versions that this build knows, and resolved to the newest, so `decode` always gives today's struct.

Fields are named alike in schema and struct and stand in the same order (a test holds them to it). The newest schemas
are written and read by `schemas.compiled`. What an older one wrote goes by fastavro, and what differs is done by hand
here: enums by value, sequences as tuples, structs within structs, and unsigned 64-bit numbers, which Avro's `long`
carries as the signed number of the same bits.
"""

from __future__ import annotations

import enum
import io
import types
import typing
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import fastavro
import msgspec

from schemas import compiled, registry

MARKER = b"\xc3\x01"
HEADER_BYTES = len(MARKER) + 8
UNSIGNED = compiled.UNSIGNED

R = TypeVar("R", bound=msgspec.Struct)
_Convert = Callable[[Any], Any]

# What fastavro raises for bytes that are not the value that the schema describes, and for values that no schema holds.
_UNREADABLE = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError)
_UNWRITABLE = (ValueError, TypeError, OverflowError, AttributeError, KeyError)


class BadRecord(Exception):
    """A value that cannot be written or read. It goes to the dead letters; the message says all that is known of it."""

    def __init__(self, who: str, *, needed: str, came: str, remedy: str) -> None:
        self.who, self.needed, self.came, self.remedy = who, needed, came, remedy
        super().__init__(f"{who}: needed {needed}, came {came}; {remedy}")


class UnknownSchema(BadRecord):
    """A value of a version that this build does not know: a newer one wrote it."""


def encode(record: msgspec.Struct) -> bytes:
    """One record. Raises `BadRecord` for what Avro does not hold: lone surrogates, numbers beyond 64 bits."""
    kind = type(record)
    return _write(kind, batch=False, write=lambda: compiled.writer(kind)(record))


def encode_batch(batch: Sequence[msgspec.Struct]) -> bytes:
    """Records of one kind, at least one, in their order. Raises `BadRecord` as `encode` does."""
    assert batch, "an empty batch is not sent"
    kind = type(batch[0])
    if len(batch) == 1:
        return encode(batch[0])
    assert all(type(record) is kind for record in batch), "a batch holds one kind of record"
    return _write(kind, batch=True, write=lambda: compiled.write_several(kind, batch))


def decode(data: bytes, kind: type[R]) -> tuple[R, ...]:
    """The records of one value, which is a record or a batch of `kind`. Raises `BadRecord` for anything else."""
    version = _version_of(data, kind.__name__)
    if version.record is not kind:
        raise BadRecord(
            f"reading {kind.__name__}",
            needed=f"a record of {kind.__name__}",
            came=f"one of {version.record.__name__}",
            remedy="it was sent to the wrong topic; requeue it to its own",
        )
    return typing.cast("tuple[R, ...]", _read(data, version))


def decode_any(data: bytes) -> tuple[msgspec.Struct, ...]:
    """The records of one value of any kind that is known. Raises `BadRecord`."""
    return _read(data, _version_of(data, "a record"))


def from_avro(kind: type[R], value: dict[str, Any]) -> R:
    """A struct from what fastavro resolved to the newest schema of `kind`. Raises `BadRecord`."""
    try:
        return typing.cast("R", _from_avro(kind)(value))
    except _UNREADABLE as error:
        raise _unreadable(kind.__name__, error) from error


# --- writing ------------------------------------------------------------------------------------------------------


def _write(kind: type[msgspec.Struct], *, batch: bool, write: Callable[[], bytes]) -> bytes:
    version = registry.newest(kind, batch=batch)
    try:
        return MARKER + version.fingerprint + write()
    except _UNWRITABLE as error:
        raise BadRecord(
            f"writing {kind.__name__}",
            needed="texts without lone surrogates and numbers of 64 bits",
            came=f"{type(error).__name__}: {error}",
            remedy="the record is dropped; what made it should have refused it",
        ) from error


# --- reading ------------------------------------------------------------------------------------------------------


def _version_of(data: bytes, who: str) -> registry.Version:
    if data[:2] != MARKER or len(data) < HEADER_BYTES:
        raise BadRecord(
            f"reading {who}",
            needed="Avro's single-object encoding (C3 01, 8 bytes of fingerprint)",
            came=f"{len(data)} bytes that start with {data[:10].hex(' ') or 'nothing'}",
            remedy="its sender must use the schemas of this project",
        )
    version = registry.by_fingerprint().get(data[2:HEADER_BYTES])
    if version is None:
        raise UnknownSchema(
            f"reading {who}",
            needed="a schema version that this build knows",
            came=f"fingerprint {data[2:HEADER_BYTES].hex()}",
            remedy="a newer build wrote it; upgrade this one, then requeue the record",
        )
    return version


def _read(data: bytes, version: registry.Version) -> tuple[msgspec.Struct, ...]:
    newest = registry.newest(version.record, batch=version.batch)
    if version is newest:
        return _read_newest(data, version)
    stream = io.BytesIO(data)
    stream.seek(HEADER_BYTES)
    convert = _from_avro(version.record)
    try:
        value: Any = fastavro.schemaless_reader(stream, version.parsed, newest.parsed)
        read = tuple([convert(one) for one in value]) if version.batch else (convert(value),)
    except _UNREADABLE as error:
        raise _unreadable(version.record.__name__, error) from error
    if stream.tell() != len(data):
        raise _unreadable(version.record.__name__, f"{len(data) - stream.tell()} bytes after the value")
    return read


def _read_newest(data: bytes, version: registry.Version) -> tuple[msgspec.Struct, ...]:
    kind = version.record
    read = compiled.several_reader(kind) if version.batch else compiled.reader(kind)
    try:
        value, end = read(data, HEADER_BYTES)
    except _UNREADABLE as error:
        raise _unreadable(kind.__name__, error) from error
    if end != len(data):
        raise _unreadable(kind.__name__, f"{len(data)} bytes instead of {end}")
    return value if version.batch else (value,)


def _unreadable(who: str, why: object) -> BadRecord:
    came = f"{type(why).__name__}: {why}" if isinstance(why, BaseException) else str(why)
    return BadRecord(
        f"reading {who}",
        needed="a whole value of the schema that its fingerprint names",
        came=came,
        remedy="the record is damaged; it cannot be requeued as it is",
    )


@cache
def _from_avro(kind: type[msgspec.Struct]) -> _Convert:
    """A function from the dict that fastavro resolved to the struct.

    Fields may hold defaults, which fastavro takes from the schema's JSON: text for a field of bytes.
    """
    hints = typing.get_type_hints(kind)
    names = [field.name for field in msgspec.structs.fields(kind)]
    special = tuple(
        (name, convert) for name in names if (convert := _reader(hints[name], (kind, name) in UNSIGNED)) is not None
    )

    def convert_dict(fields: dict[str, Any]) -> msgspec.Struct:
        for name, convert in special:
            value = fields[name]
            if value is not None:
                fields[name] = convert(value)
        return kind(**fields)

    return convert_dict


def _reader(hint: Any, unsigned: bool) -> _Convert | None:
    """What turns a present value of Avro's into this type; None when it is taken as it is."""
    hint = _present(hint)
    if typing.get_origin(hint) is tuple:
        inner = _reader(typing.get_args(hint)[0], False)
        return tuple if inner is None else lambda values: tuple([inner(value) for value in values])
    if issubclass(hint, enum.Enum):
        return {member.value: member for member in hint}.__getitem__
    if issubclass(hint, msgspec.Struct):
        return _from_avro(hint)
    if hint is bytes:
        return _default_to_bytes
    return _to_unsigned if unsigned else None


def _default_to_bytes(value: bytes | str) -> bytes:
    return value.encode("latin-1") if isinstance(value, str) else value


def _to_unsigned(number: int) -> int:
    return number & 0xFFFF_FFFF_FFFF_FFFF


def _present(hint: Any) -> Any:
    """The type of a value that is there: `int` of `int | None`."""
    if isinstance(hint, types.UnionType):
        return next(member for member in hint.__args__ if member is not types.NoneType)
    return hint
