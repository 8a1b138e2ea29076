"""What must hold of a crawl's folder after any crash, judged from outside: by site log, exports and segments."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.support import doc_pages
from tests.support.crawls import fetched, page_rows, record_at, records, segments
from tests.support.site import Asked

SETTLED = ("fetched", "failed", "tombstone", "redirect")


class Witness:
    """Remembers what was visible before each crash, and holds the folder to it afterwards."""

    def __init__(self, out: Path, concurrency: int) -> None:
        self._out = out
        self._concurrency = concurrency
        self._completed: set[str] = set()  # paths
        self._lines_judged = 0

    def judge(self, log: Sequence[Asked]) -> None:
        """After a crash, before the next start. `log` is all that the site saw from the first start on.

        A lease is granted only once a token is free, and a token comes back in the very commit that completes its
        page. So of all that one run asked at most `concurrency` may not be completed; what was completed stays so, is
        not asked for again without validators, and lies readable where the export says.
        """
        asked = {line.path for line in log[self._lines_judged :] if line.path != "/robots.txt"}
        self.judge_requests(log)
        if not asked and not self._completed:
            return
        rows = page_rows(self._out)
        settled = doc_pages.paths(row["url"] for row in rows if row["state"] in SETTLED)
        open_still = asked - settled
        assert len(open_still) <= self._concurrency, f"answered, and forgotten by the crawl: {sorted(open_still)}"
        completed = doc_pages.paths(fetched(rows))
        assert self._completed <= completed, f"completed once, and lost: {sorted(self._completed - completed)}"
        for row in rows:
            if row["content"]:
                check_body(self._out, row)
        self._completed = set(completed)

    def judge_requests(self, log: Sequence[Asked]) -> None:
        """The requests since the last judgement: none for what was completed then, but with validators."""
        news = [line for line in log[self._lines_judged :] if line.path != "/robots.txt"]
        again = {line.path for line in news if line.path in self._completed and not line.conditional}
        assert not again, f"completed, and fetched again without validators: {sorted(again)}"
        self._lines_judged = len(log)


def check_body(out: Path, row: dict[str, Any]) -> None:
    """The row's content is readable by its offset, and is what its hash says."""
    payload = record_at(out, row["content"]).payload
    assert hashlib.sha256(payload).hexdigest() == row["content_hash"], row["url"]
    assert record_at(out, row["body"]).url == row["url"]
    if row["text"]:
        assert record_at(out, row["text"]).url == row["url"]


def judge_whole(out: Path, expected_paths: Iterable[str]) -> None:
    """A crawl that ran to its end, whatever happened to it: every page, once, readable, and no segment torn."""
    rows = page_rows(out)
    crawled = doc_pages.paths(fetched(rows))
    assert crawled == frozenset(expected_paths), crawled ^ frozenset(expected_paths)
    for row in rows:
        if row["content"]:
            check_body(out, row)
    found = Counter(one.url for path in segments(out) for one in records(path) if one.type in ("response", "revisit"))
    assert found == Counter(fetched(rows)), "each page has one record, and no page has more"
    for path in segments(out, "parsed"):
        for _ in records(path):
            pass
    assert [row["url"] for row in rows if row["state"] == "fetched" and row["links"] is None] == [], "unparsed pages"
