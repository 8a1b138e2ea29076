"""One suite through the three runners: the same web gives the same URL states, links and index documents.

What must come out of each scenario is also written down by hand, so that runners that are wrong alike are seen.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.cases import SCENARIOS, SITE, VISITS, A, B, C
from tests.scenarios.runners import embedded, fleet, simulated
from tests.scenarios.web import Findings, Scenario

SEEDS = range(3)
NAMES = [scenario.name for scenario in SCENARIOS]


def paths(findings: Findings, host: str = A) -> dict[str, str]:
    """Title by path, of the documents of a host."""
    return {url.removeprefix(host): one.title for url, one in findings.documents.items() if url.startswith(host)}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=NAMES)
def test_fleet_and_embedded_engine_agree(scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects a fleet from coming to other pages, links or documents than one machine does."""
    alone = embedded(scenario, tmp_path / "crawl", monkeypatch)
    several = fleet(scenario, tmp_path / "fleet")
    assert several.states == alone.states
    assert several.links == alone.links
    assert several.documents == alone.documents


@pytest.mark.parametrize("kind", ["embedded", "fleet"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=NAMES)
def test_the_simulator_agrees(scenario: Scenario, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects the simulator from judging another crawler than the one that runs, whatever its races are."""
    several = fleet(scenario, tmp_path / "fleet")
    for seed in SEEDS:
        virtual = simulated(scenario, monkeypatch, seed=seed, kind=kind)
        assert virtual.states == several.states, seed
        assert virtual.links == several.links, seed
        assert virtual.documents == several.documents, seed


def test_what_a_site_comes_to(tmp_path: Path) -> None:
    """Protects links and documents of every kind: what is followed, what is indexed, what is neither."""
    found = fleet(SITE, tmp_path)
    never = {A + "/never", A + "/two", A + "/gone"}
    assert never & found.states.keys() == {A + "/gone"}
    assert found.states[A + "/private/secret"][0] == "DENIED"
    assert paths(found) == {
        "/": "Home",
        "/d/one": "One",
        "/framed": "Framed",
        "/area": "Area",
        "/listed": "Listed",
        "/moved/here": "Here",
        "/from-noindex": "From",
        "/nofollow": "F",
        "/plain": "",
        "/refresh": "R",
        "/refreshed": "Refreshed",
        "/canonical": "C",
        "/canon": "Canon",
        "/canonical?page=2": "C2",
    }
    assert paths(found, B) == {"/far": "Fern \u00fc"}
    assert paths(found, C) == {"/de": "Deutsch"}
    assert found.documents[A + "/canonical"].canonical == A + "/canon"
    assert found.links[A + "/", 1] >= {A + "/d/one", B + "/far", A + "/framed", A + "/area", A + "/two"}
    assert B + "/foreign" not in found.states, "a sitemap speaks for its own host"


def test_what_visits_come_to(tmp_path: Path) -> None:
    """Protects the index through a page's life: changed, gone, moved, hidden and back, in versions that only rise."""
    for rounds, documents in (
        (1, {"/", "/changes", "/goes", "/moves", "/hides", "/stays", "/blunder", "/turns"}),
        (2, {"/", "/changes", "/new", "/goes", "/moved", "/stays", "/blunder"}),
        (3, {"/", "/changes", "/new", "/moves", "/moved", "/stays", "/blunder"}),
        (4, {"/", "/changes", "/new", "/goes", "/moves", "/moved", "/hides", "/stays", "/blunder"}),
    ):
        part = Scenario(VISITS.name, VISITS.seeds, VISITS.rounds[:rounds])
        found = fleet(part, tmp_path / str(rounds))
        assert set(paths(found)) == documents, rounds
    assert found.documents[A + "/changes"].title == "Third"
    assert found.documents[A + "/stays"].version >> 20 == 1
    assert found.documents[A + "/goes"].version >> 20 == 3, "read anew under the visit that withdrew it"
