"""A watch over what a fetcher did, apart from the rules that say what it may do: an alarm rests on it.

It knows nothing of owners, leases' instants or clocks of others: only when requests to a host began and ended here, and
which delay each was granted under. A host that two fetchers ask in turn is seen by neither alone, so 0 is no proof; one
is a breach. The judges that prove are outside (the sites' own logs, in the tests).
"""

from __future__ import annotations

from schemas.records import FetchLease, FetchResult

__all__ = ["HOSTS_MAX", "RULES", "Watch"]

HOSTS_MAX = 50_000  # those asked last
RULES = ("delay",)
"""A host that is asked one at a time was asked again before its delay was over."""


class Watch:
    """Of one fetcher."""

    def __init__(self, hosts_max: int = HOSTS_MAX) -> None:
        self._hosts_max = hosts_max
        self._last: dict[str, tuple[int, int]] = {}  # host_key → (end of its last request, delay it was granted under)

    def see(self, lease: FetchLease, result: FetchResult) -> str | None:
        """A request that was sent. The rule that it broke, or None.

        Of two delays the shorter counts: a word of an operator may have changed it between the two.
        """
        last = self._last.pop(lease.host_key, None)
        self._last[lease.host_key] = result.finished_ms, lease.delay_ms
        if len(self._last) > self._hosts_max:
            del self._last[next(iter(self._last))]
        if last is None or lease.concurrency > 1:
            return None
        ended_ms, delay_ms = last
        return "delay" if result.started_ms < ended_ms + min(delay_ms, lease.delay_ms) else None
