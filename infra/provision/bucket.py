"""The bucket for bodies, texts and the fetch log, and its rule against the remains of uploads that were cut off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from infra.provision.steps import Step, Verdict

__all__ = ["UNFINISHED_UPLOADS", "ObjectStore", "plan"]

UNFINISHED_UPLOADS: dict[str, Any] = {
    "ID": "headrace-unfinished-uploads",
    "Status": "Enabled",
    "Filter": {"Prefix": ""},
    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2},
}
"""A fetcher that is killed leaves the parts of its open segment, which no listing shows and every bill does. A segment
is open for minutes, so two days end none that lives. Only a bucket that we make gets the rule: setting one replaces
all, and the rules of a bucket that stands are its owner's."""


class ObjectStore(Protocol):
    """What we ask of a store. All of it raises `ServiceAway`, or `CrawlError` for a refusal."""

    def has_bucket(self, name: str) -> bool | None:
        """None: it is there, and another's."""
        ...

    def create_bucket(self, name: str) -> None: ...

    def end_unfinished_uploads(self, name: str) -> None:
        """Lay down the rule, in a store that takes such rules."""
        ...


def plan(store: ObjectStore, *, bucket: str) -> Iterator[Step]:
    """What is to be done so that the bucket is there."""
    thing = f"bucket {bucket}"
    found = store.has_bucket(bucket)
    if found is None:
        yield Step(
            thing,
            Verdict.REFUSED,
            "needed a bucket that these keys may use, it belongs to somebody else or shuts them out",
            "name another (fleet.bucket), or give the user of fleet.s3_access_key its ListBucket, GetObject, PutObject"
            " and AbortMultipartUpload",
        )
    elif found:
        yield Step(thing, Verdict.STANDS)
    else:

        def make() -> None:
            store.create_bucket(bucket)
            store.end_unfinished_uploads(bucket)

        yield Step(thing, Verdict.MADE, "unfinished uploads end after 2 days", deed=make)
