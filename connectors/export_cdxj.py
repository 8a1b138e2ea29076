"""A CDXJ index of a crawl's responses and revisits, as pywb and the other replay tools read it.

A line is `key timestamp {json}`; lines are in byte order, since a reader finds a key by bisection. More lines than fit
in memory are sorted in files and merged.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import tempfile
from collections.abc import Iterable, Iterator

import msgspec

from connectors.exports import whole_file
from connectors.segments_local import RESPONSES, Position
from connectors.segments_scan import scan
from schemas.records import BodyRef
from streams.core.policy import EXPORT_RUNS_MAX, EXPORT_SORT_BYTES_MAX
from streams.core.rules.surt import surt_key
from streams.core.store import Record

_LINE_COST_BYTES = 57  # what a bytes object and its place in a list take beside the line itself
_json = msgspec.json.Encoder()


def export_cdxj(
    root: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    position: Position | None = None,
    sort_bytes_max: int = EXPORT_SORT_BYTES_MAX,
) -> int:
    """A line for each response and revisit; their number. `position` as for `segments_scan.scan`. StoreFailed.

    `filename` is a segment's name without folder (a reader is told the folder `warc`) and without `.open`: an open
    segment gets that name when it is sealed.
    """
    lines = (line for ref, record in scan(root, RESPONSES, position) if (line := cdxj_line(ref, record)) is not None)
    count = 0
    folder = os.path.dirname(os.path.abspath(path))
    with whole_file(path) as file, tempfile.TemporaryDirectory(prefix=".headrace-sort-", dir=folder) as scratch:
        for line in sorted_lines(lines, scratch, sort_bytes_max):
            file.write(line)
            count += 1
    return count


def cdxj_line(ref: BodyRef, record: Record) -> bytes | None:
    """The line of one record, ending in a line feed; None for a record that is neither response nor revisit."""
    if record.type not in ("response", "revisit"):
        return None
    url = record.headers["warc-target-uri"]
    status_line, *lines = record.http_header.split(b"\r\n")
    status = status_line.split(b" ")[1].decode("ascii", "replace")
    mime = "warc/revisit"
    if record.type == "response":
        values = (v for name, _, v in (line.partition(b":") for line in lines) if name.lower() == b"content-type")
        mime = next(values, b"").split(b";")[0].strip().lower().decode("ascii", "replace")
        mime = mime if mime.isprintable() and mime else "unk"  # the word that CDX files have for it
    date = record.headers["warc-date"]
    fields = {
        "url": url,
        "mime": mime,
        "status": status,
        "digest": record.headers["warc-payload-digest"],
        "length": str(ref.record_bytes),
        "offset": str(ref.offset_bytes),
        "filename": os.path.basename(ref.segment),
    }
    timestamp = date[:19].translate({ord(c): None for c in "-T:"})  # 14 digits, whole seconds
    return b"%b %b %b\n" % (surt_key(url).encode(), timestamp.encode(), _json.encode(fields))


def sorted_lines(lines: Iterable[bytes], scratch: str, memory_bytes_max: int) -> Iterator[bytes]:
    """`lines` (each ends in a line feed) in byte order; runs beyond the memory lie in the folder `scratch`."""
    levels: list[list[str]] = []
    batch: list[bytes] = []
    cost = 0
    for line in lines:
        batch.append(line)
        cost += len(line) + _LINE_COST_BYTES
        if cost >= memory_bytes_max:
            _add_run(levels, 0, _written(sorted(batch), scratch))
            batch, cost = [], 0
    batch.sort()
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open(run, "rb")) for runs in levels for run in runs]
        yield from heapq.merge(*files, batch)


def _add_run(levels: list[list[str]], level: int, run: str) -> None:
    """Runs that were merged as often as each other wait together; so many of them become one that counts once more."""
    if level == len(levels):
        levels.append([])
    levels[level].append(run)
    if len(levels[level]) == EXPORT_RUNS_MAX:
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(open(part, "rb")) for part in levels[level]]
            merged = _written(heapq.merge(*files), os.path.dirname(run))
        for part in levels[level]:
            os.unlink(part)
        levels[level] = []
        _add_run(levels, level + 1, merged)


def _written(lines: Iterable[bytes], scratch: str) -> str:
    with tempfile.NamedTemporaryFile(dir=scratch, delete=False) as file:
        file.writelines(lines)
    return file.name
