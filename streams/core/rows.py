"""One URL's durable state, and its place in a back queue.

A row is written when the URL is admitted and when a result, a stored body or a parsed page arrives: never by a grant,
whose version, attempt and lease live in the host's state. Its key is host_id (10 bytes) ‖ url_id (16 bytes), so that
a host's rows lie together.

A queue entry is host_id ‖ class (1) ‖ due (4, seconds) ‖ rank (2) ‖ url_id (16), big endian: bytes order is queue
order. The row repeats class, due and rank (`place`), so that the entry can be found and removed.
"""

from __future__ import annotations

import enum
import struct

import msgspec

from schemas.records import Kind, Source
from schemas.url_rows import Visit as Visit
from streams.core.policy import REVISIT_SLOT_MS

HOST_ID_BYTES = 10
URL_ID_BYTES = 16
PLACE_BYTES = 7  # class, due, rank

_PLACE = struct.Struct(">BIH")
_DUE_S_MAX = 2**32 - 1
_REVISIT_SLOT_S = REVISIT_SLOT_MS // 1_000


class QueueClass(enum.IntEnum):
    """Each host has three back queues; a URL is in one of them, or in none."""

    NEW = 0  # never fetched
    RETRY = 1  # failed in a way that may pass
    REVISIT = 2  # known, due again


class Status(enum.IntEnum):
    """What the last settled visit made of the URL."""

    NEW = 0
    FETCHED = 1
    REDIRECT = 2
    FAILED = 3  # a final answer without a page, or given up after the last retry
    GONE = 4  # a tombstone: 404 or 410 that persisted
    DENIED = 5  # robots.txt forbids it
    REFUSED = 6  # our own policy: a private address, too large, ...
    OUT_OF_SCOPE = 7  # admitted under a wider scope than today's


class UrlRow(msgspec.Struct, array_like=True, gc=False):
    """A URL that is known. `place` is empty while it is in no queue (it never is, once settled)."""

    url: str
    source: Source
    kind: Kind
    depth: int
    redirect_hops: int
    parent_id: bytes
    priority: int  # 0 to 255, the higher the sooner
    discovered_ms: int
    status: Status = Status.NEW
    place: bytes = b""
    version: int = 0  # of the last granted visit that came to a result or was lost
    attempt: int = 0  # of the next lease of that version; 0: the next grant is a new version
    failures: int = 0  # of this version, but for 429 and 503
    lost: int = 0  # consecutive leases that never came back
    lastmod_ms: int | None = None
    visit: Visit | None = None
    trusted_hosts: tuple[str, ...] = ()  # of a sitemap: other hosts whose robots.txt name it
    troubles: int = 0  # 429 and 503, of this version; `failures` counts all others
    last_error: str = ""  # why it is to be tried again; empty once the visit is closed


def rank(priority: int, depth: int) -> int:
    """The lower the sooner: by value, then breadth first."""
    return (255 - priority) << 8 | min(depth, 255)


def place(queue: QueueClass, due_ms: int, rank_: int) -> bytes:
    """Queue order as bytes. A retry's second is rounded up (never early); revisits of a slot are ranked together."""
    if queue is QueueClass.NEW:
        due_s = 0
    elif queue is QueueClass.RETRY:
        due_s = -(-due_ms // 1000)
    else:
        due_s = due_ms // 1000
        due_s -= due_s % _REVISIT_SLOT_S
    return _PLACE.pack(queue, min(due_s, _DUE_S_MAX), rank_)


def due_ms_of(place_: bytes) -> int:
    """When the entry may be granted."""
    return int.from_bytes(place_[1:5], "big") * 1000


def rank_of(place_: bytes) -> int:
    return place_[5] << 8 | place_[6]


def is_first(row: UrlRow) -> bool:
    """Whether this may be the first that is written of the URL: later ones follow from leases, which have versions."""
    return row.version == 0


encode_row = msgspec.msgpack.Encoder().encode
decode_row = msgspec.msgpack.Decoder(UrlRow).decode
