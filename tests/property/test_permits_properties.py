"""A group and its hosts: a network that loses, repeats and reorders, clocks that differ, owners that die."""

from __future__ import annotations

import itertools
import random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from streams.core import permits
from streams.core import policy as bounds
from streams.core.permits import Group, HostPermits, Limit, Permit, Phase, decode_group, encode_group

LEASE_MS = 20_000
PERMIT_MS = LEASE_MS + bounds.PERMIT_USE_MS
GROUP = "addr:192.0.2.1"
STEP_MS = 500
START_MS = 1_700_000_000_000
DELAY_MS = 1_000
TRAVEL_MS_MAX = 5_000 + STEP_MS  # of a message that is not lost, until it is looked at
# However its messages fare, a permit is over by its date and the skew: then the next in the line gets one.
PERMIT_TAKES_MS_MAX = PERMIT_MS + bounds.CLOCK_SKEW_MS_MAX + DELAY_MS + STEP_MS
Message = tuple[str, str, int, int]
"""(kind, host, number, until)."""


def wait_ms_max(hosts_count: int, losses: int) -> int:
    """How long a host may wait for its request when so many of its askings and grants were lost, and lines with it.

    One round: asked, all others before it, granted. A loss is noticed when PERMIT_ASK_MS have passed without a grant;
    the grant that is told then may have too little time left, and so the host asks anew, from the end of the line.
    """
    return (1 + losses) * (hosts_count * PERMIT_TAKES_MS_MAX + 4 * TRAVEL_MS_MAX + bounds.PERMIT_ASK_MS)


class Host:
    """Wants a request now and then; asks, uses, returns. Its clock is off by a part of the allowed skew."""

    def __init__(self, key: str, skew_ms: int) -> None:
        self.state, self.skew_ms = HostPermits(key), skew_ms
        self.busy_until_ms: int | None = None
        self.requests: list[tuple[int, int]] = []  # (start, end), true time
        self.wants_since_ms: int | None = START_MS
        self.losses = 0  # since then
        self.waits: list[tuple[int, int]] = []  # (how long, losses meanwhile)

    def step(self, true_ms: int, dice: random.Random) -> list[Message]:
        now_ms, key = true_ms + self.skew_ms, self.state.host_key
        permit = self.state.permits.get(GROUP)
        if self.busy_until_ms is not None:
            if true_ms < self.busy_until_ms:
                return []
            assert permit is not None
            del self.state.permits[GROUP]
            self.busy_until_ms, self.wants_since_ms, self.losses = None, true_ms, 0
            return [("returned", key, permit.number, 0)]
        if permits.missing(self.state, (GROUP,), now_ms, LEASE_MS) is None:
            permits.use(self.state, (GROUP,), b"lease")
            # However long it takes, it ends before its lease's expiry.
            self.busy_until_ms = true_ms + dice.randrange(STEP_MS, LEASE_MS - bounds.CLOCK_SKEW_MS_MAX)
            self.requests.append((true_ms, self.busy_until_ms))
            assert self.wants_since_ms is not None
            self.waits.append((true_ms - self.wants_since_ms, self.losses))
            self.wants_since_ms = None
            return []
        if permit is not None and permit.phase is Phase.ASKED:
            if now_ms < permit.since_ms + bounds.PERMIT_ASK_MS:
                return []
            number = permit.number
        else:
            number = permits.next_number(self.state, now_ms)
        self.state.permits[GROUP] = Permit(number, Phase.ASKED, now_ms)
        return [("asked", key, number, 0)]


def deliver(group: Group, hosts: dict[str, Host], message: Message, true_ms: int) -> list[Message]:
    kind, key, number, until_ms = message
    if kind == "granted":
        host = hosts[key]
        if not permits.granted(host.state, GROUP, number, until_ms):
            held = host.state.permits.get(GROUP)
            return [] if held is not None and held.number == number else [("returned", key, number, 0)]
        return []
    grants = (group.asked if kind == "asked" else group.returned)(key, number, true_ms)
    return [("granted", *grant) for grant in grants]


@settings(max_examples=25, deadline=None)
@example(seed=1284, hosts_count=4, concurrency=1, loss=0.3)  # a host waits 511 s, for 14 losses
@example(seed=182, hosts_count=3, concurrency=1, loss=0.0)  # were the last asker served first, one would wait for 509 s
@example(
    seed=51, hosts_count=4, concurrency=1, loss=0.1
)  # would permits not end by their date, one would wait for ever
@given(
    seed=st.integers(0, 2**32),
    hosts_count=st.integers(1, 4),
    concurrency=st.integers(1, 3),
    loss=st.sampled_from([0.0, 0.1, 0.3]),
)
def test_the_limit_holds_and_nobody_starves(seed: int, hosts_count: int, concurrency: int, loss: float) -> None:
    """By true time never more requests than the limit; whoever wants one gets it, later by a round for each loss."""
    dice = random.Random(seed)
    limit = Limit(concurrency, DELAY_MS)
    group = Group(limit, PERMIT_MS)
    skew_max = bounds.CLOCK_SKEW_MS_MAX // 2
    hosts = {f"h{at}": Host(f"h{at}", dice.randint(-skew_max, skew_max)) for at in range(hosts_count)}
    wire: list[tuple[int, Message]] = []
    for step in range(1_500):
        true_ms = START_MS + step * STEP_MS
        said = [message for host in hosts.values() for message in host.step(true_ms, dice)]
        due = [message for at, message in wire if at <= true_ms]
        wire = [(at, message) for at, message in wire if at > true_ms]
        dice.shuffle(due)
        for message in due:
            said += deliver(group, hosts, message, true_ms)
        said += [("granted", *grant) for grant in group.advance(true_ms)]
        for message in said:
            copies = 0 if dice.random() < loss else 1 + (dice.random() < loss)
            hosts[message[1]].losses += not copies and message[0] != "returned"
            for _ in range(copies):
                wire.append((true_ms + dice.choice([0, 0, STEP_MS, 5_000]), message))
        if dice.random() < 0.004:  # the group's owner dies: the line is lost, what was granted is not
            group = Group(limit, PERMIT_MS, decode_group(encode_group(group.state)))
            for host in hosts.values():
                host.losses += 1
    requests = [one for host in hosts.values() for one in host.requests]
    for start_ms, _ in requests:
        assert sum(begin <= start_ms < end for begin, end in requests) <= concurrency
    for host in hosts.values():
        if host.wants_since_ms is not None:
            host.waits.append((true_ms - host.wants_since_ms, host.losses))
        assert all(waited_ms <= wait_ms_max(hosts_count, losses) for waited_ms, losses in host.waits), host.waits


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_without_losses_the_delay_is_kept(seed: int) -> None:
    """From the end of a host's request to the next one's start lies the group's delay, and the line moves in turn."""
    dice = random.Random(seed)
    limit = Limit(1, 2_000)
    group = Group(limit, PERMIT_MS)
    hosts = {f"h{at}": Host(f"h{at}", 0) for at in range(4)}
    for step in range(1_000):
        true_ms = START_MS + step * STEP_MS
        said = [message for host in hosts.values() for message in host.step(true_ms, dice)]
        said += [("granted", *grant) for grant in group.advance(true_ms)]
        while said:
            said = [answer for message in said for answer in deliver(group, hosts, message, true_ms)]
    requests = sorted(one for host in hosts.values() for one in host.requests)
    assert all(later[0] - earlier[1] >= 2_000 for earlier, later in itertools.pairwise(requests))
    counts = [len(host.requests) for host in hosts.values()]
    assert max(counts) - min(counts) <= 1
