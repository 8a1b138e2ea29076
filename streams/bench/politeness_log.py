"""The judge of the bench's own politeness: it reads two logs, of grants and of completions, and nothing else.

A line is a lease id, a host's number and an instant (ms): of a grant the instant from which its lease may be started,
of a completion the one at which the result was handed in. Breaches:
- at_once: a lease of a host was granted while another one was out;
- too_early: a lease was granted less than the delay after the host's last completion;
- not_granted: a completion whose lease is in no grant.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

LINE = np.dtype([("lease", "V16"), ("host", "<i4"), ("at_ms", "<i8")])


class Verdict(msgspec.Struct, frozen=True):
    """`gap_ms_min`: the least time from a completion to the next grant of its host; None: there was none."""

    grants: int
    completions: int
    hosts: int
    gap_ms_min: int | None
    breaches: dict[str, int]


class Log:
    """A file of lines, appended to."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("wb")

    def append(self, lines: Iterable[tuple[bytes, int, int]]) -> None:
        """(lease id, host, at_ms)."""
        self._stream.write(np.array(list(lines), LINE).tobytes())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stream.close()


def judge(grants: Path, completions: Path, delay_ms: int) -> Verdict:
    given, back = np.fromfile(grants, LINE), np.fromfile(completions, LINE)
    host = np.concatenate((given["host"], back["host"]))
    at_ms = np.concatenate((given["at_ms"], back["at_ms"]))
    ends = np.concatenate((np.zeros(len(given), np.int8), np.ones(len(back), np.int8)))
    order = np.lexsort((ends, at_ms, host))
    host, at_ms, ends = host[order], at_ms[order], ends[order]
    same = host[1:] == host[:-1]
    next_is_grant = ends[1:] == 0
    at_once = same & next_is_grant & (ends[:-1] == 0)
    follows = same & next_is_grant & (ends[:-1] == 1)
    gaps: NDArray[np.int64] = at_ms[1:][follows] - at_ms[:-1][follows]
    return Verdict(
        grants=len(given),
        completions=len(back),
        hosts=len(np.unique(host)),
        gap_ms_min=int(gaps.min()) if len(gaps) else None,
        breaches={
            "at_once": int(at_once.sum()),
            "too_early": int((gaps < delay_ms).sum()),
            "not_granted": int((~np.isin(back["lease"], given["lease"])).sum()),
        },
    )
