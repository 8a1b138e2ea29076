"""The instants at which hosts are looked at for expired leases, against a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.core.expiries import Expiries
from streams.core.hosts import NEVER_MS

_HOSTS = st.integers(0, 5).map(lambda number: bytes([number]))
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("watch"), _HOSTS, st.integers(1, 40)),
        st.tuples(st.just("forget"), _HOSTS, st.just(0)),
        st.tuples(st.just("pop"), st.just(b""), st.integers(0, 15)),
    ),
    max_size=60,
)


@given(_STEPS)
def test_it_is_a_dictionary_of_the_earliest_instants(steps: list[tuple[str, bytes, int]]) -> None:
    """Protects leases without a result: each host comes up at the first instant said for it, once, unless forgotten."""
    expiries, plain, now_ms = Expiries(), dict[bytes, int](), 0
    for what, host, number in steps:
        if what == "watch":
            expiries.watch(host, now_ms + number)
            plain[host] = min(plain.get(host, NEVER_MS), now_ms + number)
        elif what == "forget":
            expiries.forget(host)
            plain.pop(host, None)
        else:
            now_ms += number
            due = expiries.pop(now_ms)
            assert sorted(due) == sorted(name for name, instant in plain.items() if instant <= now_ms)
            assert [plain[name] for name in due] == sorted(plain[name] for name in due)
            plain = {name: instant for name, instant in plain.items() if instant > now_ms}
        assert len(expiries) == len(plain)
        assert expiries.next_ms() == min(plain.values(), default=NEVER_MS)


def test_instants_that_came_to_nothing_are_not_kept() -> None:
    """Protects memory from the number of leases: each is closed at an instant of its own, before it expires."""
    expiries = Expiries()
    expiries.watch(b"waits for ever", 1)
    for instant_ms in range(2, 50_000):
        expiries.watch(b"host", instant_ms)
        expiries.forget(b"host")
    assert len(expiries._instants) < 2_000
