"""Conformance of robots.txt: `robots_cases.jsonl` (parser and matcher), `robots_http.jsonl` (what a fetch leads to).

The second kind is driven through `robots_fetch.decide`, request by request, and `RobotsState`, as fetcher and owner
do it; the body's codings are undone by the fetcher's own decoder.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import brotli
import msgspec
import zstandard

from schemas.records import RobotsAnswer, RobotsDecision
from streams.core import policy, robots_fetch
from streams.core.decoding import BodyDecoder, codings
from streams.core.fetch import retry_after
from streams.core.rules import robots, urls
from streams.core.rules.robots import RobotsRules
from tests.conformance.cases import Case, CaseResult, Verdict, answers, bytes_of, run_each, text_of

NOW_MS = 1_717_243_200_000  # 2024-06-01T12:00:00Z, where a case says nothing else
UNIT_MS = {"s": policy.SECOND_MS, "min": policy.MINUTE_MS, "h": policy.HOUR_MS, "hours": policy.HOUR_MS}
HARMLESS = frozenset({"close", "keep_alive", "keep_alive_excess"})  # behaviour after a whole answer
FAILURES = {"close_early": "incomplete_body"}  # where our code is another word than the case's
LIMITS = policy.FetchLimits()


def run(directory: Path) -> list[CaseResult]:
    """Judge both files of `directory`."""
    return run_each(directory / "robots_cases.jsonl", _check_rules) + run_each(
        directory / "robots_http.jsonl", _check_http
    )


def _check_rules(case: Case) -> Verdict:
    url = text_of(case, "url")
    base = (urls.host_key(urls.normalize(url) or url)) + "/robots.txt"
    rules = robots.parse(bytes_of(case, "robots_txt"), case["user_agent"], base_url=base)
    stored = RobotsRules.decode(rules.encode())  # the owner asks the stored rules, not the parsed ones
    expected: dict[str, object] = {"allowed": answers(case, case["allowed"], "also_accepted")}
    got: dict[str, object] = {"allowed": stored.allows(url)}
    passed = got["allowed"] in answers(case, case["allowed"], "also_accepted")
    if "crawl_delay" in case:
        delays = answers(case, case["crawl_delay"], "also_accepted_delay")
        delay_s = None if stored.crawl_delay_ms is None else stored.crawl_delay_ms / policy.SECOND_MS
        expected["crawl_delay"], got["crawl_delay"] = delays, delay_s
        passed = passed and delay_s in delays
    if "sitemaps" in case:
        lists = answers(case, case["sitemaps"], "also_accepted_sitemaps")
        expected["sitemaps"], got["sitemaps"] = lists, list(rules.sitemaps)
        passed = passed and any(set(rules.sitemaps) == set(urls_) for urls_ in lists if isinstance(urls_, list))
    return passed, expected, got


class _Visit(msgspec.Struct):
    """What asking a host for its robots.txt came to."""

    state: robots_fetch.RobotsState
    answer: RobotsAnswer
    rules: RobotsRules  # those in force: of the answer, or of the stored copy
    requests: list[str]
    failed: bool


def _check_http(case: Case) -> Verdict:
    visit = _visit(case)
    decisions = answers(case, case["decision"], "also_accepted")
    decision = _decision(visit)
    # Where no line binds us, "there are no rules" and "all is allowed" are one answer.
    same = {"parse_rules", "allow_all"} if decision in ("parse_rules", "allow_all") and not visit.rules.rules else set()
    expected: dict[str, object] = {"decision": decisions}
    got: dict[str, object] = {"decision": decision}
    passed = decision in decisions or bool(same & set(decisions))
    for check in case.get("checks", ()):
        allowed = _allowed(visit, case["request"], check["url"])
        got[check["url"]] = allowed
        # The checks are written for the first decision; another accepted one changes them.
        if check["allowed"] is None or decision == case["decision"] or case["decision"] in same:
            expected[check["url"]] = check["allowed"]
            passed = passed and allowed == check["allowed"]
    for name, (holds, shown) in _limits(case, visit).items():
        expected[name], got[name] = case[name], shown
        passed = passed and holds
    return passed, expected, got


def _limits(case: Case, visit: _Visit) -> dict[str, tuple[bool, object]]:
    """The case's further conditions: whether each holds, and what came."""
    state = visit.state
    found: dict[str, tuple[bool, object]] = {}
    if case.get("retry"):
        found["retry"] = (state.failures > 0 and state.next_try_ms > NOW_MS, state.next_try_ms - NOW_MS)
    if "not_before_s" in case:
        wait_s = (state.next_try_ms - NOW_MS) / policy.SECOND_MS
        found["not_before_s"] = (wait_s >= case["not_before_s"], wait_s)
    if "cache_max_s" in case:
        serves_s = (state.expires_ms - NOW_MS) / policy.SECOND_MS
        found["cache_max_s"] = (0 < serves_s <= case["cache_max_s"], serves_s)
    if "must_not_request" in case:
        forbidden = [url for url in visit.requests if url.startswith(tuple(case["must_not_request"]))]
        found["must_not_request"] = (not forbidden, visit.requests)
    if "max_requests" in case:
        found["max_requests"] = (len(visit.requests) <= case["max_requests"], visit.requests)
    return found


def _visit(case: Case) -> _Visit:
    """Ask as fetcher and owner would, hop by hop, from the state that was stored before."""
    state, rules = _stored(case)
    exchange = list(case["exchange"])
    asked = urls.normalize(case["request"]) if exchange else None  # no exchange: what was stored must do
    requests: list[str] = []
    answer = RobotsAnswer(RobotsDecision.DISALLOW_ALL)
    step: dict[str, Any] = {}
    while asked is not None:
        at = len(requests)
        step = exchange[at] if at < len(exchange) else exchange[-1]
        assert at < len(exchange) or step.get("repeat"), f"request {at + 1} has no answer in the case"
        requests.append(asked)
        answer, asked = _decide(step, asked, at, case.get("user_agent", "headrace"))
    if not requests:
        return _Visit(state, answer, rules, requests, failed=True)
    unchanged = step.get("status") == 304 and state.copy is not None
    wait_ms = retry_after(_headers(step), now_ms=NOW_MS)
    after = robots_fetch.after_answer(state, answer, NOW_MS, wait_ms, unchanged=unchanged)
    if after.digest != state.digest:
        rules = RobotsRules.decode(answer.rules) if answer.rules else RobotsRules()
    return _Visit(after, answer, rules, requests, answer.decision is RobotsDecision.DISALLOW_ALL)


def _decide(step: dict[str, Any], url: str, hops: int, token: str) -> tuple[RobotsAnswer, str | None]:
    behaviour = step.get("behaviour", "")
    failure = "" if behaviour in HARMLESS else FAILURES.get(behaviour, behaviour)
    headers = _headers(step)
    body, truncated = b"", False
    if any(name in step for name in ("body", "body_b64", "body_gen")):
        body, truncated, error = _received(bytes_of(step, "body"), step.get("encode", ()), headers)
        failure = failure or error
    return robots_fetch.decide(
        step.get("status", 0),
        failure,
        headers,
        body,
        request_url=url,
        hops_so_far=hops,
        product_token=token,
        truncated=truncated,
    )


def _stored(case: Case) -> tuple[robots_fetch.RobotsState, RobotsRules]:
    """The state that the case's `cached` describes: a copy of some age, or nothing."""
    cached = case.get("cached")
    if not cached:
        return robots_fetch.RobotsState(), RobotsRules()
    age_ms = 0
    for name, value in cached.items():
        words = name.split("_")
        if "age" in words and isinstance(value, int | float):
            age_ms = round(value * UNIT_MS.get(words[-1], policy.SECOND_MS))
    body = next((value for name, value in cached.items() if name in ("body", "robots_txt", "rules")), "")
    answer, _ = robots_fetch.decide(
        cached.get("status", 200),
        "",
        (),
        body.encode(),
        request_url=case["request"],
        hops_so_far=0,
        product_token=case.get("user_agent", "headrace"),
    )
    state = robots_fetch.after_answer(robots_fetch.RobotsState(), answer, NOW_MS - age_ms)
    return state, RobotsRules.decode(answer.rules) if answer.rules else RobotsRules()


def _decision(visit: _Visit) -> str:
    if visit.failed:
        return "disallow_all" if robots_fetch.usable(visit.state, NOW_MS) == "disallow_all" else "use_cached"
    return visit.answer.decision.value


def _allowed(visit: _Visit, request: str, url: str) -> bool | None:
    """What the owner of the host that asked says of `url`; None when that is another host's matter."""
    normal = urls.normalize(url)
    if normal is None or urls.host_key(normal) != urls.host_key(urls.normalize(request) or request):
        return None
    use = robots_fetch.usable(visit.state, NOW_MS)
    return use == "allow_all" or (use == "rules" and visit.rules.allows(normal))


def _headers(step: dict[str, Any]) -> tuple[tuple[bytes, bytes], ...]:
    return tuple(
        (name.encode("latin-1"), str(one).encode())
        for name, value in step.get("headers", {}).items()
        for one in (value if isinstance(value, list) else [value])
    )


def _received(body: bytes, encode: list[str], headers: tuple[tuple[bytes, bytes], ...]) -> tuple[bytes, bool, str]:
    """The body as the fetcher hands it on, whether it was cut at the limit, and a failure of its codings."""
    for coding in encode:
        body = _encoded(body, coding)
    lines = [value for name, value in headers if name.lower() == b"content-encoding"]
    named, error = codings(lines, LIMITS.codings_max)
    if error:
        return b"", False, error
    decoder = BodyDecoder(
        named,
        decoded_max=LIMITS.body_bytes_max,
        wire_max=LIMITS.wire_bytes_max,
        ratio_max=LIMITS.decode_ratio_max,
        cut_bytes=LIMITS.robots_bytes_max + 1,
    )
    decoder.feed(body)
    decoder.finish()
    return decoder.take(), decoder.full, decoder.error


def _encoded(body: bytes, coding: str) -> bytes:
    match coding:
        case "gzip":
            return gzip.compress(body, mtime=0)
        case "zlib":
            return zlib.compress(body)
        case "raw-deflate":
            deflate = zlib.compressobj(wbits=-15)
            return deflate.compress(body) + deflate.flush()
        case "br":
            return bytes(brotli.compress(body))
        case "zstd":
            return zstandard.compress(body)
        case _:
            raise ValueError(
                f"the case names the coding {coding!r}, and this runner knows gzip, zlib, raw-deflate, br, zstd"
            )
