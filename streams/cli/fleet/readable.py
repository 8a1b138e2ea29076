"""A message as people and scripts read it: which records it holds, field by field, whatever wrote it."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from schemas.codec import MARKER, BadRecord, decode_any
from schemas.foreign import decode_foreign
from schemas.records import DiscoveredUrl, HostPolicy
from schemas.topics import INNER_TOPICS, OWNER_CHANGELOG, TOPICS
from streams.cli.words import count, instant, printable, shorten

if TYPE_CHECKING:
    from connectors.topic_reader import Message

__all__ = ["Entry", "entries", "json_of", "key_of", "line_of", "record_json"]

VALUE_CHARS_MAX = 120
_FIRST = ("url", "to_key", "host_key")  # what a record is about, and then what kind of it


class Entry(msgspec.Struct, frozen=True):
    """One record of a message; `index` counts within its batch. `problem`: it cannot be read, `raw` is the value."""

    index: int
    record: msgspec.Struct | None = None
    document: Any = None  # of JSON
    problem: str = ""
    raw: bytes = b""


def entries(message: Message) -> Iterator[Entry]:
    """The records of a message in their order; nothing in it makes this raise."""
    value = message.value
    if message.topic == OWNER_CHANGELOG and message.key:
        yield _of_changelog(message.key, value)
        return
    if value is None:
        yield Entry(0, problem="no value: deletes what its key names")
        return
    topic = TOPICS.get(message.topic)
    try:
        if value[:2] == MARKER:
            records: tuple[msgspec.Struct, ...] = decode_any(value)
        elif topic is not None and topic.foreign_json and topic.record is DiscoveredUrl:
            records = decode_foreign(value, DiscoveredUrl, now_ms=message.timestamp_ms)
        elif topic is not None and topic.foreign_json and topic.record is HostPolicy:
            records = decode_foreign(value, HostPolicy, now_ms=message.timestamp_ms)
        else:
            yield _other(message.topic, value)
            return
    except BadRecord as error:
        yield Entry(0, problem=str(error), raw=value)
        return
    for index, record in enumerate(records):
        yield Entry(index, record)


def line_of(message: Message, entry: Entry) -> str:
    """`3-1041-0  2026-11-30 15:07:41Z  https://example.org/a  source=seed ...`: a place, a time, and what it says."""
    place = f"{message.partition}-{message.offset}-{entry.index}  {instant(message.timestamp_ms)}"
    if entry.record is not None:
        about, fields = _words(entry.record)
        return f"{place}  {about}  {fields}".rstrip()
    key = f"  {_text(message.key)}" if message.key else ""
    if entry.problem:
        raw = f"  {count(len(entry.raw), 'byte')}: {shorten(entry.raw.hex(' '), 60)}" if entry.raw else ""
        return f"{place}{key}  {printable(entry.problem)}{raw}"
    if entry.document is not None:
        named = "".join(f"  {name}={_text(value)}" for name, value in message.headers)
        return f"{place}{key}{named}  {shorten(msgspec.json.encode(entry.document).decode(), 400)}"
    return f"{place}{key}  {count(len(entry.raw), 'byte')}{f': {shorten(entry.raw.hex(), 60)}' if entry.raw else ''}"


def json_of(message: Message, entry: Entry) -> dict[str, Any]:
    """All of it, bytes in hex."""
    fields: dict[str, Any] = {
        "topic": message.topic,
        "place": f"{message.partition}-{message.offset}-{entry.index}",
        "partition": message.partition,
        "offset": message.offset,
        "timestamp_ms": message.timestamp_ms,
        "key": _text(message.key) if message.key else None,
    }
    if message.headers:
        fields["headers"] = {name: _text(value) for name, value in message.headers}
    if entry.record is not None:
        return fields | {"kind": type(entry.record).__name__, "record": record_json(entry.record)}
    if entry.problem:
        return fields | {"problem": entry.problem, "value": entry.raw.hex()}
    return fields | ({"record": entry.document} if entry.document is not None else {"value": entry.raw.hex()})


def key_of(entry: Entry) -> str:
    """The host or group that a record is about; "" where that is not known."""
    for name in ("to_key", "host_key"):
        found = getattr(entry.record, name, "") if entry.record is not None else ""
        if found:
            return str(found)
    return ""


def record_json(value: Any) -> Any:
    """A record by the names of its fields, for JSON."""
    if isinstance(value, msgspec.Struct):
        return {name: record_json(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {_text(key) if isinstance(key, bytes) else str(key): record_json(one) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [record_json(one) for one in value]
    return value


def _of_changelog(key: bytes, value: bytes | None) -> Entry:
    """What owners leave one another (`streams.fleet.changelog`): states by family, rows to be written, the mark."""
    from streams.core.hosts import decode_host
    from streams.core.rows import decode_row
    from streams.core.turn import Family
    from streams.fleet.changelog import decode_redo, take_apart

    try:
        read = take_apart([(key, value)])
        if read.mark is not None:
            return Entry(0, document={"mark": record_json(read.mark)})
        for redo in map(decode_redo, read.redo.values()):
            urls = [decode_row(row.row).url for row in redo.rows if row.row is not None]
            return Entry(0, document={"rows": len(redo.rows), "stamp": list(redo.stamp), "urls": urls})
        for family, name, state in read.writes:
            said: dict[str, Any] = {"family": family.name.lower(), "of": name.hex()}
            if state is None:
                return Entry(0, document=said | {"deleted": True})
            if family is Family.HOST:
                return Entry(0, document=said | {"state": record_json(decode_host(state))})
            return Entry(0, document=said | {"bytes": len(state)})
    except (msgspec.MsgspecError, ValueError) as error:
        return Entry(0, problem=str(error), raw=value or b"")
    return Entry(0, problem="no value: deletes what its key names")


def _other(topic: str, value: bytes) -> Entry:
    """What is none of our records: documents in JSON, the changelog's rows, wake-ups."""
    known = TOPICS.get(topic) or INNER_TOPICS.get(topic)
    if not value or (known is not None and known.record is None and value[:1] not in b"{["):
        return Entry(0, raw=value)
    try:
        return Entry(0, document=msgspec.json.decode(value))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Entry(0, raw=value)


def _words(record: msgspec.Struct) -> tuple[str, str]:
    """What it is about, and those of its fields that say something."""
    about = next((getattr(record, name) for name in _FIRST if getattr(record, name, "")), "")
    words = []
    for field in msgspec.structs.fields(record):
        value = getattr(record, field.name)
        if field.name in ("url", "host_key", "to_key") and value and (value == about or about.startswith(str(value))):
            continue
        if value == field.default or value in (None, "", b"", ()):
            continue
        words.append(f"{field.name}={_value(field.name, value)}")
    return printable(about), " ".join(words)


def _value(name: str, value: Any) -> str:
    if isinstance(value, msgspec.Struct):
        inner = (f"{one}={_value(one, getattr(value, one))}" for one in value.__struct_fields__)
        return shorten(f"({' '.join(inner)})", VALUE_CHARS_MAX)
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, bytes):
        return shorten(value.hex(), 40)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        shown = ",".join(_value(name, one) for one in value[:3])
        return f"[{count(len(value))}: {shown}{',...' if len(value) > 3 else ''}]" if len(value) > 1 else f"[{shown}]"
    if isinstance(value, int) and name.endswith("_ms") and value > 1_000_000_000_000:
        return instant(value).replace(" ", "T")
    text = shorten(str(value), VALUE_CHARS_MAX)
    return f'"{text}"' if " " in text else text


def _text(data: bytes | None) -> str:
    """A key or header: text where it is that, else hex."""
    try:
        text = (data or b"").decode()
    except UnicodeDecodeError:
        text = ""
    return text if text and text.isprintable() else (data or b"").hex()
