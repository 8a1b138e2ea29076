"""The live panel: it fits, it is safe against what sites send, and it is cheap."""

from __future__ import annotations

import contextlib
import io
import re
import time

import pytest
from rich.console import Console

from streams.cli.live import WIDTH_MAX, LiveView, panel
from streams.cli.running import LOOK_MS, run_engine
from streams.core.failures import CrawlError
from streams.core.progress import HostSpeed, Progress, RecentPage, State
from tests.support.fake_engine import FakeEngine

BUSY = Progress(
    elapsed_ms=131_000,
    pages=812,
    pages_max=1_000,
    pages_per_s=12.34,
    wire_bytes=31_000_000,
    body_bytes=91_000_000,
    urls_queued=3_201,
    hosts_ready=12,
    hosts_waiting=40,
    hosts_backing_off=2,
    redirects=31,
    robots_denied=12,
    in_flight=4,
    errors_by_kind={"http_404": 12, "timeout": 2, "a": 1, "b": 1, "c": 1},
    slowest_hosts=(HostSpeed("https://slow.example", 812, 31),),
    last_urls=(
        RecentPage("https://a.example/" + "long/" * 60, 200, 34),
        RecentPage("https://a.example/\x1b[2J\n", 0, 10_000, "connect_timeout"),
        RecentPage("https://例え.example/" + "水" * 50, 404, 5),
    ),
)


def rendered(progress: Progress, width: int, *, color: bool = False) -> str:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=color, color_system="truecolor" if color else None
    )
    console.print(panel(progress, "a.example", "headrace crawl --out a", width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [30, 50, 80, 200])
@pytest.mark.parametrize("progress", [Progress(), BUSY], ids=["begin", "busy"])
def test_the_panel_fits_its_terminal(progress: Progress, width: int) -> None:
    """Protects narrow and wide terminals: every line has the panel's width, none wraps."""
    from rich.cells import cell_len

    widths = {cell_len(line) for line in rendered(progress, width).splitlines()}
    assert widths == {min(width, WIDTH_MAX)}


def test_the_panel_says_what_matters() -> None:
    """Protects the numbers that the issue asks for: pages, bytes, rates, hosts, queue, errors, slowest, last pages."""
    text = rendered(BUSY, 100)
    for words in (
        "812 of 1,000",
        "12/s",
        "31 MB",
        "12 ready · 40 waiting · 2 backing off",
        "3,201 URLs",
        "4 in flight",
    ):
        assert words in text
    for words in ("31 redirects", "12 denied by robots", "http_404 12", "1 others", "slow.example 812 ms", "200"):
        assert words in text


def test_the_panel_says_what_a_run_waits_for() -> None:
    """Protects whoever watches a picture in which nothing moves."""
    text = rendered(Progress(waits_for="1 host: dns_nxdomain", waits_until_ms=1_796_000_000_000), 90)
    assert "waiting for 1 host: dns_nxdomain, next try at 2026-11-30 00:53:20Z" in text


def test_the_echo_of_an_interrupt_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects the picture from `^C`, which the terminal writes behind its last line: no line is full."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    from rich.cells import cell_len

    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", _shown()).splitlines()
    assert max(cell_len(line.strip("\r")) for line in lines) == 58


def test_what_a_site_sends_cannot_steer_the_terminal() -> None:
    """Protects the terminal: a URL or error with escape codes is shown, not obeyed."""
    assert "\x1b" not in rendered(BUSY, 100)


def test_draining_tells_what_the_next_ctrl_c_does() -> None:
    """Protects whoever pressed Ctrl-C once and wonders."""
    assert "Ctrl-C again stops at once" in rendered(Progress(state=State.DRAINING), 80)


@pytest.mark.parametrize("failure", [None, CrawlError("o: the disk is full")])
def test_the_terminal_is_given_back(failure: CrawlError | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects the shell after a crawl: the cursor that the picture hid is shown again, even when the run failed."""
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    with contextlib.nullcontext() if failure is None else pytest.raises(CrawlError):
        run_engine(FakeEngine(failure=failure), LiveView(stream, "a.example", "headrace crawl --out a"))
    assert "\x1b[?25l" in stream.getvalue()
    assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects NO_COLOR (no-color.org): the picture still moves, without a colour."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    assert _shown().count("\x1b[36m") > 0
    monkeypatch.setenv("NO_COLOR", "1")
    assert _shown().count("\x1b[36m") == 0


def _shown() -> str:
    stream = Terminal()
    view = LiveView(stream, "a.example", "headrace crawl --out a")
    view.start()
    view.show(BUSY)
    view.finish()
    return stream.getvalue()


def test_a_look_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects the crawl from its picture: at the rate of looks it takes less than 3 % of a core."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "110")
    view = LiveView(Terminal(), "a.example", "headrace crawl --out a")
    view.start()
    view.show(BUSY)
    started_s = time.process_time()
    for _ in range(50):
        view.show(BUSY)
    a_look_ms = (time.process_time() - started_s) * 1_000 / 50
    view.finish()
    assert a_look_ms < 0.03 * LOOK_MS
