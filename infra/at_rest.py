"""A crawl's state for a verb that works on it while no crawl runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from connectors.crawldb_rocksdb import CrawlDb
from connectors.files import StoreFailed
from infra.folder import DATABASE, Folder
from streams.core.failures import CrawlError


@contextmanager
def crawl_at_rest(out: Path, *, now_ms: int) -> Iterator[CrawlDb]:
    """The folder held and its database open, until the end. Raises CrawlError, also for what the store cannot do."""
    try:
        with closing(Folder(out, now_ms=now_ms)) as folder, closing(CrawlDb(folder.root / DATABASE)) as db:
            yield db
    except StoreFailed as error:
        raise CrawlError(str(error)) from error
