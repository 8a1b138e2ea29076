"""The Avro files and the structs are one contract, versions stay readable, and another Avro library agrees with ours.

How a version is frozen: when a release has written with a schema, its two fingerprints are put into
`schemas/released.json` (`{"fetch_lease/v1": {"record": "<hex>", "batch": "<hex>"}}`). From then on the file may not
change in what it carries; a change of the record is a new file `v<N+1>.avsc`. Until then the newest may be edited.
"""

from __future__ import annotations

import enum
import io
import json
import shutil
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import avro.compatibility
import avro.io
import avro.schema
import msgspec
import pytest

from schemas import codec, records, registry
from schemas.registry import RECORDS
from tests.support.samples import SAMPLES

PRIMITIVES = {str: "string", int: "long", bool: "boolean", bytes: "bytes"}


def differences(hint: Any, schema: Any, where: str, named: dict[str, Any]) -> list[str]:
    """What a struct's type and an Avro schema say differently, a sentence each."""
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(hint, types.UnionType):
        if not isinstance(schema, list) or schema[0] != "null" or len(schema) != 2:
            return [f"{where}: the struct may hold None, the schema is {schema}"]
        inner = next(member for member in hint.__args__ if member is not types.NoneType)
        return differences(inner, schema[1], where, named)
    if typing.get_origin(hint) is tuple:
        if not isinstance(schema, dict) or schema.get("type") != "array":
            return [f"{where}: the struct holds a list, the schema is {schema}"]
        return differences(typing.get_args(hint)[0], schema["items"], where + "[]", named)
    if hint in PRIMITIVES:
        return [] if schema == PRIMITIVES[hint] else [f"{where}: {hint.__name__} in the struct, {schema} in the schema"]
    named["headrace." + schema["name"]] = schema
    if issubclass(hint, enum.Enum):
        members = [member.value for member in hint]
        return [] if schema["symbols"] == members else [f"{where}: members {members}, symbols {schema['symbols']}"]
    return struct_differences(hint, schema, named)


def struct_differences(record: type[msgspec.Struct], schema: Any, named: dict[str, Any]) -> list[str]:
    """As `differences`, for the fields of a record: names, order, types and defaults."""
    hints = typing.get_type_hints(record)
    fields = {field["name"]: field for field in schema["fields"]}
    wrong = [f"{record.__name__}.{name}: in the struct, not in the schema" for name in hints if name not in fields]
    wrong += [f"{record.__name__}.{name}: in the schema, not in the struct" for name in fields if name not in hints]
    if not wrong and list(fields) != list(hints):
        wrong.append(f"{record.__name__}: the fields stand in another order")
    for field in msgspec.structs.fields(record):
        if field.name not in fields:
            continue
        where = f"{record.__name__}.{field.name}"
        wrong += differences(hints[field.name], fields[field.name]["type"], where, named)
        if not fields[field.name].get("doc"):
            wrong.append(f"{where}: the schema does not say what it is")
        if field.required == ("default" in fields[field.name]):
            wrong.append(f"{where}: required in one, with a default in the other")
        elif not field.required and _plain(field.default) != fields[field.name]["default"]:
            wrong.append(f"{where}: default {field.default!r}, in the schema {fields[field.name]['default']!r}")
    return wrong


def _plain(default: Any) -> Any:
    if isinstance(default, enum.Enum):
        return default.value
    if isinstance(default, bytes):
        return default.decode("latin-1")
    return list(default) if isinstance(default, tuple) else default


@pytest.mark.parametrize("record", RECORDS)
def test_struct_and_newest_schema_agree(record: type[msgspec.Struct]) -> None:
    """A field added to a struct alone would be lost between processes without a word."""
    assert struct_differences(record, registry.newest(record, batch=False).document, {}) == []


def test_every_schema_folder_is_known() -> None:
    """A schema file that nothing loads would let its records go unreadable."""
    folders = {path.parent for path in registry.FOLDER.glob("*/v*.avsc")}
    assert folders == {registry.folder_of(record) for record in RECORDS}


def test_released_versions_never_change() -> None:
    """What was written under a released schema lies in topics: its fingerprint must be found for ever."""
    released: dict[str, dict[str, str]] = json.loads((registry.FOLDER / "released.json").read_text("utf-8"))
    known = {
        f"{registry.folder_of(record).name}/v{version.number}": {
            "record": version.fingerprint.hex(),
            "batch": registry.versions(record, batch=True)[version.number - 1].fingerprint.hex(),
        }
        for record in RECORDS
        for version in registry.versions(record, batch=False)
    }
    assert {name: known.get(name) for name in released} == released
    superseded = {
        f"{registry.folder_of(record).name}/v{version.number}"
        for record in RECORDS
        for version in registry.versions(record, batch=False)[:-1]
    }
    assert superseded <= released.keys(), "a version that has a successor was used: put it into released.json"


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("batch", [False, True])
def test_avro_calls_every_version_readable_by_the_newest(record: type[msgspec.Struct], batch: bool) -> None:
    """The Avro project's own checker must find that today's reader reads whatever any version wrote."""
    reader = avro.schema.parse(json.dumps(registry.newest(record, batch=batch).document))
    for version in registry.versions(record, batch=batch):
        writer = avro.schema.parse(json.dumps(version.document))
        checker: Any = avro.compatibility.ReaderWriterCompatibilityChecker
        found = checker().get_compatibility(reader, writer)
        assert found.compatibility is avro.compatibility.SchemaCompatibilityType.compatible, found.messages


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("batch", [False, True])
def test_fingerprints_are_those_of_the_avro_project(record: type[msgspec.Struct], batch: bool) -> None:
    """A reader in another language finds our schema by the fingerprint that its own library computes."""
    version = registry.newest(record, batch=batch)
    assert avro.schema.parse(json.dumps(version.document)).fingerprint("CRC-64-AVRO") == version.fingerprint


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_the_avro_project_reads_what_we_write(sample: msgspec.Struct) -> None:
    """Our bytes are Avro, not merely what our own library reads back: header, order of fields and values."""
    version = registry.newest(type(sample), batch=True)
    data = codec.encode_batch([sample, sample])
    assert data[:2] == b"\xc3\x01"
    assert data[2:10] == version.fingerprint
    schema = avro.schema.parse(json.dumps(version.document))
    stream = io.BytesIO(data[10:])
    value: Any = avro.io.DatumReader(schema, schema).read(avro.io.BinaryDecoder(stream))
    assert stream.read() == b""
    assert [codec.from_avro(type(sample), one) for one in value] == [sample, sample]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_we_read_what_the_avro_project_writes(sample: msgspec.Struct) -> None:
    """A producer in another language may block its arrays and order its maps as it likes; we read it."""
    version = registry.newest(type(sample), batch=False)
    schema = avro.schema.parse(json.dumps(version.document))
    ours = codec.encode(sample)
    value = avro.io.DatumReader(schema, schema).read(avro.io.BinaryDecoder(io.BytesIO(ours[10:])))
    out = io.BytesIO()
    avro.io.DatumWriter(schema).write(value, avro.io.BinaryEncoder(out))
    assert codec.decode(ours[:10] + out.getvalue(), type(sample)) == (sample,)


@pytest.fixture
def two_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """A schema folder in which discovered_url has an older version of its four required fields; gives (old, new)."""
    for folder in registry.FOLDER.glob("*/"):
        if list(folder.glob("v*.avsc")):
            shutil.copytree(folder, tmp_path / folder.name)
    new = registry.newest(records.DiscoveredUrl, batch=False).document
    old = {**new, "fields": new["fields"][:4]}
    (tmp_path / "discovered_url" / "v1.avsc").write_text(json.dumps(old))
    (tmp_path / "discovered_url" / "v2.avsc").write_text(json.dumps(new))
    monkeypatch.setattr(registry, "FOLDER", tmp_path)
    for cached in (registry.versions, registry.by_fingerprint):
        cached.cache_clear()
    yield old, new
    for cached in (registry.versions, registry.by_fingerprint):
        cached.cache_clear()


def test_an_older_version_is_read_with_todays_defaults(two_versions: tuple[Any, Any]) -> None:
    """After an upgrade the topics still hold what the last release wrote, single and in batches."""
    old, new = (avro.schema.parse(json.dumps(document)) for document in two_versions)
    written = records.DiscoveredUrl("https://a.example/", "https://a.example", records.Source.LINK, 7)
    fields = {**msgspec.structs.asdict(written), "source": "link"}
    body = io.BytesIO()
    names = [field["name"] for field in two_versions[0]["fields"]]
    avro.io.DatumWriter(old).write({name: fields[name] for name in names}, avro.io.BinaryEncoder(body))
    single = b"\xc3\x01" + old.fingerprint("CRC-64-AVRO") + body.getvalue()
    assert codec.decode(single, records.DiscoveredUrl) == (written,)
    assert codec.decode_any(single) == (written,)
    batch = avro.schema.parse(json.dumps({"type": "array", "items": two_versions[0]}))
    framed = b"\xc3\x01" + batch.fingerprint("CRC-64-AVRO") + b"\x02" + body.getvalue() + b"\x00"
    assert codec.decode(framed, records.DiscoveredUrl) == (written,)
    assert codec.encode(written)[2:10] == new.fingerprint("CRC-64-AVRO")


def test_messages_between_owners_from_before_parsed_pages_are_read() -> None:
    """After an upgrade owner-messages still holds askings of the last release: they are read, and have no page."""
    first, now = (
        registry.versions(records.OwnerMessage, batch=False)[0],
        registry.newest(records.OwnerMessage, batch=False),
    )
    asked = records.OwnerMessage("addr:192.0.2.1", "https://a.test", records.OwnerMessageKind.PERMIT_ASKED, number=7)
    fields = {**msgspec.structs.asdict(asked), "kind": asked.kind.value}
    body = io.BytesIO()
    schema = avro.schema.parse(json.dumps(first.document))
    avro.io.DatumWriter(schema).write(
        {field["name"]: fields[field["name"]] for field in first.document["fields"]}, avro.io.BinaryEncoder(body)
    )
    written = b"\xc3\x01" + first.fingerprint + body.getvalue()
    assert codec.decode(written, records.OwnerMessage) == (asked,)
    assert codec.encode(asked)[2:10] == now.fingerprint != first.fingerprint


def test_a_missing_field_is_named() -> None:
    """The check of struct against schema must name the field that somebody forgot, or it helps nobody."""
    document = registry.newest(records.StoredResult, batch=False).document
    shorter = {**document, "fields": [field for field in document["fields"] if field["name"] != "robots_tags"]}
    assert struct_differences(records.StoredResult, shorter, {}) == [
        "StoredResult.robots_tags: in the struct, not in the schema"
    ]
