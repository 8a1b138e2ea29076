"""What a worker shows on its one web port, for all stages that run in it.

| page                               | says                                                                           |
|------------------------------------|--------------------------------------------------------------------------------|
| /live                              | 200 while every stage can go on; 503 and why, when only a new start helps      |
| /ready                             | 200 once every stage does its work here; 503 and what it waits for             |
| /metrics                           | the numbers of all stages, for Prometheus                                      |
| /explain?partition=P&what=URL|HOST | what the owner of a partition knows, where that owner is this worker           |

A service that is away makes a worker neither dead nor unready: it waits by itself, and a new start would not help. The
alarms on lag and commit age tell of that. `texts` answers without any server; `serve` puts it on a Faust app's port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from connectors import owner_page
from connectors.owner_page import Explain
from streams.fleet.metrics import Metrics, exposition

__all__ = ["PATHS", "Owned", "Stage", "Told", "serve", "texts"]

PATHS = ("/live", "/ready", "/metrics", owner_page.PATH)
Told = tuple[int, str, bytes]
"""(status, content type, body)."""

Owned = Callable[[int], tuple[int, Explain] | None]
"""A partition to (epoch, explain), where it is owned by this worker now."""

_TEXT, _JSON = "text/plain", "application/json"


class Stage(Protocol):
    """What the pages ask of a stage's app. Both questions are answered at once, from memory."""

    stage: str
    metrics: Metrics

    def alive(self) -> str | None:
        """None, or a sentence on why it cannot go on."""
        ...

    def ready(self) -> str | None:
        """None, or a sentence on what it waits for before it does its work."""
        ...


def texts(path: str, query: Mapping[str, str], stages: Sequence[Stage]) -> Told:
    """The page of that path. Blocks for /explain, which reads the owner's store: it belongs into a thread."""
    if path == "/live":
        return _sentences("live", [(one.stage, one.alive()) for one in stages])
    if path == "/ready":
        return _sentences("ready", [(one.stage, one.ready()) for one in stages])
    if path == "/metrics":
        return 200, _TEXT, exposition([one.metrics for one in stages]).encode()
    assert path == owner_page.PATH, path
    status, body = owner_page.answer(query, _owned(stages))
    return status, _JSON, body


def serve(app: Any, stages: Sequence[Stage]) -> None:
    """Register the pages with a Faust app, before it starts."""
    for path in PATHS:
        app.page(path)(_view(path, stages))


def _view(path: str, stages: Sequence[Stage]) -> Callable[[Any, Any], Any]:
    async def view(web: Any, request: Any) -> Any:
        if path == owner_page.PATH:
            status, kind, body = await asyncio.to_thread(texts, path, dict(request.query), stages)
        else:
            status, kind, body = texts(path, {}, stages)
        return web.bytes(body, content_type=kind, status=status)

    view.__name__ = f"show_{path.removeprefix('/')}"
    return view


def _sentences(word: str, said: Sequence[tuple[str, str | None]]) -> Told:
    wrong = [f"{stage}: {sentence}" for stage, sentence in said if sentence is not None]
    return (503 if wrong else 200), _TEXT, ("\n".join(wrong or [word]) + "\n").encode()


def _owned(stages: Sequence[Stage]) -> Owned:
    """Of the stage that has partitions to explain, where one runs here."""
    for one in stages:
        found: Owned | None = getattr(one, "explainer", None)
        if found is not None:
            return found
    return lambda partition: None
