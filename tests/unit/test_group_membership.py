"""Who is in a group: told by the client's own statistics, and by what its group says of partitions."""

from __future__ import annotations

import json
from types import SimpleNamespace as Thing
from typing import Any

import pytest

from connectors.group_membership import Membership
from streams.fleet.faust_mends import out_of_group


def statistics(join_state: str) -> str:
    return json.dumps({"name": "c", "topics": {"t": {"partitions": {}}}, "cgrp": {"join_state": join_state}})


def test_a_member_without_any_partition_is_one() -> None:
    """A worker more than there are partitions is given none, ever, and no callback of the client says so: it waited to
    be ready for ever, and a roll-out waited for it."""
    member = Membership()
    member.heard(json.dumps({"name": "c"}))
    member.heard(statistics("wait-sync"))
    assert not member.is_member()
    member.heard(statistics("steady"))
    assert member.is_member()
    member.heard(statistics("wait-join"))  # a rebalance: it keeps what it has
    assert member.is_member()


def test_who_was_lost_is_none_until_it_is_back() -> None:
    """Others have its partitions by then: what says that it is ready would hide that it does nothing."""
    member = Membership()
    member.dealt()
    assert member.is_member()
    member.lost()
    member.heard(statistics("wait-join"))
    assert not member.is_member()
    member.heard(statistics("steady"))
    assert member.is_member()


def faust_app(*, generation: int = 3, member_id: str = "m", ended: bool = False, stopped: bool = False) -> Any:
    """The parts of Faust's consumer that are looked at."""
    coordinator = Thing(generation=generation, member_id=member_id, _coordination_task=Thing(done=lambda: ended))
    return Thing(consumer=Thing(_thread=Thing(should_stop=stopped, _consumer=Thing(_coordinator=coordinator))))


def test_an_owner_in_its_group() -> None:
    """A rebalance or brokers that are away leave it a member; to be unready then would start it anew for nothing."""
    assert out_of_group(faust_app()) is None


@pytest.mark.parametrize(
    ("app", "said"),
    [
        (faust_app(generation=-1, member_id=""), "it is not a member of its group now"),  # as aiokafka resets them
        (faust_app(ended=True), "has ended"),
        (faust_app(stopped=True), "has ended"),
        (Thing(consumer=Thing(_thread=Thing(should_stop=False, _consumer=None))), "has ended"),
    ],
)
def test_an_owner_that_its_group_has_lost_is_not_ready(app: Any, said: str) -> None:
    """It goes on with what it owns until another takes that over, and nobody saw that it stood alone."""
    assert said in (out_of_group(app) or "")
