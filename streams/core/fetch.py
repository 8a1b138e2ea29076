"""The fetch stage, pure: from a lease to the request, and from what came of it to the result.

Outcome by status (RFC 9110 section 15); a failure on the way stands before the status:

| what came                                 | outcome                                                            |
|-------------------------------------------|--------------------------------------------------------------------|
| failure of the network, see RETRIED       | RETRY                                                              |
| failure by our own policy, see REFUSED    | REFUSED                                                            |
| any other failure (framing, coding, size) | FAILED                                                             |
| 206                                       | FAILED: no range was asked for, a part is no page                  |
| other 2xx                                 | FETCHED (204 and 205 with an empty body)                           |
| 304 to a request with a validator         | NOT_MODIFIED, else FAILED                                          |
| 300-303, 307, 308 with a usable Location  | REDIRECT, else FAILED: no_location, bad_location, bad_scheme, loop |
| 408 421 425 429, 413 with Retry-After     | RETRY                                                              |
| 5xx but for 501 505 506 510               | RETRY                                                              |
| the rest: other 3xx 4xx 5xx, 101, 6xx-9xx | FAILED                                                             |
"""

from __future__ import annotations

import re

import msgspec

from schemas.records import FetchLease, FetchResult, Kind, Outcome, RobotsAnswer, RobotsDecision
from streams.core import policy
from streams.core.http1 import Head, Headers, values
from streams.core.rules import urls
from streams.core.rules.http_dates import parse_http_date

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
ACCEPT_ENCODING = "gzip, deflate, br, zstd"

RETRIED = frozenset(
    {
        "dns_servfail",
        "dns_timeout",
        "dns_nxdomain",
        "dns_no_data",
        "dns_refused",
        "dns_error",
        "connect_refused",
        "connect_timeout",
        "connect_unreachable",
        "connect_error",
        "connection_reset",
        "read_timeout",
        "timeout",
        "empty_reply",
        "incomplete_head",
        "incomplete_body",
        "tls_error",
    }
)
ADDRESS_CHANGED = "address_changed"  # with EXPIRED: nothing was asked, and `address` is where the host is
REFUSED = frozenset({"private_address", "bad_scheme", "bad_url"})

_STATUS_ERRORS = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    410: "gone",
    413: "content_too_large",
    414: "uri_too_long",
    421: "misdirected",
    425: "too_early",
    429: "too_many_requests",
    451: "legal_reasons",
    500: "server_error",
    501: "not_implemented",
    502: "bad_gateway",
    503: "unavailable",
    504: "gateway_timeout",
}
_REDIRECTS = frozenset({300, 301, 302, 303, 307, 308})  # 305 and 306 are no more (RFC 9110 15.4.6)
_RETRIED_4XX = frozenset({408, 421, 425, 429})
_FINAL_5XX = frozenset({501, 505, 506, 510})  # about the request itself: the same one fails again
_SCHEME = re.compile(r"[\x00-\x20]*([A-Za-z][A-Za-z0-9+.\-]*):")
_SECONDS = re.compile(r"[0-9]+")  # not \d: RFC 9110's delay-seconds are ASCII
_HEADER_TEXT = re.compile(r"[\x21-\x7e\x80-\xff](?:[\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?")


class Agent(msgspec.Struct, frozen=True):
    """Who asks: the product token with its version and contact, and the header lines that every request carries."""

    user_agent: str
    product_token: str  # what robots.txt calls us
    lines: bytes


class RequestPlan(msgspec.Struct, frozen=True):
    """One request: where to connect and every byte to send."""

    scheme: str
    host: str  # without brackets
    port: int
    request: bytes
    conditional: bool


class Exchange(msgspec.Struct, frozen=True):
    """What came of a request. `failure`: a code of RETRIED, REFUSED, http1 or decoding; "" when the answer is whole."""

    started_ms: int
    finished_ms: int
    failure: str = ""
    address: str = ""
    head: Head | None = None  # also with a failure, when it was read before
    body: bytes = b""
    wire_bytes: int = 0
    truncated: bool = False  # kind ROBOTS: reading stopped at the limit


def agent(user_agent: str, *, contact: str = "") -> Agent:
    """`user_agent` is the whole header value; `contact` an address for From (RFC 9110 10.1.2), "" for none."""
    for value in (user_agent, contact):
        assert not value or _HEADER_TEXT.fullmatch(value), f"a header value must be printable, got {value!r}"
    lines = [f"User-Agent: {user_agent}", f"Accept: {ACCEPT}", f"Accept-Encoding: {ACCEPT_ENCODING}"]
    if contact:
        lines.append(f"From: {contact}")
    product_token = user_agent.split("/", 1)[0].split(" ", 1)[0]
    return Agent(user_agent, product_token, "".join(f"{line}\r\n" for line in lines).encode("latin-1"))


def is_lease(lease: FetchLease) -> bool:
    """Whether an owner may have granted it: it can be asked, and is charged to the host that it asks."""
    url, root = lease.url, f"{lease.host_key}/"
    is_target = url.isascii() and url.isprintable() and " " not in url
    return lease.concurrency > 0 and is_target and url.startswith(root) and urls.normalize(root) == root


def plan(lease: FetchLease, who: Agent, *, now_ms: int) -> RequestPlan:
    """The request of a lease: Host, the agent's lines, then at most one validator.

    `If-None-Match` with the ETag as received; without one `If-Modified-Since`, when the date is one and is not in the
    future (RFC 9110 8.8.2.1: it would freeze the page). The order is the same for every request.
    """
    origin = urls.host_key(lease.url)
    scheme, host, port = urls.split_authority(origin)
    authority = origin[len(scheme) + 3 :]
    target = lease.url[len(origin) :]
    validator = _validator(lease, now_ms)
    request = b"GET %s HTTP/1.1\r\nHost: %s\r\n%s%s\r\n" % (
        target.encode("ascii"),
        authority.encode("ascii"),
        who.lines,
        validator,
    )
    return RequestPlan(scheme, host.strip("[]"), port, request, bool(validator))


def outcome(lease: FetchLease, exchange: Exchange, *, conditional: bool) -> FetchResult:
    """The result of a lease, by the table above. `robots` is left None: see `with_robots`."""
    head = exchange.head
    error = exchange.failure
    target: str | None = None
    retry_after_ms: int | None = None
    if error:
        kind = _of_failure(error)
    else:
        assert head is not None, "an exchange without failure has an answer"
        kind, error, target = _of_status(lease, head, conditional)
        if kind is Outcome.RETRY:
            retry_after_ms = retry_after(head.headers, now_ms=exchange.finished_ms)
    fetched = kind is Outcome.FETCHED
    keeps = fetched or kind is Outcome.NOT_MODIFIED
    headers = head.headers if head is not None else ()
    return FetchResult(
        lease_id=lease.lease_id,
        host_key=lease.host_key,
        url_id=lease.url_id,
        url=lease.url,
        url_version=lease.url_version,
        kind=lease.kind,
        outcome=kind,
        started_ms=exchange.started_ms,
        finished_ms=exchange.finished_ms,
        status=head.status if head is not None else 0,
        error=error,
        address=exchange.address,
        redirect_target=target,
        permanent=target is not None and head is not None and head.status in (301, 308),
        retry_after_ms=retry_after_ms,
        etag=etag(headers) if keeps else None,
        last_modified=usable_last_modified(headers, now_ms=exchange.finished_ms) if keeps else None,
        content_type=_text(headers, b"content-type"),
        body_bytes=len(exchange.body),
        wire_bytes=exchange.wire_bytes,
        robots_for=lease.robots_for,
    )


def expired(lease: FetchLease, *, now_ms: int) -> FetchResult:
    """The result of a lease that came too late to be started: nothing was asked."""
    return msgspec.structs.replace(
        outcome(lease, Exchange(now_ms, now_ms, failure="expired"), conditional=False), outcome=Outcome.EXPIRED
    )


def address_changed(lease: FetchLease, address: str, *, now_ms: int) -> FetchResult:
    """The result of a lease whose host is at an address that it does not permit: nothing was asked."""
    exchange = Exchange(now_ms, now_ms, failure=ADDRESS_CHANGED, address=address)
    return msgspec.structs.replace(outcome(lease, exchange, conditional=False), outcome=Outcome.EXPIRED)


def with_robots(result: FetchResult, answer: RobotsAnswer, target: str | None) -> FetchResult:
    """The result of a robots lease with what its answer means, which decides where outcome and meaning differ.

    A redirect that is not to be followed is a failure; a 206 that holds the whole file is an answer.
    """
    if answer.decision is RobotsDecision.HOP:
        assert target is not None, "a hop leads somewhere"
        return msgspec.structs.replace(
            result, robots=answer, outcome=Outcome.REDIRECT, redirect_target=target, error=""
        )
    if result.outcome is Outcome.REDIRECT:
        return msgspec.structs.replace(
            result, robots=answer, outcome=Outcome.FAILED, redirect_target=None, error="too_many_redirects"
        )
    if result.status == 206 and answer.decision in (RobotsDecision.PARSE_RULES, RobotsDecision.ALLOW_ALL):
        return msgspec.structs.replace(result, robots=answer, outcome=Outcome.FETCHED, error="")
    return msgspec.structs.replace(result, robots=answer)


def wants_body(head: Head, kind: Kind) -> bool:
    """Whether the body of this answer is kept. That of a redirect or an error is read only to reuse the connection."""
    return 200 <= head.status < 300 and (head.status != 206 or kind is Kind.ROBOTS)


def retry_after(headers: Headers, *, now_ms: int) -> int | None:
    """Retry-After (RFC 9110 10.2.3) as a span from `now_ms` in ms, at most RETRY_AFTER_MS_MAX; None for nonsense.

    A date in the past is 0. Of several lines the longest counts.
    """
    spans: list[int] = []
    for line in values(headers, b"retry-after"):
        text = line.decode("latin-1").strip()
        if _SECONDS.fullmatch(text):
            digits = text.lstrip("0") or "0"
            spans.append(policy.RETRY_AFTER_MS_MAX if len(digits) > 12 else int(digits) * 1000)
        elif (at_ms := parse_http_date(text, now_ms=now_ms)) is not None:
            spans.append(max(0, at_ms - now_ms))
    return min(max(spans), policy.RETRY_AFTER_MS_MAX) if spans else None


def etag(headers: Headers) -> str | None:
    """The ETag as received (RFC 9110 8.8.3), None when there is none that could be sent back."""
    text = _text(headers, b"etag")
    return text if text and _sendable(text) else None


def usable_last_modified(headers: Headers, *, now_ms: int) -> str | None:
    """Last-Modified as received, None when it is no date or lies beyond the message's Date (RFC 9110 8.8.2.1)."""
    text = _text(headers, b"last-modified")
    if not text or (modified_ms := parse_http_date(text, now_ms=now_ms)) is None:
        return None
    date_ms = parse_http_date(_text(headers, b"date") or "", now_ms=now_ms)
    latest_ms = now_ms if date_ms is None else min(date_ms, now_ms + policy.DAY_MS)  # a server's clock may be fast
    return text if modified_ms <= latest_ms else None


def location(headers: Headers, url: str) -> tuple[str | None, str]:
    """The normal form of Location's target and "", or None and `no_location`, `bad_location` or `bad_scheme`.

    Raw bytes are read as UTF-8, as browsers do; RFC 9110 10.2.2 allows ASCII alone. Several lines that agree are one.
    """
    lines = {line for line in values(headers, b"location") if line}
    if not lines:
        return None, "no_location"
    if len(lines) > 1:
        return None, "bad_location"
    raw = lines.pop()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    target = urls.normalize(text, url)
    if target is not None:
        return target, ""
    scheme = _SCHEME.match(text)
    if scheme is not None and scheme[1].lower() not in ("http", "https"):
        return None, "bad_scheme"
    return None, "bad_location"


def _validator(lease: FetchLease, now_ms: int) -> bytes:
    if lease.etag and _sendable(lease.etag):
        return f"If-None-Match: {lease.etag}\r\n".encode("latin-1")
    if lease.last_modified and _sendable(lease.last_modified):
        modified_ms = parse_http_date(lease.last_modified, now_ms=now_ms)
        if modified_ms is not None and modified_ms <= now_ms:
            return f"If-Modified-Since: {lease.last_modified}\r\n".encode("latin-1")
    return b""


def _sendable(text: str) -> bool:
    """A header value of one line in latin-1, of bounded length."""
    return len(text) <= policy.VALIDATOR_CHARS_MAX and _HEADER_TEXT.fullmatch(text) is not None


def _of_failure(error: str) -> Outcome:
    if error in RETRIED:
        return Outcome.RETRY
    return Outcome.REFUSED if error in REFUSED else Outcome.FAILED


def _of_status(lease: FetchLease, head: Head, conditional: bool) -> tuple[Outcome, str, str | None]:
    """Outcome, error code and redirect target of a whole answer."""
    status = head.status
    if status == 206:
        return Outcome.FAILED, "partial_content", None
    if 200 <= status < 300:
        return Outcome.FETCHED, "", None
    if status == 304:
        return (Outcome.NOT_MODIFIED, "", None) if conditional else (Outcome.FAILED, "not_modified_unasked", None)
    if status in _REDIRECTS:
        target, error = location(head.headers, lease.url)
        if target == lease.url:
            target, error = None, "redirect_loop"
        return (Outcome.REDIRECT, "", target) if target is not None else (Outcome.FAILED, error, None)
    error = _STATUS_ERRORS.get(status, f"status_{status}")
    retried = status in _RETRIED_4XX or (500 <= status < 600 and status not in _FINAL_5XX)
    if retried or (status == 413 and values(head.headers, b"retry-after")):
        return Outcome.RETRY, error, None
    return Outcome.FAILED, error, None


def _text(headers: Headers, name: bytes) -> str | None:
    """The value of the first line with this name, one character a byte."""
    found = values(headers, name)
    return found[0].decode("latin-1") if found else None
