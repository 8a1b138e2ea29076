"""A session with Cassandra that waits: statements by the dozen, and for ever while the cluster is away.

What waiting mends is waited for: nobody there, too few replicas, a timeout, an overloaded node. Each statement is tried
again until it is acknowledged, so it must be one that may be carried out twice; some may have been carried out although
no answer came. What waiting does not mend (a missing table, a refused login) is a CrawlError at once.

Backoff is exponential with full jitter. It ends as soon as the link is closed.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    DriverException,
    InvalidRequest,
    Unauthorized,
    UnsupportedOperation,
)
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, NoHostAvailable, Session
from cassandra.concurrent import execute_concurrent
from cassandra.connection import ConnectionException
from cassandra.protocol import ErrorMessage, SyntaxException
from cassandra.query import PreparedStatement, tuple_factory

from connectors.ports import StoreClosed
from streams.core.failures import EXIT_FAILED, CrawlError

IN_FLIGHT_MAX = 64
"""Statements at once. A node has 32 to 128 writers; more of ours would wait there and come back as timeouts."""

ANSWER_S_MAX = 12.0  # above the node's own limits (2 s, 10 s on a laptop), so that it is the node that gives up first
BACKOFF_FIRST_S = 0.1
BACKOFF_S_MAX = 5.0  # so long may a cluster that is back wait for us

Statement = tuple[Any, Any]
"""(prepared statement, its values), or (a batch or bound statement, None)."""

_TOLD = (DriverException, NoHostAvailable, ConnectionException, ErrorMessage)  # how the driver says that it failed
_LASTING = (InvalidRequest, Unauthorized, AuthenticationFailed, SyntaxException, UnsupportedOperation)


class CassandraLink:
    """One session, made when first needed. Any thread may call; `run` serves one caller as fast as several."""

    def __init__(
        self,
        open_cluster: Callable[[], Cluster],
        keyspace: str,
        *,
        say: Callable[[str], None],
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        """`open_cluster`: a cluster that is not connected yet; called again until one lets us in.

        `say` is told when the cluster is away, and when it is back, once each.
        """
        self.keyspace = keyspace
        self._open_cluster = open_cluster
        self._say = say
        self._in_flight_max = in_flight_max
        self._cluster: Cluster | None = None
        self._session: Session | None = None
        self._profile: Any = None  # the session's
        self._prepared: dict[tuple[str, int], PreparedStatement] = {}
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._waiting: dict[int, float] = {}  # threads that wait for the cluster now, since when (monotonic)

    def away(self) -> bool:
        """Whether somebody waits for the cluster."""
        return bool(self._waiting)

    def away_s(self) -> float:
        """How long the cluster has not answered; 0 while it does."""
        return max((time.monotonic() - began for began in list(self._waiting.values())), default=0.0)

    def prepared(self, statement: str, consistency: int = ConsistencyLevel.QUORUM) -> PreparedStatement:
        """A statement made ready; `{keyspace}` in it is replaced. Waits. Raises CrawlError, StoreClosed."""
        with self._lock:
            found = self._prepared.get((statement, consistency))
            if found is None:
                query = statement.replace("{keyspace}", self.keyspace)
                found = self._patiently(lambda: self._connected().prepare(query), query)
                found.consistency_level = consistency
                found.serial_consistency_level = ConsistencyLevel.SERIAL
                self._prepared[statement, consistency] = found
            return found

    def run(self, statements: Sequence[Statement]) -> list[Any]:
        """Carry all of them out, in no order. Their answers (`ResultSet` of tuples). Raises CrawlError, StoreClosed."""
        answers: list[Any] = [None] * len(statements)
        pending = list(range(len(statements)))

        def attempt() -> None:
            done = execute_concurrent(
                self._connected(),
                [statements[at] for at in pending],
                concurrency=self._in_flight_max,
                raise_on_first_error=False,
                execution_profile=self._profile,
            )
            failed: list[int] = []
            errors: list[Exception] = []
            for at, (success, result) in zip(pending, done, strict=True):
                if success:
                    answers[at] = result
                else:
                    failed.append(at)
                    errors.append(result)
            pending[:] = failed
            if errors:
                raise next((error for error in errors if not isinstance(error, _TOLD) or _lasts(error)), errors[0])

        if statements:
            self._patiently(attempt, f"{len(statements)} statements carried out")
        return answers

    def close(self) -> None:
        """Ends all waiting."""
        self._closed.set()
        with self._lock:
            if self._cluster is not None:
                self._cluster.shutdown()
            self._cluster = self._session = None

    def _connected(self) -> Session:
        with self._lock:
            if self._closed.is_set():
                raise StoreClosed("cassandra")
            if self._session is None:
                cluster = self._open_cluster()
                try:
                    session = cluster.connect()
                except BaseException:
                    cluster.shutdown()
                    raise
                self._profile = session.execution_profile_clone_update(
                    EXEC_PROFILE_DEFAULT,
                    request_timeout=ANSWER_S_MAX,
                    row_factory=tuple_factory,  # a named one is a class made for each answer
                    serial_consistency_level=ConsistencyLevel.SERIAL,
                )
                self._cluster, self._session = cluster, session
            return self._session

    def _patiently(self, attempt: Callable[[], Any], what: str) -> Any:
        """Try until it is done."""
        me, began = threading.get_ident(), time.monotonic()
        delay_s = BACKOFF_FIRST_S
        try:
            while True:
                try:
                    done = attempt()
                    break
                except _TOLD as error:
                    if self._closed.is_set():
                        raise StoreClosed("cassandra") from error
                    if _lasts(error):
                        raise _refused(what, error) from error
                    reason = error
                if me not in self._waiting:
                    self._waiting[me] = began
                    self._say(f"cassandra: needed {what}, came {_words(reason)}; waiting for it, nothing is lost")
                if self._closed.wait(delay_s * random.uniform(0.5, 1.0)):
                    raise StoreClosed("cassandra") from reason
                delay_s = min(delay_s * 2, BACKOFF_S_MAX)
            if me in self._waiting:
                self._say(f"cassandra: it answers again, after {time.monotonic() - began:.0f} s")
            return done
        finally:
            self._waiting.pop(me, None)


def _lasts(error: BaseException) -> bool:
    """Whether it is no use to try again."""
    if isinstance(error, NoHostAvailable):
        return any(isinstance(reason, AuthenticationFailed) for reason in _reasons(error))
    return isinstance(error, _LASTING)


def _reasons(error: NoHostAvailable) -> list[Any]:
    return list(error.errors.values()) if isinstance(error.errors, dict) else [error.errors]


def _words(error: BaseException) -> str:
    reasons = _reasons(error) if isinstance(error, NoHostAvailable) else []
    said = "; ".join(dict.fromkeys(str(reason) or type(reason).__name__ for reason in reasons))
    return said or ("no node that is up" if isinstance(error, NoHostAvailable) else str(error) or type(error).__name__)


def _refused(what: str, error: BaseException) -> CrawlError:
    return CrawlError(
        f"cassandra: needed {what}, came {_words(error)};"
        " check the login and fleet.keyspace, and that headrace provision has made its tables",
        EXIT_FAILED,
    )
