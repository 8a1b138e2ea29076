"""The index in OpenSearch, with the mapping of `schemas/pages-index.json`.

A mapping can gain fields, and nothing else of it can change: a field's type is in the segments. Compared is what we
ask for; what the index has beyond that is an operator's.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from infra.provision.rest import Answer, Rest
from infra.provision.steps import Step, Verdict, refusal
from streams.core.failures import EXIT_FAILED, CrawlError

__all__ = ["PAGES_INDEX", "plan", "wanted_index"]

PAGES_INDEX = Path(__file__).resolve().parents[2] / "schemas" / "pages-index.json"

# Set when an index is made, never later; all other settings are changed in place.
_FOR_EVER = ("number_of_shards", "analysis", "routing_partition_size", "codec", "sort", "knn", "soft_deletes")
# What OpenSearch leaves out of its answer because it is so by itself.
_IMPLIED = {"index": "true", "doc_values": "true", "store": "false", "norms": "true", "enabled": "true"}
_IMPLIED |= {"dynamic": "true", "type": "object"}


def wanted_index(document: Mapping[str, Any], *, shards: int, replicas: int) -> dict[str, Any]:
    """The body that makes the index: the file's `settings` and `mappings`, sized as the fleet's settings say."""
    settings = _flat(document.get("settings", {}))
    settings |= {"number_of_shards": str(shards), "number_of_replicas": str(replicas)}
    return {"settings": {"index": settings}, "mappings": copy.deepcopy(document.get("mappings", {}))}


def plan(
    rest: Rest, *, index: str, shards: int, replicas: int, document: Mapping[str, Any] | None = None
) -> Iterator[Step]:
    """What is to be done so that the index is there. `document`: for tests; else the file's."""
    thing = f"index {index}"
    wanted = wanted_index(_read() if document is None else document, shards=shards, replicas=replicas)
    answer = rest.request("GET", f"/{index}")
    if answer.status == 404:
        yield Step(
            thing,
            Verdict.MADE,
            _words(wanted["settings"]["index"]),
            deed=lambda: _done(rest.request("PUT", f"/{index}", wanted), rest, f"{thing} made"),
        )
        return
    _done(answer, rest, f"a look at {thing}")
    names = list(answer.body)
    if names != [index]:
        yield refusal(
            thing,
            needed="an index",
            came=f"an alias of {', '.join(names)}",
            remedy=f"name the index itself: fleet.index = {names[0] if names else 'NAME'}",
        )
        return
    yield _compare(rest, index, wanted, answer.body[index])


def _compare(rest: Rest, index: str, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Step:
    thing = f"index {index}"
    missing: dict[str, Any] = {}
    wrong = _differences(wanted["mappings"], found.get("mappings", {}), "", missing)
    if wrong:
        return refusal(
            thing,
            needed="; ".join(f"{path} {_show(needs)}" for path, needs, _ in wrong),
            came="; ".join(_show(has) for _, _, has in wrong),
            remedy="a field's mapping cannot be changed: name a new index (fleet.index) and fill it again, by reading"
            " index-events from the beginning, or by headrace replay where they are gone; then drop this one",
        )
    settings = wanted["settings"]["index"]
    there = _flat(found.get("settings", {}).get("index", {}))
    differ = {key: value for key, value in settings.items() if there.get(key) != value}
    fixed = {key: value for key, value in differ.items() if key.startswith(_FOR_EVER)}
    if fixed:
        return refusal(
            thing,
            needed=", ".join(f"{key} {value}" for key, value in fixed.items()),
            came=", ".join(f"{there.get(key, 'unset')}" for key in fixed),
            remedy="that is set for ever when an index is made: keep it (fleet.index_shards), or name a new index"
            " (fleet.index) and fill it again",
        )
    if not differ and not missing:
        return Step(thing, Verdict.STANDS, _words(settings))

    def change() -> None:
        if differ:
            _done(rest.request("PUT", f"/{index}/_settings", {"index": differ}), rest, f"settings of {thing}")
        if missing:
            _done(rest.request("PUT", f"/{index}/_mapping", missing), rest, f"mapping of {thing}")

    said = [f"{key} {there.get(key, 'unset')} to {value}" for key, value in differ.items()]
    said += [f"fields added: {', '.join(_fields(missing))}"] if missing else []
    return Step(thing, Verdict.CHANGED, ", ".join(said), deed=change)


def _differences(
    wanted: Mapping[str, Any], found: Mapping[str, Any], path: str, missing: dict[str, Any]
) -> list[tuple[str, Any, Any]]:
    """(path, wanted, found) of all that cannot be added; what can is put into `missing`, a mapping to be laid over."""
    wrong = []
    for key, value in wanted.items():
        here = f"{path}.{key}" if path else key
        if key in ("properties", "fields") and isinstance(value, dict):
            there = found.get(key, {})
            for name, field in value.items():
                if name not in there:
                    # To add below a field, OpenSearch wants what the field is already said with it.
                    missing.setdefault(key, {})[name] = field
                    continue
                below: dict[str, Any] = {}
                wrong += _differences(field, there[name], f"{here}.{name}", below)
                if below:
                    kept = {word: had for word, had in there[name].items() if word not in ("properties", "fields")}
                    missing.setdefault(key, {})[name] = kept | below
        elif _plain(found.get(key, _IMPLIED.get(key))) != _plain(value):
            wrong.append((here, value, found.get(key)))
    return wrong


def _plain(value: Any) -> Any:
    """OpenSearch gives booleans and numbers of a mapping back as it likes, as such or as text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value


def _flat(settings: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Settings under their dotted names without `index.`; values as text, lists of them as they are."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        here = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            flat |= _flat(value, here)
        else:
            flat[here.removeprefix("index.")] = _plain(value)
    return flat


def _fields(mapping: Mapping[str, Any], path: str = "") -> list[str]:
    names = []
    for group in ("properties", "fields"):
        for name, field in mapping.get(group, {}).items():
            here = f"{path}.{name}" if path else name
            below = _fields(field, here)
            names += below or [here]
    return names


def _words(settings: Mapping[str, Any]) -> str:
    shards, replicas = settings["number_of_shards"], settings["number_of_replicas"]
    return f"{shards} shard{'s' * (shards != '1')}, {replicas} replica{'s' * (replicas != '1')}"


def _show(value: Any) -> str:
    return "unset" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _done(answer: Answer, rest: Rest, needed: str) -> None:
    if answer.status >= 300:
        raise CrawlError(
            f"opensearch at {rest.address}: needed {needed}, got: {answer.reason()}; its log has more", EXIT_FAILED
        )


def _read() -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(PAGES_INDEX.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise CrawlError(f"{PAGES_INDEX}: needed the index's mapping, got: {error.strerror}", EXIT_FAILED) from error
