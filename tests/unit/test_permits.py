"""The group's owner, row by row of its table, and the host's side."""

from __future__ import annotations

from streams.core import permits
from streams.core import policy as bounds
from streams.core.permits import Grant, Group, HostPermits, Limit, Permit, Phase

NOW = 1_700_000_000_000
LASTS = 200_000
ONE = Limit(1, 1_000)
A, B, C = "http://a.test", "http://b.test", "http://c.test"


def group(limit: Limit = ONE) -> Group:
    return Group(limit, LASTS)


def test_asked_and_granted_at_once() -> None:
    """none → waiting → granted while there is room; the grant is the first of its group."""
    one = group()
    assert one.asked(A, 1, NOW) == [Grant(A, 1, NOW + LASTS)]
    assert one.dirty


def test_who_comes_later_waits_in_order() -> None:
    """The line is first come, first served, and each grant waits the delay after the return before it."""
    one = group()
    one.asked(A, 1, NOW)
    assert one.asked(B, 1, NOW + 1) == []
    assert one.asked(C, 1, NOW + 2) == []
    assert one.returned(A, 1, NOW + 500) == []
    assert one.next_ms() == NOW + 1_500
    assert one.advance(NOW + 1_499) == []
    assert one.advance(NOW + 1_500) == [Grant(B, 1, NOW + 1_500 + LASTS)]
    assert one.returned(B, 1, NOW + 9_000) == []
    assert one.advance(NOW + 10_000) == [Grant(C, 1, NOW + 10_000 + LASTS)]


def test_who_asks_again_keeps_the_place() -> None:
    """An asker that repeats itself must not fall behind those who came later."""
    one = group()
    one.asked(A, 1, NOW)
    one.asked(B, 1, NOW)
    one.asked(C, 1, NOW)
    one.asked(B, 2, NOW + 10)
    one.returned(A, 1, NOW)
    assert one.advance(NOW + 1_000) == [Grant(B, 2, NOW + 1_000 + LASTS)]


def test_a_grant_that_was_lost_is_told_again_with_its_date() -> None:
    """Asked again under the same number, the same permit is named: there are never two of one host."""
    one = group(Limit(2, 0))
    (first,) = one.asked(A, 1, NOW)
    assert one.asked(A, 1, NOW + 30_000) == [first]
    assert one.asked(A, 1, first.until_ms) == []
    assert len(one.state.granted) == 1


def test_a_higher_number_ends_the_permit_before_it() -> None:
    """A return that was lost is made up by the next asking, and the delay is kept all the same."""
    one = group()
    one.asked(A, 1, NOW)
    assert one.asked(A, 2, NOW + 5_000) == []
    assert one.advance(NOW + 5_999) == []
    assert one.advance(NOW + 6_000) == [Grant(A, 2, NOW + 6_000 + LASTS)]


def test_late_and_repeated_messages_change_nothing() -> None:
    """An old asking or an old return is about a permit that is over."""
    one = group()
    one.asked(A, 5, NOW)
    assert one.asked(A, 4, NOW + 1) == []
    assert one.returned(A, 4, NOW + 1) == []
    assert one.state.granted[A].number == 5
    one.returned(A, 5, NOW + 2)
    before = one.state.next_allowed_ms
    assert one.returned(A, 5, NOW + 900) == []
    assert one.state.next_allowed_ms == before


def test_a_permit_ends_by_its_date_and_the_skew() -> None:
    """A host that died gives its permit back by the calendar, counted for the largest clock skew longer."""
    one = group()
    (grant,) = one.asked(A, 1, NOW)
    for at in range(1, 5):
        one.asked(B, 1, NOW + at * 50_000)
    over_ms = grant.until_ms + bounds.CLOCK_SKEW_MS_MAX
    assert one.advance(over_ms - 1) == []
    assert one.advance(over_ms) == []
    assert one.advance(over_ms + 1_000) == [Grant(B, 1, over_ms + 1_000 + LASTS)]


def test_who_stopped_asking_is_passed_over() -> None:
    """An asker that is gone must not hold a permit for minutes while others wait."""
    one = group()
    one.asked(A, 1, NOW)
    one.asked(B, 1, NOW)
    later_ms = NOW + 4 * bounds.PERMIT_ASK_MS
    one.asked(C, 1, later_ms)
    one.returned(A, 1, later_ms)
    assert [grant.host_key for grant in one.advance(later_ms + 1_000)] == [C]


def test_a_host_that_wants_no_permit_any_more_leaves_the_line() -> None:
    """A return also takes back an asking."""
    one = group()
    one.asked(A, 1, NOW)
    one.asked(B, 3, NOW)
    one.returned(B, 3, NOW)
    one.returned(A, 1, NOW)
    assert one.advance(NOW + 5_000) == []
    assert one.idle(NOW + 5_000)


def test_the_hosts_side() -> None:
    """asked → held → used; a grant of another number changes nothing, and a date that is too near is not held."""
    host = HostPermits(A)
    number = permits.next_number(host, NOW)
    assert number >= NOW
    assert permits.next_number(host, NOW) > number
    host.permits["addr:1"] = Permit(number, Phase.ASKED, NOW)
    assert permits.missing(host, ("addr:1",), NOW, 100) == "addr:1"
    assert not permits.granted(host, "addr:1", number + 7, NOW + 1_000)
    assert permits.granted(host, "addr:1", number, NOW + 1_000)
    assert permits.missing(host, ("addr:1",), NOW, 1_000) is None
    assert permits.missing(host, ("addr:1",), NOW + 1, 1_000) == "addr:1"
    assert permits.missing(host, ("addr:1", "domain:x"), NOW, 100) == "domain:x"
    permits.use(host, ("addr:1",), b"lease")
    assert (host.permits["addr:1"].phase, host.permits["addr:1"].lease_id) == (Phase.USED, b"lease")
