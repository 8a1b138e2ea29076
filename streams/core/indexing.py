"""INDEX: which pages are documents of the search index, and in which version.

A document is a page, not a sitemap, that has a title or text, that no robots directive and no soft 404 speaks against,
and that is not known to be gone or to lead elsewhere. `is_document` says so of a URL's row, `of_page` of what a parser
made of a body; the two agree, whichever runner asks.

| what became of the URL                              | for the index                     | doc_version          |
|-----------------------------------------------------|-----------------------------------|----------------------|
| read, and it is a document                          | the document                      | content's ‖ reading  |
| read: noindex, soft 404, no title and no text       | delete                            | content's ‖ reading  |
| could not be read at all                            | delete                            | content's ‖ failure  |
| read again by the same extractor, for its links     | nothing                           |                      |
| 404 or 410 that persisted, a redirect (WITHDRAWN)   | delete                            | the visit's ‖ 0      |
| sitemap                                             | nothing                           |                      |

`doc_version` is url_version << 20 | revision, and the revision is a function of the reading alone: twice the extractor
version, and one more when it went well. So a replay by a later extractor beats what stood, a reading that failed never
beats one of the same content that went well, a repeat is the same document in the same version, and the withdrawal of a
later visit beats every reading of the content before it, however late that comes. A URL that comes back has its content
read anew under the version of the visit that found it back.
"""

from __future__ import annotations

import enum

import msgspec

from schemas.records import IndexEvent, Kind, ParsedPage
from streams.core.rows import Status, UrlRow, Visit

WITHDRAWN = "withdrawn"  # the error of a page that only tells the index that a URL has no content any more
REVISION_BITS = 20
DOCUMENT_BYTES_MAX = 1_000_000  # of the JSON; the sink takes 1 MiB
_JSON = msgspec.json.Encoder()
WITHDRAWING = (Status.GONE, Status.REDIRECT)


class Verdict(enum.Enum):
    """What the index is told of a page."""

    NOTHING = "nothing"
    UPSERT = "upsert"
    DELETE = "delete"


def is_document(row: UrlRow) -> bool:
    """Whether the URL has a document, by what is known of it; of a content that waits to be read, no."""
    visit = row.visit
    return (
        row.kind is Kind.PAGE
        and row.status not in WITHDRAWING
        and visit is not None
        and visit.content is not None
        and visit.extractor_version > 0
        and visit.index
        and (visit.text is not None or bool(visit.title))
    )


def row_version(visit: Visit) -> int:
    """The version of the document that a visit's row speaks of."""
    return doc_version(visit.content_version, revision(visit.extractor_version, well=_is_read(visit)))


def doc_version(url_version: int, revision_: int) -> int:
    assert 0 <= revision_ < 1 << REVISION_BITS, f"revision {revision_}"
    return url_version << REVISION_BITS | revision_


def revision(extractor_version: int, *, well: bool) -> int:
    """Of one reading of a content."""
    return 2 * extractor_version + well


def of_page(page: ParsedPage) -> tuple[Verdict, int]:
    """What the index is told of a page, and under which doc_version; of several parts the first one speaks."""
    if page.kind is not Kind.PAGE or page.part:
        return Verdict.NOTHING, 0
    if page.error == WITHDRAWN:
        return Verdict.DELETE, doc_version(page.url_version, 0)
    has_words = bool(page.title or page.text_bytes)
    version = doc_version(page.url_version, revision(page.extractor_version, well=has_words or not page.error))
    if has_words and page.text_bytes and page.text is None:
        return Verdict.NOTHING, version  # its text lies stored since an earlier reading, and its document stands
    if not has_words or not page.index or page.soft_404:
        return Verdict.DELETE, version
    return Verdict.UPSERT, version


def withdrawal(page_of: UrlRow, url_id: bytes, host_key: str, url_version: int, fetched_ms: int) -> ParsedPage:
    """What tells the index that a visit found no content any more where there had been some."""
    return ParsedPage(
        url_id=url_id,
        host_key=host_key,
        url=page_of.url,
        url_version=url_version,
        kind=page_of.kind,
        depth=page_of.depth,
        fetched_ms=fetched_ms,
        extractor_version=0,
        error=WITHDRAWN,
        index=False,
        follow=False,
    )


def document(page: ParsedPage, version: int, text: str) -> IndexEvent:
    """The document of a page whose text this is."""
    return IndexEvent(
        url_id=page.url_id.hex(),
        doc_version=version,
        url=page.url,
        title=page.title,
        text=text,
        language=page.language,
        content_hash=page.content_hash.hex(),
        simhash=f"{page.simhash:016x}",
        fetched_ms=page.fetched_ms,
        canonical=page.canonical,
    )


def encode_document(event: IndexEvent, *, bytes_max: int = DOCUMENT_BYTES_MAX) -> bytes:
    """As JSON of `bytes_max` at most: a longer text loses its end, which some hundred thousand words do not miss."""
    data = _encoded(event)
    text = event.text
    while len(data) > bytes_max and text:
        # Escapes make JSON longer than its text, so the share that is too much is cut off, and a little more.
        text = text[: int(len(text) * bytes_max / len(data) * 0.99)]
        data = _encoded(msgspec.structs.replace(event, text=text))
    return data


def _encoded(event: IndexEvent) -> bytes:
    try:
        return _JSON.encode(event)
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8
        return _JSON.encode(
            msgspec.structs.replace(
                event, title=_clean(event.title), text=_clean(event.text), language=_clean(event.language)
            )
        )


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _is_read(visit: Visit) -> bool:
    return not visit.parse_error or visit.text is not None or bool(visit.title)
