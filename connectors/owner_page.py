"""The page by which an owner explains what it knows, and how it is found: `headrace explain --fleet`.

Theory of operation. What a host's owner knows lies in that owner's RocksDB alone, so it is asked, by HTTP. Which worker
that is stands in the topic owner-pages: one record a partition, written in the very transaction by which an owner takes
a partition over, so that a fenced worker can no more announce itself than it can grant. Key: the partition's number in
decimal; value: `OwnerPage` as JSON; compacted, one partition, read to its end in a moment.

    GET {page}/explain?partition=3&what=https%3A%2F%2Fexample.org%2Fa
    200 {"partition": 3, "epoch": 7, "because": [["now", "..."], ...]}    labels and sentences, the decisive one first
    400 what is no URL and no host, 421 the partition is not owned here (any more), each {"error": "a sentence"}

`answer` is the worker's side without any server, `ask` and `pages` are the operator's.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlencode, urlsplit

import msgspec

from connectors.topic_reader import BEGINNING, TopicReader
from schemas.topics import OWNER_PAGES
from streams.core.failures import EXIT_FAILED, EXIT_USAGE, CrawlError, UsageError

__all__ = [
    "PATH",
    "Explain",
    "Explained",
    "NotTheOwner",
    "OwnerPage",
    "announcement",
    "answer",
    "ask",
    "numbers",
    "pages",
]

PATH = "/explain"
ANSWER_S_MAX = 10.0
_ANSWER_BYTES_MAX = 1 << 20

Explain = Callable[[str], Sequence[tuple[str, str]]]
"""A URL or host to (label, sentence), as `infra.explaining` makes them. Raises UsageError for what is neither, and
NotTheOwner where the partition was let go meanwhile."""


class OwnerPage(msgspec.Struct, frozen=True):
    """Who owns a partition, and where it is asked."""

    partition: int
    epoch: int
    page: str  # "http://10.1.2.3:6066", as operators reach it
    since_ms: int  # when the partition was taken over


class Explained(msgspec.Struct, frozen=True):
    """An owner's answer."""

    partition: int
    epoch: int
    because: tuple[tuple[str, str], ...]


class NotTheOwner(CrawlError):
    """Nobody answers there, or not for this partition: it was taken over, or its owner is gone."""


class _Error(msgspec.Struct):
    error: str


def announcement(page: OwnerPage) -> tuple[bytes, bytes]:
    """(key, value) for the topic owner-pages, partition 0; part of the transaction that records the epoch."""
    return str(page.partition).encode(), msgspec.json.encode(page)


def answer(query: Mapping[str, str], owned: Callable[[int], tuple[int, Explain] | None]) -> tuple[int, bytes]:
    """(status, JSON) for a request. `owned`: (epoch, explain) of a partition that this worker owns now."""
    what, partition = query.get("what", "").strip(), query.get("partition", "")
    if not what or not partition.isdecimal():
        return 400, msgspec.json.encode(_Error(f"needed {PATH}?partition=NUMBER&what=URL or host"))
    found = owned(int(partition))
    if found is None:
        return 421, msgspec.json.encode(_Error(f"partition {partition} is not owned by this worker now"))
    epoch, explain = found
    try:
        because = tuple((label, sentence) for label, sentence in explain(what))
    except UsageError as error:
        return 400, msgspec.json.encode(_Error(str(error)))
    except NotTheOwner as error:
        return 421, msgspec.json.encode(_Error(str(error)))
    return 200, msgspec.json.encode(Explained(int(partition), epoch, because))


def pages(reader: TopicReader) -> dict[int, OwnerPage]:
    """The last owner of each partition, by the topic."""
    found: dict[int, OwnerPage] = {}
    for message in reader.read(OWNER_PAGES, {0: BEGINNING}):
        if message.value is None:
            continue
        try:
            page = msgspec.json.decode(message.value, type=OwnerPage)
        except msgspec.MsgspecError:
            continue  # not ours; the owner's own record stands beside it
        before = found.get(page.partition)
        if before is None or page.epoch >= before.epoch:
            found[page.partition] = page
    return found


def ask(page: OwnerPage, what: str) -> Explained:
    """What the owner says. Raises NotTheOwner, UsageError or CrawlError."""
    who = f"the owner of partition {page.partition} (epoch {page.epoch}) at {page.page}"
    try:
        status, body = _get(page.page, f"{PATH}?{urlencode({'partition': page.partition, 'what': what})}")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotTheOwner(
            f"{who}: needed an answer, got {error or type(error).__name__}; is a worker with the stage owner running,"
            " and its web port open to this machine? A partition of a dead worker is taken over within a minute",
            EXIT_FAILED,
        ) from error
    try:
        if status == 200:
            return msgspec.json.decode(body, type=Explained)
        said = msgspec.json.decode(body, type=_Error).error
    except msgspec.MsgspecError as error:
        raise CrawlError(
            f"{who}: needed an explanation, got status {status} with something else; is it a worker of this version?",
            EXIT_FAILED,
        ) from error
    if status == 421:
        raise NotTheOwner(f"{who}: {said}; it is being taken over: repeat this in a moment", EXIT_FAILED)
    raise CrawlError(f"{said}", EXIT_USAGE if status == 400 else EXIT_FAILED)


def numbers(page: str) -> dict[str, float]:
    """The gauges and counters of the owners of a worker, added up over their labels. Raises NotTheOwner, CrawlError."""
    who = f"the worker at {page}"
    try:
        status, body = _get(page, "/metrics")
        text = body.decode()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotTheOwner(
            f"{who}: needed its numbers, got {error or type(error).__name__}; is it running, and its web port open to"
            " this machine? The partitions of a dead worker are taken over within a minute",
            EXIT_FAILED,
        ) from error
    found: dict[str, float] = {}
    for line in text.splitlines() if status == 200 else ():
        match = _SAMPLE.fullmatch(line)
        if match is not None:
            found[match.group(1)] = found.get(match.group(1), 0.0) + float(match.group(2))
    if not found:
        raise CrawlError(
            f"{who}: needed the numbers of its owners, got status {status} without any; is it of this version?",
            EXIT_FAILED,
        )
    return found


_SAMPLE = re.compile(r'(\w+)\{stage="owner"(?:,.*)?\} ([0-9.e+-]+)')  # what `streams.fleet.metrics` writes


def _get(page: str, target: str) -> tuple[int, bytes]:
    """One request, no redirect, no proxy."""
    parts = urlsplit(page)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f'"{page}", which is no address of a page')
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=ANSWER_S_MAX)
    try:
        connection.request("GET", parts.path.rstrip("/") + target, headers={"Accept": "application/json"})
        response = connection.getresponse()
        return response.status, response.read(_ANSWER_BYTES_MAX)
    finally:
        connection.close()
