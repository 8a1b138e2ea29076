"""Hosts that share an address or a registrable domain: what the owner keeps of their permits.

It plays both sides of `streams.core.permits`: the group's owner for the groups of this partition, and the asker for
its hosts. The frontier looks at a host through `open_ms`, and grants only after `admit` said so. With no limit set
there is no `Sharing` at all.

A host's address is known from its results, for a time. Where none is known and addresses are limited, a lease permits
no address: the fetcher looks the name up, says which address it would have asked, and asks nothing. So the limit holds
from the first request on.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Protocol

from schemas.records import FetchResult, Outcome, OwnerMessage, OwnerMessageKind
from streams.core import policy as bounds
from streams.core.permits import (
    NEVER_MS,
    Grant,
    Group,
    HostPermits,
    Limit,
    Permit,
    Phase,
    decode_group,
    decode_host_permits,
    encode_group,
    encode_host_permits,
    granted,
    missing,
    next_number,
    use,
)
from streams.core.policy import CrawlPolicy, Politeness
from streams.core.rules.addresses import literal_address
from streams.core.rules.urls import host_name, registrable_domain
from streams.core.turn import Family, HostSlot, Reads, Turn

PERMIT_MESSAGES = frozenset(
    {OwnerMessageKind.PERMIT_ASKED, OwnerMessageKind.PERMIT_GRANTED, OwnerMessageKind.PERMIT_RETURNED}
)
ADDRESS, DOMAIN = "addr:", "domain:"
GROUP_KEY, HOST_KEY = b"g", b"h"  # of Family.GROUP: group → GroupState, host_id → HostPermits


class Readiness(Protocol):
    """Of the frontier: (when a host may be granted a lease if groups are left aside, rank)."""

    def ready(self, slot: HostSlot, now_ms: int) -> tuple[int, int]: ...


def sharing_of(reads: Reads, policy: CrawlPolicy, *, clock_skew_ms: int = 0) -> Sharing | None:
    """None when the policy limits neither addresses nor domains. `clock_skew_ms`: see `streams.core.owner.Owner`."""
    sharing = Sharing(reads, policy, clock_skew_ms=clock_skew_ms)
    return sharing if sharing.address_limit or sharing.domain_limit else None


class Sharing:
    """The groups whose owner this is, and the hosts that are in groups."""

    def __init__(self, reads: Reads, policy: CrawlPolicy, *, clock_skew_ms: int = 0) -> None:
        self._clock_skew_ms = clock_skew_ms
        politeness = policy.politeness
        self.address_limit = _limit(politeness.address_concurrency, politeness.address_delay_ms)
        self.domain_limit = _limit(politeness.domain_concurrency, politeness.domain_delay_ms)
        # A lease under a permit, from its grant to its expiry.
        self._lease_ms = bounds.LEASE_START_MS_MAX + policy.duration_ms_max + bounds.CLOCK_SKEW_MS_MAX
        self._permit_ms = self._lease_ms + bounds.PERMIT_USE_MS
        self._reads = reads
        self._groups: dict[str, Group] = {}
        self._hosts: dict[bytes, HostPermits] = {}
        # Dictionaries, in the order of what happened: a set's order differs from process to process, and with it that
        # of messages. A replay must not.
        self._dirty: dict[bytes, None] = {}  # host_ids
        self._dirty_groups: dict[str, None] = {}
        self._idle_holders: dict[bytes, None] = {}  # host_ids that hold a permit and have not used it yet
        self._timers: list[tuple[int, str]] = []
        self._timer_at: dict[str, int] = {}

    # --- the frontier's side --------------------------------------------------------------------------------------

    def open_ms(self, slot: HostSlot, opened_ms: int, now_ms: int) -> int:
        """When the host may be looked at for a grant, which without groups would be at `opened_ms`."""
        host = self._host(slot)
        if any(permit.phase is Phase.USED for permit in host.permits.values()):
            return NEVER_MS
        at_ms = max(opened_ms, now_ms)
        group = missing(host, self._groups_of(host, at_ms), at_ms, self._lease_ms)
        permit = None if group is None else host.permits.get(group)
        if permit is not None and permit.phase is Phase.ASKED:
            return max(opened_ms, permit.since_ms + bounds.PERMIT_ASK_MS)
        return opened_ms

    def admit(self, turn: Turn, slot: HostSlot) -> bool:
        """Whether a lease may be granted now. If not, what it needs is asked for."""
        host, now_ms = self._host(slot), turn.now_ms
        if any(permit.phase is Phase.USED for permit in host.permits.values()):
            return False
        group = missing(host, self._groups_of(host, now_ms), now_ms, self._lease_ms)
        if group is None:
            return True
        permit = host.permits.get(group)
        repeated = permit is not None and permit.phase is Phase.ASKED
        number = permit.number if repeated and permit is not None else next_number(host, now_ms)
        host.permits[group] = Permit(number, Phase.ASKED, now_ms)
        self._dirty[slot.host_id] = None
        turn.messages.append(
            OwnerMessage(to_key=group, from_key=host.host_key, kind=OwnerMessageKind.PERMIT_ASKED, number=number)
        )
        return False

    def use(self, slot: HostSlot, lease_id: bytes, now_ms: int) -> str | None:
        """A lease is granted after `admit` said yes. The address it may ask: see `FetchLease.permitted_address`."""
        host = self._host(slot)
        groups = self._groups_of(host, now_ms)
        use(host, groups, lease_id)
        self._idle_holders.pop(slot.host_id, None)
        self._dirty[slot.host_id] = None
        return None if self.address_limit is None else self._address(host, now_ms)

    # --- the owner's side -----------------------------------------------------------------------------------------

    def learn(self, turn: Turn, slot: HostSlot, result: FetchResult) -> None:
        """A result says where the host is. Permits of where it was before are given back."""
        if not result.address or result.outcome is Outcome.REFUSED or self.address_limit is None:
            return
        host = self._host(slot)
        host.address, host.address_until_ms = result.address, turn.now_ms + bounds.ADDRESS_TTL_MS
        self._dirty[slot.host_id] = None
        for group, permit in list(host.permits.items()):
            if group.startswith(ADDRESS) and group != ADDRESS + result.address and permit.phase is not Phase.USED:
                self._give_back(turn, host, group)

    def settle(self, turn: Turn, slots: Iterable[HostSlot]) -> None:
        """The turn ends: permits whose lease gave its token back are returned, and those that are due are granted."""
        for slot in slots:
            host = self._host(slot)
            for group, permit in list(host.permits.items()):
                lease = slot.state.in_flight.get(permit.lease_id) if permit.phase is Phase.USED else None
                if permit.phase is Phase.USED and (lease is None or lease.storing):
                    self._give_back(turn, host, group)
                    self._dirty[slot.host_id] = None
                    turn.touch(slot)  # it may ask for the next one
        self._advance(turn)

    def release_unused(self, turn: Turn, slot_of: Callable[[bytes], HostSlot], frontier: Readiness) -> None:
        """Permits of hosts that have nothing to be asked for now are returned."""
        for host_id_ in list(self._idle_holders):
            slot = slot_of(host_id_)
            if frontier.ready(slot, turn.now_ms)[0] <= turn.now_ms:
                continue
            self._idle_holders.pop(host_id_, None)
            host = self._host(slot)
            for group, permit in list(host.permits.items()):
                if permit.phase is Phase.HELD:
                    self._give_back(turn, host, group)
                    self._dirty[host_id_] = None

    def message(self, turn: Turn, message: OwnerMessage, named: Callable[[str], HostSlot]) -> None:
        """PERMIT_*; `named` gives the slot of a host."""
        kind, now_ms = message.kind, turn.now_ms
        if kind is OwnerMessageKind.PERMIT_GRANTED:
            slot = named(message.to_key)
            host = self._host(slot)
            if granted(host, message.from_key, message.number, message.until_ms or 0):
                self._idle_holders[slot.host_id] = None
                self._dirty[slot.host_id] = None
                turn.touch(slot)
            elif all(permit.number != message.number for permit in host.permits.values()):
                turn.messages.append(_returned(message.from_key, host.host_key, message.number))
            return
        group = self._group(message.to_key)
        if group is None:
            return
        if kind is OwnerMessageKind.PERMIT_ASKED:
            grants = group.asked(message.from_key, message.number, now_ms)
        else:
            grants = group.returned(message.from_key, message.number, now_ms)
        self._tell(turn, message.to_key, group, grants)

    def _advance(self, turn: Turn) -> None:
        """Whoever waits for a group gets the permit whose time has come."""
        while self._timers and self._timers[0][0] <= turn.now_ms:
            at_ms, key = heapq.heappop(self._timers)
            if self._timer_at.get(key) != at_ms:
                continue
            del self._timer_at[key]
            group = self._group(key)
            if group is not None:
                self._tell(turn, key, group, group.advance(turn.now_ms))

    def next_ms(self) -> int:
        """When a permit may be granted to somebody who waits."""
        return self._timers[0][0] if self._timers else NEVER_MS

    def record(self, turn: Turn) -> None:
        """What this turn changed becomes durable with it."""
        for host_id_ in self._dirty:
            turn.writes.append((Family.GROUP, HOST_KEY + host_id_, encode_host_permits(self._hosts[host_id_])))
        for key in self._dirty_groups:
            group = self._groups[key]
            state = None if group.idle(turn.now_ms) else encode_group(group.state)
            group.dirty = False
            turn.writes.append((Family.GROUP, GROUP_KEY + key.encode(), state))
        self._dirty.clear()
        self._dirty_groups.clear()

    def drop_resting(self, slots_max: int = bounds.ACTIVE_HOSTS_MAX) -> None:
        """Called between turns: forget what is durable and at rest, down to the bound."""
        if len(self._hosts) > slots_max:
            for host_id_ in [key for key, host in self._hosts.items() if not host.permits]:
                del self._hosts[host_id_]
        if len(self._groups) > slots_max:
            for group in [key for key, group in self._groups.items() if not group.waiting()]:
                del self._groups[group]

    # --- below ----------------------------------------------------------------------------------------------------

    def _host(self, slot: HostSlot) -> HostPermits:
        host = self._hosts.get(slot.host_id)
        if host is None:
            raw = self._reads.get(Family.GROUP, HOST_KEY + slot.host_id)
            host = HostPermits(slot.state.host_key) if raw is None else decode_host_permits(raw)
            for group in [group for group, permit in host.permits.items() if permit.phase is Phase.ASKED]:
                del host.permits[group]  # whoever was asked may have forgotten it; a new asking ends the old one
            if any(permit.phase is Phase.HELD for permit in host.permits.values()):
                self._idle_holders[slot.host_id] = None
            self._hosts[slot.host_id] = host
        return host

    def _groups_of(self, host: HostPermits, now_ms: int) -> tuple[str, ...]:
        """In the order in which permits are asked for. None at all for a lease that only finds the address."""
        groups: tuple[str, ...] = ()
        if self.address_limit is not None:
            address = self._address(host, now_ms)
            if not address:
                return ()
            groups = (ADDRESS + address,)
        if self.domain_limit is not None:
            name = host_name(host.host_key)
            if literal_address(name) is None:
                groups = (*groups, DOMAIN + registrable_domain(name))
        return groups

    @staticmethod
    def _address(host: HostPermits, now_ms: int) -> str:
        """Where the host is; "" when that is not known, or was found out too long ago."""
        literal = literal_address(host_name(host.host_key))
        if literal is not None:
            return literal
        return host.address if now_ms < host.address_until_ms else ""

    def _group(self, key: str) -> Group | None:
        """None for a key that no limit is set for."""
        group = self._groups.get(key)
        if group is None:
            limit = self.address_limit if key.startswith(ADDRESS) else self.domain_limit
            if limit is None:
                return None
            raw = self._reads.get(Family.GROUP, GROUP_KEY + key.encode())
            state = None if raw is None else decode_group(raw)
            if state is not None:
                state.next_allowed_ms += self._clock_skew_ms  # set by an owner whose clock may have been behind ours
            group = Group(limit, self._permit_ms, state)
            self._groups[key] = group
        return group

    def _tell(self, turn: Turn, key: str, group: Group, grants: list[Grant]) -> None:
        for grant in grants:
            turn.messages.append(
                OwnerMessage(
                    to_key=grant.host_key,
                    from_key=key,
                    kind=OwnerMessageKind.PERMIT_GRANTED,
                    until_ms=grant.until_ms,
                    number=grant.number,
                )
            )
        if group.dirty:
            self._dirty_groups[key] = None
        at_ms = group.next_ms() if group.waiting() else NEVER_MS
        if at_ms < NEVER_MS and self._timer_at.get(key) != at_ms:
            self._timer_at[key] = at_ms
            heapq.heappush(self._timers, (at_ms, key))

    def _give_back(self, turn: Turn, host: HostPermits, group: str) -> None:
        permit = host.permits.pop(group)
        turn.messages.append(_returned(group, host.host_key, permit.number))


def _returned(group: str, host_key: str, number: int) -> OwnerMessage:
    return OwnerMessage(to_key=group, from_key=host_key, kind=OwnerMessageKind.PERMIT_RETURNED, number=number)


def _limit(concurrency: int | None, delay_ms: int | None) -> Limit | None:
    return None if concurrency is None and delay_ms is None else Limit(concurrency or 1, delay_ms or 0)


def describe(politeness: Politeness) -> list[str]:
    """The limits that are set, in words."""
    said = []
    for what, concurrency, delay_ms in (
        ("IP address", politeness.address_concurrency, politeness.address_delay_ms),
        ("registrable domain", politeness.domain_concurrency, politeness.domain_delay_ms),
    ):
        limit = _limit(concurrency, delay_ms)
        if limit is not None:
            said.append(f"{limit.concurrency} at once and {limit.delay_ms} ms between for all hosts of one {what}")
    return said
