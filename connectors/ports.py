"""What the runners need of the world. An adapter turns the world's failures into values; it decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from schemas.records import BodyRef, FetchLease, FetchResult, ParsedPage, ParseTask
from streams.core.rows import UrlRow


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


class UrlWrite(msgspec.Struct, frozen=True, gc=False):
    """One row to be made durable. `row` None: the URL is deleted, and reads as one that never was.

    `lease_id` is that of the lease whose answer the row follows from, for the audit; empty when there is none.
    """

    host_key: str
    url_id: bytes
    row: UrlRow | None
    lease_id: bytes = b""


class UrlFound(msgspec.Struct, frozen=True, gc=False):
    """A row as it is durable."""

    url_id: bytes
    row: UrlRow
    lease_id: bytes


class UrlState(Protocol):
    """What is known of each URL, for the fleet. A URL's row is written by the owner of its host's partition alone.

    Of two writes of a URL the one with the higher (epoch, version) stands, in whatever order they arrive and however
    often: so an owner that was replaced changes nothing any more. It is not told so: an owner decides from its own
    state. Two different rows of one stamp are the caller's mistake; one of the two then stands, whole.

    A store that is away is waited for, for ever; the calls return when all of theirs is done. They raise `StoreClosed`
    after `close`, and CrawlError for what waiting does not mend: a table that is missing, a login that is refused.
    """

    def write(self, rows: Sequence[UrlWrite], *, epoch: int, version: int) -> None:
        """Returns when every row is durable. Of several rows of one URL the last counts.

        `version` rises with every call of an epoch, 1 to 2^32 - 1; the very same call may be repeated. Nothing is
        promised of a call that did not return: any of its rows may be there, now or later.
        """
        ...

    def read(self, host_key: str, url_ids: Sequence[bytes]) -> list[UrlFound]:
        """Those of the URLs that are known, in the order of url_id. Raises `schemas.codec.BadRecord`."""
        ...

    def scan(self, host_key: str, after: bytes, rows_max: int) -> list[UrlFound]:
        """The host's rows that follow the url_id `after` (empty: from the first), in the order of url_id.

        Fewer than `rows_max`, and the host has no more. Raises `schemas.codec.BadRecord`.
        """
        ...

    def close(self) -> None:
        """Ends calls that wait, from any thread."""
        ...


class Epochs(Protocol):
    """The numbers of ownership. Each is given once, and a later one is higher, over all regions."""

    def take(self, partition: int, *, owner: str, region: str, now_ms: int) -> int:
        """A new epoch for whoever takes the partition over, 1 or more. Waits for the store as `UrlState` does.

        `owner`, `region` and `now_ms` are noted for people.
        """
        ...

    def last(self, partition: int) -> int:
        """The epoch that was given last, 0 when none was."""
        ...


class StoreClosed(Exception):
    """The store was closed while somebody waited for it."""
