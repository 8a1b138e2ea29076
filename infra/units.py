"""Spans and sizes as people write them: `1.5s`, `20 min`, `64 MiB`. Always to a whole count, never rounded.

A span's units are ms, s, min (or m), h, d. A size's are B, kB, MB, GB (powers of 1,000) and KiB, MiB, GiB (of 1,024).
"""

from __future__ import annotations

import enum
import re
from decimal import Decimal


class Unit(enum.Enum):
    """What a number under a setting's name counts; the name says so (`delay_ms`, `body_bytes_max`)."""

    NONE = ""
    MS = "ms"
    S = "s"
    BYTES = "bytes"


_SPAN_MS = {
    "ms": 1,
    "s": 1_000,
    "sec": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_SIZE_BYTES = {
    "b": 1,
    "kb": 1_000,
    "mb": 1_000**2,
    "gb": 1_000**3,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
_NUMBER = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)\s*", re.ASCII)


def unit_of(name: str) -> Unit:
    """The unit in a name: the last part of it, or the one before `max` or `min`."""
    parts = name.split("_")
    tail = parts[-2] if parts[-1] in ("max", "min") and len(parts) > 1 else parts[-1]
    return {"ms": Unit.MS, "s": Unit.S, "bytes": Unit.BYTES}.get(tail, Unit.NONE)


def without_unit(name: str) -> str:
    """The name for a value that brings its own unit: `delay_ms` -> `delay`, `body_bytes_max` -> `body_max`."""
    unit = unit_of(name)
    if unit is Unit.NONE:
        return name
    parts = name.split("_")
    parts.remove(unit.value)
    return "_".join(parts)


def needed(unit: Unit) -> str:
    """What a person must write for such a value, for an error message."""
    if unit is Unit.NONE:
        return "a whole number"
    if unit is Unit.BYTES:
        return 'a size such as "64 MiB" or a whole number of bytes'
    return f'a span such as "1.5s" or "20 min" or a whole number of {unit.value}'


def parse(text: str, unit: Unit, *, bare: Unit | None = None) -> int | None:
    """`text` as a whole count of `unit`; None when it is not one.

    A number without a unit counts `bare`, or `unit` when that is not given.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    number, suffix = Decimal(match.group(1)), match.group(2).lower()
    if unit is Unit.NONE:
        return int(number) if not suffix and number == int(number) else None
    if not suffix:
        suffix = {Unit.MS: "ms", Unit.S: "s", Unit.BYTES: "b", Unit.NONE: ""}[bare or unit]
    scales = _SIZE_BYTES if unit is Unit.BYTES else _SPAN_MS
    scale = scales.get(suffix)
    if scale is None:
        return None
    count = number * scale / (1_000 if unit is Unit.S else 1)
    return int(count) if count == int(count) else None


def show(count: int, unit: Unit) -> str:
    """The shortest way to write it that `parse` reads back as the same number: `1s`, `64 MiB`, `1500 ms`."""
    if unit is Unit.NONE:
        return str(count)
    if unit is Unit.BYTES:
        for name, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if count and count % scale == 0:
                return f"{count // scale} {name}"
        return f"{count} B"
    count_ms = count * 1_000 if unit is Unit.S else count
    for name, scale in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if count_ms and count_ms % scale == 0:
            return f"{count_ms // scale} {name}"
    return f"{count_ms} ms"
