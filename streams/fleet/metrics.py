"""A worker's numbers for Prometheus, by the names of `schemas.metrics`.

Counted where a turn has become durable; what is a state (lag, commit age, partitions) is asked when the page is read.
Threads of several partitions count at once, under one lock a turn. Several stages of one process have numbers of their
own (the label `stage`), and share a page: `exposition`.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter

from schemas.metrics import METRICS, MetricKind
from streams.core.turn import Turn
from streams.fleet.intake import Taken

Labels = tuple[str, ...]
Gauges = Callable[[], Iterable[tuple[str, Labels, float]]]
"""(metric, values of its labels, number) of all that is a state."""

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 3_600.0, 21_600.0, 86_400.0)


class _Histogram:
    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(_SECONDS) + 1)
        self.total = 0.0


class Metrics:
    """Of one worker."""

    def __init__(self, stage: str, gauges: Gauges = tuple) -> None:
        self.gauges = gauges
        self._stage = stage
        self._lock = threading.Lock()
        self._counters: dict[tuple[str, Labels], float] = {}
        self._histograms: dict[tuple[str, Labels], _Histogram] = {}
        self.committed_ms: dict[int, int] = {}  # of each partition's last commit

    def count(self, name: str, number: float = 1, labels: Labels = ()) -> None:
        with self._lock:
            self._add(name, number, labels)

    def turn(self, partition: int, turn: Turn, taken: Taken, now_ms: int) -> None:
        """A turn of the partition is durable."""
        counts = turn.counts
        with self._lock:
            self.committed_ms[partition] = now_ms
            for kind, number in Counter(map(_KIND, turn.leases)).items():
                self._add("headrace_leases_total", number, (kind,))
            for answer, number in (
                ("new", counts.admitted),
                ("known", counts.known),
                ("refused", sum(counts.refused.values())),
            ):
                self._add("headrace_urls_total", number, (answer,))
            self._add("headrace_leases_lost_total", counts.lost, ())
            self._add("headrace_trap_patterns_paused_total", counts.patterns_paused, ())
            self._observe_lags(turn.waits)
            for age_ms in turn.robots_ages_ms:
                self._observe("headrace_robots_age_seconds", age_ms / 1_000, ())
            for letter in turn.dead:
                self._add("headrace_dead_letters_total", 1, (letter.error,))
            self._add("headrace_dead_letters_total", taken.dead, ("bad_record",))
            if taken.oldest_found_ms is not None:
                self._observe("headrace_admission_seconds", max(0, now_ms - taken.oldest_found_ms) / 1_000, ())

    def observe(self, name: str, number: float, labels: Labels = ()) -> None:
        """One more of a histogram, in its unit."""
        with self._lock:
            self._observe(name, number, labels)

    def page(self) -> str:
        """In Prometheus's text format."""
        return exposition([self])

    def lines(self) -> dict[str, list[str]]:
        """The samples of each metric, without its head."""
        with self._lock:
            counters = dict(self._counters)
            histograms = {key: (list(one.buckets), one.total) for key, one in self._histograms.items()}
        lines: dict[str, list[str]] = {}
        for (name, labels), number in counters.items():
            lines.setdefault(name, []).append(f"{name}{self._labels(name, labels)} {_number(number)}")
        for name, labels, number in self.gauges():
            lines.setdefault(name, []).append(f"{name}{self._labels(name, labels)} {_number(number)}")
        for (name, labels), (buckets, total) in histograms.items():
            lines.setdefault(name, []).extend(self._histogram(name, labels, buckets, total))
        return lines

    def _histogram(self, name: str, labels: Labels, buckets: list[int], total: float) -> list[str]:
        said, below = [], 0
        for bound, number in zip((*map(str, _SECONDS), "+Inf"), buckets, strict=True):
            below += number
            said.append(f"{name}_bucket{self._labels(name, labels, {'le': bound})} {below}")
        said.append(f"{name}_sum{self._labels(name, labels)} {_number(total)}")
        said.append(f"{name}_count{self._labels(name, labels)} {below}")
        return said

    def _add(self, name: str, number: float, labels: Labels) -> None:
        if number:
            assert METRICS[name].kind is MetricKind.COUNTER, name
            self._counters[name, labels] = self._counters.get((name, labels), 0) + number

    def _observe(self, name: str, number: float, labels: Labels) -> None:
        histogram = self._histogram_of(name, labels)
        histogram.buckets[bisect_left(_SECONDS, number)] += 1
        histogram.total += number

    def _histogram_of(self, name: str, labels: Labels) -> _Histogram:
        assert METRICS[name].kind is MetricKind.HISTOGRAM, name
        histogram = self._histograms.get((name, labels))
        if histogram is None:
            histogram = self._histograms[name, labels] = _Histogram()
        return histogram

    def _observe_lags(self, waits: Iterable[tuple[int, int]]) -> None:
        """(rank, ms) of each lease: an owner makes tens of thousands a second."""
        several: dict[str, list[int]] = {}
        for rank, waited_ms in waits:
            several.setdefault(_PRIORITIES[255 - (rank >> 8)], []).append(waited_ms)
        for priority, all_ms in several.items():
            histogram = self._histogram_of("headrace_eligibility_lag_seconds", (priority,))
            buckets = histogram.buckets
            for ms, times in Counter(all_ms).items():
                buckets[bisect_left(_SECONDS, ms / 1_000)] += times
            histogram.total += sum(all_ms) / 1_000

    def _labels(self, name: str, labels: Labels, more: Mapping[str, str] | None = None) -> str:
        named = {"stage": self._stage, **dict(zip(METRICS[name].labels, labels, strict=True)), **(more or {})}
        return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in named.items()) + "}"


def exposition(several: Iterable[Metrics]) -> str:
    """The page of all of them, in Prometheus's text format: a metric has one head, whoever counts it."""
    lines: dict[str, list[str]] = {}
    for metrics in several:
        for name, samples in metrics.lines().items():
            lines.setdefault(name, []).extend(samples)
    said = ""
    for name, samples in sorted(lines.items()):
        metric = METRICS[name]
        said += f"# HELP {name} {metric.meaning}\n# TYPE {name} {metric.kind.value}\n" + "\n".join(samples) + "\n"
    return said


def _number(number: float) -> str:
    """Whole numbers whole: six digits of a counter would hide its growth."""
    return str(int(number)) if number == int(number) else repr(number)


def _priority(rank: int) -> str:
    """Of the 256 values that a URL may have (`streams.core.rows.rank`; an ordinary link has 128), in thirds."""
    value = 255 - (rank >> 8)
    return "high" if value >= 171 else "normal" if value >= 85 else "low"


_PRIORITIES = tuple(_priority((255 - value) << 8) for value in range(256))  # by value
_KIND = attrgetter("kind._value_")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
