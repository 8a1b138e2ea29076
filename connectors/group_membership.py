"""Whether a client is in its consumer group, by its own statistics: it may be a member without any partition.

Of an assignment that is empty, and stays so, the client's callbacks say nothing (with cooperative assignors they tell
differences). Its statistics say how far it is: it is `steady` when the group has dealt its partitions, whatever they
are. A rebalance makes nobody less of a member; to be lost by the group does, until it is steady again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["Membership"]

_LOOK_MS = 1_000  # between two statistics: some 1.5 KB for each partition


class _Group(msgspec.Struct):
    join_state: str = ""


class _Statistics(msgspec.Struct):
    cgrp: _Group | None = None


_decode = msgspec.json.Decoder(_Statistics).decode


class Membership:
    """Told in the reader's thread, asked from any."""

    def __init__(self) -> None:
        self._member = False

    @property
    def settings(self) -> Mapping[str, Any]:
        """For the client whose membership this is."""
        return {"statistics.interval.ms": _LOOK_MS, "stats_cb": self.heard}

    def heard(self, statistics: str) -> None:
        """The client's JSON, as librdkafka's STATISTICS.md has it."""
        group = _decode(statistics).cgrp
        if group is not None and group.join_state == "steady":
            self._member = True

    def dealt(self) -> None:
        """Partitions came: it is in."""
        self._member = True

    def lost(self) -> None:
        """The group goes on without it."""
        self._member = False

    def is_member(self) -> bool:
        return self._member
