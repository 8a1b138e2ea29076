"""A worker of one stage for tests: `faust -A tests.support.stage_worker worker`, settings by the environment.

It is the real stage with its real adapters, and nothing around it; which one stands in STAGE_WORKER.
"""

from __future__ import annotations

import os

from infra.settings import load
from infra.wiring_parse import open_parse
from infra.wiring_route import open_route

TOLD = "STAGE_WORKER"  # the environment's variable
_OPENERS = {"parse": open_parse, "route": open_route}

if TOLD in os.environ:
    app = _OPENERS[os.environ[TOLD]](load(environ=os.environ))
