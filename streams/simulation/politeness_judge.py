"""Was any host asked otherwise than its policy says? Judged by what hosts see, in true time.

The judge is told three things: which leases became durable, when requests began and ended at the hosts and what these
answered, and which results an owner took in (a message that was lost on the way binds nobody). It reads no state of
any owner and uses none of the core's rules, only the bounds that the design names.
"""

from __future__ import annotations

from collections import Counter
from email.utils import parsedate_to_datetime

import msgspec

from schemas.records import FetchLease, HostPolicy, Kind
from streams.core import policy as bounds
from streams.core.policy import CrawlPolicy, Politeness
from streams.simulation.loop import Violation
from streams.simulation.web import Reply, Rules

# A result this old may be refused because its lease has expired: it permits, but it obliges nobody.
SURELY_IN_FLIGHT_MS = bounds.LEASE_START_MS_MAX + 2 * bounds.MINUTE_MS - 2 * bounds.CLOCK_SKEW_MS_MAX
TRANSIT_MS_MAX = bounds.LEASE_START_MS_MAX + 2 * bounds.MINUTE_MS + bounds.CLOCK_SKEW_MS_MAX
DATE_SLACK_MS = bounds.CLOCK_SKEW_MS_MAX + bounds.SECOND_MS  # an HTTP-date has whole seconds, and clocks differ
_TROUBLE = (429, 503)


class Copy(msgspec.Struct, frozen=True):
    """A robots.txt that a host served and an owner took in."""

    rules: Rules
    served_ms: int
    taken_ms: int
    obliges: bool  # else its lease may have expired: an owner that refused it goes by the copy before


class Seen(msgspec.Struct):
    """What is known of one host."""

    open: set[bytes] = msgspec.field(default_factory=set)  # leases whose requests it is answering
    ended_ms: int = 0
    quiet_until_ms: int = 0
    quiet_from_ms: int = 0  # when that was taken in
    copies: list[Copy] = msgspec.field(default_factory=list)
    words: list[tuple[int, HostPolicy]] = msgspec.field(default_factory=list)  # (taken in, word), an operator's
    hopped: bool = False  # its robots.txt lies elsewhere
    tried_ms: int = 0  # the last robots answer of any kind that was taken in
    days: Counter[int] = msgspec.field(default_factory=Counter)  # requests by UTC day
    granted: Counter[int] = msgspec.field(default_factory=Counter)  # durable leases, started or not


class Group(msgspec.Struct):
    """What hosts of one address or of one registrable domain see together."""

    open: set[bytes] = msgspec.field(default_factory=set)
    ended_ms: int = 0


class Asked(msgspec.Struct):
    """One lease on its way."""

    lease: FetchLease
    granted_ms: int  # when it became durable
    decided_ms: int
    started_ms: int = 0
    served_ms: int = 0
    reply: Reply | None = None  # when it came whole
    taken: bool = False
    groups: tuple[str, ...] = ()


class PolitenessJudge:
    """Raises `Violation`."""

    def __init__(self, policy: CrawlPolicy) -> None:
        self._policy = policy
        self._hosts: dict[str, Seen] = {}
        self._asked: dict[bytes, Asked] = {}
        self._answers: dict[str, tuple[Reply, int, bool]] = {}  # URL of a robots.txt → last answer, when, obliges
        self._sent: dict[str, set[str]] = {}  # URL of a robots.txt → hosts whose own was a redirect to it
        self.requests = 0
        self._groups: dict[str, Group] = {}
        self.limits = _limits(policy.politeness)  # by kind of group: (requests at once, delay)

    def host(self, key: str) -> Seen:
        seen = self._hosts.get(key)
        if seen is None:
            seen = self._hosts[key] = Seen()
        return seen

    # --- what is told ----------------------------------------------------------------------------------------------

    def granted(self, lease: FetchLease, decided_ms: int, now_ms: int) -> None:
        if lease.lease_id in self._asked:
            raise Violation("lease id", "a lease id was given twice", lease.host_key)
        self._asked[lease.lease_id] = Asked(lease, now_ms, decided_ms)
        self.host(lease.host_key).granted[decided_ms // bounds.DAY_MS] += 1

    def ordered(self, word: HostPolicy, decided_ms: int) -> None:
        """An operator's word was taken in: it holds for every lease from then on."""
        seen = self.host(word.host_key)
        if all(word.request_id != known.request_id for _, known in seen.words):
            seen.words.append((decided_ms, word))

    def delay_ms(self, seen: Seen, at_ms: int) -> int:
        """Ours, or the operator's."""
        said = [word.delay_ms for from_ms, word in seen.words if from_ms <= at_ms and word.delay_ms is not None]
        return said[-1] if said else self._policy.politeness.delay_ms

    def started(self, lease: FetchLease, address: str, now_ms: int) -> None:
        """A request reaches the host."""
        asked = self._asked.get(lease.lease_id)
        key = lease.host_key
        if asked is None:
            raise Violation("durable lease", f"{lease.url} was asked under a lease that is not durable", key)
        if asked.started_ms:
            raise Violation("at most once", f"{lease.url} was asked twice under one lease", key)
        asked.started_ms = now_ms
        late_ms = now_ms - asked.decided_ms - bounds.LEASE_START_MS_MAX - bounds.CLOCK_SKEW_MS_MAX
        if late_ms > 0:
            raise Violation("start_by", f"{lease.url} was started {late_ms} ms too late", key)
        seen = self.host(key)
        self._words(asked, seen)
        self._pace(asked, seen, now_ms)
        if self.limits:
            self._together(asked, address, now_ms)
        if lease.kind is not Kind.ROBOTS and self._policy.politeness.respect_robots:
            self._robots(asked, seen, lease.url[len(key) :])
        seen.open.add(lease.lease_id)
        self.requests += 1

    def ended(self, lease: FetchLease, now_ms: int, reply: Reply | None) -> None:
        """The host has answered, or the connection was cut (no `reply`)."""
        asked, seen = self._asked[lease.lease_id], self.host(lease.host_key)
        seen.open.discard(lease.lease_id)
        seen.ended_ms = max(seen.ended_ms, now_ms)
        for key in asked.groups:
            self._groups[key].open.discard(lease.lease_id)
            self._groups[key].ended_ms = max(self._groups[key].ended_ms, now_ms)
        asked.reply, asked.served_ms = reply, now_ms
        took_ms = now_ms - asked.started_ms
        if took_ms > lease.duration_ms_max:
            raise Violation("duration", f"{lease.url} took {took_ms} ms", lease.host_key)

    def taken(self, lease_id: bytes, decided_ms: int) -> None:
        """An owner took the result in, in a decision of this instant that became durable."""
        asked = self._asked.get(lease_id)
        if asked is None or asked.taken:
            return
        asked.taken = True
        obliges = decided_ms - asked.granted_ms < SURELY_IN_FLIGHT_MS
        lease, reply = asked.lease, asked.reply
        if lease.kind is Kind.ROBOTS:
            self._robots_taken(asked, reply, decided_ms, obliges)
        if obliges and reply is not None and reply.status in _TROUBLE:
            seen = self.host(lease.host_key)
            until_ms = _quiet_until_ms(reply, asked.served_ms)
            until_ms -= min(bounds.CLOCK_SKEW_MS_MAX, (until_ms - asked.served_ms) // 500)  # two clocks that go right
            if until_ms > seen.quiet_until_ms:
                seen.quiet_until_ms, seen.quiet_from_ms = until_ms, decided_ms

    def _robots_taken(self, asked: Asked, reply: Reply | None, decided_ms: int, obliges: bool) -> None:
        """An answer to robots.txt is one for every host that was sent to its URL, and for those that come later."""
        lease = asked.lease
        waiting: set[str] = set()
        if reply is not None:
            self._answers[lease.url] = (reply, asked.served_ms, obliges)
            waiting |= self._sent.get(lease.url, set())
            if obliges:  # else, as when nothing came, who waits may go on waiting
                self._sent.pop(lease.url, None)
        for key in sorted({lease.robots_for or lease.host_key} | waiting):
            self._robots_for(key, reply, asked.served_ms, decided_ms, obliges)

    def _robots_for(self, key: str, reply: Reply | None, served_ms: int, decided_ms: int, obliges: bool) -> None:
        asker = self.host(key)
        for _ in range(2 * bounds.ROBOTS_HOPS_MAX):
            target = None if reply is None else dict(reply.headers).get(b"Location")
            if target is None:
                asker.tried_ms = decided_ms
                newer = not asker.copies or served_ms >= asker.copies[-1].served_ms
                if reply is not None and reply.rules is not None and newer:
                    asker.copies.append(Copy(reply.rules, served_ms, decided_ms, obliges))
                return
            asker.hopped = True
            self._sent.setdefault(target.decode(), set()).add(key)
            if target.decode() not in self._answers:
                return
            reply, served_ms, kept = self._answers[target.decode()]  # an owner may have kept it
            obliges = obliges and kept

    # --- what must hold as a request begins ------------------------------------------------------------------------

    def _pace(self, asked: Asked, seen: Seen, now_ms: int) -> None:
        lease, politeness = asked.lease, self._policy.politeness
        key = lease.host_key
        copies = _in_force([copy for copy in seen.copies if copy.taken_ms <= asked.decided_ms])
        crawl_delay_ms = min((copy.rules.crawl_delay_ms for copy in copies), default=0)
        if copies and not copies[0].obliges:
            crawl_delay_ms = 0
        tokens = 1 if crawl_delay_ms else politeness.concurrency
        if len(seen.open) >= tokens:
            raise Violation("concurrency", f"{len(seen.open)} requests were open already at {lease.url}", key)
        delay_ms = max(self.delay_ms(seen, asked.decided_ms), crawl_delay_ms)
        delay_ms -= delay_ms // 500 + 2  # what two clocks that go right may differ by
        gap_ms = now_ms - seen.ended_ms
        if tokens == 1 and seen.ended_ms and gap_ms < delay_ms:
            raise Violation("delay", f"{lease.url} came {gap_ms} ms after the last answer, not {delay_ms}", key)
        early_ms = seen.quiet_until_ms - now_ms
        if early_ms > 0 and asked.decided_ms >= seen.quiet_from_ms:
            raise Violation("retry-after", f"{lease.url} came {early_ms} ms before the host would be asked", key)
        day = asked.decided_ms // bounds.DAY_MS
        seen.days[day] += 1
        midnight = bounds.CLOCK_SKEW_MS_MAX // max(1, politeness.delay_ms) + 2  # on which two clocks may not agree
        if seen.days[day] > politeness.budget_per_day + midnight:
            raise Violation("budget", f"{seen.days[day]} requests in a day", key)

    def _words(self, asked: Asked, seen: Seen) -> None:
        """An operator's words that were taken in before the lease was decided."""
        lease, paused = asked.lease, False
        for from_ms, word in seen.words:
            if from_ms > asked.decided_ms:
                break
            paused = paused if word.paused is None else word.paused
            if lease.kind is not Kind.ROBOTS and any(pattern in lease.url for pattern in word.block):
                raise Violation("blocked", f"{lease.url} was asked in spite of {word.block}", lease.host_key)
        if paused:
            raise Violation("paused", f"{lease.url} was asked of a paused host", lease.host_key)

    def _together(self, asked: Asked, address: str, now_ms: int) -> None:
        """What hosts share: an address, a registrable domain (here the last two labels)."""
        lease = asked.lease
        shared = {"address": address, "domain": ".".join(lease.host_key.rsplit(".", 2)[-2:])}
        asked.groups = tuple(f"{kind} {shared[kind]}" for kind in self.limits)
        for kind, key in zip(self.limits, asked.groups, strict=True):
            tokens, delay_ms = self.limits[kind]
            group = self._groups.setdefault(key, Group())
            if len(group.open) >= tokens:
                raise Violation("group", f"{lease.url}: {len(group.open)} requests were open at {key}", lease.host_key)
            gap_ms = now_ms - group.ended_ms
            if tokens == 1 and gap_ms < delay_ms - delay_ms // 500 - 2:
                raise Violation("group", f"{lease.url} came {gap_ms} ms after the last at {key}", lease.host_key)
            group.open.add(lease.lease_id)

    def _robots(self, asked: Asked, seen: Seen, path: str) -> None:
        """One of the copies that may be in force must allow it."""
        copies = [copy for copy in seen.copies if copy.taken_ms <= asked.decided_ms] or seen.copies[:1]
        if not copies:
            raise Violation("robots first", f"{path} was asked before robots.txt", asked.lease.host_key)
        for copy in _in_force(copies):
            against = self._against(asked, seen, path, copy)
            if against is None:
                return
        assert against is not None
        raise against

    @staticmethod
    def _against(asked: Asked, seen: Seen, path: str, in_force: Copy) -> Violation | None:
        """What speaks against asking for the path under that robots.txt."""
        key, granted_ms = asked.lease.host_key, asked.decided_ms
        age_ms = granted_ms - in_force.served_ms
        if age_ms > bounds.ROBOTS_TTL_MS + TRANSIT_MS_MAX:
            return Violation("robots age", f"{path} was asked by a robots.txt {age_ms} ms old", key)
        limit_ms = in_force.rules.max_age_ms
        if limit_ms is not None and seen.tried_ms <= in_force.taken_ms:
            over_ms = granted_ms - in_force.taken_ms - max(limit_ms, bounds.ROBOTS_TTL_MS_MIN)
            if over_ms > 2 * bounds.CLOCK_SKEW_MS_MAX:
                return Violation("robots age", f"{path} was asked {over_ms} ms after robots.txt expired", key)
        if not in_force.rules.allows(path):
            return Violation("robots obeyed", f"{path} is forbidden by {in_force.rules.disallow}", key)
        return None


def _in_force(copies: list[Copy]) -> list[Copy]:
    """Those of the copies, the oldest first, that an owner may go by: the last that obliges, and what came after it."""
    at = max((at for at, copy in enumerate(copies) if copy.obliges), default=0)
    return copies[at:]


def _limits(politeness: Politeness) -> dict[str, tuple[int, int]]:
    limits = {}
    if politeness.address_concurrency or politeness.address_delay_ms:
        limits["address"] = (politeness.address_concurrency or 1, politeness.address_delay_ms or 0)
    if politeness.domain_concurrency or politeness.domain_delay_ms:
        limits["domain"] = (politeness.domain_concurrency or 1, politeness.domain_delay_ms or 0)
    return limits


def _quiet_until_ms(reply: Reply, served_ms: int) -> int:
    """When the host may be asked again by its own word; without one, after the least backoff."""
    for name, value in reply.headers:
        if name == b"Retry-After":
            text = value.decode()
            if text.isdigit():
                return served_ms + min(int(text) * 1_000, bounds.RETRY_AFTER_MS_MAX)
            date_ms = int(parsedate_to_datetime(text).timestamp() * 1_000)
            return min(date_ms, served_ms + bounds.RETRY_AFTER_MS_MAX) - DATE_SLACK_MS
    return served_ms + bounds.BACKOFF_BASE_MS
