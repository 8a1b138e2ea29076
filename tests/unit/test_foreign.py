"""Other people's producers are understood or refused with a reason; a half-understood record is never taken."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from schemas import codec, registry
from schemas.codec import BadRecord
from schemas.foreign import decode_foreign
from schemas.records import DiscoveredUrl, HostPolicy, Kind, Source

NOW_MS = 1_700_000_000_000


def urls(data: bytes, resolver: Any = None) -> tuple[DiscoveredUrl, ...]:
    """The URLs of one value as an owner reads it."""
    return decode_foreign(data, DiscoveredUrl, now_ms=NOW_MS, resolver=resolver)


def test_json_needs_nothing_but_a_url() -> None:
    """Somebody who pipes URLs into the topic from a shell must not have to know our fields."""
    assert urls(b'{"url": "https://a.example/"}') == (DiscoveredUrl("https://a.example/", "", Source.SEED, NOW_MS),)


def test_json_lists_and_every_field_by_name() -> None:
    """All that our own producers can say can be said in JSON too; bytes are base64."""
    entry = {
        "url": "https://a.example/s.xml",
        "host_key": "https://a.example",
        "source": "sitemap",
        "discovered_ms": 5,
        "parent_id": "AAAAAAAAAAAAAAAAAAAAAA==",
        "depth": 1,
        "redirect_hops": 2,
        "priority_hint": 255,
        "lastmod_ms": 7,
        "kind": "sitemap",
    }
    whole = DiscoveredUrl(
        "https://a.example/s.xml", "https://a.example", Source.SITEMAP, 5, bytes(16), 1, 2, 255, 7, Kind.SITEMAP
    )
    assert urls(json.dumps([entry, entry]).encode()) == (whole, whole)


def test_policies_in_json() -> None:
    """An operator's tool writes host-policies as JSON."""
    read = decode_foreign(
        b'{"host_key": "*", "policy_version": 2, "blocked_patterns": ["a", "b"]}', HostPolicy, now_ms=0
    )
    assert read == (HostPolicy("*", 2, blocked_patterns=("a", "b")),)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"url": "x", "priority_hnit": 1}', 'did you mean "priority_hint"'),
        (b'{"host_key": "x"}', "missing required field `url`"),
        (b'{"url": ""}', "a url, came an empty one"),
        (b'{"url": 7}', "Expected `str`, got `int`"),
        (b'{"url": "x", "source": "rumour"}', "Invalid enum value 'rumour'"),
        (b'{"url": "x", "priority_hint": 256}', "priority_hint of 0 to 255"),
        (b'{"url": "x", "depth": -1}', "depth of 0 or more"),
        (b'{"url": "x", "lastmod_ms": 9223372036854775808}', "lastmod_ms of 0 or more, of 63 bits"),
        (b'{"url": "x", "parent_id": "AAAA"}', "parent_id of 16 bytes"),
        (b"[]", "1 to 10000 records"),
        (b"7", "a JSON object, came int"),
        (b"[[]]", "a JSON object, came list"),
        (b'{"url": "x"', "a JSON object or a list of them"),
        (b'{"url": "\xff"}', "a JSON object or a list of them"),
        (b'{"url": "\\ud800"}', "a JSON object or a list of them"),
        (b"", "a JSON object or a list of them"),
    ],
)
def test_a_wrong_record_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    """What is not understood whole goes to the dead letters, and the reason says what to correct."""
    with pytest.raises(BadRecord) as caught:
        urls(data)
    assert reason in str(caught.value)


def test_our_own_encoding_is_read_too() -> None:
    """One reader serves all producers of the topic, our batches among them, under the same bounds."""
    record = DiscoveredUrl("https://a.example/", "https://a.example", Source.LINK, 1)
    assert urls(codec.encode_batch([record, record])) == (record, record)
    with pytest.raises(BadRecord, match="priority_hint"):
        urls(codec.encode(DiscoveredUrl("https://a.example/", "", Source.LINK, 1, priority_hint=300)))


def framed(number: int, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    """A value as a registry's client writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\x00" + number.to_bytes(4, "big") + out.getvalue()


def test_a_registrys_framing_is_resolved_to_our_record() -> None:
    """A producer with its own compatible schema (fewer fields, another order) is read by the registry's word."""
    document = registry.newest(DiscoveredUrl, batch=False).document
    theirs = {**document, "fields": [f for f in reversed(document["fields"]) if "default" not in f]}
    value = {"url": "https://a.example/", "host_key": "", "source": "feed", "discovered_ms": 3}
    data = framed(70_000, theirs, value)
    read = urls(data, {70_000: json.dumps(theirs)}.get)
    assert read == (DiscoveredUrl("https://a.example/", "", Source.FEED, 3),)
    with pytest.raises(BadRecord, match="none is set"):
        urls(data)
    with pytest.raises(BadRecord, match="number 70000"):
        urls(data, {}.get)
    with pytest.raises(BadRecord, match="bytes after it"):
        urls(data + b"\x00", {70_000: theirs}.get)
    for short in (b"\x00", b"\x00\x00\x01\x11"):
        with pytest.raises(BadRecord, match="four of schema number"):
            urls(short, {}.get)


@pytest.mark.parametrize("schema", ['"string"', '{"type": "record"}', "not json", '{"type": "no such type"}'])
def test_an_incompatible_registry_schema_is_refused(schema: str) -> None:
    """A registry may hold anything under a number; what does not resolve is one bad record, not a crash."""
    with pytest.raises(BadRecord, match="compatible schema"):
        urls(b"\x00\x00\x00\x00\x01\x02x", lambda _: schema)
