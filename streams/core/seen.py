"""The seen family: what admission asks of a known URL before it reads the URL's row.

Most links of real pages are known and bring nothing new. A row is some hundred bytes, of which a link is compared with
three numbers; those alone lie under the row's key in a family of their own, so that all that a host's links are
compared with lies in a block or two. A value is derived from its row and written in the same commit, only when it
changes: a completion writes none.

| byte | what                                                                                             |
|------|--------------------------------------------------------------------------------------------------|
| 0    | least depth, 0 to 254; `ASK_ROW` (255): only the row can tell (deeper, or rests as out of scope) |
| 1    | least number of redirect hops                                                                    |
| 2    | 1: it is a seed; left out for all others                                                         |
"""

from __future__ import annotations

from schemas.records import DiscoveredUrl, Source
from streams.core.rows import Status, UrlRow

ASK_ROW = 255
_HOPS_MAX = 255


def seen_value(row: UrlRow) -> bytes:
    """What the seen family holds of a row."""
    depth = ASK_ROW if row.depth >= ASK_ROW or row.status is Status.OUT_OF_SCOPE else row.depth
    hops = min(row.redirect_hops, _HOPS_MAX)
    return bytes((depth, hops, 1)) if row.source is Source.SEED else bytes((depth, hops))


def brings_news(value: bytes, found: DiscoveredUrl) -> bool:
    """Whether the row may change by this finding of its URL. False is certain; after True the row says."""
    return (
        value[0] == ASK_ROW
        or found.depth < value[0]
        or found.redirect_hops < value[1]
        or (found.source is Source.SEED and len(value) < 3)
        or found.lastmod_ms is not None
        or bool(found.trusted_hosts)
    )
