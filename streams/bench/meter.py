"""CPU time of what is measured: that of the whole process, all threads, less what the measurement itself used."""

from __future__ import annotations

import resource
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np


class Meter:
    """`start`, then work; inside `with meter:` the CPU time of this thread is the measurement's own."""

    def __init__(self) -> None:
        self._cpu_s = self._wall_s = self._thread_s = self._entered_s = self._outside_s = 0.0
        self.start()

    def start(self) -> None:
        self._outside_s = 0.0
        self._wall_s = time.perf_counter()
        self._thread_s = time.thread_time()
        self._cpu_s = time.process_time()

    def cpu_s(self) -> float:
        """Charged so far: RocksDB's own threads are in it."""
        return max(1e-9, time.process_time() - self._cpu_s - self._outside_s)

    def thread_s(self) -> float:
        """CPU time of the deciding thread alone: what the store does in the background is not in it."""
        return max(1e-9, time.thread_time() - self._thread_s - self._outside_s)

    def wall_s(self) -> float:
        """Since `start`, less what the measurement itself took of this thread."""
        return max(1e-9, time.perf_counter() - self._wall_s - self._outside_s)

    def __enter__(self) -> Self:
        self._entered_s = time.thread_time()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._outside_s += time.thread_time() - self._entered_s


def quantile(values: Sequence[float] | array[int] | array[float], share: float) -> float:
    """The value that `share` of all do not exceed; 0 of none."""
    return float(np.quantile(np.asarray(values), share)) if len(values) else 0.0


def rss_peak_mb() -> int:
    """The most memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def folder_bytes(folder: Path) -> int:
    return sum(entry.stat().st_size for entry in folder.rglob("*") if entry.is_file())
