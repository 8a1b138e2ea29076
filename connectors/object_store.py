"""Objects in an S3 store: whole or not there, each under a name that is written once.

An object of one part goes by one PUT, a longer one by a multipart upload: neither is seen before it is whole. While the
store is away every call waits and tries again, for ever, with backoff. What ends a call is `StoreClosed`, when the
worker ends, and `StoreFailed` for what waiting does not mend: a bucket that is missing, a login that is refused, an
object that is not there.

Blocking: called in threads. Memory: one part an upload.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from connectors.files import StoreFailed
from connectors.ports import StoreClosed

__all__ = ["PART_BYTES", "ObjectMissing", "ObjectStore"]

log = logging.getLogger(__name__)

PART_BYTES = 8 << 20  # S3 takes 10,000 parts of 5 MiB or more: 80 GB
_WAIT_S_MIN = 0.2
_WAIT_S_MAX = 10.0
_REFUSED_S_MAX = 60.0  # a store that starts may refuse keys and buckets for a while before it knows them
_MISSING = {"NoSuchKey", "NotFound", "404"}
_REFUSED = {"AccessDenied", "NoSuchBucket", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AllAccessDisabled"}

T = TypeVar("T")
Part = Callable[[int, int], bytes]
"""(offset, length) → so many bytes."""


class ObjectMissing(StoreFailed):
    """There is no object of that name."""


class _Restart(Exception):
    """The store has forgotten the upload: begin it anew."""


class ObjectStore:
    """One bucket. Any thread may call."""

    def __init__(
        self,
        client: Any,
        bucket: str,
        *,
        part_bytes: int = PART_BYTES,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        """`client`: boto3's for S3. `clock`: seconds. `pause`: waits so many seconds, no longer than until `close`."""
        self._client, self._bucket, self._part_bytes, self._clock = client, bucket, part_bytes, clock
        self._closing = threading.Event()
        self._pause = pause or self._closing.wait
        self._lock = threading.Lock()
        self._waiting: dict[int, float] = {}  # thread → since when the store does not answer it

    def close(self) -> None:
        """Calls that wait for the store end with `StoreClosed`."""
        self._closing.set()

    def away_s(self) -> float:
        """How long the store has not answered; 0 while it does."""
        with self._lock:
            return max((self._clock() - since for since in self._waiting.values()), default=0.0)

    def put(self, name: str, data: bytes) -> None:
        """A small object, in place of one of that name."""
        self._call(f"write {name}", self._client.put_object, Key=name, Body=data)

    def put_parts(self, name: str, read: Part, length: int) -> None:
        """`length` bytes that `read` gives piece by piece, again when asked again. The object is whole on return."""
        if length <= self._part_bytes:
            self.put(name, read(0, length))
            return
        while True:
            try:
                self._upload(name, read, length)
                return
            except _Restart:
                log.warning("s3: the store has forgotten the upload of %s: it begins anew", name)

    def read(self, name: str, offset: int, length: int) -> bytes:
        """So many bytes of an object, fewer only at its end. Raises `ObjectMissing` when there is none."""
        assert length > 0
        return self._call(f"read {name}", self._get, name=name, span=f"bytes={offset}-{offset + length - 1}")

    def end_uploads(self, name: str) -> int:
        """End what was begun of that object and never completed. Returns how many."""
        page = self._call(f"list the uploads of {name}", self._client.list_multipart_uploads, Prefix=name)
        ids = [one["UploadId"] for one in page.get("Uploads", ()) if one["Key"] == name]
        for upload in ids:
            self._end_upload(name, upload)
        return len(ids)

    def _upload(self, name: str, read: Part, length: int) -> None:
        begun = self._call(f"begin the upload of {name}", self._client.create_multipart_upload, Key=name)
        upload = begun["UploadId"]
        try:
            parts = []
            for number, offset in self._parts(length):
                data = read(offset, min(self._part_bytes, length - offset))
                needed = f"upload part {number} of {name}"
                told = self._call(
                    needed, self._client.upload_part, Key=name, UploadId=upload, PartNumber=number, Body=data
                )
                parts.append({"PartNumber": number, "ETag": told["ETag"]})
            self._complete(name, upload, parts, length)
        except (StoreFailed, StoreClosed):
            self._try_to_end(name, upload)
            raise

    def _complete(self, name: str, upload: str, parts: list[dict[str, Any]], length: int) -> None:
        """A completion whose answer was lost may have taken effect: then the upload is gone and the object there."""
        try:
            self._call(
                f"complete the upload of {name}",
                self._client.complete_multipart_upload,
                Key=name,
                UploadId=upload,
                MultipartUpload={"Parts": parts},
            )
        except _Restart:
            try:
                there = self._call(f"look at {name}", self._client.head_object, Key=name)
            except ObjectMissing:
                raise _Restart from None
            if there["ContentLength"] != length:
                raise

    def _parts(self, length: int) -> Iterator[tuple[int, int]]:
        return enumerate(range(0, length, self._part_bytes), 1)

    def _end_upload(self, name: str, upload: str) -> None:
        with contextlib.suppress(_Restart, ObjectMissing):  # it has ended
            self._call(f"end an upload of {name}", self._client.abort_multipart_upload, Key=name, UploadId=upload)

    def _try_to_end(self, name: str, upload: str) -> None:
        """Once: the store may be away, and then its own rule ends the upload after two days."""
        try:
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=name, UploadId=upload)
        except (BotoCoreError, ClientError) as error:
            log.warning("s3: an upload of %s could not be ended: %s", name, error)

    def _get(self, *, Bucket: str, name: str, span: str) -> bytes:
        try:
            answer = self._client.get_object(Bucket=Bucket, Key=name, Range=span)
        except ClientError as error:
            if _code(error) == "InvalidRange":
                return b""
            raise
        data: bytes = answer["Body"].read()
        return data

    def _call(self, needed: str, ask: Callable[..., T], **what: Any) -> T:
        """Until the store has answered. Raises `_Restart` for an upload that it does not know."""
        wait_s, since, refused_since = _WAIT_S_MIN, self._clock(), None
        me = threading.get_ident()
        try:
            while True:
                if self._closing.is_set():
                    raise StoreClosed(f"s3: needed to {needed}; the worker ends")
                try:
                    return ask(Bucket=self._bucket, **what)
                except ClientError as error:
                    code = _code(error)
                    if code == "NoSuchUpload":
                        raise _Restart from error
                    if code in _MISSING:
                        raise ObjectMissing(
                            f"s3: needed to {needed} in bucket {self._bucket}, got no such object; restore it from a"
                            " copy, or fetch the page again"
                        ) from error
                    if code in _REFUSED:
                        refused_since = self._clock() if refused_since is None else refused_since
                        if self._clock() - refused_since >= _REFUSED_S_MAX:
                            raise StoreFailed(
                                f"s3: needed to {needed} in bucket {self._bucket}, got: {error}; check fleet.bucket"
                                " (headrace provision makes it), fleet.s3_access_key and fleet.s3_secret_key"
                            ) from error
                    said: Exception = error
                except (BotoCoreError, OSError) as error:  # a connection that ends while a body is read is an OSError
                    said = error
                with self._lock:
                    if me not in self._waiting:
                        self._waiting[me] = since
                        log.warning("s3: waits to %s: %s", needed, said)
                self._pause(wait_s)
                wait_s = min(2 * wait_s, _WAIT_S_MAX)
        finally:
            with self._lock:
                waited = self._waiting.pop(me, None)
            if waited is not None and not self._closing.is_set():
                log.warning("s3: answers again, after %.0f s", self._clock() - waited)


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
