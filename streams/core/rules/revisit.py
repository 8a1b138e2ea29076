"""When a URL is fetched again: 1 to 30 days by observed change, page value and status (policy may set other bounds).

The interval follows the page: a change halves it, no change lengthens it by half, as in the adaptive schedules of
Cho and Garcia-Molina ("Effective Page Refresh Policies for Web Crawlers", 2003) reduced to what one number can hold.
A page of high value starts with a shorter interval. Every rule is a function of its arguments.
"""

from __future__ import annotations

from streams.core import policy as bounds
from streams.core.policy import CrawlPolicy


def first_interval_ms(priority: int, policy: CrawlPolicy) -> int:
    """Of a page seen once: from a fifth of the longest interval (least value) down towards the shortest."""
    start = policy.revisit_ms_max // 5 * (256 - priority) // 256
    return _clamp(start * 2, policy)


def changed_interval_ms(interval_ms: int, policy: CrawlPolicy) -> int:
    return _clamp(interval_ms // 2, policy)


def unchanged_interval_ms(interval_ms: int, policy: CrawlPolicy) -> int:
    return _clamp(interval_ms * 3 // 2, policy)


def gone_interval_ms(times: int, policy: CrawlPolicy) -> int:
    """404 and 410: soon once more, since sites blunder; a tombstone rests long."""
    if times < bounds.TOMBSTONE_AFTER_VISITS:
        return policy.revisit_ms_min
    return max(policy.revisit_ms_max, bounds.TOMBSTONE_REVISIT_MS)


def failed_interval_ms(policy: CrawlPolicy) -> int:
    """A final answer without a page, or given up after the last retry."""
    return policy.revisit_ms_max


def denied_interval_ms(policy: CrawlPolicy) -> int:
    """robots.txt forbids it: when the URL comes up the copy that forbade it is too old, and is asked for anew.

    One slot more than a copy may serve, since an entry comes up at the beginning of its slot.
    """
    return max(policy.revisit_ms_min, bounds.ROBOTS_TTL_MS + bounds.REVISIT_SLOT_MS)


def _clamp(interval_ms: int, policy: CrawlPolicy) -> int:
    return max(policy.revisit_ms_min, min(policy.revisit_ms_max, interval_ms))
