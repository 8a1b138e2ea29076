"""What other people write to discovered-urls and host-policies: plain JSON, and Avro in a schema registry's framing.

JSON is one object or a list of objects with the names of the record's fields. What a sender leaves out has the record's
default; `source` is "seed" and `discovered_ms` is `now_ms` unless given. Bytes are base64. An unknown name is refused,
since a misspelt `priority_hint` that is dropped in silence is worse than a dead letter.

The framing is a zero byte, the schema's number in four bytes (big-endian), and the value in Avro's binary encoding.
"""

from __future__ import annotations

import difflib
import io
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import fastavro
import msgspec

from schemas import registry
from schemas.codec import MARKER, BadRecord, decode, from_avro
from schemas.records import DiscoveredUrl, HostPolicy, Source

REGISTRY_MAGIC = 0
REGISTRY_HEADER_BYTES = 5
PRIORITY_HINT_MAX = 255
RECORDS_MAX = 10_000  # of one JSON list
LONG_MAX = (1 << 63) - 1  # what Avro's long holds
URL_ID_BYTES = 16

R = TypeVar("R", DiscoveredUrl, HostPolicy)
Resolver = Callable[
    [int], Any
]  # a registry's schema number -> the writer's schema (JSON text or parsed), None: unknown

_UNREADABLE = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError)


def decode_foreign(data: bytes, kind: type[R], *, now_ms: int, resolver: Resolver | None = None) -> tuple[R, ...]:
    """The records of a value that anybody wrote: our encoding, a registry's framing, or JSON. Raises `BadRecord`.

    The first bytes tell them apart: C3 01 is ours, 00 a registry's, anything else must be JSON. `resolver` is None
    where no registry is set. What `resolver` raises is passed on: a registry that is away is a service, no bad record.
    """
    if data[:2] == MARKER:
        return _checked(decode(data, kind), kind)
    if data[:1] == bytes([REGISTRY_MAGIC]):
        return _checked(_decode_registry(data, kind, resolver), kind)
    return _checked(_decode_json(data, kind, now_ms), kind)


def _decode_registry(data: bytes, kind: type[R], resolver: Resolver | None) -> tuple[R, ...]:
    who = f"reading {kind.__name__} in a registry's framing"
    if resolver is None:
        raise BadRecord(who, needed="a schema registry", came="none is set", remedy="set one, then requeue the record")
    if len(data) < REGISTRY_HEADER_BYTES:
        raise BadRecord(who, needed="a zero byte and four of schema number", came=data.hex(" "), remedy="it is damaged")
    number = int.from_bytes(data[1:REGISTRY_HEADER_BYTES], "big")
    schema = resolver(number)
    if schema is None:
        raise BadRecord(
            who, needed="a schema that the registry knows", came=f"number {number}", remedy="register it, then requeue"
        )
    stream = io.BytesIO(data)
    stream.seek(REGISTRY_HEADER_BYTES)
    try:
        document = msgspec.json.decode(schema) if isinstance(schema, (str, bytes)) else schema
        writer = fastavro.parse_schema(document)
        value: Any = fastavro.schemaless_reader(stream, writer, registry.newest(kind, batch=False).parsed)
    except (fastavro.read.SchemaResolutionError, fastavro.schema.SchemaParseException, *_UNREADABLE) as error:
        raise BadRecord(
            who,
            needed=f"a value that Avro resolves to {kind.__name__} version {registry.newest(kind, batch=False).number}",
            came=f"schema number {number}: {type(error).__name__}: {error}",
            remedy="write it with a compatible schema",
        ) from error
    if stream.tell() != len(data):
        raise BadRecord(
            who, needed="one whole value", came=f"{len(data) - stream.tell()} bytes after it", remedy="it is damaged"
        )
    return (from_avro(kind, value),)


def _decode_json(data: bytes, kind: type[R], now_ms: int) -> tuple[R, ...]:
    who = f"reading {kind.__name__} as JSON"
    try:
        value: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRecord(who, needed="a JSON object or a list of them", came=str(error), remedy="correct it") from error
    entries = value if isinstance(value, list) else [value]
    if not 0 < len(entries) <= RECORDS_MAX:
        raise BadRecord(who, needed=f"1 to {RECORDS_MAX} records", came=str(len(entries)), remedy="split the list")
    return tuple([_from_json(entry, kind, now_ms, who) for entry in entries])


def _from_json(entry: Any, kind: type[R], now_ms: int, who: str) -> R:
    if not isinstance(entry, dict):
        raise BadRecord(who, needed="a JSON object", came=type(entry).__name__, remedy="correct it")
    names = [field.name for field in msgspec.structs.fields(kind)]
    for name in entry:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
            remedy = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(names)}"
            raise BadRecord(who, needed="names of fields alone", came=f'"{name}"', remedy=remedy)
    filled = {**_own_defaults(kind, now_ms), **entry}
    try:
        loose = msgspec.convert(filled, _by_name(kind))
    except msgspec.ValidationError as error:
        raise BadRecord(who, needed="the fields of the record", came=str(error), remedy="correct it") from error
    return kind(**msgspec.structs.asdict(loose))


def _own_defaults(kind: type[msgspec.Struct], now_ms: int) -> dict[str, Any]:
    """What a sender of URLs need not know. The owner derives the host_key from the normal form when it is empty."""
    if kind is DiscoveredUrl:
        return {"host_key": "", "source": Source.SEED.value, "discovered_ms": now_ms}
    return {}


@cache
def _by_name(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The record with its fields by name, since our own encoding of it is a list."""
    fields = [
        (field.name, field.type) if field.required else (field.name, field.type, field.default)
        for field in msgspec.structs.fields(kind)
    ]
    return msgspec.defstruct(kind.__name__, fields)


def _checked(read: tuple[R, ...], kind: type[R]) -> tuple[R, ...]:
    for record in read:
        problem = _problem(record)
        if problem:
            raise BadRecord(f"reading {kind.__name__}", needed=problem[0], came=problem[1], remedy="correct it")
    return read


def _problem(record: DiscoveredUrl | HostPolicy) -> tuple[str, str] | None:
    """The first bound that a stranger's record breaks: what was needed and what came. None when it keeps them all."""
    for name, value in msgspec.structs.asdict(record).items():
        if isinstance(value, int) and not 0 <= value <= LONG_MAX:
            return f"{name} of 0 or more, of 63 bits", str(value)
    if isinstance(record, DiscoveredUrl):
        if not record.url:
            return "a url", "an empty one"
        if record.priority_hint > PRIORITY_HINT_MAX:
            return f"priority_hint of 0 to {PRIORITY_HINT_MAX}", str(record.priority_hint)
        if len(record.parent_id) not in (0, URL_ID_BYTES):
            return f"a parent_id of {URL_ID_BYTES} bytes", f"one of {len(record.parent_id)}"
        return None
    if not record.host_key:
        return 'a host_key or "*"', "an empty one"
    if record.concurrency == 0:
        return "a concurrency of 1 or more", "0"
    return None
