"""The writers' schemas of a schema registry, by number: what others write in its framing is read by them.

    GET {registry}/schemas/ids/{number}
    200 {"schema": "..."}    a schema of that number never changes, so it is asked once
    404                      unknown (any more, or not yet): the record is a bad one

A registry that is away is a service: whoever asks waits, for as long as it takes, and `say` is told once. That blocks
the partition that has such a record and no other; nothing is acknowledged meanwhile. `close` ends all waiting.
"""

from __future__ import annotations

import base64
import http.client
import random
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import msgspec

from connectors.ports import StoreClosed
from streams.core.failures import EXIT_FAILED, CrawlError

__all__ = ["ANSWER_S_MAX", "SchemaRegistry"]

ANSWER_S_MAX = 10.0
BACKOFF_FIRST_S = 0.1
BACKOFF_S_MAX = 5.0
_SCHEMA_BYTES_MAX = 1 << 20
_KNOWN_MAX = 1_024
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


class _Found(msgspec.Struct):
    schema: str
    schemaType: str = "AVRO"


class SchemaRegistry:
    """A `schemas.foreign.Resolver`. Any thread may call."""

    def __init__(
        self, address: str, *, user: str = "", password: str = "", ca: str = "", say: Callable[[str], None]
    ) -> None:
        """`address`: http:// or https://. `ca`: a PEM file. Raises CrawlError for one that cannot be read."""
        self.address = address.rstrip("/")
        self._say = say
        self._headers = {"Accept": _ACCEPT}
        if user:
            self._headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self.address.startswith("https:"):
            try:
                context = ssl.create_default_context(cafile=ca or None)
            except (OSError, ssl.SSLError) as error:
                raise CrawlError(
                    f"registry at {address}: needed a PEM file of an authority, got: {error}; check fleet.registry_ca",
                    EXIT_FAILED,
                ) from error
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)
        self._known: dict[int, str] = {}
        self._closed = threading.Event()
        self._waiting: dict[int, float] = {}  # threads that wait for it now, since when (monotonic)

    def __call__(self, number: int) -> str | None:
        """The schema as JSON; None where the registry has none of that number. Raises StoreClosed, CrawlError."""
        found = self._known.get(number)
        if found is None:
            found = self._patiently(number)
            if found is not None:
                if len(self._known) >= _KNOWN_MAX:
                    self._known.clear()
                self._known[number] = found
        return found

    def away_s(self) -> float:
        """How long it has not answered; 0 while it does."""
        return max((time.monotonic() - began for began in list(self._waiting.values())), default=0.0)

    def close(self) -> None:
        """Ends all waiting."""
        self._closed.set()

    def _patiently(self, number: int) -> str | None:
        me, began = threading.get_ident(), time.monotonic()
        delay_s = BACKOFF_FIRST_S
        try:
            while True:
                try:
                    found = self._ask(number)
                    break
                except _Away as error:
                    reason = error
                if me not in self._waiting:
                    self._waiting[me] = began
                    self._say(
                        f"registry at {self.address}: needed schema {number}, came {reason}; waiting for it, nothing is"
                        " lost; check fleet.registry"
                    )
                if self._closed.wait(delay_s * random.uniform(0.5, 1.0)):
                    raise StoreClosed("registry") from reason
                delay_s = min(delay_s * 2, BACKOFF_S_MAX)
            if me in self._waiting:
                self._say(f"registry: it answers again, after {time.monotonic() - began:.0f} s")
            return found
        finally:
            self._waiting.pop(me, None)

    def _ask(self, number: int) -> str | None:
        if self._closed.is_set():
            raise StoreClosed("registry")
        asked = urllib.request.Request(f"{self.address}/schemas/ids/{number}", headers=self._headers)
        try:
            with self._opener.open(asked, timeout=ANSWER_S_MAX) as answer:
                body: Any = answer.read(_SCHEMA_BYTES_MAX)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                raise _Away(f"status {error.code}") from error
        except (OSError, http.client.HTTPException) as error:
            said = getattr(error, "reason", None) or error
            raise _Away(str(said) or type(error).__name__) from error
        try:
            found = msgspec.json.decode(body, type=_Found)
        except msgspec.MsgspecError as error:
            raise _Away(f"no answer of a registry: {body[:60]!r}") from error
        return found.schema if found.schemaType == "AVRO" else None


class _Away(Exception):
    """No answer that can be used: a login that is refused and another service at the address are waited for, too,
    since an operator mends the one as the other, and no record may be lost to it."""
