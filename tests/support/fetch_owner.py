"""An owner for tests of fetchers: as `tests.support.fleet_worker`, but a lease that was lost comes again soon."""

from __future__ import annotations

import os

import msgspec

from streams.core import policy as bounds
from tests.support.fleet_worker import TOLD, Order, build

START_MS = 3_000
STORE_MS = 4_000

if TOLD in os.environ:
    bounds.LEASE_START_MS_MAX = START_MS
    bounds.STORE_DEADLINE_MS = STORE_MS
    app = build(msgspec.json.decode(os.environ[TOLD], type=Order))
