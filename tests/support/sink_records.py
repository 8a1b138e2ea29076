"""Records for the sink, good and bad, and what an index must hold after them.

That is said apart from the sink: the highest version of an id stands, a delete is a version like any other, a bad
record is none.
"""

from __future__ import annotations

import enum
import json
import random
from collections.abc import Iterable
from typing import Any

import msgspec

DOCUMENT_BYTES_MAX = 20_000  # of the connectors in tests, so that a record can be above it and below Kafka's own limit


class Flaw(enum.Enum):
    """Ways for a record to be bad. Some the sink sees itself, the last three only the index."""

    NO_KEY = "no key"
    LONG_KEY = "a key that is no id"
    NO_VERSION = "no header"
    BAD_VERSION = "a header that is no number"
    TWO_VERSIONS = "two headers"
    NOT_JSON = "not JSON"
    NOT_OBJECT = "JSON, but no object"
    NULL_WORD = "the word null"
    TOO_LARGE = "over the size limit"
    UNKNOWN_FIELD = "a field that the mapping has not"
    WRONG_TYPE = "a word where the mapping has an instant"
    TWICE = "one name twice in an object"


class Event(msgspec.Struct, frozen=True):
    """One record to be sent. `value` None deletes; `flaw` says why it is bad, if it is."""

    key: str | None
    version: int
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    flaw: Flaw | None = None


def document(key: str, version: int, **more: object) -> bytes:
    """What the index stage sends for a page."""
    fields = {
        "url_id": key,
        "doc_version": version,
        "url": f"https://example.org/{key}",
        "title": f"Page {key}",
        "text": f"text of {key} in version {version} " * 12,
        "language": "en",
        "content_hash": f"{version:064x}",
        "simhash": f"{version:016x}",
        "fetched_ms": 1_700_000_000_000 + version,
        "canonical": None,
    }
    return json.dumps(fields | more).encode()


def good(key: str, version: int, *, delete: bool = False) -> Event:
    """An upsert or delete as the index stage sends it."""
    value = None if delete else document(key, version)
    return Event(key, version, value, (("doc_version", str(version).encode()),))


def bad(key: str, version: int, flaw: Flaw) -> Event:
    """A record that the sink must not take, of an id and version that would win if it did."""
    right = good(key, version)
    no_header: tuple[tuple[str, bytes], ...] = ()
    changes: dict[Flaw, dict[str, Any]] = {
        Flaw.NO_KEY: {"key": None},
        Flaw.LONG_KEY: {"key": key.ljust(513, "x")},
        Flaw.NO_VERSION: {"headers": no_header},
        Flaw.BAD_VERSION: {"headers": (("doc_version", b"7.0"),)},
        Flaw.TWO_VERSIONS: {"headers": right.headers * 2},
        Flaw.NOT_JSON: {"value": b"{"},
        Flaw.NOT_OBJECT: {"value": b"[1]"},
        Flaw.NULL_WORD: {"value": b"null"},
        Flaw.TOO_LARGE: {"value": document(key, version, text="x" * DOCUMENT_BYTES_MAX)},
        Flaw.UNKNOWN_FIELD: {"value": document(key, version, nobody_knows=1)},
        Flaw.WRONG_TYPE: {"value": document(key, version, fetched_ms="yesterday")},
        Flaw.TWICE: {"value": b'{"url": "a", "url": "b"}'},
    }
    return msgspec.structs.replace(right, flaw=flaw, **changes[flaw])


def history(documents: int, rng: random.Random, *, bad_each: int) -> list[Event]:
    """The lives of so many documents, mixed: updates, deletes, rebirths in order; repeats and stale versions late."""
    lives: list[list[Event]] = []
    for number in range(documents):
        key = f"{number:032x}"
        versions = [1 << 20 | step for step in range(1, rng.choice((2, 2, 2, 3, 4)))]
        life = [good(key, version, delete=version > versions[0] and rng.random() < 0.3) for version in versions]
        if rng.random() < 0.15:
            life.append(rng.choice(life))  # a repeat, or a stale version after newer ones and after deletes
        lives.append(life)
    flaws = [bad(f"{rng.randrange(documents):032x}", 1 << 40, flaw) for flaw in Flaw for _ in range(bad_each)]
    lives += [[event] for event in flaws]
    turns = [index for index, life in enumerate(lives) for _ in life]
    rng.shuffle(turns)
    iterators = [iter(life) for life in lives]
    return [next(iterators[turn]) for turn in turns]


def expected(events: Iterable[Event]) -> dict[str, tuple[int, Any]]:
    """What the index must hold after all of them: (version, source) by id."""
    highest: dict[str, Event] = {}
    for event in events:
        if event.flaw is None:
            assert event.key is not None
            before = highest.get(event.key)
            if before is None or event.version > before.version:
                highest[event.key] = event
    return {key: (event.version, json.loads(event.value)) for key, event in highest.items() if event.value is not None}
