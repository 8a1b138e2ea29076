"""The Avro schemas by record and version, and by fingerprint: the files beside this one, read once.

`<record>/v<N>.avsc` is the N-th version of a record. Every version ever used stays: what was written under it
lies in topics and changelogs. A record's batch is the array of it; its schema follows from the file, so it has none of
its own.

The fingerprint is CRC-64-AVRO over the parsing canonical form (Avro 1.11 specification, "Schema Fingerprints").
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
import msgspec
from fastavro.schema import fingerprint, to_parsing_canonical_form

from schemas import records, url_rows

FOLDER = Path(__file__).parent

RECORDS: tuple[type[msgspec.Struct], ...] = (
    records.DiscoveredUrl,
    records.FetchLease,
    records.FetchResult,
    records.StoredResult,
    records.ParseTask,
    records.ParsedPage,
    records.HostPolicy,
    records.OwnerMessage,
    records.DeadLetter,
    url_rows.UrlRecord,
)


class Version(msgspec.Struct, frozen=True):
    """One schema that somebody may have written with. `document` is its JSON, `parsed` what fastavro works with."""

    record: type[msgspec.Struct]
    number: int
    batch: bool
    document: Any
    parsed: Any
    fingerprint: bytes  # 8 bytes, little-endian, as the single-object encoding has it


def folder_of(record: type[msgspec.Struct]) -> Path:
    """Where the versions of a record lie: `FetchLease` -> `schemas/fetch_lease`."""
    return FOLDER / re.sub(r"(?<!^)(?=[A-Z])", "_", record.__name__).lower()


@cache
def versions(record: type[msgspec.Struct], *, batch: bool) -> tuple[Version, ...]:
    """All versions of a record or of its batch, the oldest first. Asserts that they are numbered 1, 2, 3 ..."""
    numbers = sorted(int(path.stem.removeprefix("v")) for path in folder_of(record).glob("v*.avsc"))
    assert numbers == list(range(1, max(numbers, default=1) + 1)), f"{folder_of(record)}: versions {numbers}"
    return tuple(_load(record, number, batch=batch) for number in numbers)


def newest(record: type[msgspec.Struct], *, batch: bool) -> Version:
    """The version that is written, and that older ones are resolved to when read."""
    return versions(record, batch=batch)[-1]


@cache
def by_fingerprint() -> dict[bytes, Version]:
    """Every version of every record and batch. Asserts that no two share a fingerprint."""
    every = [version for record in RECORDS for batch in (False, True) for version in versions(record, batch=batch)]
    known = {version.fingerprint: version for version in every}
    assert len(known) == len(every), (
        "two schema files have one canonical form: a version must differ in what it carries"
    )
    return known


def fingerprint_of(document: Any) -> bytes:
    """CRC-64-AVRO of a schema's parsing canonical form, 8 bytes little-endian."""
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(document), "CRC-64-AVRO"))


def _load(record: type[msgspec.Struct], number: int, *, batch: bool) -> Version:
    document = json.loads((folder_of(record) / f"v{number}.avsc").read_text("utf-8"))
    if batch:
        document = {"type": "array", "items": document}
    parsed = fastavro.parse_schema(document)
    return Version(record, number, batch, document, parsed, fingerprint_of(document))
