"""Settings say what a person meant or refuse it where it stands; nothing is ignored and nothing guessed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import settings, settings_help, units
from infra.settings import Given, Scope, SettingsError, build, load
from infra.units import Unit
from streams.core.failures import UsageError
from streams.core.policy import FetchLimits, ParseLimits, Politeness


def write(folder: Path, text: str) -> Path:
    """A settings file with that text."""
    path = folder / "headrace.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_later_sources_win(tmp_path: Path) -> None:
    """A flag beats the environment, which beats the file, which beats the default; each source alone is heard."""
    config = write(
        tmp_path, '[politeness]\ndelay = "5s"\nconcurrency = 2\nbudget_per_day = 7\n[crawl]\nscope = "domain"\n'
    )
    environ = {"HEADRACE_POLITENESS__DELAY_MS": "4000", "HEADRACE_POLITENESS__CONCURRENCY": "3", "HOME": "/"}
    got = load(config=config, environ=environ, flags=[Given("politeness.delay", "0.5", "--delay")])
    assert got.politeness == Politeness(delay_ms=500, concurrency=3, budget_per_day=7)
    assert got.crawl.scope is Scope.DOMAIN
    assert got.crawl.depth_max is None


def test_sections_are_the_policys_own_structs() -> None:
    """What the core takes as limits is what was set, with no copying in between that could forget a field."""
    got = build([Given("fetch.body_max", "1 MiB", "test"), Given("parse.links_max", 5, "test")])
    assert isinstance(got.fetch, FetchLimits)
    assert isinstance(got.parse, ParseLimits)
    assert (got.fetch.body_bytes_max, got.parse.links_max) == (1 << 20, 5)


@pytest.mark.parametrize(
    ("name", "value", "count"),
    [
        ("politeness.delay_ms", 1_500, 1_500),
        ("politeness.delay_ms", "1500", 1_500),
        ("politeness.delay_ms", "1.5s", 1_500),
        ("politeness.delay_ms", "2 min", 120_000),
        ("politeness.delay", 1.5, 1_500),
        ("politeness.delay", 0, 0),
        ("politeness.delay", "0.25", 250),
        ("politeness.delay", "250ms", 250),
        ("crawl.time_max_s", 90, 90),
        ("crawl.time_max_s", "1h", 3_600),
        ("crawl.time_max", "1.5 min", 90),
        ("crawl.time_max_s", "none", None),
        ("fetch.body_bytes_max", "64 MiB", 64 << 20),
        ("fetch.body_max", "1.5 kB", 1_500),
        ("fetch.body_max", 4_096, 4_096),
        ("politeness.concurrency", "3", 3),
    ],
)
def test_units(name: str, value: object, count: int | None) -> None:
    """A span or size is read as it is written; a bare number counts what the name says, or seconds and bytes."""
    section, row = next(
        (one.section, one.key)
        for one in settings.rows()
        if name in (one.name, f"{one.section}.{units.without_unit(one.key)}")
    )
    assert getattr(getattr(build([Given(name, value, "test")]), section), row) == count


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("politeness.dealy", "1s", ('no setting "dealy" in [politeness]', 'did you mean "delay"?')),
        ("politeness.delay_m", 1, ('did you mean "delay_ms"?',)),
        ("polite.delay", "1s", ('no section "polite"', 'did you mean "politeness"?')),
        ("crawl.delay_ms", 1, ('did you mean "politeness.delay_ms"?',)),
        ("crawl.scope", "hots", ("one of host, domain, prefix, any", "'hots'", 'did you mean "host"?')),
        ("crawl.scope", 3, ("one of host",)),
        ("politeness.delay", "soon", ('a span such as "1.5s"', "'soon'")),
        ("politeness.delay", "-1s", ("a span",)),
        ("politeness.delay_ms", -1, ("at least 0 ms", "came -1")),
        ("politeness.delay_ms", 1.5, ("a span",)),
        ("politeness.delay", "0.0001s", ("a span",)),
        ("politeness.delay", "5 MiB", ("a span",)),
        ("politeness.concurrency", "2s", ("a whole number",)),
        ("politeness.concurrency", True, ("a whole number",)),
        ("politeness.concurrency", 0, ("at least 1",)),
        ("politeness.respect_robots", "maybe", ("true or false",)),
        ("politeness.respect_robots", 1, ("true or false",)),
        ("fetch.robots_bytes_max", "1 KiB", ("at least 500 KiB",)),
        ("crawl.pages_max", 1 << 60, ("at most",)),
        ("crawl.out", "", ("the path of a folder",)),
        ("crawl.out", "a\nb", ("printable",)),
        ("crawl.include", [1], ("a list",)),
        ("crawl.include", "[1]", ("a JSON list",)),
        ("crawl.user_agent", "two words", ("a product token",)),
        ("crawl.user_agent", "Bot/1 (+https://é.example)", ("a product token",)),
        ("crawl.contact", "a b", ("a URL or a mail address",)),
        ("crawl.allow_addresses", ["10.0.0.0/33"], ("a network such as", "'10.0.0.0/33'")),
        ("dns.servers", "127.0.0.1:0", ("ADDR:PORT",)),
        ("dns.servers", "localhost", ("ADDR:PORT",)),
        ("dns.resolve", "name", ("NAME=ADDR",)),
        ("dns.resolve", "=127.0.0.1", ("NAME=ADDR",)),
        ("dns.resolve", "a=b", ("NAME=ADDR",)),
    ],
)
def test_a_wrong_value_is_refused(name: str, value: object, words: tuple[str, ...]) -> None:
    """The error names the place, what was needed, what came, and the nearest right name."""
    with pytest.raises(SettingsError) as caught:
        build([Given(name, value, "--flag")])
    assert str(caught.value).startswith("--flag: ")
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, UsageError)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[politeness]\ndealy = 1\n", ("[politeness] dealy", "did you mean")),
        ("[politness]\ndelay = 1\n", ("[politness]", "no such section", 'did you mean "politeness"?')),
        ("delay = 1\n", ("[delay]", "no such section")),
        ("crawl = 1\n", ("is a section",)),
        ("[crawl\n", ("is not TOML", "line 1")),
    ],
)
def test_a_wrong_file_is_refused_by_name_and_key(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    """A typo in a file must be found where it stands, not by the crawl going wrong."""
    path = write(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load(config=path, environ={})
    for word in (str(path), *words):
        assert word in str(caught.value)


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    """A file named on the command line that is not there, or is no text, is an error and not an empty file."""
    with pytest.raises(SettingsError, match="cannot be read"):
        load(config=tmp_path / "none.toml", environ={})
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="UTF-8"):
        load(config=tmp_path / "bytes.toml", environ={})


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("HEADRACE_POLITENESS__DEALY_MS", 'did you mean "delay_ms"?'),
        ("HEADRACE_POLITENESS_DELAY_MS", 'did you mean "HEADRACE_POLITENESS__DELAY_MS"?'),
        ("HEADRACE_DELAY", 'did you mean "HEADRACE_POLITENESS__DELAY_MS"?'),
        ("HEADRACE_VENVV", 'did you mean "HEADRACE_VENV"?'),
    ],
)
def test_a_wrong_variable_is_refused(variable: str, nearest: str) -> None:
    """A misspelt variable of ours is an error too; it would otherwise be the quietest way to be impolite."""
    with pytest.raises(SettingsError) as caught:
        load(environ={variable: "1", "HEADRACE_VENV": "/elsewhere", "OTHER_HEADRACE_X": "1"})
    assert str(caught.value).startswith(f"{variable}: ")
    assert nearest in str(caught.value)


def test_lists_from_every_source(tmp_path: Path) -> None:
    """A list is a TOML list, commas in a variable or flag, or JSON where an entry holds a comma."""
    config = write(tmp_path, '[crawl]\ninclude = ["a,b"]\n')
    environ = {"HEADRACE_DNS__SERVERS": "127.0.0.1:5353, [::1]:53", "HEADRACE_CRAWL__EXCLUDE": '["a,b", "c"]'}
    got = load(config=config, environ=environ, flags=[Given("crawl.allow_addresses", ("127.0.0.0/8", "::1"), "-a")])
    assert got.crawl.include == ("a,b",)
    assert got.crawl.exclude == ("a,b", "c")
    assert got.crawl.allow_addresses == ("127.0.0.0/8", "::1")
    assert [settings.split_server(one) for one in got.dns.servers] == [("127.0.0.1", 5353), ("::1", 53)]


@pytest.mark.parametrize(
    ("agent", "contact", "token", "header"),
    [
        ("Headrace", "", "Headrace", "Headrace/0.1"),
        ("My-Bot", "mailto:a@b.example", "My-Bot", "My-Bot/0.1 (+mailto:a@b.example)"),
        ("My_Bot/2.3", "", "My_Bot", "My_Bot/2.3"),
        ("MyBot/2 (+https://b.example/bot)", "", "MyBot", "MyBot/2 (+https://b.example/bot)"),
        ("MyBot (a@b.example)", "https://c.example", "MyBot", "MyBot/0.1 (+https://c.example)"),
    ],
)
def test_user_agent(agent: str, contact: str, token: str, header: str) -> None:
    """robots.txt is matched by the bare product token; sites see token, version and contact (RFC 9110 10.1.5)."""
    crawl = build([Given("crawl.user_agent", agent, "t"), Given("crawl.contact", contact, "t")]).crawl
    assert settings.product_token(crawl) == token
    assert settings.user_agent_header(crawl, "0.1") == header


def test_every_setting_is_described_and_its_default_can_be_set() -> None:
    """The table that people read lists each setting, and what it shows as default is accepted and changes nothing."""
    described = settings_help.describe()
    assert [one.name for one in described] == [row.name for row in settings.rows()]
    assert settings_help.MEANINGS.keys() == {row.name for row in settings.rows()}
    environ = {one.variable: one.default.strip('"') for one in described}
    assert load(environ=environ) == settings.Settings()


@given(st.integers(0, 1 << 53), st.sampled_from([Unit.MS, Unit.S, Unit.BYTES, Unit.NONE]))
def test_what_is_shown_is_read_back(count: int, unit: Unit) -> None:
    """A value copied from the table into a file means the same."""
    assert units.parse(units.show(count, unit), unit) == count


def test_every_setting_is_read_by_something() -> None:
    """A setting that nothing reads is a promise that is not kept."""
    root = Path(settings.__file__).parent.parent
    sources = [
        path.read_text("utf-8")
        for package in ("infra", "streams", "connectors")
        for path in (root / package).rglob("*.py")
        if not path.name.startswith("settings")
    ]
    unread = [row.name for row in settings.rows() if not any(re.search(rf"\.{row.key}\b", text) for text in sources)]
    assert unread == []
