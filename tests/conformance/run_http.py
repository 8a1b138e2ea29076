"""Conformance of the fetcher: `http_cases.jsonl`, each exchange played on loopback to the real `HttpWeb`.

Names are looked up by the real resolver at a DNS server of ours. A public address of a case stands for one loopback
address, on which the server listens; an address that must be refused is answered as it is. A redirect is a result: only
where a case expects another outcome is the target asked too, as the crawl would do later, under the same hop bound.
"""

from __future__ import annotations

import datetime
import gc
import socket
import time
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from aiohttp.abc import AbstractResolver, ResolveResult

from connectors.ports import Fetched, Response
from connectors.resolver import Resolver
from connectors.web_http import HttpWeb
from schemas.records import BodyRef, FetchLease, Kind, Outcome, ParseTask
from streams.core import policy
from streams.core.fetch import agent
from streams.core.parse import parse_page
from streams.core.policy import FetchLimits, ParseLimits
from streams.core.rules import robots, urls
from streams.core.rules.addresses import literal_address, refusal
from tests.conformance.cases import Case, CaseResult, Verdict, run_each
from tests.support import certificates
from tests.support.dns_server import DnsServer, Zone
from tests.support.exchanges import KNOWN_BEHAVIOURS, wire
from tests.support.raw_server import RawServer

OURS = ip_network("127.77.0.0/16")  # stands for the public internet; all other loopback addresses stay refused
SERVER = "127.77.0.1"
EXAMPLES = tuple(ip_network(net) for net in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32"))
AGENT = agent("Headrace/0.1 (+https://headrace.example/)")
OUTCOMES = {
    Outcome.FETCHED: "stored",
    Outcome.NOT_MODIFIED: "not_modified",
    Outcome.REDIRECT: "redirect",
    Outcome.RETRY: "retry",
    Outcome.FAILED: "failed",
    Outcome.REFUSED: "refused",
    Outcome.EXPIRED: "expired",
}
# A case may mean minutes; what is slow or silent on purpose is given this much instead.
SCALED = FetchLimits(connect_ms_max=300, idle_ms_max=150, duration_ms_max=500)
SLOW = ("timeout", "drip", "slow", "stall", "hang")
CONDITIONAL = ("If-None-Match", "If-Modified-Since", "If-Match", "If-Unmodified-Since", "If-Range")


def run(directory: Path) -> list[CaseResult]:
    """Play every case of `http_cases.jsonl`."""
    return run_each(directory / "http_cases.jsonl", lambda case: uvloop.run(_check(case)))


class _Names(AbstractResolver):
    """The real resolver, with the port of our server in place of 80 and 443."""

    def __init__(self, inner: Resolver, port: int) -> None:
        self._inner = inner
        self._port = port

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        for one in found:
            one["port"] = self._port
        return found

    async def close(self) -> None:
        await self._inner.close()


class _Played(msgspec.Struct):
    """What came of a case."""

    fetched: Fetched
    outcome: str
    error: str
    requested: list[str]
    conditional: dict[str, str]
    memory_mb: float
    elapsed_ms: float


async def _check(case: Case) -> Verdict:
    played = await _play(case)
    expected: dict[str, Any] = case["expected"]
    outcomes = [expected["outcome"], *case.get("also_accepted", ())]
    if case.get("disputed") and played.error == "redirect_loop":
        outcomes.append("failed")  # without cookies a redirect to itself is a loop; the sources differ
    got: dict[str, object] = {"outcome": played.outcome, "error": played.error}
    passed = played.outcome in outcomes
    limits = {name: case[name] for name in _ALWAYS if name in case}
    for name, wanted in [*limits.items(), *expected.items()]:
        # What else is said of the first answer does not bind another accepted one.
        if name in _LOOKS and (played.outcome == expected["outcome"] or name in _ALWAYS):
            holds, got[name] = _LOOKS[name](case, played, wanted)
            passed = passed and holds
    return passed, {**expected, "outcome": outcomes}, got


async def _play(case: Case) -> _Played:
    now_ms = int(datetime.datetime.fromisoformat(case.get("now", "2024-06-01T12:00:00Z")).timestamp() * 1000)
    exchange = list(case["exchange"])
    config: dict[str, Any] = case.get("config", {})
    behaviours = " ".join(step.get("behaviour", "") for step in exchange)
    addresses = _Addresses(config, behaviours)
    for step in exchange:
        assert step.get("behaviour", "") in KNOWN_BEHAVIOURS, (
            f"a behaviour that is not played here: {step['behaviour']}"
        )
    script = [(lambda step=step: wire(step)) for step in exchange]
    if exchange and exchange[-1].get("repeat"):
        script += [script[-1]] * 50
    is_tls = case["request"]["url"].lower().startswith("https:")
    serving, trusting = certificates.contexts(addresses.names(case)) if is_tls else (None, None)
    if "tls" in behaviours or "cert" in behaviours:
        trusting = None
    async with RawServer(script, addresses.served(), tls=serving) as server, DnsServer(addresses.zone) as dns:
        limits = SCALED if any(word in behaviours for word in SLOW) else FetchLimits()
        names = Resolver(now_ms=lambda: now_ms, servers=[dns.server], allowed=(OURS,), attempt_ms=100)
        port = server.port if "connect" not in behaviours.replace("connection", "") else addresses.closed_port()
        web = HttpWeb(
            agent=AGENT,
            resolver=_Names(names, port),
            now_ms=lambda: now_ms,
            limits=limits,
            allowed=(OURS,),
            tls=trusting,
        )
        gc.collect()
        before_mb = _peak_mb(reset=True)
        began_s = time.perf_counter()
        fetched, outcome, error = await _follow(web, case, now_ms)
        elapsed_ms = (time.perf_counter() - began_s) * 1000
        memory_mb = _peak_mb() - before_mb
        await web.close()
        first = server.log[0] if server.log else None
        return _Played(
            fetched,
            outcome,
            error,
            [f"http://{request.header('Host')}{request.target}" for request in server.log],
            {name: value for name in CONDITIONAL if first and (value := first.header(name)) is not None},
            memory_mb,
            elapsed_ms,
        )


async def _follow(web: HttpWeb, case: Case, now_ms: int) -> tuple[Fetched, str, str]:
    """The first answer, or the one at the end of the chain where the case expects no redirect; outcome and error."""
    stored = case.get("stored") or {}
    start = urls.normalize(case["request"]["url"])
    assert start is not None, f"a case asks for {case['request']['url']}"
    lease = _lease(start, now_ms, 0)
    if stored.get("body", "") is not None:  # without the body a 304 would leave nothing
        lease = msgspec.structs.replace(lease, etag=stored.get("etag"), last_modified=stored.get("last_modified"))
    if not _allowed_by_robots(case, start):
        lease = msgspec.structs.replace(lease, start_by_ms=0)  # the owner would not have granted it
        return await web.fetch(lease), "refused", "robots_disallowed"
    fetched = await web.fetch(lease)
    seen = {start}
    wanted = [case["expected"]["outcome"], *case.get("also_accepted", ())]
    while "redirect" not in wanted and (target := fetched.result.redirect_target) is not None:
        if target in seen:
            return fetched, "failed", "redirect_loop"
        if len(seen) > policy.REDIRECT_HOPS_MAX:
            return fetched, "failed", "too_many_redirects"
        if not _allowed_by_robots(case, target):
            return fetched, "refused", "robots_disallowed"
        if _is_public_literal(target):
            break
        seen.add(target)
        fetched = await web.fetch(_lease(target, now_ms, len(seen) - 1))
    return fetched, OUTCOMES[fetched.result.outcome], fetched.result.error


def _lease(url: str, now_ms: int, hops: int) -> FetchLease:
    return FetchLease(
        lease_id=bytes(16),
        host_key=urls.host_key(url),
        url_id=urls.url_id(url),
        url=url,
        url_version=1,
        kind=Kind.PAGE,
        attempt=0,
        policy_version=1,
        owner_epoch=1,
        not_before_ms=now_ms,
        start_by_ms=now_ms + policy.LEASE_START_MS_MAX,
        duration_ms_max=2 * policy.MINUTE_MS,
        redirect_hops=hops,
    )


class _Addresses:
    """Which address each name of a case has, and which of them the server listens on."""

    def __init__(self, config: dict[str, Any], behaviours: str) -> None:
        self._names: dict[str, list[str]] = {name.lower(): list(found) for name, found in config.get("dns", {}).items()}
        self._silent = [str(address) for address in config.get("refuse", ())]
        self._failure = next((part.removeprefix("dns_") for part in behaviours.split() if part.startswith("dns_")), "")
        self._ours: dict[str, str] = {}
        for found in self._names.values():
            for address in found:
                self._stand_in(address)

    def names(self, case: Case) -> list[str]:
        """The names that a certificate of the case must have."""
        start = urls.normalize(case["request"]["url"])
        return [*self._names, *([urls.host_name(urls.host_key(start))] if start is not None else [])]

    def served(self) -> list[str]:
        """The server's own addresses; one that refuses is left out, so that its port is closed."""
        stand_ins = [ours for public, ours in self._ours.items() if public not in self._silent]
        return list(dict.fromkeys([SERVER, *stand_ins]))

    def zone(self, name: str) -> Zone:
        """What our DNS server says: the case's addresses, or the server's for names that the case does not list."""
        if self._failure:
            return Zone(failure=self._failure)
        found = self._names.get(name)
        return Zone((SERVER,)) if found is None else Zone(tuple(self._stand_in(address) for address in found))

    def closed_port(self) -> int:
        """A port that nobody listens on."""
        with socket.socket() as probe:
            probe.bind((SERVER, 0))
            port: int = probe.getsockname()[1]
        return port

    def _stand_in(self, address: str) -> str:
        parsed = ip_address(address)
        if refusal(address) is not None and not any(
            parsed.version == net.version and parsed in net for net in EXAMPLES
        ):
            return address
        return self._ours.setdefault(address, f"127.77.1.{len(self._ours) + 1}")


def _is_public_literal(url: str) -> bool:
    """An address that would lead off this machine."""
    literal = literal_address(urls.host_name(urls.host_key(url)))
    return literal is not None and refusal(literal, (OURS,)) is None


def _allowed_by_robots(case: Case, url: str) -> bool:
    told = case.get("config", {}).get("robots")
    if isinstance(told, dict):
        told = told.get(urls.host_key(url), told.get(urls.host_name(urls.host_key(url)), ""))
    return not told or robots.parse(str(told).encode(), "headrace").allows(url)


def _peak_mb(*, reset: bool = False) -> float:
    """The process's largest resident size since the last reset, as Linux counts it."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("/proc/self/status has a line VmHWM")


def _page(case: Case, response: Response | None, played: _Played) -> Any:
    """The parsed page of what was stored, None when nothing was."""
    if response is None:
        return None
    result = played.fetched.result
    values = [(name.lower(), value.decode("latin-1")) for name, value in response.headers]
    task = ParseTask(
        url_id=result.url_id,
        host_key=result.host_key,
        url=result.url,
        url_version=1,
        kind=Kind.PAGE,
        content=BodyRef("", 0, 0),
        fetched_ms=result.finished_ms,
        depth=0,
        extractor_version=1,
        content_type=result.content_type,
        robots_tags=tuple(value for name, value in values if name == b"x-robots-tag"),
        link_headers=tuple(value for name, value in values if name == b"link"),
    )
    return parse_page(
        task, response.body, limits=ParseLimits(), product_token="headrace", now_ms=result.finished_ms
    ).page


def _not_before(case: Case, played: _Played, wanted: list[float | None]) -> tuple[bool, object]:
    result = played.fetched.result
    after_ms = result.retry_after_ms
    if after_ms is None:
        after_ms = policy.BACKOFF_BASE_MS if result.status in (429, 503) else policy.RETRY_DELAYS_MS[0]
    least, most = (*wanted, None)[:2]
    after_s = after_ms / 1000
    return (least is None or after_s >= least) and (most is None or after_s <= most), after_s


def _links(case: Case, played: _Played, wanted: list[str]) -> tuple[bool, object]:
    page = _page(case, played.fetched.response, played)
    found = sorted({link.url for link in page.links}) if page is not None else []
    return found == sorted(wanted), found


def _text(case: Case, played: _Played, wanted: str) -> tuple[bool, object]:
    response = played.fetched.response
    got = response.body if response is not None else b""
    return got == wanted.encode(), got[:200]


def _body_len(case: Case, played: _Played, most: int) -> tuple[bool, object]:
    response = played.fetched.response
    length = len(response.body) if response is not None else 0
    return length <= most, length


def _store(case: Case, played: _Played, wanted: str) -> tuple[bool, object]:
    response = played.fetched.response
    got = "nothing" if response is None else "body" if response.body else "empty"
    return (got == "empty") == (wanted == "empty") and (got == "nothing") == (wanted == "nothing"), got


def _indexable(case: Case, played: _Played, wanted: bool) -> tuple[bool, object]:
    page = _page(case, played.fetched.response, played)
    got = page is not None and page.index and not page.soft_404
    return got is wanted, got


def _must_not_request(case: Case, played: _Played, wanted: list[str]) -> tuple[bool, object]:
    return not set(wanted) & set(played.requested), played.requested


def _queue_host(case: Case, played: _Played, wanted: str) -> tuple[bool, object]:
    result = played.fetched.result
    got = urls.host_name(urls.host_key(result.redirect_target or result.url))
    return got == wanted, got


def _equal(got: object) -> Any:
    return lambda case, played, wanted: (got(played) == wanted, got(played))  # type: ignore[operator]


_ALWAYS = frozenset({"must_not_request", "max_requests", "max_memory_mb", "timeout_ms", "conditional_headers"})
_LOOKS: dict[str, Any] = {
    "next_url": _equal(lambda played: played.fetched.result.redirect_target),
    "permanent": _equal(lambda played: played.fetched.result.permanent),
    "conditional_headers": _equal(lambda played: played.conditional),
    "not_before_s": _not_before,
    "queue_host": _queue_host,
    "body_text": _text,
    "body_len_max": _body_len,
    "store": _store,
    "indexable": _indexable,
    "links_ok": _links,
    "must_not_request": _must_not_request,
    "max_requests": lambda case, played, most: (len(played.requested) <= most, len(played.requested)),
    "timeout_ms": lambda case, played, most: (played.elapsed_ms <= most, round(played.elapsed_ms)),
    "max_memory_mb": lambda case, played, most: (played.memory_mb <= most, round(played.memory_mb, 1)),
}
