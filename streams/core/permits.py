"""Limits that hosts share: one group for all hosts of an IP address, one for all of a registrable domain.

Theory of operation. A group (`addr:192.0.2.1`, `domain:example.org`) has one owner, found by its key as a host's is.
The group's owner hands out *permits*: leave for one request of one host, with a date. The host's owner asks for one
(PERMIT_ASKED), grants a lease under it that ends before the permit does, and gives it back with the result
(PERMIT_RETURNED). Askings are numbered by their host, rising: a permit belongs to one number, and a higher number says
that all before it are over. So a message may come late, twice or never, and nothing is granted twice: what is lost
heals by the next asking or by the date.

A permit of a host, at the group's owner (this file holds all that can change it):

| permit    | event                         | becomes   | the group                                              |
|-----------|-------------------------------|-----------|--------------------------------------------------------|
| none      | asked n                       | waiting n | last in the line                                       |
| waiting n | asked, any number             | waiting   | its place in the line stays; the higher number counts  |
| waiting n | first, room, delay over       | granted n | outstanding + 1, next grant ≥ now + delay              |
| waiting n | not asked again for long      | none      | whoever asked is gone                                  |
| granted n | asked n                       | granted n | the grant is told again, its date unchanged            |
| granted n | asked m > n                   | waiting m | n is over: outstanding - 1, next grant ≥ now + delay   |
| granted n | returned n                    | none      | outstanding - 1, next grant ≥ now + delay              |
| granted n | its date and the skew passed  | none      | outstanding - 1, next grant ≥ now + delay              |
| any other | anything                      | unchanged | a late or repeated message changes nothing             |

The invariant: outstanding ≤ limit. A host holds a permit only until its date by the host's clock; the group's owner
counts it for the largest clock skew longer, so by no host's view are there ever more. The line is first come, first
served, and who asks again keeps the place: nobody starves. What is granted is durable; the line is not, since whoever
waits asks again.

The host's side: `asked` until the grant of that number comes; `held` until it is used or its date is too near; `used`
by one lease until its token is back.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from typing import NamedTuple

import msgspec

from streams.core import policy as bounds

NEVER_MS = 1 << 62


class Limit(NamedTuple):
    """What a group may bear."""

    concurrency: int
    delay_ms: int  # from a permit's return to the next grant


class Granted(msgspec.Struct, array_like=True):
    """One permit that is out, by the group's owner."""

    number: int
    until_ms: int  # by the host's clock; the group counts it for the clock skew longer


class GroupState(msgspec.Struct, array_like=True):
    """What is durable of a group."""

    next_allowed_ms: int = 0
    granted: dict[str, Granted] = msgspec.field(default_factory=dict)  # by host_key


class Grant(NamedTuple):
    """To be told to the host."""

    host_key: str
    number: int
    until_ms: int


encode_group = msgspec.msgpack.Encoder().encode
decode_group = msgspec.msgpack.Decoder(GroupState).decode


class Group:
    """One group, at its owner. Every method says by its grants what the hosts are to be told."""

    __slots__ = ("_limit", "_line", "_permit_ms", "dirty", "state")

    def __init__(self, limit: Limit, permit_ms: int, state: GroupState | None = None) -> None:
        """`permit_ms`: how long a permit lasts. It must hold a lease from its grant to its expiry, and some more."""
        assert limit.concurrency >= 1
        self._limit = limit
        self._permit_ms = permit_ms
        self._line: OrderedDict[str, tuple[int, int]] = OrderedDict()  # host_key → (number, last asked)
        self.state = state or GroupState()
        self.dirty = False  # changed since it was last written

    def asked(self, host_key: str, number: int, now_ms: int) -> list[Grant]:
        """PERMIT_ASKED."""
        granted = self.state.granted.get(host_key)
        if granted is not None:
            if number == granted.number and now_ms < granted.until_ms:
                return [Grant(host_key, number, granted.until_ms)]
            if number <= granted.number:
                return []
            self._over(host_key, now_ms)
        waiting = self._line.get(host_key)
        if waiting is not None or len(self._line) < bounds.PERMIT_QUEUE_MAX:
            self._line[host_key] = (number if waiting is None else max(number, waiting[0]), now_ms)
        return self.advance(now_ms)

    def returned(self, host_key: str, number: int, now_ms: int) -> list[Grant]:
        """PERMIT_RETURNED. A host that waits under that number or a lower one has no use for a permit any more."""
        granted = self.state.granted.get(host_key)
        if granted is not None and granted.number <= number:
            self._over(host_key, now_ms)
        waiting = self._line.get(host_key)
        if waiting is not None and waiting[0] <= number:
            del self._line[host_key]
        return self.advance(now_ms)

    def advance(self, now_ms: int) -> list[Grant]:
        """Time has passed: permits end by their date, and those who wait get theirs."""
        state = self.state
        for host_key in [key for key, permit in state.granted.items() if now_ms >= _counted_until_ms(permit)]:
            self._over(host_key, now_ms)
        grants: list[Grant] = []
        while self._line and len(state.granted) < self._limit.concurrency and now_ms >= state.next_allowed_ms:
            host_key, (number, asked_ms) = self._line.popitem(last=False)
            if now_ms - asked_ms > 3 * bounds.PERMIT_ASK_MS:
                continue
            until_ms = now_ms + self._permit_ms
            state.granted[host_key] = Granted(number, until_ms)
            state.next_allowed_ms = now_ms + self._limit.delay_ms
            self.dirty = True
            grants.append(Grant(host_key, number, until_ms))
        assert len(state.granted) <= self._limit.concurrency or not grants
        return grants

    def next_ms(self) -> int:
        """When `advance` may have something to do."""
        state = self.state
        expiry_ms = min((_counted_until_ms(permit) for permit in state.granted.values()), default=NEVER_MS)
        if self._line and len(state.granted) < self._limit.concurrency:
            return min(expiry_ms, state.next_allowed_ms)
        return expiry_ms

    def idle(self, now_ms: int) -> bool:
        """Whether nothing is known of it that a new group would not have."""
        return not self._line and not self.state.granted and now_ms >= self.state.next_allowed_ms

    def waiting(self) -> int:
        """How long the line is."""
        return len(self._line)

    def _over(self, host_key: str, now_ms: int) -> None:
        del self.state.granted[host_key]
        self.state.next_allowed_ms = max(self.state.next_allowed_ms, now_ms + self._limit.delay_ms)
        self.dirty = True


class Phase(enum.IntEnum):
    """Where a host stands with one group."""

    ASKED = 0
    HELD = 1
    USED = 2


class Permit(msgspec.Struct, array_like=True):
    """One group's permit, at the host that asked for it."""

    number: int
    phase: Phase
    since_ms: int  # ASKED: when it was last asked for
    until_ms: int = 0  # HELD, USED
    lease_id: bytes = b""  # USED


class HostPermits(msgspec.Struct, array_like=True):
    """What is durable of a host that is in groups. It holds one permit of a group at a time, so one lease at a time."""

    host_key: str
    number: int = 0  # of the last asking
    address: str = ""
    address_until_ms: int = 0  # how long it is taken to be there
    permits: dict[str, Permit] = msgspec.field(default_factory=dict)  # by group


encode_host_permits = msgspec.msgpack.Encoder().encode
decode_host_permits = msgspec.msgpack.Decoder(HostPermits).decode


def next_number(host: HostPermits, now_ms: int) -> int:
    """Of an asking: above all of this host's before, also above those that were forgotten with a crash."""
    host.number = max(host.number + 1, now_ms)
    return host.number


def granted(host: HostPermits, group: str, number: int, until_ms: int) -> bool:
    """asked → held. False: it is not the permit that was last asked for, and changes nothing."""
    permit = host.permits.get(group)
    if permit is None or permit.phase is not Phase.ASKED or permit.number != number:
        return False
    permit.phase, permit.until_ms = Phase.HELD, until_ms
    return True


def missing(host: HostPermits, groups: tuple[str, ...], now_ms: int, lease_ms: int) -> str | None:
    """The first group whose permit a lease of `lease_ms` from now on still needs; None when all are held.

    Groups stand in one order for all hosts, and are asked for one after the other: no two hosts can each hold what the
    other waits for.
    """
    for group in groups:
        permit = host.permits.get(group)
        if permit is None or permit.phase is not Phase.HELD or permit.until_ms < now_ms + lease_ms:
            return group
    return None


def use(host: HostPermits, groups: tuple[str, ...], lease_id: bytes) -> None:
    """held → used, for all of a lease's groups at once."""
    for group in groups:
        permit = host.permits[group]
        assert permit.phase is Phase.HELD, (host.host_key, group, permit.phase)
        permit.phase, permit.lease_id = Phase.USED, lease_id


def _counted_until_ms(permit: Granted) -> int:
    return permit.until_ms + bounds.CLOCK_SKEW_MS_MAX
