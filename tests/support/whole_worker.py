"""The real worker, but a page that its fetcher took along when it died is leased again soon, not after ten minutes."""

from __future__ import annotations

import sys

from streams.cli import main
from streams.core import policy as bounds

STORE_MS = 30_000

if __name__ == "__main__":
    bounds.STORE_DEADLINE_MS = STORE_MS
    sys.exit(main())
