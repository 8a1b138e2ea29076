"""URL rows as they come from a store: what is no row of ours is refused, and costs nothing but itself.

The store's table is open to whoever has its password. A row without its URL, with another host's, with a damaged state
or under another's id would end an owner, or have a host asked under the politeness of another one. It is read as
absent, counted and said; found again, its URL is admitted anew, and that first write makes the row whole.

A state of a schema that this build does not know is no fault of the row: a newer build wrote it, and to write over all
of those would lose what they know. It ends whoever reads it (infra/decisions/0135).
"""

from __future__ import annotations

import logging
import threading

from connectors.url_records import decode_state
from schemas.codec import BadRecord, UnknownSchema
from streams.core.failures import EXIT_FAILED, CrawlError
from streams.core.rows import PLACE_BYTES, UrlRow, encode_row
from streams.core.rules.urls import url_id as id_of

__all__ = ["RowReader"]

log = logging.getLogger(__name__)


class RowReader:
    """Of one store. Any thread may call."""

    def __init__(self) -> None:
        self.refused = 0  # rows, each time that one is read
        self._lock = threading.Lock()

    def row(self, host_key: str, url_id: bytes, url: str | None, state: bytes | None) -> bytes | None:
        """As `streams.core.rows` encodes it; None when it is deleted, or refused. Raises CrawlError."""
        try:
            row = decode_state(url or "", state or b"")
        except UnknownSchema as error:
            raise CrawlError(f"url row {url_id.hex()} of {host_key}: {error}", EXIT_FAILED) from error
        except BadRecord as error:
            self._refuse(host_key, url_id, str(error))
            return None
        if row is None:
            return None
        problem = _problem(host_key, url_id, row)
        if problem:
            self._refuse(host_key, url_id, problem)
            return None
        return encode_row(row)

    def _refuse(self, host_key: str, url_id: bytes, problem: str) -> None:
        with self._lock:
            self.refused += 1
        log.error("url row %s of %s is read as absent: %s", url_id.hex(), host_key, problem)


def _problem(host_key: str, url_id: bytes, row: UrlRow) -> str:
    """What makes it a row that no owner wrote; "" for one of ours."""
    if not row.url:
        return "it has no URL; only the first write of a URL, its admission, may make a row"
    if not row.url.startswith(f"{host_key}/"):
        return f"needed a URL of that host, came {row.url[:200]!r}"
    if id_of(row.url) != url_id:
        return f"needed the id of its URL {row.url[:200]!r}, which is {id_of(row.url).hex()}"
    if len(row.place) not in (0, PLACE_BYTES):
        return f"needed a place of 0 or {PLACE_BYTES} bytes, came {len(row.place)}"
    return ""
