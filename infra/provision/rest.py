"""A service that speaks JSON over HTTP: one request, one answer. OpenSearch and Kafka Connect are asked by it."""

from __future__ import annotations

import base64
import http.client
import ssl
import urllib.error
import urllib.request
from typing import Any, Protocol

import msgspec

from infra.provision.steps import ServiceAway
from streams.core.failures import EXIT_FAILED, CrawlError

__all__ = ["Answer", "HttpRest", "Rest"]

ANSWER_BYTES_MAX = 16 << 20
_ANSWER_S_MAX = 60.0  # a new connector loads its plugin before Connect answers


class Answer(msgspec.Struct, frozen=True):
    """`body` is the decoded JSON; None when there was none."""

    status: int
    body: Any = None

    def reason(self) -> str:
        """What the service said of its refusal, as far as it can be found."""
        body = self.body
        if isinstance(body, dict):
            error = body.get("error")
            said = error.get("reason") if isinstance(error, dict) else error
            return f"{self.status} {body.get('message') or said or ''}".strip()
        return str(self.status)


class Rest(Protocol):
    """Raises `ServiceAway` when no answer came or the service let us not in; every other status is an answer."""

    @property
    def address(self) -> str: ...

    def request(self, method: str, path: str, body: Any = None) -> Answer: ...


class HttpRest:
    """A service at a URL. `setting` names it in the settings: fleet.SETTING, _user, _password and _ca."""

    def __init__(self, setting: str, address: str, *, user: str = "", password: str = "", ca: str = "") -> None:
        self.address = address.rstrip("/")
        self._setting = setting
        self._headers = {"Accept": "application/json"}
        if user:
            self._headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _NoRedirect()]
        if self.address.startswith("https:"):
            try:
                context = ssl.create_default_context(cafile=ca or None)
            except (OSError, ssl.SSLError) as error:
                raise CrawlError(
                    f"{setting} at {address}: needed a PEM file of an authority, got: {error}; check fleet.{setting}_ca"
                ) from error
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def request(self, method: str, path: str, body: Any = None) -> Answer:
        data = None if body is None else msgspec.json.encode(body)
        headers = self._headers | ({"Content-Type": "application/json"} if data is not None else {})
        asked = urllib.request.Request(self.address + path, data=data, headers=headers, method=method)
        try:
            with self._opener.open(asked, timeout=_ANSWER_S_MAX) as answer:
                return self._answer(answer.status, answer.read(ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as error:
            with error:
                return self._answer(error.code, error.read(ANSWER_BYTES_MAX))
        except urllib.error.URLError as error:
            raise self._away(str(error.reason)) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._away(str(error) or type(error).__name__) from error

    def _answer(self, status: int, data: bytes) -> Answer:
        if status in (401, 403):
            raise ServiceAway(
                self._setting,
                self.address,
                f"a refusal: {status}",
                f"check fleet.{self._setting}_user and {self._setting}_password",
            )
        try:
            return Answer(status, msgspec.json.decode(data) if data else None)
        except msgspec.DecodeError as error:
            raise CrawlError(
                f"{self._setting} at {self.address}: needed JSON, got {status} {data[:60]!r};"
                f" another service answers there: check fleet.{self._setting}",
                EXIT_FAILED,
            ) from error

    def _away(self, came: str) -> ServiceAway:
        return ServiceAway(
            self._setting,
            self.address,
            came,
            f"start it (headrace services up {self._setting}), or say where it is: fleet.{self._setting},"
            f" HEADRACE_FLEET__{self._setting.upper()}=URL",
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the password elsewhere; it comes back as the answer that it is."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
