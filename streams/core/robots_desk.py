"""ROBOTS at the owner: what an answer to /robots.txt does to the host that asked, and to all that wait for the same.

A redirect to another host's URL is a *hop*: that host's owner fetches the URL with its own host's token, and sends the
answer back to the asker. Many hosts may be redirected to one URL (ten thousand parked domains): one fetch answers all
that wait for it, and the answer is kept a while for those that come later. Kept answers are in memory only and bounded;
without one the site is asked once more. Two hops are the same only with the same count, for the last hop allowed is
answered differently; so a circle of redirects ends at that count.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from schemas.records import (
    DiscoveredUrl,
    FetchResult,
    Kind,
    OwnerMessage,
    OwnerMessageKind,
    RobotsAnswer,
    RobotsDecision,
    Source,
)
from streams.core import hosts as host_rules
from streams.core import policy as bounds
from streams.core.complete import Completion
from streams.core.frontier import Frontier
from streams.core.hosts import Hop, HostState
from streams.core.policy import CrawlPolicy
from streams.core.robots_fetch import RobotsState, after_answer, ttl_ms
from streams.core.rules.robots import RobotsRules
from streams.core.rules.urls import host_key
from streams.core.turn import Family, HostSlot, Turn, bump


class _Kept(msgspec.Struct, frozen=True):
    """An answer to a hop."""

    answer: RobotsAnswer
    target: str | None  # where it redirects to
    until_ms: int


class RobotsDesk:
    """Settles robots leases, hops and their answers."""

    def __init__(
        self, frontier: Frontier, completion: Completion, policy: CrawlPolicy, jitter: Callable[[], float]
    ) -> None:
        self._frontier = frontier
        self._completion = completion
        self._policy = policy
        self._jitter = jitter
        self._kept: dict[tuple[str, int], _Kept] = {}  # by URL and number of hops, the oldest first

    def result(self, turn: Turn, slot: HostSlot, result: FetchResult) -> None:
        """A fetch result of kind robots."""
        host = slot.state
        lease = host.in_flight.get(result.lease_id)
        if lease is None or lease.kind is not Kind.ROBOTS:
            turn.counts.stale += 1
            return
        host_rules.return_token(host, result.lease_id, turn.now_ms, self._policy)
        turn.touch(slot)
        self._completion.log(turn, slot, result, lease)
        answer = result.robots
        if answer is None:  # nothing was asked: the lease expired before it could be started, or finds the address
            self.lost(turn, slot, lease.robots_for)
            return
        bump(turn.counts.completed, "robots")
        if answer.decision is not RobotsDecision.DISALLOW_ALL:
            host_rules.went_well(host, result)
        elif result.status in (429, 503):
            host_rules.troubled(host, result, turn.now_ms, self._jitter)
        else:
            host_rules.failed(host, result, turn.now_ms, self._jitter)
        if lease.hops:  # no copy serves longer for having travelled or waited
            answer = msgspec.structs.replace(answer, received_ms=turn.now_ms)
        self._pass_on(turn, slot, lease.robots_for or host.host_key, lease.hops, answer, result)
        if lease.hops:
            self._keep(turn, lease.url, lease.hops, answer, result.redirect_target)
            same = [hop.asker for hop in host.hops if hop.url == lease.url and hop.hops == lease.hops]
            host.hops = tuple(hop for hop in host.hops if hop.url != lease.url or hop.hops != lease.hops)
            for asker in same:
                self._pass_on(turn, slot, asker, lease.hops, answer, result)

    def lost(self, turn: Turn, slot: HostSlot, robots_for: str) -> None:
        """No answer came, and the site is not to blame: who waits may ask again at once."""
        if robots_for and robots_for != slot.state.host_key:
            turn.messages.append(
                OwnerMessage(to_key=robots_for, from_key=slot.state.host_key, kind=OwnerMessageKind.ROBOTS_ANSWER)
            )
        else:
            slot.state.robots_wait_ms = 0

    def message(self, turn: Turn, slot: HostSlot, message: OwnerMessage) -> None:
        """A hop that is asked of the slot's host, or the answer to one that it asked for."""
        if message.kind is OwnerMessageKind.ROBOTS_HOP:
            self._asked(turn, slot, message)
        elif message.kind is OwnerMessageKind.ROBOTS_ANSWER:
            if message.robots is None:
                slot.state.robots_wait_ms = 0
                turn.touch(slot)
            elif slot.state.robots_wait_ms or self._frontier.robots_word(slot, turn.now_ms) == "ask":
                # It may come after the wait, when the host is about to ask anew: then it saves the site that request.
                self._take(turn, slot, message.robots)

    def _asked(self, turn: Turn, slot: HostSlot, message: OwnerMessage) -> None:
        kept = self._kept.get((message.url, message.hops))
        if kept is not None and turn.now_ms < kept.until_ms:
            self._forward(turn, slot, message.from_key, message.hops, kept.answer, kept.target)
            return
        host = slot.state
        hop = Hop(asker=message.from_key, url=message.url, hops=message.hops)
        if len(host.hops) < bounds.HOPS_QUEUED_MAX and hop not in host.hops:
            host.hops = (*host.hops, hop)
        turn.touch(slot)

    def _keep(self, turn: Turn, url: str, hops: int, answer: RobotsAnswer, target: str | None) -> None:
        self._kept.pop((url, hops), None)
        if len(answer.rules) + sum(map(len, answer.sitemaps)) > bounds.HOP_ANSWER_BYTES_MAX:
            return
        failed = answer.decision is RobotsDecision.DISALLOW_ALL
        serves_ms = bounds.RETRY_DELAYS_MS[0] if failed else min(ttl_ms(answer.max_age_ms), bounds.HOP_ANSWER_MS_MAX)
        if len(self._kept) >= bounds.HOP_ANSWERS_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[url, hops] = _Kept(answer, target, turn.now_ms + serves_ms)

    def _pass_on(
        self, turn: Turn, slot: HostSlot, asker: str, hops: int, answer: RobotsAnswer, result: FetchResult
    ) -> None:
        """A fresh answer, to the host itself or to another that waits for it."""
        self._forward(turn, slot, asker, hops, answer, result.redirect_target, result.retry_after_ms)

    def _forward(
        self,
        turn: Turn,
        slot: HostSlot,
        asker: str,
        hops: int,
        answer: RobotsAnswer,
        target: str | None,
        retry_after_ms: int | None = None,
    ) -> None:
        host = slot.state
        if answer.decision is RobotsDecision.HOP and target is not None:
            turn.messages.append(
                OwnerMessage(
                    to_key=host_key(target),
                    from_key=asker,
                    kind=OwnerMessageKind.ROBOTS_HOP,
                    url=target,
                    hops=hops + 1,
                )
            )
            if asker == host.host_key:
                host.robots_wait_ms = turn.now_ms + bounds.ROBOTS_HOP_MS_MAX
        elif asker == host.host_key:
            self._take(turn, slot, answer, retry_after_ms)
        else:
            turn.messages.append(
                OwnerMessage(to_key=asker, from_key=host.host_key, kind=OwnerMessageKind.ROBOTS_ANSWER, robots=answer)
            )

    def _take(self, turn: Turn, slot: HostSlot, answer: RobotsAnswer, retry_after_ms: int | None = None) -> None:
        """The host's rules from now on."""
        host = slot.state
        host.robots_wait_ms = 0
        before = host.robots or RobotsState()
        host.robots = after_answer(before, answer, turn.now_ms, retry_after_ms)
        # The token came back before the rules were known: a Crawl-delay in them holds for the first page, too.
        delay_ms = host_rules.delay_ms(host, self._policy)
        host.next_allowed_ms = max(host.next_allowed_ms, turn.now_ms + delay_ms)
        turn.touch(slot)
        if host.robots.digest != before.digest:
            rules = answer.rules or None
            turn.writes.append((Family.RULES, slot.host_id, rules))
            slot.rules = RobotsRules() if rules is None else RobotsRules.decode(rules)
        if self._policy.sitemaps:
            turn.found += _sitemaps(answer, host, turn.now_ms)


def _sitemaps(answer: RobotsAnswer, host: HostState, now_ms: int) -> list[DiscoveredUrl]:
    """The sitemaps that robots.txt names, of any host; one that lies elsewhere may name this host's URLs."""
    return [
        DiscoveredUrl(
            url=url,
            host_key=host_key(url),
            source=Source.SITEMAP,
            discovered_ms=now_ms,
            depth=1,
            kind=Kind.SITEMAP,
            trusted_hosts=() if url.startswith(host.host_key + "/") else (host.host_key,),
        )
        for url in answer.sitemaps[: bounds.ROBOTS_SITEMAPS_MAX]
    ]
