"""Rows of URLs whose turn comes next, read together: a host's rows lie together, so eight cost little more than one."""

from __future__ import annotations

from collections.abc import Iterable

from streams.core import policy as bounds


class ReadAhead:
    """By host_id ‖ url_id, rows as they are committed. It may forget; what it holds is what a read would give.

    Two generations: when the younger is full it becomes the elder, and the elder is forgotten.
    """

    __slots__ = ("_old", "_rows_max", "_young")

    def __init__(self, rows_max: int = bounds.AHEAD_ROWS_MAX) -> None:
        self._rows_max = rows_max
        self._young: dict[bytes, bytes] = {}
        self._old: dict[bytes, bytes] = {}

    def keep(self, keys: Iterable[bytes], rows: Iterable[bytes | None]) -> None:
        """What was just read, of keys that no turn has changed since."""
        if len(self._young) >= self._rows_max:
            self._old, self._young = self._young, {}
        for key, row in zip(keys, rows, strict=True):
            if row is not None:
                self._young[key] = row

    def take(self, key: bytes) -> bytes | None:
        """The row, once: whoever takes it has it in hand from now on."""
        row = self._young.pop(key, None)
        return self._old.pop(key, None) if row is None else row

    def changed(self, keys: Iterable[bytes]) -> None:
        """These rows are written now: what was read before is past."""
        young, old = self._young, self._old
        if young or old:
            for key in keys:
                if key in young:
                    del young[key]
                if key in old:
                    del old[key]
