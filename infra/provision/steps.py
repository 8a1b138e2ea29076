"""One thing that is provisioned: what it is, how it stands, and what has to be done to it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator

import msgspec

from streams.core.failures import EXIT_FAILED, CrawlError

__all__ = ["ServiceAway", "Step", "Verdict", "carry_out", "refusal"]


class Verdict(enum.Enum):
    """What became of a thing; of a dry run, what would."""

    MADE = "made"
    STANDS = "stands"
    CHANGED = "changed"
    REFUSED = "refused"  # cannot be mended from here without losing something
    LEFT = "left"  # to be made or changed, but another thing of its part is refused


class Step(msgspec.Struct, frozen=True):
    """`detail` is how it is, or what differs; `remedy` what a person has to do, of a refusal only."""

    thing: str  # "topic discovered-urls"
    verdict: Verdict
    detail: str = ""
    remedy: str = ""
    deed: Callable[[], None] | None = None  # makes or changes it; None where there is nothing to do


class ServiceAway(CrawlError):
    """A service gave no answer, or would not let us in. Nothing that it keeps was changed by this call."""

    def __init__(self, service: str, address: str, came: str, remedy: str, *, shut: bool = False) -> None:
        """`shut`: it is there and does not let us in, so that waiting would not help."""
        super().__init__(f"{service} at {address}: needed an answer, got {came}; {remedy}", EXIT_FAILED)
        self.shut = shut


def refusal(thing: str, *, needed: str, came: str, remedy: str) -> Step:
    """A thing that is there, but not as the fleet needs it."""
    return Step(thing, Verdict.REFUSED, f"needed {needed}, is there with {came}", remedy)


def carry_out(steps: Iterable[Step], *, dry_run: bool = False) -> Iterator[Step]:
    """Do what the steps of one part ask for, in order, and give each as it came out.

    With one refusal among them nothing is done: topics made beside one of another partition count would have to go
    again.
    """
    steps = tuple(steps)
    refused = any(step.verdict is Verdict.REFUSED for step in steps)
    for step in steps:
        assert (step.deed is not None) == (step.verdict in (Verdict.MADE, Verdict.CHANGED)), step
        if step.deed is None:
            yield step
        elif refused:
            yield msgspec.structs.replace(step, verdict=Verdict.LEFT, deed=None)
        else:
            if not dry_run:
                step.deed()
            yield msgspec.structs.replace(step, deed=None)
