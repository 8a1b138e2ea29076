"""What Faust does otherwise than an owner needs, and what is put in its place. Each has a test against the real one.

Theory of operation. Faust gives us membership, assignment with standbys, agents, pages and an orderly end. What is
owned, what is applied and what is read again is not left to it: no topic of ours is read, written or committed by
Faust's own streams, so its faults there (infra/decisions/0097) cannot touch us. What is left to mend is this:

| stock faust-streaming 0.15.3, mode-streaming 0.7.1                       | in its place                            |
|--------------------------------------------------------------------------|-----------------------------------------|
| a channel's queue is emptied, and who waits to put is cancelled, whenever | `GroupChannel`: a queue that no flow    |
| the flow resumes after a rebalance                                        | control knows of                        |
| an agent that fails twice within some 10 ms ends the worker: the bucket   | `Patient`: a hundred failures, then ten |
| of restarts is given one second of capacity, which is one token           | a second                                |
| recovery reads a changelog to an offset that a transactional topic may    | `OwnerRecovery`: nothing of our table   |
| never give, and applies what was undone                                   | is Faust's to recover                   |
| a consumer that has read nothing for five minutes leaves its group for    | `worker.IDLE_S_MAX`: ours never reads,  |
| good (aiokafka's max_poll_interval_ms)                                    | and never leaves for that               |
"""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Any, cast

import faust
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.types import TP
from mode.supervisors import OneForOneSupervisor
from mode.utils.queues import FlowControlEvent, ThrowableQueue

from streams.core.failures import EXIT_FAILED, CrawlError

MENDED = {"faust-streaming": "0.15.3", "mode-streaming": "0.7.1"}
"""The versions that the mends were made for. Another one may do right what these do wrong, or the other way round."""

_RESTARTS_A_SECOND = 10.0
_RESTARTS_MAX = 100.0
_QUEUE_MAX = 1_024  # groups: one a partition at most


def check_versions() -> None:
    """Before a worker starts. Raises CrawlError."""
    for name, mended in MENDED.items():
        came = version(name)
        if came != mended:
            raise CrawlError(
                f"worker: needed {name} {mended}, whose faults it mends, came {came}; install what"
                " infra/lock/fleet.txt names",
                EXIT_FAILED,
            )


class GroupChannel(faust.Channel[Any]):
    """A channel whose queue Faust's flow control neither suspends nor clears. Its agent sets `listening`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.listening = asyncio.Event()

    async def give(self, value: object) -> None:
        """Put it once somebody listens: a channel without a subscriber swallows what is put."""
        await self.listening.wait()
        await self.put(cast(Any, value))

    @property
    def queue(self) -> ThrowableQueue[Any]:
        if self._queue is None:
            control = FlowControlEvent(initially_suspended=False)
            self._queue = ThrowableQueue(self.maxsize or _QUEUE_MAX, flow_control=control, clear_on_resume=False)
        return self._queue


class Patient(OneForOneSupervisor):
    """Restarts an agent that failed, unless it fails without end."""

    def __init__(self, *services: Any, **options: Any) -> None:
        # mode's bucket takes `over` for its capacity, in tokens.
        super().__init__(*services, **{**options, "max_restarts": _RESTARTS_A_SECOND, "over": _RESTARTS_MAX})


def out_of_group(app: Any) -> str | None:
    """None while Faust's consumer is a member of the app's group, a sentence when it is not. From memory, at once.

    Faust itself keeps working, and its assignment, when the group goes on without it: others get its partitions then.
    """
    thread = app.consumer._thread
    coordinator = None if thread._consumer is None else thread._consumer._coordinator
    if thread.should_stop or coordinator is None or coordinator._coordination_task.done():
        return "what keeps it in its group has ended; see the log, and start the worker anew"
    if coordinator.generation <= 0 or not coordinator.member_id:
        return "it is not a member of its group now"
    return None


class OwnerRecovery(Recovery):
    """Has nothing to recover: the keeper reads the changelog itself, at a takeover and as a standby."""

    def add_active(self, table: Any, tp: TP) -> None:
        return

    def add_standby(self, table: Any, tp: TP) -> None:
        return


class OwnerTableManager(TableManager):
    """Faust's, with that recovery."""

    @property
    def recovery(self) -> Recovery:
        if self._recovery is None:
            self._recovery = OwnerRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery
