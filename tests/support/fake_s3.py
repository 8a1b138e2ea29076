"""An S3 store in memory, behind what `connectors.object_store` uses of boto3's client, with a store's bad days."""

from __future__ import annotations

import hashlib
import io
import re
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError, EndpointConnectionError

BUCKET = "headrace"


class FakeS3:
    """`away`: nothing is answered. `refuses`: a code that every call gets. `before`: called with each operation's name,
    for a test that lets the store fail at a place; `loses_answer`: operations that take effect and then fail."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, tuple[str, dict[int, bytes]]] = {}
        self.calls = Counter[str]()
        self.away = False
        self.refuses = ""
        self.loses_answer: set[str] = set()
        self.before: Callable[[str], None] = lambda operation: None
        self._lock = threading.RLock()
        self._uploads_begun = 0

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> dict[str, Any]:
        with self._asked("put_object", Bucket):
            self.objects[Key] = bytes(Body)
        self._answer("put_object")
        return {}

    def create_multipart_upload(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        with self._asked("create_multipart_upload", Bucket):
            self._uploads_begun += 1
            upload = f"u{self._uploads_begun}"
            self.uploads[upload] = Key, {}
        self._answer("create_multipart_upload")
        return {"UploadId": upload}

    def upload_part(self, *, Bucket: str, Key: str, UploadId: str, PartNumber: int, Body: bytes) -> dict[str, Any]:
        with self._asked("upload_part", Bucket):
            self._parts(Key, UploadId)[PartNumber] = bytes(Body)
        self._answer("upload_part")
        return {"ETag": _etag(Body)}

    def complete_multipart_upload(
        self, *, Bucket: str, Key: str, UploadId: str, MultipartUpload: dict[str, Any]
    ) -> dict[str, Any]:
        with self._asked("complete_multipart_upload", Bucket):
            parts = self._parts(Key, UploadId)
            named = [(one["PartNumber"], one["ETag"]) for one in MultipartUpload["Parts"]]
            if [(number, _etag(parts[number])) for number, _ in named] != named:
                raise _error("InvalidPart", 400)
            self.objects[Key] = b"".join(parts[number] for number, _ in named)
            del self.uploads[UploadId]
        self._answer("complete_multipart_upload")
        return {}

    def abort_multipart_upload(self, *, Bucket: str, Key: str, UploadId: str) -> dict[str, Any]:
        with self._asked("abort_multipart_upload", Bucket):
            self._parts(Key, UploadId)
            del self.uploads[UploadId]
        return {}

    def list_multipart_uploads(self, *, Bucket: str, Prefix: str) -> dict[str, Any]:
        with self._asked("list_multipart_uploads", Bucket):
            found = [(key, upload) for upload, (key, _) in self.uploads.items() if key.startswith(Prefix)]
        return {"Uploads": [{"Key": key, "UploadId": upload} for key, upload in found]}

    def head_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        with self._asked("head_object", Bucket):
            if Key not in self.objects:
                raise _error("404", 404)
            return {"ContentLength": len(self.objects[Key])}

    def get_object(self, *, Bucket: str, Key: str, Range: str) -> dict[str, Any]:
        with self._asked("get_object", Bucket):
            if Key not in self.objects:
                raise _error("NoSuchKey", 404)
            span = re.fullmatch(r"bytes=(\d+)-(\d+)", Range)
            assert span is not None
            data = self.objects[Key][int(span[1]) : int(span[2]) + 1]
            if not data:
                raise _error("InvalidRange", 416)
        return {"Body": io.BytesIO(data)}

    def _asked(self, operation: str, bucket: str) -> Any:
        assert bucket == BUCKET
        self.before(operation)
        self.calls[operation] += 1
        if self.away:
            raise EndpointConnectionError(endpoint_url="http://127.0.0.1:1")
        if self.refuses:
            raise _error(self.refuses, 403)
        return self._lock

    def _answer(self, operation: str) -> None:
        if operation in self.loses_answer:
            self.loses_answer.discard(operation)
            raise EndpointConnectionError(endpoint_url="http://127.0.0.1:1")

    def _parts(self, key: str, upload: str) -> dict[int, bytes]:
        known = self.uploads.get(upload)
        if known is None or known[0] != key:
            raise _error("NoSuchUpload", 404)
        return known[1]


def _etag(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def _error(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "operation")
