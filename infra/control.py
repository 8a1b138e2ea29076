"""An operator's changes to a crawl's folder: handed to the crawl that runs in it, or applied here when none does.

A change is durable in the folder's inbox before anything else happens, so it is never lost: if the crawl does not come
to it in time, it does later, or the next one does.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from connectors.control_folder import ControlFolder
from connectors.crawldb_rocksdb import CrawlDb
from connectors.files import StoreFailed
from infra.folder import DATABASE, Folder, is_held, read_manifest
from infra.reader import Reader
from schemas.records import HostPolicy
from streams.core.failures import CrawlError
from streams.core.host_policy import Change, Policies
from streams.core.owner import Owner
from streams.core.policy import CrawlPolicy, Politeness
from streams.core.rules.scope import Scope
from streams.core.turn import Family, Turn

STEPS_MAX = 1_000  # of a deleted host's queue dropped here; the next crawl drops the rest
LOOK_S = 0.05


def change_host_policies(
    out: Path,
    changes: Sequence[HostPolicy],
    *,
    wait_s: float,
    now_ms: Callable[[], int],
    pause: Callable[[float], None] = time.sleep,
) -> list[Change] | None:
    """Make changes to a crawl, running or not. What was applied, in order; None: it waits in the inbox, durably.

    `wait_s`: how long to wait for a running crawl's acknowledgement. Raises CrawlError.
    """
    if not out.is_dir() or read_manifest(out) is None:
        raise CrawlError(f"{out}: needed a crawl's folder, but there is no crawl in it; headrace crawl makes one")
    inbox = ControlFolder(out)
    stem = f"{now_ms():015d}-{secrets.token_hex(4)}"
    asked = [msgspec.structs.replace(one, request_id=f"{stem}-{at:03d}") for at, one in enumerate(changes)]
    try:
        for one in asked:
            inbox.put(one)
        for _ in range(max(1, round(wait_s / LOOK_S))):
            if not any(inbox.is_waiting(one.request_id) for one in asked):
                return _applied(out, [one.request_id for one in asked])
            if is_held(out) or not _apply_here(out, inbox, now_ms):
                pause(LOOK_S)
    except StoreFailed as error:
        raise CrawlError(str(error)) from error
    return None


def _apply_here(out: Path, inbox: ControlFolder, now_ms: Callable[[], int]) -> bool:
    """No crawl runs: be the owner for the while. False when one took the folder just now."""
    try:
        folder = Folder(out, now_ms=now_ms())
    except CrawlError:
        if is_held(out):
            return False
        raise
    try:
        db = CrawlDb(folder.root / DATABASE)
        try:
            asked = inbox.waiting()
            owner = _owner(db)
            _commit(db, owner, owner.decide(asked, now_ms(), 0))
            inbox.acknowledge(asked)
            for _ in range(STEPS_MAX):
                if not owner.oversight.busy():
                    break
                _commit(db, owner, owner.decide((), now_ms(), 0))
        finally:
            db.close()
    finally:
        folder.close()
    return True


def _owner(db: CrawlDb) -> Owner:
    """Under the politeness of the crawl's last run: a change of a delay is measured against it."""
    politeness = Policies(db.scan(Family.POLICY)).politeness or Politeness()
    epoch = int.from_bytes(db.meta("epoch") or b"\0", "big")
    return Owner(db, CrawlPolicy(politeness=politeness), Scope(seeds=()), epoch=epoch, jitter=lambda: 0.0)


def _commit(db: CrawlDb, owner: Owner, turn: Turn) -> None:
    db.commit(turn.writes)
    owner.committed(turn)


def _applied(out: Path, request_ids: Sequence[str]) -> list[Change]:
    """From the folder's history, read as any other reader would."""
    reader = Reader(out, CrawlPolicy(), lambda seeds: Scope(seeds=()))
    try:
        known = {change.policy.request_id: change for change in reader.policy_changes()}
    finally:
        reader.close()
    missing = [one for one in request_ids if one not in known]
    if missing:
        raise CrawlError(f"{out}: the change {missing[0]} was put aside as unreadable; see {out}/control/")
    return [known[one] for one in request_ids]
