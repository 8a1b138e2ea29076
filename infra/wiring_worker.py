"""A worker's Faust app from the settings: its stages, each by the wiring of its own, in one process.

A stage's wiring is loaded only where the stage is to run, so a parser's machine needs nothing of Cassandra.
"""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from infra.fleet_checks import check_data, check_readers, check_stages, check_topics
from infra.provision.kafka_admin import ConfluentAdmin
from infra.settings import Settings
from infra.settings_fleet import Fleet
from streams.core.failures import EXIT_FAILED, CrawlError
from streams.fleet.carrier import Carrier, carrier

__all__ = ["OPENERS", "open_worker", "opener_of", "web_host"]

OPENERS: Mapping[str, tuple[str, str]] = {
    "owner": ("infra.wiring_owner", "open_owner"),
    "fetch": ("infra.wiring_fetch", "open_fetch"),
    "parse": ("infra.wiring_parse", "open_parse"),
    "route": ("infra.wiring_route", "open_route"),
}
"""Of each stage: the module, and the function in it that makes the stage's app, not started, from the settings."""

_EVERYWHERE = ("0.0.0.0", "::")


def open_worker(settings: Settings, *, environ: Mapping[str, str] = os.environ) -> Carrier:
    """The app of a worker, not started; `streams.app` names it to Faust. Raises CrawlError for what cannot stand."""
    fleet = settings.fleet
    check_stages(fleet)
    check_data(fleet, environ)
    openers = {stage: opener_of(stage) for stage in fleet.stages}
    admin = ConfluentAdmin(fleet)
    check_topics(fleet, admin)
    check_readers(fleet.stages, admin)
    return carrier(
        [opener(settings) for opener in openers.values()],
        data=str(Path(fleet.data).absolute()),
        bind=fleet.web_bind,
        port=fleet.web_port,
        host=web_host(fleet),
    )


def opener_of(stage: str) -> Callable[[Settings], Any]:
    """What makes the stage's app. Raises CrawlError where this installation does not have it."""
    if stage not in OPENERS:
        raise CrawlError(f'worker: no stage "{stage}"; known: {", ".join(OPENERS)}', EXIT_FAILED)
    module, name = OPENERS[stage]
    try:
        found: Callable[[Settings], Any] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        missing = error.name or module
        remedy = (
            "this version does not have the stage"
            if missing == module
            else "start it by ./infra/headrace, which adds the fleet's packages, or: pip install 'headrace[fleet]'"
        )
        raise CrawlError(
            f"worker: stage {stage} needed {missing}, it is not installed; {remedy}", EXIT_FAILED
        ) from error
    return found


def web_host(fleet: Fleet) -> str:
    """By which name others reach this worker's pages."""
    if fleet.web_host:
        return fleet.web_host
    if fleet.web_bind in _EVERYWHERE:
        return socket.gethostname()
    return f"[{fleet.web_bind}]" if ":" in fleet.web_bind else fleet.web_bind
