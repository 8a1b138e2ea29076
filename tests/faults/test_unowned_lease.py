"""A fetcher that lost its group while it connected: the request is not written."""

from __future__ import annotations

from connectors.ports import Fetched
from connectors.web_http import HttpWeb
from schemas.records import Outcome
from streams.core.starting import UNOWNED
from tests.support.exchanges import wire
from tests.support.fetching import PAGE, lease, play
from tests.support.raw_server import RawServer


def test_nothing_is_asked_once_the_lease_may_be_anothers() -> None:
    """A process that stood still between its look at the group and the socket must not ask: it looks again there."""
    results: list[Fetched] = []
    answers = iter([True, False, True])

    async def act(web: HttpWeb, _: RawServer) -> None:
        results.extend([await web.fetch(lease(f"/{number}")) for number in range(3)])

    server = play([wire(PAGE), wire(PAGE)], act, may_start=lambda: next(answers))
    assert [request.target for request in server.log] == ["/0", "/2"]
    assert server.connections == 1
    assert [one.result.outcome for one in results] == [Outcome.FETCHED, Outcome.EXPIRED, Outcome.FETCHED]
    assert results[1].result.error == UNOWNED
