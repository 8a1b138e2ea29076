"""The settings that a crawl's folder keeps: what is written is what is read, and no file is half of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.kept import KEPT, keep, kept, kept_settings
from infra.settings import Given, Settings, build
from streams.core.failures import CrawlError

SET = build(
    [
        Given("crawl.user_agent", "Bot/1.0 (+https://a.example/bot)", ""),
        Given("crawl.scope", "prefix", ""),
        Given("crawl.depth_max", 3, ""),
        Given("crawl.include", ['a"b\\d+', "é\x7f\n"], ""),
        Given("politeness.delay", "0", ""),
        Given("politeness.respect_robots", False, ""),
        Given("dns.resolve", ["a.example=10.0.0.1"], ""),
    ]
)


def test_every_kind_of_value_comes_back_as_it_was(tmp_path: Path) -> None:
    """Protects a resumed run: quotes, backslashes and control characters of a pattern are no trouble to TOML."""
    keep(tmp_path, SET)
    assert build(kept(tmp_path)) == SET


def test_what_belongs_to_one_run_is_not_kept(tmp_path: Path) -> None:
    """Protects the next run from the page and time limits of the one before."""
    keep(
        tmp_path,
        build([Given("crawl.pages_max", 5, ""), Given("crawl.time_max", "1h", ""), Given("crawl.out", "x", "")]),
    )
    assert build(kept(tmp_path)) == Settings()
    assert list(kept_settings(Settings())) == []


def test_a_folder_without_them_keeps_nothing(tmp_path: Path) -> None:
    """Protects folders that were made before settings were kept."""
    assert kept(tmp_path) == []


def test_the_same_settings_are_not_written_again(tmp_path: Path) -> None:
    """Protects a resume on a full disk: nothing new to say, nothing to write."""
    keep(tmp_path, SET)
    before = (tmp_path / KEPT).stat().st_ino
    keep(tmp_path, SET)
    assert (tmp_path / KEPT).stat().st_ino == before


def test_settings_that_cannot_be_written_are_one_clear_error(tmp_path: Path) -> None:
    """Protects people from a traceback, and from a crawl that forgets what it was told."""
    with pytest.raises(CrawlError, match=r"needed to write settings\.toml, got: No such file"):
        keep(tmp_path / "gone", SET)
