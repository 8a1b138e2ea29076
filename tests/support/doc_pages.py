"""The documentation site of the end-to-end tests, walked once a test run."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from infra import docsite
from tests.support.site import ServedSite
from tests.support.walk import pages, walk

START = "/index.html"


@cache
def root() -> Path:
    """Where it lies. Fails, and says what to do, when it does not."""
    found = docsite.find()
    assert found is not None, "no documentation site: python -m infra.docsite fetches it"
    return found


@cache
def walked_paths() -> frozenset[str]:
    """The paths of all pages that the independent walk reaches from the start page."""
    with ServedSite(root()) as site:
        found = paths(pages(walk(site.url(START))))
    assert len(found) >= docsite.PAGES_MIN, f"the walk found {len(found)} pages only"
    return found


def paths(urls: Iterable[str]) -> frozenset[str]:
    """Path and query of each URL."""
    parts = (urlsplit(url) for url in urls)
    return frozenset(f"{part.path}?{part.query}" if part.query else part.path for part in parts)
