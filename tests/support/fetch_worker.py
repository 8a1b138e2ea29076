"""A fetcher for tests: `faust -A tests.support.fetch_worker worker`, by settings from the environment alone."""

from __future__ import annotations

import os

from infra.settings import load
from infra.wiring_fetch import open_fetch

TOLD = "FETCH_WORKER"  # set: this process is one

if TOLD in os.environ:
    app = open_fetch(load())
