"""A crawl folder's inbox for operators: one file a change, durable before anybody counts on it.

`control/<request_id>.json` holds a HostPolicy. Whoever asks writes the file; the engine reads it, applies it, and
removes the file once the change is durable in its database: a file that is gone was applied. After a crash in between
the file is found again, and its request_id is known already. A file that is no HostPolicy is put aside as
`<request_id>.refused`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

import msgspec

from connectors.files import TEMPORARY, Files, OsFiles, failing_as_store, replace_file
from schemas.records import HostPolicy
from streams.core.policy import CONTROL_BYTES_MAX

FOLDER = "control"
SUFFIX, REFUSED = ".json", ".refused"


class ControlFolder:
    """The inbox below `root`. Raises StoreFailed."""

    def __init__(self, root: str | os.PathLike[str], files: Files | None = None) -> None:
        self._folder = os.path.join(root, FOLDER)
        self._files = files or OsFiles()

    def put(self, policy: HostPolicy) -> None:
        """Leave a change here, durably; it is known by its `request_id` from now on."""
        assert policy.request_id, "a request is known by its id"
        with failing_as_store("operator's inbox", f"write to {self._folder}"):
            self._files.make_folder(self._folder)
            self._files.sync_folder(os.path.dirname(self._folder))
            replace_file(self._files, self._path(policy.request_id), msgspec.json.encode(policy))

    def waiting(self) -> list[HostPolicy]:
        """The changes that wait, in the order of their ids."""
        try:
            names = self._files.list_folder(self._folder)
        except FileNotFoundError:
            return []
        policies = []
        for name in names:
            if name.endswith(SUFFIX):
                policy = self._read(name.removesuffix(SUFFIX))
                if policy is not None:
                    policies.append(policy)
        return policies

    def acknowledge(self, policies: Sequence[HostPolicy]) -> None:
        """These are durable elsewhere."""
        with failing_as_store("operator's inbox", f"remove from {self._folder}"):
            for policy in policies:
                with contextlib.suppress(FileNotFoundError):
                    self._files.remove(self._path(policy.request_id))

    def is_waiting(self, request_id: str) -> bool:
        return os.path.exists(self._path(request_id))

    def _read(self, request_id: str) -> HostPolicy | None:
        path = self._path(request_id)
        try:
            raw = self._files.read_at(path, 0, CONTROL_BYTES_MAX + 1)
            if len(raw) > CONTROL_BYTES_MAX:
                raise msgspec.ValidationError("too long")
            policy = msgspec.json.decode(raw, type=HostPolicy)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            with failing_as_store("operator's inbox", f"put {path} aside"):
                self._files.rename(path, path.removesuffix(SUFFIX) + REFUSED)
            return None
        return msgspec.structs.replace(policy, request_id=request_id, policy_version=0)

    def _path(self, request_id: str) -> str:
        assert not request_id.endswith(TEMPORARY)
        assert os.sep not in request_id, request_id
        return os.path.join(self._folder, request_id + SUFFIX)
