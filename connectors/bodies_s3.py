"""Stored records read by their references, one ranged GET each: how the parse stage comes by a body.

Blocking: called in threads, any number at once. While the store is away a call waits; `ObjectStore.close` ends it.
"""

from __future__ import annotations

from connectors.files import StoreFailed
from connectors.object_store import ObjectStore
from connectors.segment_records import whole
from schemas.records import BodyRef
from streams.core import store
from streams.core.policy import RECORD_BYTES_MAX

__all__ = ["S3Bodies"]


class S3Bodies:
    """Of one bucket."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def read(self, ref: BodyRef) -> bytes:
        """The payload: a response's body as decoded, a conversion's text.

        Raises StoreFailed when the record cannot be had: no such object, or bytes that are no record. It names the
        remedy, and fits a dead letter. Raises StoreClosed when the worker ends meanwhile.
        """
        return self.read_record(ref).payload

    def read_record(self, ref: BodyRef) -> store.Record:
        """The whole record. Raises as `read` does."""
        if not 0 < ref.record_bytes <= RECORD_BYTES_MAX:
            raise StoreFailed(f"s3: needed a record of 1 to {RECORD_BYTES_MAX} bytes, got a reference to {ref}")
        return whole(ref, self._objects.read(ref.segment, ref.offset_bytes, ref.record_bytes))
