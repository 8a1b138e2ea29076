"""One worker process: the Faust app that `faust worker` is given, with the apps of its stages inside.

Theory of operation. A stage is a Faust app of its own, so that it is a consumer group of its own and adding parsers
never rebalances owners. `faust worker` starts one app a process. That one is the `Carrier`: it speaks to no Kafka,
serves the pages of all stages on one port, and starts the stages side by side, since one that waits for its partitions
must not keep the others waiting. A stage that crashes ends the worker, and whoever supervises it starts it anew.

At SIGTERM all stages are let go at once, for `grace_s` at most. What has not ended by then is left as a crash would
leave it, which is what every stage is made for, but the process is gone in time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Sequence
from typing import Any

import faust
from faust.app.base import BootStrategy

from streams.core.failures import EXIT_FAILED
from streams.fleet.faust_mends import check_versions
from streams.fleet.pages import Stage, serve

__all__ = ["FETCH_GRACE_S", "GRACE_S", "WORKER_APP", "Carrier", "carrier", "grace_of", "run_worker"]

log = logging.getLogger(__name__)

WORKER_APP = "headrace-worker"
GRACE_S = 50.0  # of the 60 s until a supervisor kills; the rest is for the event loop's own end
FETCH_GRACE_S = 170.0  # of 180 s: a request may take 120 s, and then its segment is sealed


class NoKafka(BootStrategy):
    """Web pages, and nothing of Kafka: what is read is read by the stages."""

    enable_kafka = False


class Carrier(faust.App):
    """See the module. `stages` are apps that nothing has started."""

    BootStrategy = NoKafka

    def __init__(self, id: str, *, stages: Sequence[Any] = (), grace_s: float = GRACE_S, **options: Any) -> None:
        super().__init__(id, **options)
        self.stages = tuple(stages)
        self.grace_s = grace_s
        self._standing = {stage.stage for stage in stages}

    async def on_start(self) -> None:
        """Faust's own would make a consumer, to show it in a graph."""
        self.finalize()

    async def on_started(self) -> None:
        for stage in self.stages:
            stage.loop = self.loop
            stage.in_worker = True
            stage.conf.web_enabled = False  # its pages are served here, which an owner announces
            stage.conf.canonical_url = self.conf.canonical_url
            self.add_dependency(stage)
            self.add_future(stage.maybe_start())
        if self.on_startup_finished is not None:
            await self.on_startup_finished()

    async def on_stop(self) -> None:
        watch = threading.Timer(self.grace_s, self._leave)  # a thread: it may be the event loop that hangs
        watch.daemon = True
        watch.start()
        ended = await asyncio.gather(*map(self._end, self.stages), return_exceptions=True)
        for stage, error in zip(self.stages, ended, strict=True):
            if isinstance(error, BaseException):  # also where its end was cut off
                log.error("worker: stage %s did not end well", stage.stage, exc_info=error)
        watch.cancel()

    async def _end(self, stage: Any) -> None:
        try:
            await stage.stop()
        finally:
            self._standing.discard(stage.stage)

    def _leave(self) -> None:
        log.critical(
            "worker: needed all stages ended within %.0f s of SIGTERM, %s did not; it ends as by a crash: what was"
            " under way is done again",
            self.grace_s,
            " and ".join(sorted(self._standing)) or "the event loop",
        )
        logging.shutdown()
        os._exit(EXIT_FAILED)


def grace_of(stages: Sequence[str]) -> float:
    """How long a worker of these stages may take to end."""
    return FETCH_GRACE_S if "fetch" in stages else GRACE_S


def carrier(stages: Sequence[Stage], *, data: str, bind: str, port: int, host: str) -> Carrier:
    """The app of a worker, not started. `bind` and `port`: of its pages. `host`: by which name others reach them.

    Raises CrawlError for versions of Faust that were never looked at.
    """
    check_versions()
    app = Carrier(
        WORKER_APP,
        stages=stages,
        grace_s=grace_of([one.stage for one in stages]),
        broker="kafka://",
        store="memory://",
        datadir=data,
        autodiscover=False,
        web_bind=bind,
        web_port=port,
        web_host=host,
        stream_wait_empty=False,
    )
    serve(app, stages)
    return app


def run_worker(app: Carrier, level: str) -> int:
    """Until SIGTERM or Ctrl-C, or until it cannot go on. Its exit code. `level`: of what is logged."""
    app.finalize()
    app.worker_init()
    app.worker_init_post_autodiscover()
    worker = faust.Worker(app, loglevel=level, redirect_stdouts=False, loop=asyncio.new_event_loop(), daemon=True)
    try:
        worker.execute_from_commandline()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else EXIT_FAILED
