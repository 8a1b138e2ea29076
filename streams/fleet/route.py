"""The route stage of a fleet: links to the owners of the hosts that they lead to, documents to the index.

A group is some messages of parsed-pages, gathered for 50 ms at most. Its links are routed as on one machine
(`streams.core.route`), those named lately are left out, and what is left goes to discovered-urls in batches by the
target host's partition. What a page is to the index (`streams.core.indexing`) goes to index-events, its text read by
reference. The memo of links begins anew every MEMO_MS, since an operator may have let in meanwhile what an owner
refused, whenever a group fails, and when a partition is assigned anew: what it holds must be on its way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from connectors.group_reader import Input
from connectors.stage_sender import Output
from schemas.codec import decode, encode
from schemas.records import BodyRef, DeadLetter, DiscoveredUrl, ParsedPage
from schemas.topics import partition_for
from streams.core.indexing import Verdict, document, encode_document, of_page
from streams.core.memo import Memo
from streams.core.route import route
from streams.fleet import outputs
from streams.fleet.metrics import Metrics
from streams.fleet.parse import MEMO_MS

__all__ = ["MEMO_URLS_MAX", "RouteStage"]

MEMO_URLS_MAX = 200_000  # in each of the memo's two halves; some 50 MB
TEXTS_MAX = 64  # read together
TEXT_UNREADABLE = "text_unreadable"
_INDEX = "index-events"

ReadTexts = Callable[[Sequence[BodyRef]], Awaitable[Sequence[bytes | None]]]
"""Texts of pages, UTF-8; None for one that cannot be had, now or later. Waits while the store is away."""


class RouteStage:
    """`work` is a `streams.fleet.stage.Work`."""

    def __init__(
        self,
        read_texts: ReadTexts,
        *,
        partition_of: Callable[[str], int],
        index_partitions: int,
        follow_nofollow: bool,
        now: Callable[[], int],
        metrics: Metrics,
        memo: Memo | None = None,
    ) -> None:
        """`partition_of`: of a host_key. `index_partitions`: as many as index-events has."""
        self._read_texts, self._partition_of, self._index_partitions = read_texts, partition_of, index_partitions
        self._follow_nofollow, self._now, self._metrics = follow_nofollow, now, metrics
        self._memo = memo or Memo(MEMO_URLS_MAX)
        self._memo_since_ms = now()

    async def work(self, messages: Sequence[Input]) -> Sequence[Output]:
        """Raises BadRecord for a message that holds no pages; of its group nothing is sent then."""
        pages = [page for one in messages for page in decode(one.value or b"", ParsedPage)]
        try:
            discovered = self._discovered(pages)
            events = await self._events(pages)
        except BaseException:
            self.forget()
            raise
        return [*discovered, *events]

    def forget(self) -> None:
        """Links that were named may not have gone out: they are named again."""
        self._memo.forget()

    def _discovered(self, pages: Sequence[ParsedPage]) -> list[Output]:
        now_ms = self._now()
        if now_ms - self._memo_since_ms >= MEMO_MS:
            self._memo.forget()
            self._memo_since_ms = now_ms
        found: dict[int, list[DiscoveredUrl]] = {}
        for page in pages:
            for host_key, batch in route(page, now_ms=now_ms, follow_nofollow=self._follow_nofollow).items():
                news = self._memo.sift(batch)
                if news:
                    found.setdefault(self._partition_of(host_key), []).extend(news)
        made: list[Output] = []
        for partition, urls in found.items():
            records = outputs.batches("discovered-urls", partition, urls, lambda one: one.host_key)
            made += [Output(*record) for record in records]
        return made

    async def _events(self, pages: Sequence[ParsedPage]) -> list[Output]:
        told = [(page, *of_page(page)) for page in pages]
        told = [one for one in told if one[1] is not Verdict.NOTHING]
        refs = [page.text for page, verdict, _ in told if verdict is Verdict.UPSERT and page.text is not None]
        texts: dict[BodyRef, bytes | None] = {}
        for at in range(0, len(refs), TEXTS_MAX):
            some = refs[at : at + TEXTS_MAX]
            texts.update(zip(some, await self._read_texts(some), strict=True))
        return [self._event(page, verdict, version, texts) for page, verdict, version in told]

    def _event(self, page: ParsedPage, verdict: Verdict, version: int, texts: Mapping[BodyRef, bytes | None]) -> Output:
        value = None
        if verdict is Verdict.UPSERT:
            text = b"" if page.text is None else texts[page.text]
            if text is None:
                return self._letter(page)
            value = encode_document(document(page, version, text.decode("utf-8", "replace")))
        self._metrics.count("headrace_documents_total", 1, (verdict.value,))
        key = page.url_id.hex()
        headers = (("doc_version", str(version).encode()),)
        return Output(_INDEX, partition_for(key, self._index_partitions), key.encode(), value, headers)

    def _letter(self, page: ParsedPage) -> Output:
        """Its links went their way; the document that stood before, stands."""
        self._metrics.count("headrace_dead_letters_total", 1, (TEXT_UNREADABLE,))
        letter = DeadLetter(
            stage="route",
            host_key=page.host_key,
            url=page.url,
            error=TEXT_UNREADABLE,
            attempts=1,
            failed_ms=self._now(),
            record=encode(page),
            url_id=page.url_id,
        )
        partition = self._partition_of(page.host_key)
        return Output(*outputs.batches("dead-letters", partition, [letter], lambda one: one.host_key)[0])
