"""The watch that the alarm on breaches rests on."""

from __future__ import annotations

import msgspec

from schemas.records import FetchLease, FetchResult, Kind, Outcome
from streams.core.manners import Watch


def lease(host: str = "a", delay_ms: int = 1_000, concurrency: int = 1) -> FetchLease:
    made = FetchLease(b"l", f"http://{host}.test", b"u", f"http://{host}.test/", 1, Kind.PAGE, 0, 0, 1, 0, 0, 1_000)
    return msgspec.structs.replace(made, delay_ms=delay_ms, concurrency=concurrency)


def result(of: FetchLease, started_ms: int, finished_ms: int) -> FetchResult:
    return FetchResult(
        of.lease_id, of.host_key, of.url_id, of.url, of.url_version, of.kind, Outcome.FETCHED, started_ms, finished_ms
    )


def see(watch: Watch, started_ms: int, finished_ms: int, of: FetchLease) -> str | None:
    return watch.see(of, result(of, started_ms, finished_ms))


def test_a_request_within_the_delay_is_a_breach() -> None:
    """Counted from the end of the one before, to the millisecond; each host by itself."""
    watch = Watch()
    assert see(watch, 0, 500, lease()) is None
    assert see(watch, 10, 20, lease("b")) is None
    assert see(watch, 1_500, 1_600, lease()) is None
    assert see(watch, 2_599, 2_700, lease()) == "delay"


def test_what_is_allowed_is_none() -> None:
    """An alarm that comes for nothing is soon not looked at: several at once by policy, a delay changed in between."""
    watch = Watch()
    see(watch, 0, 500, lease(concurrency=2))
    assert see(watch, 100, 200, lease(concurrency=2)) is None
    see(watch, 5_000, 5_100, lease(delay_ms=100))
    assert see(watch, 5_200, 5_300, lease(delay_ms=60_000)) is None


def test_it_remembers_a_bounded_number_of_hosts() -> None:
    """Those asked last: a fetcher of millions of hosts must not keep them all."""
    watch = Watch(hosts_max=2)
    for host in ("a", "b", "a", "c"):
        see(watch, 0, 0, lease(host))
    assert see(watch, 1, 1, lease("a")) == "delay"
    assert see(watch, 1, 1, lease("b")) is None
