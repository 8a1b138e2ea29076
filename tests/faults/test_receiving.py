"""The limit of all bodies that are received at once: many large pages must not fill the fetcher's memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import uvloop

from connectors.http_connection import HttpConnection
from connectors.ports import Fetched
from connectors.receiving import Receiving, Source
from connectors.web_http import HttpWeb
from schemas.records import Kind, Outcome
from streams.core.answer import AnswerReader
from streams.core.policy import FetchLimits
from tests.support.exchanges import Wire
from tests.support.fetching import AGENT, LOOPBACK, Clock, Names, lease
from tests.support.raw_server import RawServer

BODY_BYTES = 2 << 20
BLOCK_BYTES = 16 << 10
LIMIT_BYTES = 1 << 20
SMALL_BYTES = 32 << 10
READ_BYTES_MAX = 256 << 10  # what one read of a socket brings, by uvloop
HOSTS = 12


class FakeSource:
    """A connection that is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def hold_back(self) -> None:
        self.said.append("hold back")

    def go_on(self) -> None:
        self.said.append("go on")


class Watched(Receiving):
    """Remembers how much was held at most, and how many were held back."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max, SMALL_BYTES)
        self.most = 0

    def grew(self, source: Source, held_bytes: int) -> None:
        super().grew(source, held_bytes)
        self.most = max(self.most, self.bytes)


def test_large_bodies_wait_and_the_first_of_them_never_does() -> None:
    """If all were held back none would end, and a small page would wait behind large ones."""
    receiving = Receiving(bytes_max=100, small_bytes=10)
    first, second, third, small = (FakeSource() for _ in range(4))
    receiving.grew(first, 60)
    receiving.grew(second, 60)
    receiving.grew(third, 11)
    receiving.grew(first, 90)
    receiving.grew(small, 10)
    assert [one.said for one in (first, second, third, small)] == [[], ["hold back"], ["hold back"], []]
    receiving.ended(second)
    assert (second.said, third.said) == (["hold back", "go on"], ["hold back"]), "the connection serves again"
    receiving.ended(first)
    assert third.said == ["hold back", "go on"]
    receiving.ended(third)
    receiving.ended(small)
    receiving.ended(small)
    assert receiving.bytes == 0


def test_the_next_in_line_goes_on_alone_while_there_is_no_room() -> None:
    """Else nobody would read on after the first has ended, and those that wait would run out of time."""
    receiving = Receiving(bytes_max=100, small_bytes=10)
    sources = [FakeSource() for _ in range(4)]
    for source in sources:
        receiving.grew(source, 60)
    receiving.ended(sources[0])
    assert [one.said for one in sources[1:]] == [["hold back", "go on"], ["hold back"], ["hold back"]]
    receiving.grew(sources[1], 70)
    assert sources[1].said == ["hold back", "go on"]


def test_waiting_for_room_is_no_silence_of_the_site() -> None:
    """An answer that we do not read is not idle; the lease's deadline holds all the same."""

    class Transport(asyncio.Transport):
        def write(self, data: object) -> None:
            """The site has the request."""

        def is_closing(self) -> bool:
            return False

        def pause_reading(self) -> None:
            """Nothing comes any more."""

        def resume_reading(self) -> None:
            """Nothing is left."""

    async def main() -> str:
        loop = asyncio.get_running_loop()
        connection = HttpConnection(loop, Receiving())
        connection.connection_made(Transport())
        answer = AnswerReader(Kind.PAGE, FetchLimits())
        asking = asyncio.create_task(connection.ask(b"GET", answer, idle_s=0.02, deadline_s=loop.time() + 0.3))
        loop.call_soon(connection.data_received, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
        loop.call_soon(connection.hold_back)
        await asking
        return answer.failure

    assert uvloop.run(main()) == "timeout"


def _large(blocks: int = BODY_BYTES // BLOCK_BYTES) -> Wire:
    def parts() -> Iterator[bytes]:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {blocks * BLOCK_BYTES}\r\n\r\n"
        yield head.encode()
        for _ in range(blocks):
            yield b"x" * BLOCK_BYTES

    return Wire(parts())


def fetch_all(receiving: Receiving, limits: FetchLimits) -> list[Fetched]:
    """A large page of each of many hosts, all at once."""

    async def main() -> list[Fetched]:
        async with RawServer([_large() for _ in range(HOSTS)]) as server:
            names = Names(server.port, "127.0.0.1")
            web = HttpWeb(
                agent=AGENT, resolver=names, now_ms=Clock(), allowed=LOOPBACK, limits=limits, receiving=receiving
            )
            leases = [lease(host=f"http://site{number}.example") for number in range(HOSTS)]
            fetched = await asyncio.gather(*map(web.fetch, leases))
            await web.close()
            return fetched

    return uvloop.run(main())


def test_many_large_pages_at_once_stay_within_the_limit() -> None:
    """A fetcher's memory was bounded by nothing but requests times the largest body; all pages come whole."""
    receiving = Watched(LIMIT_BYTES)
    fetched = fetch_all(receiving, FetchLimits())
    assert [one.result.outcome for one in fetched] == [Outcome.FETCHED] * HOSTS
    assert {len(one.response.body) for one in fetched if one.response is not None} == {BODY_BYTES}
    assert LIMIT_BYTES < receiving.most <= LIMIT_BYTES + BODY_BYTES + HOSTS * READ_BYTES_MAX < HOSTS * BODY_BYTES
    assert receiving.bytes == 0
