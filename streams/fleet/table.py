"""The owner's table as Faust knows it: a changelog by which partitions and standbys are assigned.

Its data lie in the keeper's local stores and are written by the owner's commit alone, so whatever would write them
through Faust is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, NoReturn

import faust
from faust.stores.base import Store
from faust.types import TP

Assign = Callable[[Collection[int], Collection[int]], None]


class OwnerTable(faust.Table[bytes, bytes]):
    """Passes on which partitions this worker owns and which it follows."""

    def __init__(self, app: Any, *, assign: Assign, changelog: str, **options: Any) -> None:
        """`changelog`: its topic, whatever the app's name: a partition's owners in all regions have the one."""
        super().__init__(app, key_type=bytes, value_type=bytes, **options)
        self._assign, self._changelog = assign, changelog

    def _changelog_topic_name(self) -> str:
        return self._changelog

    def _new_store(self) -> Store[Any, Any]:
        return _NoStore("memory://", self.app, self, table_name=self.name, loop=self.loop)

    def info(self) -> dict[str, Any]:
        return {**super().info(), "assign": self._assign, "changelog": self._changelog}

    async def on_rebalance(
        self, assigned: set[TP], revoked: set[TP], newly_assigned: set[TP], generation_id: int = 0
    ) -> None:
        await super().on_rebalance(assigned, revoked, newly_assigned, generation_id)
        assignor = self.app.assignor
        self._assign(self._of_ours(assignor.assigned_actives()), self._of_ours(assignor.assigned_standbys()))

    def _of_ours(self, tps: Iterable[TP]) -> set[int]:
        return {tp.partition for tp in tps if tp.topic == self.changelog_topic_name}

    def on_key_get(self, key: bytes) -> NoReturn:
        _refuse()

    def on_key_set(self, key: bytes, value: bytes) -> NoReturn:
        _refuse()

    def on_key_del(self, key: bytes) -> NoReturn:
        _refuse()


class _NoStore(Store[Any, Any]):
    """Holds nothing, and says so."""

    def persisted_offset(self, tp: TP) -> int | None:
        return None

    def set_persisted_offset(self, tp: TP, offset: int) -> None:
        _refuse()

    def apply_changelog_batch(self, batch: Iterable[Any], to_key: Any, to_value: Any) -> None:
        if list(batch):
            _refuse()

    def reset_state(self) -> None:
        return

    async def backup_partition(self, tp: TP | int, flush: bool = True, purge: bool = False, keep: int = 1) -> None:
        _refuse()

    def restore_backup(self, tp: TP | int, latest: bool = True, backup_id: int = 0) -> None:
        _refuse()

    def _keys(self) -> Iterable[bytes]:
        return ()


def _refuse() -> NoReturn:
    raise AssertionError("the owner's table is written by the owner's commit alone")
