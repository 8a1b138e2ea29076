"""What a fleet needs is reckoned, not guessed: the page says what the program says, and the arithmetic is right."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from infra.production import sizing
from infra.production.sizing import FIGURES, Figures
from schemas.topics import TOPICS
from streams.cli import main
from streams.core.policy import CONNECTIONS_MAX
from tests.support.fake_engine import Captured

PAGE = Path(sizing.__file__).with_name("README.md")


def profile(name: str = "refresh") -> Figures:
    """One profile of the file."""
    return sizing.read(FIGURES.read_text("utf-8"))[name]


@pytest.mark.parametrize("name", ["refresh", "corpus"])
def test_the_page_has_the_programs_own_figures(name: str) -> None:
    """A page whose tables were typed is wrong after the next measurement."""
    found = re.search(rf"<!-- headrace size {name} -->\n(.*?)\n<!-- end -->", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    shell = Captured()
    assert main(["size", name, "--markdown"], shell) == 0
    assert found.group(1) == shell.printed.rstrip("\n")


def test_a_small_fleet_by_hand() -> None:
    """The arithmetic, redone here without the program, for 100 fetches a second."""
    given = profile()
    own = {
        "known_urls": 1e6,
        "fetches_mean": 100,
        "fetches_peak": 200,
        "new_urls": 50,
        "body_bytes": 100_000,
        "parsed_bytes": 100_000,
        "links_per_page": 10,
        "utilization": 0.5,
        "partitions": 8,
    }
    figures = {**given.figures, **{name: sizing.Figure(value, "", "given") for name, value in own.items()}}
    sized = sizing.size(Figures("small", figures))
    assert sized.value("load", "links checked at peak") == 2_000
    assert sized.value("load", "bodies a day at most") == 100 * 86_400 * 100_000
    assert sized.value("cassandra", "rows written at peak") == 200 + 100
    assert sized.value("cassandra", "disk") == 1e6 * 188 * 3
    assert sized.value("cassandra", "nodes") == 4  # as many as copies, and one more
    # 200 pairs of 82 us, 2,000 links of 10.2, 100 admissions of 27, 300 rows written of 140, 200 read of 291
    assert sized.value("owner", "cores at work") == pytest.approx(0.0164 + 0.0204 + 0.0027 + 0.042 + 0.0582)
    assert sized.value("cassandra", "cores at work") == pytest.approx(300 * 3 / 2_800 + 200 * 2 / 1_326)
    assert sized.value("owner", "workers") == 1
    assert sized.value("fetch", "CPU a fetch") == pytest.approx(250 + 360 + 750)
    assert sized.value("kafka", "commits") == 16  # 8 partitions, twice a second
    assert sized.value("store", "segments a day") == 100 * 86_400 * 0.7 * 100_000 * 0.2


def test_a_topic_that_grows_is_reckoned_with() -> None:
    """A topic left out is a disk that fills: each that grows with the load is there, by its name."""
    reckoned = set(sizing.bytes_per_fetch(profile())) - {"changelog"}
    assert set(TOPICS) - reckoned == {"host-policies", "owner-messages", "wake-ups", "dead-letters"}


def test_longer_retention_needs_more_brokers() -> None:
    """Disk follows the topics' own retention; who changes it there must see it here."""
    each = sizing.bytes_per_fetch(profile())
    days = {name: (TOPICS[name].retention_ms or 0) / 86_400_000 for name in each if name in TOPICS}
    kept = sum(each[name] * days[name] for name in days) * 11_574 * 86_400
    log = 3 * each["changelog"] * 11_574 * 86_400
    assert sizing.size(profile()).value("kafka", "disk") == pytest.approx(3 * (kept + log))


def test_figures_say_where_they_are_from() -> None:
    """A number without a source cannot be doubted, only believed."""
    known = ("measured", "given", "assumed", "streams.core.policy.")
    for name in ("refresh", "corpus"):
        for figure, said in profile(name).figures.items():
            assert said.source.startswith(known), figure
    assert profile()["fetch_connections"] == CONNECTIONS_MAX


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (999_993_600, "", "1 billion"),
        (2_500_000, "/s", "2.5 million/s"),
        (87.74e12, "B", "87.7 TB"),
        (46.3e9, "B/s", "46.3 GB/s"),
        (0.6, "", "0.6"),
        (16.25, "", "16.2"),
        (33_792, "", "33,792"),
        (1_720, "us", "1,720 us"),
    ],
)
def test_numbers_as_people_read_them(value: float, unit: str, words: str) -> None:
    """Three digits: more would claim what nobody measured."""
    assert sizing.show(value, unit) == words


def test_own_figures_by_the_command() -> None:
    """Who has a smaller fleet, or better figures, sees what they come to; a mistyped name is no silent default."""
    shell = Captured()
    assert main(["size", "--set", "fetches_peak=12_500", "--json"], shell) == 0
    rows = [json.loads(line) for line in shell.printed.splitlines()]
    assert next(row["value"] for row in rows if row["what"] == "links checked at peak") == 1_250_000
    for words, hint in (
        (["size", "--set", "fetch_peak=1"], 'did you mean "fetches_peak"?'),
        (["size", "--set", "fetches_peak=0"], "above 0"),
        (["size", "--set", "fetches_peak=nan"], "above 0"),
        (["size", "big"], "known: refresh, corpus"),
    ):
        shell = Captured()
        assert main(words, shell) == 2
        assert hint in shell.said
