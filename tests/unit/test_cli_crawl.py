"""`headrace crawl` from words to report, over a scripted engine."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from infra.kept import keep
from infra.settings import Scope
from schemas.records import Kind, Source
from streams.cli import main
from streams.cli.report import ending, waiting
from streams.cli.shell import Shell, command
from streams.core.failures import EXIT_FAILED, CrawlError
from streams.core.progress import Counts, EndReason, HostSpeed, HostWaiting, Progress, RecentPage, Summary
from tests.support.fake_engine import Captured, FakeBackend, FakeEngine, FakeReader

FIRST = RecentPage("http://a.example/", 200, 40)


@pytest.fixture(autouse=True)
def a_terminal() -> Iterator[None]:
    """Tests under `nohup` begin with a hang-up that is ignored; those here say themselves when it is."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def crawl(
    *words: str, engine: FakeEngine | None = None, stdin: bytes = b"", environ: Mapping[str, str] | None = None
) -> tuple[int, Captured]:
    shell = Captured(FakeBackend(engine), stdin, environ)
    return main(["crawl", *words], shell), shell


def refused(*words: str, stdin: bytes = b"") -> str:
    code, shell = crawl(*words, stdin=stdin)
    assert code == 2
    assert shell.fake.opened == []
    return shell.said


def test_flags_become_settings() -> None:
    """Protects every flag's way into the settings, units and lists included."""
    code, shell = crawl(
        "https://a.example/x", "--out", "o", "--scope", "prefix", "--depth", "3", "--pages", "10k", "--time", "2min",
        "--delay", "500ms", "--concurrency", "2", "--user-agent", "Bot/1.0 (+https://a.example/bot)", "--workers", "2",
        "--include", "a,b", "--include", "c", "--exclude", "d", "--allow-address", "10.0.0.0/8",
        "--resolve", "a.example=10.0.0.1", "--dns-server", "10.0.0.2:5353", "--refresh",
    )  # fmt: skip
    assert code == 0
    [(settings, [seed], out, refresh)] = shell.fake.opened
    assert (out, refresh, seed.url) == (Path("o"), True, "https://a.example/x")
    crawl_settings = settings.crawl
    assert crawl_settings.scope is Scope.PREFIX
    assert (crawl_settings.depth_max, crawl_settings.pages_max, crawl_settings.time_max_s) == (3, 10_000, 120)
    assert (settings.politeness.delay_ms, settings.politeness.concurrency) == (500, 2)
    assert crawl_settings.user_agent == "Bot/1.0 (+https://a.example/bot)"
    assert (crawl_settings.include, crawl_settings.exclude) == (("a,b", "c"), ("d",))
    assert crawl_settings.allow_addresses == ("10.0.0.0/8",)
    assert (settings.dns.resolve, settings.dns.servers) == (("a.example=10.0.0.1",), ("10.0.0.2:5353",))
    assert crawl_settings.workers == 2


@pytest.mark.parametrize(("text", "delay_ms"), [("0", 0), ("1", 1_000), ("1.5", 1_500), ("1s", 1_000), ("20ms", 20)])
def test_a_delay_is_in_seconds_unless_it_says_otherwise(text: str, delay_ms: int) -> None:
    """Protects sites: `--delay 1` is one second, not one millisecond."""
    _, shell = crawl("https://a.example", "--delay", text)
    assert shell.fake.opened[0][0].politeness.delay_ms == delay_ms


def test_flags_win_over_environment_and_file() -> None:
    """Protects the order file, environment, flags."""
    Path("h.toml").write_text('[politeness]\ndelay = "9s"\nconcurrency = 4\n[crawl]\nout = "from-file"\n')
    environ = {"HEADRACE_POLITENESS__DELAY": "8s", "HEADRACE_CRAWL__DEPTH_MAX": "5"}
    _, shell = crawl("https://a.example", "--config", "h.toml", "--delay", "7s", environ=environ)
    settings, _, out, _ = shell.fake.opened[0]
    assert (settings.politeness.delay_ms, settings.politeness.concurrency) == (7_000, 4)
    assert settings.crawl.depth_max == 5
    assert out == Path("from-file")


def test_the_folder_is_named_after_the_first_host() -> None:
    """Protects the shortest command: without --out the crawl still lies where one expects it."""
    for seed, name in (("Example.ORG/docs", "headrace-example.org"), ("http://[::1]:80/", "headrace-1")):
        _, shell = crawl(seed, "--allow-address", "::1/128")
        assert shell.fake.opened[0][2] == Path(name)


def test_seeds_come_from_words_files_stdin_and_sitemaps() -> None:
    """Protects every way in: order kept, each URL once, sitemaps told apart."""
    Path("seeds.txt").write_bytes(b"\xef\xbb\xbfb.example\r\n\r\n# a comment\r\nhttp://b.example/x#part  # another\r\n")
    code, shell = crawl(
        "https://a.example", "seeds.txt", "-", "https://c.example/sitemap-2.xml.gz", "--sitemap", "d.example/all",
        stdin=b"https://a.example/\nhttps://e.example",
    )  # fmt: skip
    assert code == 0
    seeds = shell.fake.opened[0][1]
    assert [seed.url for seed in seeds] == [
        "https://a.example/",
        "https://b.example/",
        "http://b.example/x",
        "https://e.example/",
        "https://c.example/sitemap-2.xml.gz",
        "https://d.example/all",
    ]
    assert [seed.kind for seed in seeds] == [Kind.PAGE] * 4 + [Kind.SITEMAP] * 2
    assert [seed.source for seed in seeds] == [Source.SEED] * 4 + [Source.SITEMAP] * 2
    assert seeds[0].host_key == "https://a.example"


def test_bad_seeds_are_listed_with_their_place() -> None:
    """Protects a list of a million seeds with a few bad ones: file and line of the first ten, and nothing started."""
    Path("s.txt").write_text("https://ok.example\n" + "\n".join(f"ftp://n{n}.example/" for n in range(13)))
    said = refused("s.txt", "not-a-name", "mailto:x@y.example")
    assert "15 seeds are not usable" in said
    assert 's.txt line 2: "ftp://n0.example/"' in said
    assert "s.txt line 11" in said
    assert "s.txt line 12" not in said
    assert "and 5 more" in said


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("sedes.txt", "no such file"),
        ("./list", "no such file"),
        ("foo", "neither a URL nor an existing file"),
        ("javascript:alert(1)", "scheme javascript:"),
        ("http:/a.example", "no // after http:"),
        ("http://", "its host or port"),
        ("http://a.example:99999/", "its host or port"),
        ("http://a b.example/", "blank"),
        ("https://a.example/" + "x" * 3_000, "longer than"),
        ("", "is no URL"),
        ("a.example/" + "x" * 3_000, "longer than"),
        ("a\0b", "control character"),
    ],
)
def test_a_seed_that_is_no_url_says_why(word: str, hint: str) -> None:
    """Protects whoever mistyped: one line, what was needed, what came."""
    said = refused(word)
    assert hint in said
    assert said.count("\n") == 1


def test_a_file_that_cannot_be_read_says_so() -> None:
    """Protects against folders and Latin-1 files taken for seeds."""
    Path("folder").mkdir()
    assert "folder: cannot be read" in refused("folder")
    Path("latin").write_bytes(b"https://a.example\nhttps://b.example/\xe9\n")
    assert "latin line 2: needed text in UTF-8" in refused("latin")
    Path("out").write_text("")
    assert "needed a folder, came a file" in refused("https://a.example", "--out", "out")


def test_a_crawl_that_may_ask_nothing_does_not_start() -> None:
    """Protects the first try on one's own machine: the flag that is missing is named at once."""
    assert "--allow-address 127.0.0.0/8" in refused("127.0.0.1:8000")
    assert "--allow-address 127.0.0.0/8" in refused("http://localhost:8000")
    assert "--allow-address 10.0.0.1" in refused("http://a.example", "--resolve", "a.example=10.0.0.1")
    code, shell = crawl("127.0.0.1:8000", "--allow-address", "127.0.0.0/8")
    assert code == 0
    assert shell.fake.opened[0][1][0].url == "http://127.0.0.1:8000/"


def test_a_missing_contact_is_mentioned_once() -> None:
    """Protects sites' operators: beyond loopback the crawl asks for a contact, on loopback and with one it does not."""
    assert crawl("https://a.example")[1].said.count("contact") == 2  # one note, which names the flag
    assert "contact" not in crawl("https://a.example", "--contact", "me@a.example")[1].said
    assert "contact" not in crawl("https://a.example", "--user-agent", "B/1 (+https://a.example)")[1].said
    assert "contact" not in crawl("http://127.0.0.1/", "--allow-address", "127.0.0.0/8")[1].said


def test_a_crawl_resumes() -> None:
    """Protects going on: what is done is said, and seeds are not needed again."""
    Path("o").mkdir()
    assert "no seeds" in refused("--out", "o")
    Path("o/crawl.json").write_text("{}")
    code, shell = crawl("--out", "o")
    assert code == 0
    assert "resuming: 812 pages done, 3,201 queued\n" in shell.said
    assert shell.fake.reader.closed == 1
    assert shell.fake.opened[0][1] == []


def test_a_resumed_crawl_goes_by_its_own_settings() -> None:
    """Protects `crawl --out DIR` alone: delay, networks and scope hold on, what is said anew wins, limits end."""
    Path("o").mkdir()
    first = ["--allow-address", "127.0.0.0/8", "--delay", "0", "--scope", "domain", "--pages", "9", "--time", "1h"]
    _, shell = crawl("http://127.0.0.1/", "--out", "new", *first)
    keep(Path("o"), shell.fake.opened[0][0])
    code, shell = crawl("--out", "o", "--delay", "2s")
    assert code == 0
    settings = shell.fake.opened[0][0]
    assert settings.crawl.allow_addresses == ("127.0.0.0/8",)
    assert (settings.crawl.scope, settings.politeness.delay_ms) == (Scope.DOMAIN, 2_000)
    assert (settings.crawl.pages_max, settings.crawl.time_max_s) == (None, None)
    assert 'crawl.scope "domain"' in shell.said
    Path("o/settings.toml").write_text("[crawl]\nscoop = 1\n")
    code, shell = crawl("--out", "o")
    assert code == 2
    assert "o/settings.toml [crawl] scoop" in shell.said


def test_lines_without_a_terminal() -> None:
    """Protects logs: the first page at once, then a line every five seconds and at milestones, and no escape codes."""
    looks = [
        Progress(elapsed_ms=400),
        Progress(elapsed_ms=1_200, pages=1, last_urls=(FIRST,)),
        Progress(elapsed_ms=1_600, pages=1, last_urls=(FIRST,)),
        Progress(elapsed_ms=5_100, pages=40, pages_per_s=8.0, urls_queued=3_201, in_flight=2, last_urls=(FIRST,)),
        Progress(elapsed_ms=5_500, pages=44, last_urls=(FIRST,)),
        Progress(elapsed_ms=7_000, pages=120, warnings=("nearly full",), errors_by_kind={"a": 1, "b": 2}),
        Progress(elapsed_ms=7_400, pages=125, warnings=("nearly full",), last_urls=(FIRST,)),
    ]
    code, shell = crawl("https://a.example", "--contact", "x@a.example", engine=FakeEngine(looks))
    assert code == 0
    assert shell.said.splitlines() == [
        "first page: 200 http://a.example/ after 1.2 s (answered in 40 ms)",
        "5.1 s: 40 pages, 8.0/s, 0 B, 3,201 queued, 2 in flight",
        "warning: nearly full",
        "7.0 s: 120 pages, 0.0/s, 0 B, 0 queued, 0 in flight, 3 errors (most b)",
    ]
    assert "done: all reachable pages are fetched" in shell.printed
    assert "\x1b" not in shell.said + shell.printed


def test_a_first_failure_is_told_at_once() -> None:
    """Protects whoever mistyped a host: the reason is on the screen, not only a crawl that waits."""
    failed = RecentPage("http://a.example/robots.txt", 0, 3, "dns_nxdomain")
    looks = [Progress(elapsed_ms=60, last_urls=(failed,)), Progress(elapsed_ms=90, last_urls=(failed, failed))]
    _, shell = crawl("http://a.example", "--contact", "x@a.example", engine=FakeEngine(looks))
    assert shell.said == "no page yet: http://a.example/robots.txt: dns_nxdomain\n"


def test_a_sitemap_is_no_first_page() -> None:
    """Protects the word "page": the first line waits for one, and takes a sitemap's answer for no failure."""
    sitemap = RecentPage("http://a.example/sitemap.xml", 200, 9, kind="sitemap")
    looks = [Progress(elapsed_ms=60, last_urls=(sitemap,)), Progress(elapsed_ms=90, last_urls=(sitemap, FIRST))]
    _, shell = crawl("http://a.example", "--contact", "x@a.example", engine=FakeEngine(looks))
    assert shell.said == "first page: 200 http://a.example/ after 90 ms (answered in 40 ms)\n"


def test_a_run_that_only_waits_says_for_what() -> None:
    """Protects whoever mistyped a host from twenty silent minutes: no such name, what is waited for, until when."""
    failed = RecentPage("http://nosuch.invalid/robots.txt", 0, 3, "dns_nxdomain", "robots")
    told = Progress(
        elapsed_ms=400,
        at_ms=1_796_000_000_000,
        last_urls=(failed,),
        warnings=("no such name: nosuch.invalid (dns_nxdomain)",),
        waits_for="1 host: dns_nxdomain",
        waits_until_ms=1_796_000_030_000,
    )
    _, shell = crawl("http://nosuch.invalid", "--contact", "x@a.example", engine=FakeEngine([told, told]))
    assert shell.said.splitlines() == [
        "warning: no such name: nosuch.invalid (dns_nxdomain)",
        "400 ms: waiting for 1 host: dns_nxdomain, next try at 00:53:50Z (Ctrl-C ends; run again to go on)",
    ]
    assert waiting(msgspec.structs.replace(told, waits_until_ms=None)) == "waiting for 1 host: dns_nxdomain"
    assert "2026-12-" in waiting(msgspec.structs.replace(told, waits_until_ms=1_796_000_000_000 + 86_400_000))


def test_json_names_the_parts_of_hosts_and_answers() -> None:
    """Protects scripts from counting commas: slow hosts and last answers are objects."""
    looks = [Progress(last_urls=(FIRST,), slowest_hosts=(HostSpeed("http://a.example", 9, 1),))]
    _, shell = crawl("https://a.example", "--json", engine=FakeEngine(looks))
    progress = json.loads(shell.printed.splitlines()[-1])["progress"]
    assert progress["last_urls"][0]["url"] == "http://a.example/"
    assert progress["slowest_hosts"] == [{"host_key": "http://a.example", "mean_ms": 9, "queued": 1}]


def test_quiet_says_nothing_but_warnings_and_the_report() -> None:
    """Protects cron: --quiet is quiet, but a full disk ahead is still told."""
    engine = FakeEngine([Progress(warnings=("nearly full",), last_urls=(FIRST,))])
    _, shell = crawl("https://a.example", "--contact", "x@a.example", "--quiet", engine=engine)
    assert shell.said == "warning: nearly full\n"
    assert shell.printed


def test_json_lines_are_json_and_nothing_else() -> None:
    """Protects scripts: stdout holds one JSON object a line, the last of them the summary."""
    _, shell = crawl("https://a.example", "--json", engine=FakeEngine([Progress(pages=1), Progress(pages=2)]))
    events = [json.loads(line) for line in shell.printed.splitlines()]
    assert [event["event"] for event in events] == ["progress", "summary"]
    assert events[-1]["reason"] == "all reachable pages are fetched"
    assert events[-1]["progress"]["pages"] == 2


def test_first_interrupt_drains_second_stops() -> None:
    """Protects both Ctrl-C: the first lets the requests end, the second does not wait; exit codes differ."""

    def press(look: int) -> None:
        if look in (2, 5):
            os.kill(os.getpid(), signal.SIGINT)

    engine = FakeEngine([Progress(in_flight=3)], until_told=True, on_look=press)
    code, shell = crawl("https://a.example", engine=engine)
    assert engine.told == ["drain", "stop"]
    assert code == 130
    assert "finishing 3 requests; Ctrl-C again to stop at once" in shell.said
    assert "go on where this ended" in shell.printed


def test_an_interrupt_between_two_requests_counts_no_requests() -> None:
    """Protects people from "finishing 0 requests", which is what a polite crawl does most of its time."""

    def press(look: int) -> None:
        if look in (2, 5):
            os.kill(os.getpid(), signal.SIGINT)

    _, shell = crawl("https://a.example", engine=FakeEngine([Progress()], until_told=True, on_look=press))
    assert "finishing; Ctrl-C again to stop at once" in shell.said
    assert "ended: stopped at once; what was in flight is asked for again" in shell.printed
    assert next(ending(Summary(Progress(), EndReason.DRAINED))).startswith(
        "ended: as asked (Ctrl-C, SIGTERM or SIGHUP)"
    )


def test_a_hang_up_drains_and_shows_nothing_more() -> None:
    """Protects a crawl whose terminal is closed: it drains, however often that is told, and ends well."""

    def hang_up(look: int) -> None:
        if look in (2, 3):
            os.kill(os.getpid(), signal.SIGHUP)
        if look == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        if look == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    engine = FakeEngine([Progress(in_flight=3)], until_told=True, on_look=hang_up)
    _, shell = crawl("https://a.example", "--contact", "x@a.example", engine=engine)
    assert engine.told[:2] == ["drain", "drain"]
    assert engine.told[-1] == "stop"
    assert "finishing" not in shell.said


def test_a_terminal_that_is_gone_costs_no_exit_code() -> None:
    """Protects the end of a drained crawl: its report has nowhere to go, and that is no failure."""

    gone: list[int] = []

    class Gone(io.StringIO):
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            if gone:
                raise OSError(errno.EIO, "Input/output error")
            return super().write(text)

    def hang_up(look: int) -> None:
        if look == 2:
            gone.append(look)
            os.kill(os.getpid(), signal.SIGHUP)

    engine = FakeEngine([Progress()] * 4, on_look=hang_up)
    shell = Shell(out=Gone(), err=Gone(), environ={}, backend=FakeBackend(engine))
    assert main(["crawl", "https://a.example", "--contact", "x@a.example"], shell) == 0
    assert engine.told == ["drain"]


def test_a_hang_up_that_is_ignored_stays_so() -> None:
    """Protects `nohup headrace crawl`: it goes on."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        looks = [Progress(), Progress(pages=1)]
        engine = FakeEngine(looks, on_look=lambda look: os.kill(os.getpid(), signal.SIGHUP) if look == 1 else None)
        assert crawl("https://a.example", engine=engine)[0] == 0
        assert engine.told == []
    finally:
        signal.signal(signal.SIGHUP, before)


def test_interrupts_are_python_s_own_again_afterwards() -> None:
    """Protects whoever calls main() from a program of their own."""
    before = signal.getsignal(signal.SIGINT)
    crawl("https://a.example")
    assert signal.getsignal(signal.SIGINT) == before


def test_a_full_disk_is_one_line_and_exit_code_1() -> None:
    """Protects the message that matters: what failed in the middle of a run is said plainly."""
    engine = FakeEngine(failure=CrawlError("o: no space left on device; free some and run it again", EXIT_FAILED))
    code, shell = crawl("https://a.example", engine=engine)
    assert code == 1
    assert shell.said.splitlines()[-1] == "headrace: o: no space left on device; free some and run it again"


def test_a_failing_system_is_one_line_and_exit_code_1() -> None:
    """Protects whoever fills the disk: what failed, and that the same command goes on when it is put right."""
    code, shell = crawl("https://a.example", engine=FakeEngine(failure=OSError(28, "No space left on device", "o/x")))
    assert code == 1
    assert "o/x: No space left on device" in shell.said
    assert "run the same command again" in shell.said


def test_the_report_says_what_is_left_and_why() -> None:
    """Protects the question "is it complete?": hosts that still wait are named with the reason and the next time."""
    from streams.cli.report import ending
    from streams.core.progress import EndReason, Summary

    left = (HostWaiting("https://b.example", 12, "backs off after 503", 1_796_000_000_000),)
    progress = Progress(pages=5, elapsed_ms=2_000, errors_by_kind={"http_404": 3}, dead_letters=2)
    lines = "\n".join(
        ending(Summary(progress, EndReason.NOTHING_DUE, "within 60 s", hosts_left=left, hosts_left_count=4, out="my o"))
    )
    assert "ended: nothing is due within 60 s" in lines
    assert "5 pages in 2.0 s (2.5/s)" in lines
    assert "https://b.example  12 URLs: backs off after 503; next at 2026-11-30 00:53:20Z" in lines
    assert "and 3 more" in lines
    assert "headrace crawl --out 'my o'" in lines
    assert "dead-letters 'my o' list" in lines


def test_the_report_tells_causes_in_words() -> None:
    """Protects the summary: retries by what went wrong, and a refused address with the option that allows it."""
    progress = Progress(
        retries=6,
        retries_by_kind={"timeout": 2, "connection_reset": 4},
        errors_by_kind={"private_address": 3, "robots.txt private_address": 1},
    )
    lines = "\n".join(ending(Summary(progress, EndReason.COMPLETE)))
    assert "6  tried again: 4 connection_reset, 2 timeout" in lines
    assert "3  refused: not a public address (--allow-address" in lines
    assert "1  refused for robots.txt: not a public address" in lines


def test_proposed_commands_can_be_pasted() -> None:
    """Protects the step after the first: from a checkout it is the launcher's path, installed the bare name."""
    root = Path(command.__code__.co_filename).resolve().parents[2]
    module = str(root / "streams" / "cli" / "__main__.py")
    assert command(module, root) == "./infra/headrace"
    assert command(module, root / "tests") == str(root / "infra" / "headrace")
    assert command("/usr/local/bin/headrace", root) == "headrace"


def test_counts_over_all_runs_are_counts() -> None:
    """Protects `resuming:` from a plural of one."""
    reader = FakeReader(Counts(pages=1, urls_queued=0))
    Path("o").mkdir()
    Path("o/crawl.json").write_text("{}")
    shell = Captured(FakeBackend(reader=reader))
    assert main(["crawl", "--out", "o"], shell) == 0
    assert "resuming: 1 page done, 0 queued" in shell.said
