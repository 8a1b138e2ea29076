"""Avro's binary encoding for our own records: for each schema a function of its own, made from it once.

fastavro goes by dicts and asks a schema again for each field: 8 to 10 us a record with the way between dict and struct.
An owner reads and writes four records for each page, so that was its largest cost. A function that is written out field
by field needs a third of that (infra/decisions/0123). It writes the same bytes, and reads what follows the newest
schema; what older ones wrote is resolved by fastavro, as what others write.

Made for what our schemas have: string, bytes, long, boolean, enum, record, array, and null or one of these. Whoever
reads must see to it that the value ends where its bytes do: a text that is cut off shows only there.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from schemas import registry
from schemas.records import ParsedPage
from schemas.url_rows import Visit

UNSIGNED = frozenset({(ParsedPage, "simhash"), (Visit, "simhash")})

Write = Callable[[Any], bytes]
Read = Callable[[bytes, int], tuple[Any, int]]
"""(bytes, where the value begins) → (value, where it ends). Raises IndexError, ValueError, KeyError, OverflowError."""

_SMALL_MAX = 8_192  # lengths and numbers below: two bytes
_SEEN_MAX = 65_536
_BITS = 64


@cache
def writer(kind: type[msgspec.Struct]) -> Write:
    """From a struct to its bytes. Raises what a value that no schema holds raises on its way."""
    return typing.cast("Write", _Maker(kind).write())


@cache
def reader(kind: type[msgspec.Struct]) -> Read:
    """To a struct of the newest schema's bytes."""
    return typing.cast("Read", _Maker(kind).read())


def write_several(kind: type[msgspec.Struct], several: typing.Sequence[msgspec.Struct]) -> bytes:
    """An array's bytes: one block."""
    write = writer(kind)
    return b"".join((_long(len(several)), *[write(one) for one in several], b"\0"))


@cache
def several_reader(kind: type[msgspec.Struct]) -> Read:
    """To a tuple."""
    return _array_reader(reader(kind))


# --- numbers ------------------------------------------------------------------------------------------------------


def _varint(number: int) -> bytes:
    if not -(1 << _BITS - 1) <= number < 1 << _BITS - 1:
        raise OverflowError(f"{number} is no number of {_BITS} bits")
    left = number << 1 ^ number >> _BITS - 1
    found = bytearray()
    while left > 127:
        found.append(left & 127 | 128)
        left >>= 7
    found.append(left)
    return bytes(found)


_SMALL = tuple(_varint(number) for number in range(_SMALL_MAX))
_seen: dict[int, bytes] = {}  # times of a batch are nearly the same


def _long(number: int) -> bytes:
    found = _seen.get(number)
    if found is None:
        if len(_seen) >= _SEEN_MAX:
            _seen.clear()
        found = _seen[number] = _varint(number)
    return found


def _rest(data: bytes, at: int, number: int) -> tuple[int, int]:
    """(the number that begins with these 14 bits, unsigned; where it ends)."""
    shift = 14
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    if number >> _BITS:
        raise OverflowError(f"a number of more than {_BITS} bits")
    return number, at


def _signed_at(data: bytes, at: int) -> tuple[int, int]:
    number = data[at]
    at += 1
    if number > 127:
        byte = data[at]
        number, at = number & 127 | (byte & 127) << 7, at + 1
        if byte > 127:
            number, at = _rest(data, at, number)
    return number >> 1 ^ -(number & 1), at


def _to_signed(number: int) -> int:
    if not 0 <= number < 1 << _BITS:
        raise OverflowError(f"{number} is not an unsigned number of {_BITS} bits")
    return number - (1 << _BITS) if number >> _BITS - 1 else number


# --- values by functions: items of arrays ---------------------------------------------------------------------------


def _array_reader(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        found: list[Any] = []
        while True:
            count, at = _signed_at(data, at)
            if not count:
                return tuple(found), at
            if count < 0:  # the block's length in bytes follows
                count = -count
                _, at = _signed_at(data, at)
            for _ in range(count):
                one, at = item(data, at)
                found.append(one)

    return read


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _long(len(encoded)) + encoded


def _text_at(data: bytes, at: int) -> tuple[str, int]:
    size, at = _signed_at(data, at)
    if size < 0:
        raise ValueError("a negative length")
    return str(data[at : at + size], "utf-8"), at + size


# --- functions written out ----------------------------------------------------------------------------------------


class _Maker:
    """Of one record: writes down, field by field, what is to be done, and has it compiled."""

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        self._kind = kind
        self._names: dict[str, Any] = {
            "SMALL": _SMALL,
            "long": _long,
            "rest": _rest,
            "signed": _to_signed,
            "text": _text,
            "kind": kind,
        }
        hints = typing.get_type_hints(kind)
        schemas = {field["name"]: field["type"] for field in _document(kind)["fields"]}
        self._fields = [(name, schemas[name], hints[name]) for name in kind.__struct_fields__]

    def write(self) -> Any:
        lines, parts = list[str](), list[str]()
        for number, (name, schema, hint) in enumerate(self._fields):
            value, part = f"v{number}", f"p{number}"
            lines.append(f"{value} = record.{name}")
            if isinstance(schema, list):
                lines += [f"if {value} is None:", f"    {part} = b'\\0'", "else:"]
                inner, found = self._writing(_other(schema), _present(hint), name, value)
                lines += [f"    {line}" for line in inner]
                lines.append(f"    {part} = b''.join((b'\\2', {', '.join(found)}))")
                parts.append(part)
            else:
                inner, found = self._writing(schema, hint, name, value)
                lines += inner
                parts += found
        return self._compiled("write(record)", [*lines, f"return b''.join(({', '.join(parts)},))"])

    def _writing(self, schema: Any, hint: Any, name: str, value: str) -> tuple[list[str], list[str]]:
        """(lines, expressions of bytes) for a value that is there."""
        small = f"SMALL[{value}] if 0 <= {value} < {_SMALL_MAX} else long({value})"
        if (self._kind, name) in UNSIGNED:
            return [f"{value} = signed({value})"], [small]
        match _sort(schema):
            case "string" | "bytes" as sort:
                size = f"n{value}"
                lines = [f"{value} = {value}.encode()"] if sort == "string" else []
                sized = f"SMALL[{size}] if {size} < {_SMALL_MAX} else long({size})"
                return [*lines, f"{size} = len({value})"], [sized, value]
            case "long":
                return [], [small]
            case "boolean":
                return [], [f"b'\\1' if {value} else b'\\0'"]
            case "enum":
                written = {symbol: _varint(number) for number, symbol in enumerate(schema["symbols"])}
                return [], [f"{self._named(written)}[{value}._value_]"]
            case "array":
                item = _text if schema["items"] == "string" else writer(typing.get_args(hint)[0])
                call = self._named(item)
                filled = f"b''.join((long(len({value})), *[{call}(one) for one in {value}], b'\\0'))"
                return [], [f"{filled} if {value} else b'\\0'"]
            case _:
                return [], [f"{self._named(writer(hint))}({value})"]

    def read(self) -> Any:
        lines = list[str]()
        for number, (name, schema, hint) in enumerate(self._fields):
            value = f"v{number}"
            if isinstance(schema, list):
                inner = self._reading(_other(schema), _present(hint), name, value)
                lines += ["n = data[at]", "at += 1", "if n == 0:", f"    {value} = None", "elif n == 2:"]
                lines += [f"    {line}" for line in inner]
                lines += ["else:", "    raise ValueError('neither null nor a value')"]
            else:
                lines += self._reading(schema, hint, name, value)
        made = ", ".join(f"v{number}" for number in range(len(self._fields)))
        return self._compiled("read(data, at)", [*lines, f"return kind({made}), at"])

    def _reading(self, schema: Any, hint: Any, name: str, value: str) -> list[str]:
        match _sort(schema):
            case "string" | "bytes" as sort:
                taken = "data[at:end]" if sort == "bytes" else "str(data[at:end], 'utf-8')"
                check = ["if n & 1:", "    raise ValueError('a negative length')"]
                return [*_NUMBER, *check, "end = at + (n >> 1)", f"{value} = {taken}", "at = end"]
            case "long":
                unsigned = f" & {(1 << _BITS) - 1}" if (self._kind, name) in UNSIGNED else ""
                return [*_NUMBER, f"{value} = (n >> 1 ^ -(n & 1)){unsigned}"]
            case "boolean":
                return [f"{value} = {self._named((False, True))}[data[at]]", "at += 1"]
            case "enum":
                members = {member.value: member for member in hint}
                read = {2 * number: members[symbol] for number, symbol in enumerate(schema["symbols"])}
                return [f"{value} = {self._named(read)}[data[at]]", "at += 1"]
            case "array":
                item = _text_at if schema["items"] == "string" else reader(typing.get_args(hint)[0])
                call = self._named(_array_reader(item))
                empty = ["if data[at] == 0:", f"    {value} = ()", "    at += 1", "else:"]
                return [*empty, f"    {value}, at = {call}(data, at)"]
            case _:
                return [f"{value}, at = {self._named(reader(hint))}(data, at)"]

    def _named(self, thing: Any) -> str:
        name = f"t{len(self._names)}"
        self._names[name] = thing
        return name

    def _compiled(self, head: str, lines: list[str]) -> Any:
        source = "\n    ".join([f"def {head}:", *lines])
        exec(compile(source, f"<{head} of {self._kind.__name__}>", "exec"), self._names)
        return self._names[head.partition("(")[0]]


_NUMBER = (  # n: the next number, unsigned; most have a byte or two
    "n = data[at]",
    "at += 1",
    "if n > 127:",
    "    byte = data[at]",
    "    at += 1",
    "    if byte > 127:",
    "        n, at = rest(data, at, n & 127 | (byte & 127) << 7)",
    "    else:",
    "        n = n & 127 | byte << 7",
)


def _document(kind: type[msgspec.Struct]) -> Any:
    """The newest schema of a record, or of one within another's: the same wherever it stands."""
    if kind in registry.RECORDS:
        return registry.newest(kind, batch=False).document
    found = (
        one
        for record in registry.RECORDS
        for one in _records(registry.newest(record, batch=False).document)
        if one["name"] == kind.__name__
    )
    return next(found)


def _records(schema: Any) -> typing.Iterator[Any]:
    if isinstance(schema, list):
        for one in schema:
            yield from _records(one)
    elif isinstance(schema, dict):
        if schema["type"] == "record":
            yield schema
            for field in schema["fields"]:
                yield from _records(field["type"])
        elif schema["type"] == "array":
            yield from _records(schema["items"])


def _sort(schema: Any) -> str:
    """Its type's name; of a record, that of the record."""
    return str(schema if isinstance(schema, str) else schema["type"])


def _other(schema: list[Any]) -> Any:
    assert schema[0] == "null", f"null comes first: {schema}"
    assert len(schema) == 2, f"null or one type: {schema}"
    return schema[1]


def _present(hint: Any) -> Any:
    """The type of a value that is there: `int` of `int | None`."""
    if isinstance(hint, types.UnionType):
        return next(member for member in hint.__args__ if member is not types.NoneType)
    return hint
