"""The command line's manners: help, hints, exit codes, and never a traceback for bad input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streams.cli import VERBS, main
from streams.core.failures import CrawlError
from tests.support.fake_engine import Captured, FakeBackend


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_every_verb(words: list[str]) -> None:
    """Protects the first minute: whoever types the name alone sees every verb, and nothing fails."""
    shell = Captured()
    assert main(words, shell) == 0
    assert all(f"  {verb.name} " in shell.printed for verb in VERBS)


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
@pytest.mark.parametrize("order", ["after", "before"])
def test_each_verb_has_help_with_examples(verb: str, order: str) -> None:
    """Protects `VERB --help` and `help VERB`: usage, options and a line that can be pasted."""
    shell = Captured()
    assert main([verb, "--help"] if order == "after" else ["help", verb], shell) == 0
    assert shell.printed.startswith(f"usage: headrace {verb}")
    assert f"examples:\n  headrace {verb}" in shell.printed
    assert all(len(line) <= 120 for line in shell.printed.splitlines())


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["crwl"], 'did you mean "headrace crawl"?'),
        (["https://example.org"], "headrace crawl https://example.org"),
        (["frobnicate"], "headrace --help"),
        (["crawl", "--delya", "3", "http://a.example"], "did you mean --delay?"),
        (["crawl", "--pages", "many", "http://a.example"], 'came "many"'),
        (["crawl", "--pages", "0", "http://a.example"], "at least 1"),
        (["crawl", "--delay", "3x", "http://a.example"], "--delay"),
        (["crawl", "--scope", "hots", "http://a.example"], 'did you mean "host"?'),
        (["crawl", "--include", "(", "http://a.example"], "--include"),
        (["crawl", "--allow-address", "all", "http://a.example"], "--allow-address"),
        (["crawl", "--config", "/nowhere/x.toml", "http://a.example"], "/nowhere/x.toml"),
        (["crawl", "--user-agent", "My Bot 1", "http://a.example"], "--user-agent"),
        (["crawl"], "nothing to crawl"),
        (["status"], "DIR"),
        (["status", "a", "b"], 'no argument "b"'),
        (["export", "d"], "--to pages.parquet"),
        (["export", "d", "--to", "pages.xlsx"], "pages.parquet"),
        (["dead-letters", "d", "lsit"], "list, show, requeue"),
        (["dead-letters", "d", "requeue"], "--all"),
        (["dead-letters", "d", "show"], "KEY"),
        (["check", "robot", "x"], "robots, url, page, sitemap"),
        (["check", "page", "x.html"], "x.html: cannot be read"),
        (["check", "page", "-"], "--url"),
        (["settings", "crwl"], "crawl"),
    ],
)
def test_bad_words_are_one_line_with_a_remedy(words: list[str], hint: str) -> None:
    """Protects people from tracebacks: exit code 2, one line on stderr that names what to do, no engine opened."""
    shell = Captured()
    assert main(words, shell) == 2
    assert shell.said.startswith("headrace: ")
    assert shell.said.count("\n") == 1
    assert hint in shell.said
    assert shell.fake.opened == []


@pytest.mark.parametrize(
    "words", [["status", "d"], ["explain", "d", "a.example"], ["dead-letters", "d"], ["crawl", "http://a.example"]]
)
def test_trouble_with_the_folder_is_exit_code_3(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects scripts that wait for a held folder: it is told apart from wrong words and from a failed run."""
    monkeypatch.chdir(tmp_path)
    shell = Captured(FakeBackend(failure=CrawlError("d: held by process 17; wait for it or end it")))
    assert main(words, shell) == 3
    assert shell.said.endswith("headrace: d: held by process 17; wait for it or end it\n")


def test_settings_come_as_a_table_and_as_a_file() -> None:
    """Protects `settings --toml` as a start: every line of it is TOML once the leading # is taken away."""
    import tomllib

    from infra.settings import rows

    shell = Captured()
    assert main(["settings", "--toml"], shell) == 0
    lines = [line.removeprefix("#") for line in shell.printed.splitlines() if not line.startswith("# ")]
    parsed = tomllib.loads("\n".join(lines))
    assert {f"{section}.{key}" for section, table in parsed.items() for key in table} == {row.name for row in rows()}


def test_help_is_cheap() -> None:
    """Protects the prompt: --help loads nothing of the crawl, so that it answers at once."""
    code = (
        "import sys, streams.cli; streams.cli.main(['--help']);"
        "heavy = {'aiohttp', 'msgspec', 'rich', 'pyarrow', 'rocksdict', 'asyncio', 'numpy'} & set(sys.modules);"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    """Protects `headrace settings | head -1`: no traceback, no complaint."""
    command = f"{sys.executable} -m streams.cli settings | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout == "[crawl]\n"
    assert done.stderr == ""


def test_looking_into_a_folder_loads_nothing_that_only_a_run_needs() -> None:
    """Protects `status`, `explain` and `export` from starting slowly: no web, event loop, parser or Parquet."""
    heavy = ("aiohttp", "aiodns", "asyncio", "uvloop", "multiprocessing", "selectolax", "lxml", "pyarrow", "rich")
    verbs = "streams.cli.status, streams.cli.explain, streams.cli.export"
    code = f"import sys, infra.wiring, {verbs}; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
