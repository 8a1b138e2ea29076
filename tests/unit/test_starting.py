"""Which leases a fetcher starts: a case a rule of `streams.core.starting`."""

from __future__ import annotations

from schemas.records import FetchLease, Kind
from streams.core.starting import Starter

NOW = 1_000_000


def lease(
    number: int,
    *,
    host: str = "http://a.example",
    not_before_ms: int = NOW,
    start_by_ms: int = NOW + 60_000,
    concurrency: int = 1,
) -> FetchLease:
    return FetchLease(
        lease_id=number.to_bytes(16, "big"),
        host_key=host,
        url_id=number.to_bytes(16, "big"),
        url=f"{host}/{number}",
        url_version=1,
        kind=Kind.PAGE,
        attempt=0,
        policy_version=0,
        owner_epoch=1,
        not_before_ms=not_before_ms,
        start_by_ms=start_by_ms,
        duration_ms_max=10_000,
        concurrency=concurrency,
    )


def starter(*, fetches_max: int = 10, waiting_max: int = 10) -> Starter:
    made = Starter(fetches_max=fetches_max, waiting_max=waiting_max)
    made.assigned(0, 100)
    return made


def test_a_lease_is_started_once() -> None:
    """A lease that was handed out is gone from the queue, and its record taken again is dropped."""
    one, first = starter(), lease(1)
    assert one.take(0, 100, [first], fresh=True) == 0
    assert one.step(NOW, fresh=True).start == (first,)
    assert one.step(NOW, fresh=True).start == ()
    assert one.take(0, 100, [first], fresh=True) == 1
    one.finished(first.host_key)
    assert one.step(NOW, fresh=True).start == ()


def test_records_from_before_the_assignment_are_left_to_expire() -> None:
    """Whoever read the partition before may have started them: they are dropped, and nothing is said of them."""
    one = starter()
    assert one.take(0, 99, [lease(1), lease(2)], fresh=True) == 2
    assert one.take(1, 500, [lease(3)], fresh=True) == 1
    step = one.step(NOW + 100_000, fresh=True)
    assert (step.start, step.expired) == ((), ())


def test_a_partition_that_comes_back_begins_at_its_new_end() -> None:
    """Between two assignments another fetcher may have read: the latest end counts."""
    one = starter()
    one.revoked(0)
    assert one.take(0, 100, [lease(1)], fresh=True) == 1
    one.assigned(0, 200)
    assert one.take(0, 150, [lease(2)], fresh=True) == 1
    assert one.take(0, 200, [lease(3)], fresh=True) == 0


def test_what_was_taken_in_good_order_is_started_after_a_revocation() -> None:
    """The next reader begins behind it, so nobody else starts it: a planned leave costs no lease."""
    one, first = starter(), lease(1)
    one.take(0, 100, [first], fresh=True)
    one.revoked(0)
    assert one.step(NOW, fresh=True).start == (first,)


def test_a_fetcher_that_is_not_fresh_starts_nothing_ever() -> None:
    """What waits when it wakes is dropped without a word, also once it belongs to the group again."""
    one = starter()
    one.take(0, 100, [lease(1)], fresh=True)
    step = one.step(NOW + 30_000, fresh=False)
    assert (step.start, step.expired, step.dropped) == ((), (), 1)
    assert one.step(NOW + 30_000, fresh=True).start == ()
    assert one.take(0, 101, [lease(2)], fresh=False) == 1
    assert one.waiting == 0
    assert one.next_ms() is None


def test_not_before_and_start_by_are_kept() -> None:
    """A lease waits for its first instant, counts up to its last, and is said to have expired behind it."""
    one, early, late = starter(), lease(1, not_before_ms=NOW + 500), lease(2, host="http://b.example", start_by_ms=NOW)
    one.take(0, 100, [early], fresh=True)
    assert one.next_ms() == NOW + 500
    assert one.step(NOW + 499, fresh=True).start == ()
    assert one.step(NOW + 500, fresh=True).start == (early,)
    one.take(0, 101, [late], fresh=True)
    assert one.step(NOW + 1, fresh=True).expired == (late,)
    on_time = lease(3, host="http://b.example", start_by_ms=NOW + 2)
    one.take(0, 102, [on_time], fresh=True)
    assert one.step(NOW + 2, fresh=True).start == (on_time,)


def test_a_host_has_as_many_requests_as_its_lease_says() -> None:
    """Further leases of the host wait for one of its requests to end, in their order; other hosts do not."""
    one = starter()
    leases = [lease(number, concurrency=2) for number in range(4)]
    other = lease(9, host="http://b.example")
    one.take(0, 100, [*leases, other], fresh=True)
    assert one.step(NOW, fresh=True).start == (*leases[:2], other)
    one.finished(leases[0].host_key)
    assert one.step(NOW, fresh=True).start == (leases[2],)
    assert one.step(NOW + 60_001, fresh=True).expired == (leases[3],)
    one.finished(leases[0].host_key)
    assert one.step(NOW + 60_001, fresh=True).start == ()


def test_requests_and_queue_are_bounded() -> None:
    """No more requests than asked for, none while there is no room for bodies; a full queue says so."""
    one = starter(fetches_max=2, waiting_max=3)
    leases = [lease(number, host=f"http://h{number}.example") for number in range(5)]
    one.take(0, 100, leases, fresh=True)
    assert not one.has_room()
    assert one.step(NOW, fresh=True, room=False).start == ()
    assert len(one.step(NOW, fresh=True).start) == 2
    assert one.step(NOW, fresh=True).start == ()
    assert (one.running, one.waiting, one.has_room()) == (2, 3, False)
    one.finished(leases[0].host_key)
    assert one.step(NOW, fresh=True).start == (leases[2],)
    assert one.has_room()
