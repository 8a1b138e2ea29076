"""Whose region a partition is at home in, as data: the record that epochs are taken from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.core.homes import Home, moved, overtaken, taken


def test_the_first_to_take_it_settles_the_home() -> None:
    """A fleet of one region never says where its partitions are at home."""
    assert taken(None, "") == Home(1, "")
    assert taken(None, "north") == Home(1, "north")


def test_only_the_home_s_region_takes_it() -> None:
    """A worker of another region gets no epoch, so it can write nothing that would stand."""
    assert taken(Home(7, "north"), "north") == Home(8, "north")
    assert taken(Home(7, "north"), "south") is None
    assert taken(moved(Home(7, "north"), "south"), "north") is None
    assert taken(moved(None, "south"), "north") is None


def test_an_owner_is_overtaken_by_a_later_number_of_its_own_region() -> None:
    """While the home is elsewhere it goes on until it is fenced; once it is back, whoever held it before lets go."""
    away = moved(Home(7, "north"), "south")
    back = moved(away, "north")
    assert not overtaken(Home(7, "north"), "north", 7)
    assert not overtaken(away, "north", 7)
    assert overtaken(back, "north", 7)
    assert overtaken(taken(Home(7, "north"), "north"), "north", 7)
    assert not overtaken(None, "north", 7)


@given(st.lists(st.tuples(st.sampled_from(["take", "move"]), st.sampled_from(["north", "south"]))))
def test_epochs_rise_over_all_regions(changes: list[tuple[str, str]]) -> None:
    """Whoever takes it and however often it moves: each change has a number of its own, and nobody owns by a move's."""
    home: Home | None = None
    owned: list[int] = []
    for change, region in changes:
        before = home
        home = moved(home, region) if change == "move" else taken(home, region) or home
        assert home is not None
        if change == "take" and home != before:
            owned.append(home.epoch)
        assert before is None or home.epoch - before.epoch in ((1,) if change == "move" or home != before else (0,))
    assert owned == sorted(set(owned))
