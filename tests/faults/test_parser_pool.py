"""Parser processes under attack: whatever a body does to its worker, it costs that body and nothing else."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
import uvloop

from connectors.parser_pool import PIPELINE_MAX, ParserPool, ParserUnavailable
from connectors.ports import ParseOutput
from schemas.records import BodyRef, Kind, ParseTask
from streams.core.policy import ParseLimits
from streams.core.rules.urls import url_id

T = TypeVar("T")
SECONDS_MAX = 60.0  # for a whole test; a healthy run takes one or two
LIMITS = ParseLimits(cpu_ms_max=300, memory_bytes_max=128 * 1024 * 1024)


def task(name: str, *, kind: Kind = Kind.PAGE, content_type: str | None = "text/html") -> ParseTask:
    url = f"http://a.example/{name}"
    return ParseTask(url_id(url), "http://a.example", url, 1, kind, BodyRef("s", 0, 1), 0, 1, 1, content_type)


@asynccontextmanager
async def bombs(workers: int = 1, wall_s_max: float = 30.0, limits: ParseLimits = LIMITS) -> AsyncIterator[ParserPool]:
    command = (sys.executable, "-m", "tests.support.parser_bombs", msgspec.json.encode(limits).decode())
    pool = ParserPool(workers, limits, command=command, wall_s_max=wall_s_max)
    try:
        yield pool
    finally:
        await pool.close()


def run(test: Callable[[], Coroutine[object, object, T]]) -> T:
    return uvloop.run(asyncio.wait_for(test(), SECONDS_MAX))


async def outcome(waiting: Awaitable[ParseOutput]) -> str:
    """The text of an output, or its error."""
    output = await waiting
    return output.page.error or output.text.decode()


@pytest.mark.parametrize(
    ("order", "error"),
    [
        ("kill", "parser_died"),
        ("fault", "parser_died"),
        ("raise", "parser_died"),
        ("noise", "parser_died"),
        ("other", "parser_died"),
        ("spin", "parse_timeout"),
        ("swell", "parse_memory"),
    ],
)
def test_a_bomb_costs_its_own_record(order: str, error: str) -> None:
    """Records before and behind the bomb, and later ones, are parsed; the bomb's page says what happened."""

    async def test() -> list[str]:
        async with bombs() as pool:
            bodies = ["echo 1", order, "echo 2", "echo 3", "echo 4", "echo 5"]
            got = await asyncio.gather(*(outcome(pool.parse(task(body), body.encode())) for body in bodies))
            alone = [await outcome(pool.parse(task("alone"), order.encode()))]
            return [*got, *alone, await outcome(pool.parse(task("later"), b"echo 6"))]

    assert run(test) == ["echo 1", error, "echo 2", "echo 3", "echo 4", "echo 5", error, "echo 6"]


def test_a_worker_that_sleeps_is_killed_by_the_clock() -> None:
    """No CPU limit ends a worker that waits for ever; the pool's clock does, and charges the one record."""

    async def test() -> list[str]:
        async with bombs(wall_s_max=1.0) as pool:
            bodies = ["echo 1", "hang", "echo 2"]
            return await asyncio.gather(*(outcome(pool.parse(task(body), body.encode())) for body in bodies))

    assert run(test) == ["echo 1", "parse_timeout", "echo 2"]


def test_a_hello_from_before_the_loop_looked_is_heard(tmp_path: Path) -> None:
    """The loop is held up from a worker's start until its hello lies there: the record that waits is parsed still."""
    said = tmp_path / "said"
    os.mkfifo(said)
    heard = os.open(said, os.O_RDONLY | os.O_NONBLOCK)
    command = (sys.executable, "-m", "tests.support.parser_bombs", msgspec.json.encode(LIMITS).decode(), str(said))

    def hold_up() -> None:
        assert select.select([heard], [], [], SECONDS_MAX)[0]

    async def test() -> str:
        pool = ParserPool(1, LIMITS, command=command)
        loop = asyncio.get_running_loop()
        try:
            waiting = asyncio.ensure_future(outcome(pool.parse(task("echo"), b"echo 1")))
            loop.call_soon(lambda: loop.call_soon(hold_up))  # behind the task that starts the worker
            return await waiting
        finally:
            await pool.close()
            os.close(heard)

    assert run(test) == "echo 1"


def test_a_worker_killed_from_outside_costs_nothing(tmp_path: Path) -> None:
    """The out-of-memory killer takes a worker: the page it was at is not to blame, and keeps its links and text."""
    reached = tmp_path / "reached"

    async def test() -> tuple[list[str], int]:
        async with bombs() as pool:
            bodies = ("echo 1", f"once {reached}", "echo 2")
            waiting = [asyncio.ensure_future(outcome(pool.parse(task(b), b.encode()))) for b in bodies]
            await waiting[0]  # so the worker is at the next one now, or about to be
            await asyncio.to_thread(_appears, reached)
            os.kill(pool.pids()[0], signal.SIGKILL)
            return [await one for one in waiting], pool.deaths

    assert run(test) == (["echo 1", f"once {reached}", "echo 2"], 1)


def test_a_worker_that_was_given_no_processor_costs_nothing(tmp_path: Path) -> None:
    """On a busy machine the wall clock ends a worker that had no time to parse: the page is parsed by the next."""

    async def test() -> list[str]:
        async with bombs(wall_s_max=1.0) as pool:
            bodies = ("echo 1", f"once {tmp_path / 'reached'}", "echo 2")
            return await asyncio.gather(*(outcome(pool.parse(task(b), b.encode())) for b in bodies))

    assert run(test) == ["echo 1", f"once {tmp_path / 'reached'}", "echo 2"]


def _appears(path: Path) -> None:
    while not path.exists():
        os.sched_yield()


def test_bombs_in_a_row_slow_the_replacements_and_lose_nothing() -> None:
    """More deaths than replacements are free for: every bomb is charged once, and the record after them is parsed."""

    async def test() -> tuple[list[str], int]:
        async with bombs() as pool:
            bodies = [*["fault"] * 5, "echo"]
            got = await asyncio.gather(
                *(outcome(pool.parse(task(b + str(n)), b.encode())) for n, b in enumerate(bodies))
            )
            return got, pool.deaths

    assert run(test) == (["parser_died"] * 5 + ["echo"], 5)


def test_a_worker_inherits_nothing_and_steps_back() -> None:
    """A parser of hostile bytes holds no descriptor of the crawl's, and takes no processor time from it."""

    async def test() -> tuple[str, str]:
        async with bombs() as pool:
            names = await outcome(pool.parse(task("a"), b"descriptors"))
            return names, await outcome(pool.parse(task("b"), b"nice"))

    secret = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(secret, True)
    names, niceness = run(test)
    os.close(secret)
    assert len(names.split()) == 5  # input, output, errors, its own copy of the socket, the listing itself
    assert int(niceness) >= 5


def test_workers_retire_and_nobody_notices() -> None:
    """A worker that has done its number of records is replaced between two records, and none is charged."""

    async def test() -> tuple[set[str], int]:
        async with bombs() as pool:
            got = await asyncio.gather(*(outcome(pool.parse(task(str(n)), b"echo")) for n in range(250)))
            return set(got), pool.deaths

    assert run(test) == ({"echo"}, 0)


def test_more_callers_than_room_wait() -> None:
    """Bodies are held in bounded number: of many callers only so many have handed over theirs."""

    async def test() -> int:
        async with bombs(workers=2) as pool:
            callers = [asyncio.ensure_future(pool.parse(task(str(n)), b"hang")) for n in range(50)]
            await asyncio.wait(callers, timeout=0.2)
            held = sum(len(worker.jobs) for worker in pool._workers) + len(pool._pending)
            for caller in callers:
                caller.cancel()
            await asyncio.wait(callers)
            return held

    assert run(test) <= 2 * PIPELINE_MAX


def test_a_parser_that_never_starts_is_a_service_that_is_away() -> None:
    """A broken installation is no record's fault: `parse` raises instead of charging records or waiting for ever."""

    async def test() -> None:
        pool = ParserPool(command=(sys.executable, "-c", "raise SystemExit(3)"))
        with pytest.raises(ParserUnavailable, match="no parser process starts"):
            await pool.parse(task("a"), b"echo")
        await pool.close()

    run(test)


def test_close_ends_workers_and_those_who_wait() -> None:
    """After close no process is left, and a record that was being parsed is answered rather than forgotten."""

    async def test() -> list[int]:
        async with bombs(workers=2) as pool:
            await asyncio.gather(*(pool.parse(task(str(n)), b"echo") for n in range(4)))
            hung = asyncio.ensure_future(pool.parse(task("h"), b"hang"))
            pids = pool.pids()
            await asyncio.wait([hung], timeout=0.05)
            await pool.close()
            with pytest.raises(ParserUnavailable):
                await hung
            with pytest.raises(ParserUnavailable):
                await pool.parse(task("late"), b"echo")
            return pids

    for pid in run(test):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_worker_ends_when_the_crawl_is_gone() -> None:
    """A crawl ended by kill -9 leaves no parser behind: the end of the socket ends the worker."""
    script = (
        "import asyncio, os, sys\n"
        "from connectors.parser_pool import ParserPool\n"
        "from tests.faults.test_parser_pool import task\n"
        "async def main():\n"
        "    pool = ParserPool()\n"
        "    await pool.parse(task('a'), b'<p>x')\n"
        "    print(pool.pids()[0], flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )

    async def test() -> None:
        crawl = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
        assert crawl.stdout is not None
        worker = os.pidfd_open(int(await crawl.stdout.readline()))
        await crawl.wait()
        gone = asyncio.Event()
        asyncio.get_running_loop().add_reader(worker, gone.set)  # a pidfd is readable once its process has ended
        await gone.wait()
        asyncio.get_running_loop().remove_reader(worker)
        os.close(worker)

    run(test)


def test_the_real_worker_reads_pages_and_sitemaps() -> None:
    """The worker as it is installed: a page gives links and ready records, a sitemap its entries."""

    async def test() -> tuple[ParseOutput, ParseOutput, ParseOutput]:
        pool = ParserPool(limits=LIMITS)
        page = b'<title>T</title><a href="/x">words</a>'
        sitemap = b"<urlset><url><loc>http://a.example/y</loc><lastmod>1970-01-02</lastmod></url></urlset>"
        got = await asyncio.gather(
            pool.parse(task("page"), page),
            pool.parse(task("sitemap.xml", kind=Kind.SITEMAP), sitemap),
            pool.parse(task("sitemap.xml", kind=Kind.SITEMAP), page),
        )
        await pool.close()
        return got[0], got[1], got[2]

    page, sitemap, wrong = run(test)
    assert [link.url for link in page.page.links] == ["http://a.example/x"]
    assert page.page.title == "T"
    assert page.records[:2] == b"\x1f\x8b"
    assert 0 < page.text_record_bytes < len(page.records)
    assert page.text == b""
    assert [(entry.url, entry.lastmod_ms) for entry in sitemap.page.entries] == [("http://a.example/y", 86_400_000)]
    assert wrong.page.error == "not_a_sitemap"
