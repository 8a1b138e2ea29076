"""A fleet's worker for Faust: `faust -A streams.app worker` runs the stages that the setting `fleet.stages` names.

The settings come from headrace.toml, where there is one, and the environment, as everywhere (`headrace settings` shows
them, section fleet). What cannot stand is said in one sentence, and nothing is started. `headrace worker` is the same
with options and help.
"""

from __future__ import annotations

import sys
from pathlib import Path

from infra import settings
from infra.wiring_worker import open_worker
from streams.collector import quiet_collector
from streams.core.failures import CrawlError
from streams.fleet.carrier import Carrier

__all__ = ["app"]


def _open() -> Carrier:
    config = Path(settings.FILE_NAME)
    try:
        made = open_worker(settings.load(config=config if config.exists() else None))
    except CrawlError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    quiet_collector()
    return made


app = _open()
