"""URLs seen lately, so that the many known links of real pages cost no look-up."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.records import DiscoveredUrl, Kind, Source
from streams.core import policy as bounds


class Memo:
    """URLs seen lately with the least depth they were seen at: most links of real pages are known already.

    Two generations: when the younger is full it becomes the elder, and the elder is forgotten. It may forget; what it
    holds is durable or was refused for good.
    """

    def __init__(self, urls_max: int = bounds.MEMO_URLS_MAX) -> None:
        self._urls_max = urls_max
        self._young: dict[str, int] = {}
        self._old: dict[str, int] = {}
        self.generation = 0  # rises when all is forgotten: other memos of the same URLs must then forget, too

    def knows(self, url: str, depth: int) -> bool:
        """True when the URL needs no further look at this depth; else it is noted as seen."""
        seen = self._young.get(url)
        if seen is not None and seen <= depth:
            return True
        elder = self._old.get(url) if seen is None else None
        if len(self._young) >= self._urls_max:
            self._old, self._young = self._young, {}
        if elder is not None and elder <= depth:
            self._young[url] = elder
            return True
        self._young[url] = depth
        return False

    def sift(self, batch: Iterable[DiscoveredUrl]) -> list[DiscoveredUrl]:
        """As `knows`, those of a batch that need a look, in order. The bound may be passed by one batch.

        It speaks of ordinary links only: what it holds may have been refused as an ordinary link.
        """
        young, old = self._young, self._old
        left: list[DiscoveredUrl] = []
        for found in batch:
            if found.source is Source.SEED or found.redirect_hops or found.lastmod_ms or found.kind is Kind.SITEMAP:
                left.append(found)
                continue
            url, depth = found.url, found.depth
            seen = young.get(url)
            if seen is None:
                seen = old.get(url)
                if seen is None or seen > depth:
                    seen = depth
                    left.append(found)
                young[url] = seen
            elif seen > depth:
                young[url] = depth
                left.append(found)
        if len(young) >= self._urls_max:
            self._old, self._young = young, {}
        return left

    def forget(self) -> None:
        """What was refused may be admitted now, or a turn was not committed."""
        self._young, self._old = {}, {}
        self.generation += 1
