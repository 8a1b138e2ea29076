"""What one group of the embedded engine stores, and the one step that makes it durable.

The segments are synced before the RocksDB batch that names their records; the batch takes the owner's writes, the
segments' position, the content index and the fetch log's journal together. Rows of the journal move to Parquet some
ten thousand at a time, under a name that says which rows they are: a crash in between writes the same file again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import msgspec

from connectors.crawldb_rocksdb import CrawlDb
from connectors.ports import Fetched, ParseOutput, Response, StoredContent
from connectors.segments_local import LocalSegments
from schemas.records import FetchLogRow, Kind, Outcome, ParsedPage, StoredResult
from streams.core import policy as bounds
from streams.core.kept import fetch_log_row, stored_result
from streams.core.owner import Event
from streams.core.turn import Turn

encode_position = msgspec.msgpack.Encoder().encode
encode_row = msgspec.msgpack.Encoder().encode
decode_row = msgspec.msgpack.Decoder(FetchLogRow).decode


class Group(msgspec.Struct):
    """What one group adds to the store."""

    content: dict[bytes, StoredContent] = msgspec.field(default_factory=dict)
    stored: dict[bytes, tuple[StoredResult, bool]] = msgspec.field(default_factory=dict)  # by lease; True: a duplicate
    bodies: dict[bytes, bytes] = msgspec.field(default_factory=dict)  # by url_id: to be parsed without reading back
    fetched: list[Fetched] = msgspec.field(default_factory=list)
    duplicates: int = 0


class Ledger:
    """`take` on the event loop; `make_durable`, `seal_log` and `close` in one thread, one at a time."""

    def __init__(
        self, db: CrawlDb, segments: LocalSegments, write_log: Callable[[int, Sequence[FetchLogRow]], None]
    ) -> None:
        """`write_log`: (number of the first row, rows) → a durable segment of the fetch log."""
        self._db = db
        self._segments = segments
        self._write_log = write_log
        numbers = [sequence for sequence, _ in db.log_rows()]
        kept = int.from_bytes(db.meta("log_next") or b"\0", "big")
        self._log_first = numbers[0] if numbers else kept
        self._log_next = numbers[-1] + 1 if numbers else kept

    def take(self, item: Fetched | ParseOutput, group: Group) -> list[Event]:
        """What came in as events, in order; what it carries goes to the segments, in memory."""
        if isinstance(item, ParseOutput):
            return [self._keep_parsed(item)]
        group.fetched.append(item)
        if item.response is None or item.result.outcome is not Outcome.FETCHED:
            return [item.result]
        stored = self._store(group, item, item.response)
        if item.result.kind is Kind.ROBOTS:  # kept for the archive; its rules came with the result
            return [item.result]
        group.bodies[item.result.url_id] = item.response.body
        return [item.result, stored]

    def _store(self, group: Group, fetched: Fetched, response: Response) -> StoredResult:
        """Append the body, or a revisit record if the same bytes lie stored already."""
        result = fetched.result
        content_hash = hashlib.sha256(response.body).digest()
        known = group.content.get(content_hash) or self._db.content(content_hash)
        ref = self._segments.append_response(result.url, response, content_hash, known)
        if known is None:
            group.content[content_hash] = StoredContent(ref, result.url, response.fetched_ms)
        elif result.kind is not Kind.ROBOTS:
            group.duplicates += 1
        stored = stored_result(
            result,
            response.headers,
            content_hash=content_hash,
            body=ref,
            content=ref if known is None else known.content,
        )
        group.stored[result.lease_id] = (stored, known is not None)
        return stored

    def _keep_parsed(self, output: ParseOutput) -> ParsedPage:
        if output.kept:
            return output.page
        return msgspec.structs.replace(output.page, text=self._segments.append_parsed(output))

    def make_durable(self, turn: Turn, group: Group, meta: dict[str, bytes], rows: Sequence[FetchLogRow]) -> None:
        """The commit. Raises StoreFailed; then nothing of the group is durable, and none of its effects may show."""
        self._segments.sync()
        meta["segments"] = encode_position(self._segments.position())
        log = [(self._log_next + at, encode_row(row)) for at, row in enumerate(rows)]
        self._db.commit(turn.writes, meta=meta, content=group.content, log=log)
        self._log_next += len(log)

    @property
    def log_is_full(self) -> bool:
        return self._log_next - self._log_first >= bounds.FETCH_LOG_ROWS_MAX

    def seal_log(self) -> None:
        """Move the journal's rows into Parquet, then forget them."""
        rows: list[FetchLogRow] = []
        first = self._log_first
        for sequence, raw in self._db.log_rows():
            rows.append(decode_row(raw))
            if len(rows) == bounds.FETCH_LOG_ROWS_MAX:
                self._write_log(first, rows)
                rows, first = [], sequence + 1
        if rows:
            self._write_log(first, rows)
        self._log_first = self._log_next
        self._db.commit(meta={"log_next": self._log_next.to_bytes(8, "big")}, log_end=self._log_next)

    def close(self) -> None:
        """Everything is committed: the segments are sealed, the journal is emptied."""
        if self._log_next > self._log_first:
            self.seal_log()
        self._segments.close()

    @staticmethod
    def log_rows(turn: Turn, group: Group, epoch: int) -> list[FetchLogRow]:
        """A row for each result of the turn, with where its body lies."""
        rows = []
        for entry in turn.log:
            result, lease = entry.result, entry.lease
            stored, duplicate = group.stored.get(result.lease_id, (None, False))
            rows.append(
                fetch_log_row(
                    result,
                    stored,
                    url_version=lease.url_version,
                    attempt=lease.attempt,
                    policy_version=entry.policy_version,
                    owner_epoch=epoch,
                    delay_ms=entry.delay_ms,
                    duplicate=duplicate,
                )
            )
        return rows
