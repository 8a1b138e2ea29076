"""Python's garbage collector in a process that holds a hundred thousand hosts."""

from __future__ import annotations

import gc

_THRESHOLDS = (50_000, 20, 100)


def quiet_collector() -> None:
    """Before the work begins: its passes over all hosts would cost a fifth of the run.

    What is loaded by now stays, and rows and records are no business of the collector (`schemas.records`).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
