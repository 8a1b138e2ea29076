"""Exports: pages, links and a CDXJ index of a crawl, for other people's tools.

Each is a stream with bounded memory, and appears under its name only when it is whole. The file's name says what is
wanted: `pages.parquet`, `pages.jsonl`, `links.parquet`, `links.jsonl`, `crawl.cdxj`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Protocol

import msgspec

from connectors.files import TEMPORARY, StoreFailed, failing_as_store
from connectors.segments_local import PARSED, Position
from connectors.segments_scan import scan
from schemas.records import BodyRef
from streams.core.facts import PageFacts
from streams.core.failures import UsageError
from streams.core.policy import EXPORT_ROWS_MAX
from streams.core.store import warc_date

if TYPE_CHECKING:
    import pyarrow as pa

ExportKind = Literal["pages", "links", "cdxj"]


class PageRow(msgspec.Struct, frozen=True):
    """One known URL. `None` is unknown or not there; a page that was never fetched has no `fetched_ms`."""

    url: str
    url_id: str  # hex
    kind: str  # page, robots, sitemap
    state: str  # what the last settled visit made of the URL: fetched, redirect, failed, denied, ...
    source: str  # seed, sitemap, feed, link, redirect
    depth: int  # links from a seed
    url_version: int
    status: int | None = None  # HTTP status of the last visit
    error: str | None = None  # of the last visit, or of the last try while it is tried again
    fetched_ms: int | None = None  # exported as `fetched_at`, too
    next_due_ms: int | None = None  # exported as `next_due_at`
    content_hash: str | None = None  # SHA-256 of the decoded body, hex
    body: str | None = None  # the last visit's record: `place(ref)`
    content: str | None = None  # the record that holds the bytes
    text: str | None = None  # the record that holds the text
    body_bytes: int | None = None
    content_type: str | None = None
    etag: str | None = None
    last_modified: str | None = None
    redirect_target: str | None = None
    title: str | None = None
    canonical: str | None = None
    index: bool | None = None  # robots directives of page and headers
    simhash: str | None = None  # 16 hex digits
    links: int | None = None


class LinkRow(msgspec.Struct, frozen=True):
    """One link as it stood on a page, in document order."""

    source_url: str
    target_url: str
    kind: str  # a, area, iframe, frame, svg-a, refresh, ...
    rel: str  # words in lower case, a blank between them
    nofollow: bool
    fetched_ms: int  # of the page; exported as `fetched_at`
    url_version: int  # of the page


def place(ref: BodyRef | None) -> str | None:
    """A record's place as exports write it: `segment:offset:length`, the segment's path below the crawl's folder."""
    return None if ref is None else f"{ref.segment}:{ref.offset_bytes}:{ref.record_bytes}"


def export_kind(path: str | os.PathLike[str]) -> ExportKind:
    """What a file of this name is to hold. UsageError when the name does not say."""
    stem, extension = os.path.splitext(os.path.basename(os.fspath(path)))
    match extension.lower():
        case ".cdxj":
            return "cdxj"
        case ".parquet" | ".jsonl":
            return "links" if "links" in stem.lower() else "pages"
    raise UsageError(
        f"export: needed a file name ending in .parquet, .jsonl or .cdxj, got {os.fspath(path)!r}; "
        "take pages.parquet, pages.jsonl, links.parquet, links.jsonl or crawl.cdxj"
    )


def export_pages(rows: Iterable[PageRow], path: str | os.PathLike[str]) -> int:
    """All rows as they come; the number of them. UsageError for another extension, StoreFailed for the disk."""
    return _export_table(rows, path, _page_schema)


def export_links(
    root: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    position: Position | None = None,
    keep: Callable[[PageFacts], bool] = lambda _: True,
) -> int:
    """The links of every parsed page, in the order of parsing; their number.

    A page that was parsed several times is there several times: `keep` says whether a page's facts are the ones wanted
    (of a page with very many links it is asked for each part).
    `position` as for `segments_scan.scan`. UsageError for another extension, StoreFailed for the disk.
    """
    return _export_table(_links(root, position, keep), path, _link_schema)


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file that takes the place of `path`, durably, when the block ends well, and is gone when it does not."""
    path = os.fspath(path)
    temporary = path + TEMPORARY
    with failing_as_store("export", f"write {path}"):
        try:
            with open(temporary, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise


def _links(
    root: str | os.PathLike[str], position: Position | None, keep: Callable[[PageFacts], bool]
) -> Iterator[LinkRow]:
    facts_of = msgspec.json.Decoder(PageFacts)
    for ref, record in scan(root, PARSED, position):
        if record.type != "metadata":
            continue
        try:
            page = facts_of.decode(record.payload)
        except msgspec.DecodeError as error:
            raise StoreFailed(
                f"export: needed the facts of a page at {place(ref)}, got {error}; another version wrote them"
            ) from error
        if keep(page):
            for link in page.links:
                yield LinkRow(
                    page.url, link.url, link.kind, " ".join(link.rel), link.nofollow, page.fetched_ms, page.url_version
                )


class _Table(Protocol):
    def write(self, rows: Sequence[msgspec.Struct]) -> None: ...

    def close(self) -> None: ...


def _export_table(rows: Iterable[msgspec.Struct], path: str | os.PathLike[str], schema: Callable[[], pa.Schema]) -> int:
    extension = os.path.splitext(os.fspath(path))[1].lower()
    if extension not in (".parquet", ".jsonl"):
        raise UsageError(f"export: needed a file name ending in .parquet or .jsonl, got {os.fspath(path)!r}; rename it")
    count = 0
    with whole_file(path) as file:
        table: _Table = _ParquetTable(file, schema()) if extension == ".parquet" else _JsonLines(file)
        try:
            batch: list[msgspec.Struct] = []
            for row in rows:
                batch.append(row)
                if len(batch) == EXPORT_ROWS_MAX:
                    table.write(batch)
                    count += len(batch)
                    batch.clear()
            table.write(batch)
            count += len(batch)
        finally:
            table.close()
    return count


class _JsonLines:
    """One object a line; an instant is there in milliseconds and, for people, as ISO 8601."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._encoder = msgspec.json.Encoder()

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        self._file.write(self._encoder.encode_lines([self._with_dates(row) for row in rows]))

    def close(self) -> None:
        pass

    @staticmethod
    def _with_dates(row: msgspec.Struct) -> dict[str, Any]:
        record: dict[str, Any] = msgspec.structs.asdict(row)
        for name in ("fetched", "next_due"):
            if f"{name}_ms" in record:
                instant_ms = record[f"{name}_ms"]
                record[f"{name}_at"] = None if instant_ms is None else warc_date(instant_ms)
        return record


class _ParquetTable:
    """Column by column, a row group for each batch; an instant is there in milliseconds and as a timestamp."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self._schema = schema
        self._writer = pq.ParquetWriter(file, schema, compression="zstd")

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        import pyarrow as pa

        if not rows:
            return
        columns = []
        for field in self._schema:
            name = field.name.removesuffix("_at") + "_ms" if field.name.endswith("_at") else field.name
            columns.append(pa.array([getattr(row, name) for row in rows], field.type))
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


def _page_schema() -> pa.Schema:
    return _schema_of(PageRow, words={"kind", "state", "source", "error", "content_type"})


def _link_schema() -> pa.Schema:
    return _schema_of(LinkRow, words={"source_url", "kind", "rel"})


def _schema_of(row: type[msgspec.Struct], words: set[str]) -> pa.Schema:
    """A column for each field, a timestamp beside each `*_ms`; `words` repeat and are kept in a dictionary."""
    import pyarrow as pa

    plain = {"str": pa.string(), "int": pa.int64(), "bool": pa.bool_()}
    columns: list[tuple[str, pa.DataType]] = []
    for field in msgspec.structs.fields(row):
        # a field's type is T or T | None
        names = {t.__name__ for t in getattr(field.type, "__args__", (field.type,))} - {"NoneType"}
        column = pa.dictionary(pa.int32(), pa.string()) if field.name in words else plain[names.pop()]
        columns.append((field.name, column))
        if field.name.endswith("_ms"):
            columns.append((field.name.removesuffix("_ms") + "_at", pa.timestamp("ms", tz="UTC")))
    return pa.schema(columns)
