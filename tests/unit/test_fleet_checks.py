"""What a worker refuses to start with, and what it says then."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infra import wiring_worker
from infra.fleet_checks import check_data, check_readers, check_stages
from infra.settings import Given, Settings, SettingsError, build
from infra.settings_fleet import STAGES, Fleet
from infra.wiring_worker import OPENERS, opener_of, web_host
from schemas.topics import TOPICS
from streams.core.failures import CrawlError


class Groups:
    """A cluster whose topics are read by these groups."""

    def __init__(self, **readers: Iterable[str]) -> None:
        self._readers = {name.replace("_", "-"): groups for name, groups in readers.items()}

    def readers(self) -> Mapping[str, Iterable[str]]:
        return self._readers


def test_a_topic_has_one_group_of_readers() -> None:
    """A second group on fetch-leases asks every site twice: nobody may find that out by a site's complaint."""
    check_readers(STAGES, Groups(fetch_leases=["headrace-fetch"], discovered_urls=["headrace-owner-input"]))
    check_readers(["parse"], Groups(fetch_leases=["monitor"]))  # not read by this worker: not its to refuse
    with pytest.raises(CrawlError, match="topic fetch-leases: needed headrace-fetch to be the one group") as refused:
        check_readers(["fetch"], Groups(fetch_leases=["headrace-fetch", "headrace-fetcher", "monitor"]))
    assert "came headrace-fetcher and monitor" in str(refused.value)


def test_every_stage_has_its_groups_topics() -> None:
    """A stage whose topics were another group's would be checked for nothing."""
    assert set(OPENERS) == set(STAGES)
    assert set(STAGES) < {topic.group.value for topic in TOPICS.values()}


@pytest.mark.parametrize("stages", [(), ("owner", "fetch", "owner")])
def test_stages_are_named_once(stages: tuple[str, ...]) -> None:
    """Two apps of one stage in a process would share a folder; none would be a worker that does nothing."""
    with pytest.raises(CrawlError, match="needed stages, each once"):
        check_stages(Fleet(stages=stages))
    check_stages(Fleet())


def test_an_unknown_stage_is_refused_where_it_stands() -> None:
    """A misspelt stage must not be a worker without it."""
    with pytest.raises(SettingsError, match=r'--stage: no such stage; .*came .*fetcher.*did you mean "fetch"'):
        build([Given("fleet.stages", ["owner", "fetcher"], "--stage")])
    assert build([Given("fleet.stages", "owner, parse", "x")]).fleet.stages == ("owner", "parse")


def test_the_setting_rules_over_fausts_folder(tmp_path: Path) -> None:
    """A worker in another folder than it was told finds no state, and reads a whole changelog anew."""
    fleet = Fleet(data=str(tmp_path / "a"))
    check_data(fleet, {})
    check_data(fleet, {"F_DATADIR": str(tmp_path / "a")})
    with pytest.raises(CrawlError, match="came --datadir /elsewhere beside it; say HEADRACE_FLEET__DATA=/elsewhere"):
        check_data(fleet, {"F_DATADIR": "/elsewhere"})
    with pytest.raises(CrawlError, match="came APP_DATADIR"):
        check_data(fleet, {"APP_DATADIR": "/elsewhere"})


def test_a_stage_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing, and what brings it: the stage's own module, or a package that it stands on."""
    monkeypatch.setattr(
        wiring_worker, "OPENERS", {"parse": ("infra.wiring_of_none", "open_it"), "route": ("tests.needs_none", "f")}
    )
    with pytest.raises(CrawlError, match=r"stage parse needed infra\.wiring_of_none, .*this version does not have"):
        opener_of("parse")
    with pytest.raises(CrawlError, match='no stage "index"; known: parse, route'):
        opener_of("index")
    module: Any = ModuleType("tests.needs_none")
    module.f = lambda settings: settings
    monkeypatch.setitem(sys.modules, "tests.needs_none", module)
    assert opener_of("route")(Settings()) == Settings()


@pytest.mark.parametrize(
    ("fleet", "host"),
    [
        (Fleet(), "127.0.0.1"),
        (Fleet(web_bind="::1"), "[::1]"),
        (Fleet(web_bind="0.0.0.0", web_host="w1.example.org"), "w1.example.org"),
    ],
)
def test_a_page_is_announced_as_it_is_reached(fleet: Fleet, host: str) -> None:
    """An owner that announces an address where nobody answers cannot be asked."""
    assert web_host(fleet) == host
    assert web_host(Fleet(web_bind="0.0.0.0")) not in ("0.0.0.0", "")
