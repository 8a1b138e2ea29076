"""What the runners need of the world. An adapter turns the world's failures into values; it decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from schemas.records import BodyRef, FetchLease, FetchResult, ParsedPage, ParseTask
from streams.core.homes import Home


class Response(msgspec.Struct, frozen=True):
    """A final answer as it goes to the store: the header lines as received, the body decoded."""

    url: str
    address: str
    status: int
    reason: str
    http_version: str  # "1.1"
    headers: tuple[tuple[bytes, bytes], ...]  # in order, names as received
    body: bytes  # after Content-Encoding was undone
    content_codings: str  # what was undone, "" for none
    fetched_ms: int
    truncated: bool = False


class Fetched(msgspec.Struct, frozen=True):
    """A result, and the response when the outcome is one that is stored."""

    result: FetchResult
    response: Response | None = None


class Web(Protocol):
    """One request for one lease: never a second one, never a redirect followed, never an exception for the world."""

    async def fetch(self, lease: FetchLease) -> Fetched: ...

    async def close(self) -> None: ...


class ParseOutput(msgspec.Struct, frozen=True):
    """A parsed page and its text (UTF-8). `page.text` is still None: the store fills it.

    A parser's process may hand the records over ready made (`streams.core.store.parsed_records`), and no `text` then.
    """

    page: ParsedPage
    text: bytes = b""
    records: bytes = b""  # gzip members to append as they are, "" when the store is to make them
    text_record_bytes: int = 0  # length of the first of `records`, the text's; 0 when the page has no text
    kept: bool = False  # the records of an earlier reading stand: nothing is appended


class Parser(Protocol):
    """Parses in other processes, under limits. A dead or slow worker is a `ParsedPage` with an error."""

    async def parse(self, task: ParseTask, body: bytes, *, generation: int = 0) -> ParseOutput:
        """A parser may leave out links that it named before for the same `generation` (`Memo.generation`)."""
        ...

    async def close(self) -> None: ...


class StoredContent(msgspec.Struct, frozen=True, array_like=True):
    """Where bytes lie that were stored before, and what a revisit record says of them."""

    content: BodyRef
    url: str
    fetched_ms: int


class Segments(Protocol):
    """Append-only segments. A reference is good at once for `read`, durable only after `sync` returned."""

    def append_response(
        self, url: str, response: Response, content_hash: bytes, duplicate_of: StoredContent | None
    ) -> BodyRef: ...

    def append_parsed(self, output: ParseOutput) -> BodyRef | None: ...

    def sync(self) -> None: ...

    def read(self, ref: BodyRef) -> bytes:
        """The payload (decoded body or text) of one record."""
        ...


# --- the fleet ----------------------------------------------------------------------------------------------------


class UrlWrite(NamedTuple):
    """A row of `streams.core.rows` as it is to stand. `row` None: the URL is gone, and is read as absent."""

    host_key: str
    url_id: bytes
    row: bytes | None


class UrlState(Protocol):
    """The URL rows of all hosts. A URL's row is written by the owner of its host's partition alone.

    Each write carries a stamp, (epoch, version): of two writes of a row the one with the higher stamp stands, in
    whatever order they arrive, and a repeat changes nothing. So a fenced owner's late writes lose; it is not told so,
    an owner decides from its own state. Two different rows of one stamp are the caller's mistake; one of them stands,
    whole.

    While the service is away every call waits and tries again, for ever. What ends a call is `StoreClosed`, when the
    worker ends, and CrawlError for what waiting does not mend: a table that is missing, a login that is refused.
    """

    @property
    def refused(self) -> int:
        """How many rows were read that no owner can have written; they are read as absent."""
        ...

    def write(self, rows: Sequence[UrlWrite], *, epoch: int, version: int) -> None:
        """Returns when all of them are durable; of several rows of one URL the last counts.

        `epoch` and `version` are unsigned, of 31 and 32 bits, the epoch above 0. Of a call that did not return any row
        may be there, now or later.
        """
        ...

    def read(self, host_key: str, url_ids: Sequence[bytes]) -> list[bytes | None]:
        """The rows in the order asked; None where none is, or one that no owner wrote. A newer build's ends it."""
        ...

    def scan(self, host_key: str, after: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        """(url_id, row) of a host's rows that follow the url_id `after` (empty: from the first), in order.

        Fewer than asked only at the end. As for `read`, what nobody of ours wrote is left out.
        """
        ...


class Epochs(Protocol):
    """Who owns a partition, counted: a number never comes twice, whoever asks, wherever.

    A partition is at home in one region, whose workers alone may own it: that of its last epoch. The first to take it
    settles that; afterwards it is moved by an epoch of its own. All wait and end as `UrlState` does.
    """

    def take(self, partition: int) -> int:
        """A higher epoch than any before it, 1 or more. Raises `Elsewhere`."""
        ...

    def home(self, partition: int) -> Home | None:
        """The record: its last number, and the region that it is at home in; None: nobody took it yet."""
        ...

    def move(self, partition: int, region: str) -> int:
        """From here on it is at home in that region. The epoch that says so; nobody writes under it."""
        ...


class Elsewhere(Exception):  # it is what the record says
    """The partition is at home in another region."""


class StoreClosed(Exception):
    """The way to the store was closed while somebody waited for it."""


class Record(NamedTuple):
    """One Kafka record, with the partition that it goes to. No value deletes its key, where a topic is compacted."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None


class Fenced(Exception):  # it is what the broker says
    """Another owner of the partition has begun: nothing of this transaction is there, and nothing ever will be."""


class LogUncertain(Exception):
    """Whether the last transaction is there is not known: only a recovery can tell."""


class OwnerLog(Protocol):
    """One partition's transactions: all records of one become visible together or not at all, in order, to readers
    of committed data; and only the owner that began last can make any."""

    def fence(self) -> None:
        """Before anything else. From here on every earlier owner is fenced, and what it left open is undone."""
        ...

    def transact(self, records: Sequence[Record], *, before_commit: Callable[[], None] = ...) -> int:
        """The offset of the last record. Raises `Fenced` or `LogUncertain`; waits while the brokers are away.

        `before_commit`: called when all records lie there, and nobody can see them yet.
        """
        ...

    def close(self) -> None: ...


class Changelog(Protocol):
    """What a partition's owners have committed of their states."""

    def read(self, partition: int, after: int | None, batch: Callable[[Sequence[Record], int], None]) -> None:
        """All committed records behind the offset `after` (None: from the beginning), as of now, in order.

        Handed on in batches: (records, offset of the last). Raises CrawlError when the changelog ends before `after`.
        """
        ...
