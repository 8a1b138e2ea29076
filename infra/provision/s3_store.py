"""The store's side of `bucket.ObjectStore`, by boto3, and the client that all of the fleet shares."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from infra.provision.bucket import UNFINISHED_UPLOADS
from infra.provision.steps import ServiceAway
from infra.settings_fleet import Fleet
from streams.core.failures import EXIT_FAILED, CrawlError

__all__ = ["CONNECTIONS_MAX", "BotoStore", "open_client"]

CONNECTIONS_MAX = 64  # kept open; a stage reads and uploads by some dozen threads
_ANSWER_S_MAX = 10
_TAKES_NO_RULES = {"NotImplemented", "MethodNotAllowed", "MalformedXML", "InvalidRequest", "InvalidArgument"}


def open_client(fleet: Fleet) -> Any:
    """An S3 client by the settings. It connects at its first call."""
    keys: dict[str, str] = {}
    if fleet.s3_access_key:
        keys = {"aws_access_key_id": fleet.s3_access_key, "aws_secret_access_key": fleet.s3_secret_key}
    return boto3.client(
        "s3",
        region_name=fleet.s3_region,
        endpoint_url=fleet.s3_endpoint or None,
        verify=fleet.s3_ca or None,
        config=Config(
            connect_timeout=_ANSWER_S_MAX,
            read_timeout=_ANSWER_S_MAX,
            max_pool_connections=CONNECTIONS_MAX,  # of 10, the default, all others were closed after each read
            retries={"total_max_attempts": 2, "mode": "standard"},
            # Stores beside Amazon's are found by path: a name for each bucket needs a DNS of its own.
            s3={"addressing_style": "path" if fleet.s3_endpoint else "auto"},
        ),
        **keys,
    )


class BotoStore:
    """One store."""

    def __init__(self, fleet: Fleet) -> None:
        self._address = fleet.s3_endpoint or f"Amazon S3, {fleet.s3_region}"
        self._region = fleet.s3_region
        self._own = bool(fleet.s3_endpoint)
        try:
            self._client = open_client(fleet)
        except (BotoCoreError, ValueError) as error:
            raise CrawlError(f"s3 at {self._address}: needed settings that its client takes, got: {error}") from error

    def has_bucket(self, name: str) -> bool | None:
        try:
            self._client.head_bucket(Bucket=name)
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if status == 404:
                return False
            if status in (301, 403) and self._let_in():
                return None
            raise self._told(error, f"a look at bucket {name}") from error
        except BotoCoreError as error:
            raise self._away(error) from error
        return True

    def create_bucket(self, name: str) -> None:
        # Amazon wants the region said again, but for the oldest, where saying it is an error.
        place: dict[str, Any] = {}
        if not self._own and self._region != "us-east-1":
            place = {"CreateBucketConfiguration": {"LocationConstraint": self._region}}
        try:
            self._client.create_bucket(Bucket=name, **place)
        except ClientError as error:
            raise self._told(error, f"bucket {name} made") from error
        except BotoCoreError as error:
            raise self._away(error) from error

    def end_unfinished_uploads(self, name: str) -> None:
        try:
            self._client.put_bucket_lifecycle_configuration(
                Bucket=name, LifecycleConfiguration={"Rules": [UNFINISHED_UPLOADS]}
            )
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") not in _TAKES_NO_RULES:
                raise self._told(error, f"the lifecycle of bucket {name} set") from error
        except BotoCoreError as error:
            raise self._away(error) from error

    def _let_in(self) -> bool:
        """Whether the keys are good at all: a 403 on a bucket alone does not tell."""
        try:
            self._client.list_buckets()
        except ClientError as error:
            # Keys that may not list buckets are known to the store; unknown ones get another word.
            return bool(error.response.get("Error", {}).get("Code") == "AccessDenied")
        except BotoCoreError as error:
            raise self._away(error) from error
        return True

    def _told(self, error: ClientError, needed: str) -> CrawlError:
        said = error.response.get("Error", {})
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        reason = f"{said.get('Code', status)} {said.get('Message', '')}".strip()
        if status == 403:
            return ServiceAway(
                "s3", self._address, f"a refusal: {reason}", "check fleet.s3_access_key, s3_secret_key and s3_region"
            )
        return CrawlError(
            f"s3 at {self._address}: needed {needed}, got: {reason}; the store's log has more", EXIT_FAILED
        )

    def _away(self, error: BotoCoreError) -> ServiceAway:
        return ServiceAway(
            "s3",
            self._address,
            str(error),
            "start it (headrace services up s3), or say where it is: fleet.s3_endpoint,"
            " HEADRACE_FLEET__S3_ENDPOINT=URL; keys: fleet.s3_access_key, s3_secret_key",
        )
