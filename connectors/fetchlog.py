"""The fetch log: every closed lease as a row of Parquet files, the audit that outlives the bodies.

Rows wait in the owner's journal until some thousands are there, or the crawl ends; a file is then written whole, under
a name that the journal's first row decides. So a crash between the file and the journal's commit writes the same file
again, and no row is there twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from connectors.files import Files, OsFiles, StoreFailed, failing_as_store, replace_file
from schemas.records import BodyRef, FetchLogRow
from streams.core.policy import FETCH_LOG_ROWS_MAX

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "fetchlog"
SUFFIX = ".parquet"
_ROWS_A_READ = 4_096


def rows_path(root: str | os.PathLike[str], first_row: int) -> str:
    """Where the rows from number `first_row` belong when numbers go on from run to run; names in order, rows in order.

    A run that was killed after the file and before its journal forgot the rows writes them again: under the same name,
    whatever the run's epoch is by then.
    """
    return os.path.join(root, FOLDER, f"fetches-{first_row:012d}{SUFFIX}")


def write_segment(path: str | os.PathLike[str], rows: Sequence[FetchLogRow], files: Files | None = None) -> None:
    """One Parquet file (zstd), durable and whole when this returns, in place of one of that name. StoreFailed."""
    data = to_parquet(rows)
    path = os.fspath(path)
    files = files or OsFiles()
    with failing_as_store("fetch log", f"write {path}"):
        folder = os.path.dirname(path)
        files.make_folder(folder)
        files.sync_folder(os.path.dirname(folder))  # the journal's rows go once this returns, so its name must stay
        replace_file(files, path, data)


def to_parquet(rows: Sequence[FetchLogRow]) -> bytes:
    """One Parquet file (zstd)."""
    assert 0 < len(rows) <= FETCH_LOG_ROWS_MAX, f"1 to {FETCH_LOG_ROWS_MAX} rows go to a file, not {len(rows)}"
    import pyarrow as pa  # 0.2 s and 50 MB: only those who write or read the log pay for it
    import pyarrow.parquet as pq

    schema = _schema()
    columns = [pa.array([take(row) for row in rows], field.type) for field, take in zip(schema, _TAKE, strict=True)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_segments(folder: str | os.PathLike[str]) -> Iterator[FetchLogRow]:
    """All rows of a folder of segments in the order they were logged, some thousands in memory at once. StoreFailed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with failing_as_store("fetch log", f"list {os.fspath(folder)}"):
        names = sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX))
    for name in names:
        path = os.path.join(folder, name)
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(_ROWS_A_READ):
                    instants = {n: batch.column(n).cast(pa.int64()) for n in ("started_at", "finished_at")}
                    for index, record in enumerate(batch.drop_columns(list(instants)).to_pylist()):
                        yield _row(record, *(instants[n][index].as_py() for n in ("started_at", "finished_at")))
        except (pa.ArrowInvalid, OSError) as error:
            raise StoreFailed(
                f"fetch log: needed a Parquet file at {path}, got {error}; restore it from a backup or move it away"
            ) from error


def _schema() -> pa.Schema:
    import pyarrow as pa

    instant = pa.timestamp("ms", tz="UTC")
    word = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [
            pa.field("started_at", instant, nullable=False),
            pa.field("finished_at", instant, nullable=False),
            pa.field("url", pa.string(), nullable=False),
            pa.field("host_key", word, nullable=False),
            pa.field("kind", word, nullable=False),
            pa.field("outcome", word, nullable=False),
            pa.field("lease_id", pa.binary(), nullable=False),
            pa.field("url_version", pa.int64(), nullable=False),
            pa.field("attempt", pa.int32(), nullable=False),
            pa.field("policy_version", pa.int64(), nullable=False),
            pa.field("owner_epoch", pa.int64(), nullable=False),
            pa.field("delay_ms", pa.int64(), nullable=False),
            pa.field("status", pa.int32(), nullable=False),
            pa.field("error", word, nullable=False),
            pa.field("address", word, nullable=False),
            pa.field("wire_bytes", pa.int64(), nullable=False),
            pa.field("body_bytes", pa.int64(), nullable=False),
            pa.field("content_type", word),
            pa.field("content_hash", pa.binary(), nullable=False),
            pa.field("segment", word),
            pa.field("offset_bytes", pa.int64()),
            pa.field("record_bytes", pa.int64()),
            pa.field("duplicate", pa.bool_(), nullable=False),
            pa.field("redirect_target", pa.string()),
            pa.field("retry_after_ms", pa.int64()),
            pa.field("robots", word),
        ]
    )


_TAKE: tuple[Callable[[FetchLogRow], Any], ...] = (  # a value for each field of the schema, in its order
    attrgetter("started_ms"),
    attrgetter("finished_ms"),
    attrgetter("url"),
    attrgetter("host_key"),
    attrgetter("kind.value"),
    attrgetter("outcome.value"),
    attrgetter("lease_id"),
    attrgetter("url_version"),
    attrgetter("attempt"),
    attrgetter("policy_version"),
    attrgetter("owner_epoch"),
    attrgetter("delay_ms"),
    attrgetter("status"),
    attrgetter("error"),
    attrgetter("address"),
    attrgetter("wire_bytes"),
    attrgetter("body_bytes"),
    attrgetter("content_type"),
    attrgetter("content_hash"),
    lambda row: row.body and row.body.segment,
    lambda row: row.body and row.body.offset_bytes,
    lambda row: row.body and row.body.record_bytes,
    attrgetter("duplicate"),
    attrgetter("redirect_target"),
    attrgetter("retry_after_ms"),
    lambda row: row.robots and row.robots.value,
)


def _row(record: dict[str, Any], started_ms: int, finished_ms: int) -> FetchLogRow:
    segment, offset, length = (record.pop(name) for name in ("segment", "offset_bytes", "record_bytes"))
    record |= {"started_ms": started_ms, "finished_ms": finished_ms}
    record["body"] = None if segment is None else BodyRef(segment, offset, length)
    fields = [record[name] for name in FetchLogRow.__struct_fields__]
    return msgspec.convert(fields, FetchLogRow, builtin_types=(bytes,))
