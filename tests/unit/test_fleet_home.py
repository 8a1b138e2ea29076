"""`headrace home`: where partitions are at home, and what a move leaves behind."""

from __future__ import annotations

import json

import pytest

from connectors.ports import Elsewhere
from connectors.url_state_memory import MemoryEpochs
from schemas.topics import partition_for
from streams.cli import main
from tests.support.fake_engine import Captured
from tests.support.fake_kafka import FakeFleet

HOST = "https://a.test"


def run(fleet: FakeFleet, *words: str, code: int = 0) -> Captured:
    shell = Captured(fleet=fleet)
    assert main(["home", *words], shell) == code, shell.said
    return shell


def homes(fleet: FakeFleet, *words: str) -> dict[int, str | None]:
    lines = run(fleet, *words, "--json").printed.splitlines()
    return {one["partition"]: one["home"] for one in map(json.loads, lines)}


def test_a_move_is_an_epoch_of_the_partitions_that_are_named() -> None:
    """The others stay; the former region takes the moved ones no more, and the new one's epoch is above the move's."""
    fleet = FakeFleet()
    for partition in range(3):
        MemoryEpochs("east", of=fleet.taken).take(partition)
    assert homes(fleet) == {0: "east", 1: "east", 2: "east", 3: None}
    assert homes(fleet, "0-1", "--to", "west") == {0: "west", 1: "west"}
    assert homes(fleet) == {0: "west", 1: "west", 2: "east", 3: None}
    with pytest.raises(Elsewhere):
        MemoryEpochs("east", of=fleet.taken).take(0)
    assert MemoryEpochs("west", of=fleet.taken).take(0) == 3


def test_a_host_stands_for_its_partition() -> None:
    """Operators think of hosts; what moves is all of the partition that the host lies in."""
    fleet = FakeFleet()
    assert homes(fleet, HOST, "--to", "west") == {partition_for(HOST, 4): "west"}


@pytest.mark.parametrize("words", [("--to", "west"), ("0-4", "--to", "west"), ("3-1", "--to", "w"), ("mailto:x",)])
def test_what_is_none_moves_nothing(words: tuple[str, ...]) -> None:
    """A slip of the finger would stop partitions: it is refused, and said, before anything is written."""
    fleet = FakeFleet()
    assert "needed" in run(fleet, *words, code=2).said
    assert homes(fleet) == dict.fromkeys(range(4))
