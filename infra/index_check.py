"""A crawl folder's index held against its URL rows, and made anew from them on an operator's wish."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from connectors.crawldb_rocksdb import CrawlDb
from infra.at_rest import crawl_at_rest
from infra.folder import read_manifest
from streams.core.failures import CrawlError
from streams.core.index import whole_index
from streams.core.owner import Owner
from streams.core.policy import CrawlPolicy
from streams.core.rows import HOST_ID_BYTES, decode_row
from streams.core.rules.scope import Scope
from streams.core.seen import seen_value
from streams.core.turn import Family

_ROWS_AT_ONCE = 2_000


class IndexReport(msgspec.Struct):
    """`missing`, `stale`: entries that a row should have and has not, and such as no row speaks of."""

    rows: int = 0
    whole: bool = False  # False: a crawl has yet to load the rest, as after an upgrade
    missing: int = 0
    stale: int = 0
    loaded_rows_per_s: float = 0.0  # when it was made anew


def check_index(out: Path, *, rebuild: bool, now_ms: int) -> IndexReport:
    """Compare, or clear the index and load it again, and then compare. No crawl may run in the folder meanwhile."""
    if not out.is_dir() or read_manifest(out) is None:
        raise CrawlError(f"{out}: needed a crawl's folder, but there is no crawl in it; headrace crawl makes one")
    with crawl_at_rest(out, now_ms=now_ms) as db:
        took_s = _rebuild(db, now_ms) if rebuild else 0.0
        report = _compare(db)
    if took_s:
        report.loaded_rows_per_s = report.rows / took_s
    return report


def _rebuild(db: CrawlDb, now_ms: int) -> float:
    """Returns how many seconds it took."""
    began_s = time.perf_counter()
    db.clear_index()
    epoch = int.from_bytes(db.meta("epoch") or b"\0", "big")
    owner = Owner(db, CrawlPolicy(), Scope(seeds=()), epoch=epoch, jitter=lambda: 0.0)
    while True:
        turn = owner.load_index(now_ms)
        db.commit(turn.writes)
        owner.committed(turn)
        if not owner.index.loading:
            return time.perf_counter() - began_s


def _compare(db: CrawlDb) -> IndexReport:
    report = IndexReport(whole=whole_index(db))
    right = 0
    for chunk in _chunks(db):
        keys = [key for key, _ in chunk]
        for (key, raw), value in zip(chunk, db.seen(keys), strict=True):
            row = decode_row(raw)
            right += value == seen_value(row)
            report.missing += value is None
            if row.place:
                entry = key[:HOST_ID_BYTES] + row.place + key[HOST_ID_BYTES:]
                queued = db.get(Family.QUEUE, entry) is not None
                right += queued
                report.missing += not queued
        report.rows += len(chunk)
    there = sum(1 for family in (Family.SEEN, Family.QUEUE) for _ in db.scan(family))
    report.stale = there - right
    return report


def _chunks(db: CrawlDb) -> Iterator[list[tuple[bytes, bytes]]]:
    after = b""
    while chunk := db.rows_after(after, _ROWS_AT_ONCE):
        yield chunk
        after = chunk[-1][0]
