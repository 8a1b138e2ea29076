"""Why a host or a URL is, or is not, being fetched: the rules of the frontier in words, the decisive one first."""

from __future__ import annotations

from streams.core import hosts as host_rules
from streams.core import policy as bounds
from streams.core.hosts import HostState
from streams.core.policy import CrawlPolicy
from streams.core.robots_fetch import changes_at_ms, usable
from streams.core.rows import QueueClass, Status, UrlRow, due_ms_of
from streams.core.rules.robots import RobotsRules

Sentence = tuple[str, str]
"""(label, sentence)."""

_STATUS_WORDS = {
    Status.NEW: "it has not been fetched yet",
    Status.FETCHED: "its page is stored",
    Status.REDIRECT: "it redirects",
    Status.FAILED: "its last visit failed",
    Status.GONE: "it is gone: a tombstone, looked at again after a long time",
    Status.DENIED: "robots.txt forbids it",
    Status.REFUSED: "our own policy refuses it",
}
_QUEUE_WORDS = {
    QueueClass.NEW: "among the new URLs",
    QueueClass.RETRY: "among the URLs to be tried again",
    QueueClass.REVISIT: "among the known URLs that are visited again",
}


def host_waits_for(host: HostState, now_ms: int, policy: CrawlPolicy) -> tuple[str, int | None]:
    """(what keeps the host from being asked now, until when if that is known)."""
    override = host.override
    if override is not None and override.deleted:
        return "an operator deleted it", None
    if override is not None and override.paused:
        return "an operator paused it", override.until_ms
    if host.backoff_until_ms > now_ms:
        return f"backs off after {host.last_error or 'trouble'}", host.backoff_until_ms
    robots = host.robots
    if robots is not None and usable(robots, now_ms) == "disallow_all":
        return "robots.txt cannot be reached", changes_at_ms(robots, now_ms)
    if host.robots_wait_ms > now_ms and (robots is None or usable(robots, now_ms) == "ask"):
        return "waits for another host's answer to its robots.txt", host.robots_wait_ms
    if host_rules.budget_left(host, now_ms, policy) <= 0:
        return "today's budget is used up", (now_ms // bounds.DAY_MS + 1) * bounds.DAY_MS
    if host.in_flight and host_rules.fetching(host) >= host_rules.concurrency(host, policy):
        return "a request is under way", None
    if host.next_allowed_ms > now_ms:
        return "its delay is not over", host.next_allowed_ms
    if not host.queued[QueueClass.NEW] and host.queued[QueueClass.RETRY]:
        return "its URLs wait to be tried again", host.ready_ms if host.ready_ms < host_rules.NEVER_MS else None
    if host.queued[QueueClass.NEW]:
        return "ready: its turn comes as requests become free", None
    return "nothing is due", host.ready_ms if host.ready_ms < host_rules.NEVER_MS else None


def explain_host(host: HostState, now_ms: int, policy: CrawlPolicy) -> list[Sentence]:
    """The decisive sentence, then the facts it rests on."""
    reason, until_ms = host_waits_for(host, now_ms, policy)
    new, retry, revisit = host.queued
    delay = host_rules.delay_ms(host, policy)
    why = (
        f"Crawl-delay {host_rules.crawl_delay_ms(host)} ms asked by robots.txt"
        if host_rules.crawl_delay_ms(host)
        else "our own"
    )
    sentences = [
        ("now", f"{host.host_key}: {reason}{_until(until_ms, now_ms)}"),
        ("queue", f"{new} new, {retry} to be tried again, {revisit} known and waiting for their next visit"),
        (
            "delay",
            f"{delay} ms between an answer and the next request ({why}), {host_rules.concurrency(host, policy)} at once",
        ),
        ("budget", f"{host_rules.budget_left(host, now_ms, policy)} requests left today (UTC)"),
        ("robots", _robots(host, now_ms)),
        (
            "history",
            f"{host.fetches} requests, {host.pages} pages, {host.mean_ms:.0f} ms a request, {host.known} URLs known",
        ),
    ]
    if host.trouble:
        sentences.append(("trouble", f"{host.trouble} failures in a row, the last: {host.last_error}"))
    if host.allotment < host_rules.ALLOTMENT_FULL:
        share = host.allotment * 100 // host_rules.ALLOTMENT_FULL
        sentences.append(("pace", f"{share} % of its whole pace; it grows back with each good answer"))
    if host.paused_patterns:
        sentences.append(
            (
                "traps",
                f"{host.paused_patterns} URL patterns are paused, {host.trap_refused} of their URLs were not taken",
            )
        )
    return sentences


def explain_url(
    row: UrlRow, in_flight: bool, host: HostState, rules: RobotsRules | None, now_ms: int, policy: CrawlPolicy
) -> list[Sentence]:
    """For a URL that is known; the host's sentences follow."""
    sentences: list[Sentence] = []
    if in_flight:
        sentences.append(("now", f"{row.url}: a lease is out for it"))
    elif not row.place:
        sentences.append(("now", f"{row.url}: it is in no queue"))
    else:
        queue, due_ms = QueueClass(row.place[0]), due_ms_of(row.place)
        state = _STATUS_WORDS[row.status]
        when = "due now" if due_ms <= now_ms else f"due{_until(due_ms, now_ms).replace(' until', '')}"
        sentences.append(("now", f"{row.url}: {state}; {_QUEUE_WORDS[queue]}, {when}"))
    robots = host.robots
    if rules is not None and robots is not None and usable(robots, now_ms) == "rules":
        allowed = "allowed" if rules.allows(row.url) else "forbidden"
        sentences.append(("robots", f"{allowed} by {rules.deciding_rule(row.url) or 'no rule at all'}"))
    sentences.append(
        ("found", f"as a {row.source.value}, {row.depth} links from a seed, {row.redirect_hops} redirects on the way")
    )
    if row.failures:
        sentences.append(("failures", f"{row.failures} in a row; the next try is number {row.attempt + 1}"))
    visit = row.visit
    if visit is not None:
        what = visit.error or visit.redirect_target or f"{visit.body_bytes} bytes of {visit.content_type or 'no type'}"
        sentences.append(("last visit", f"{_ago(visit.fetched_ms, now_ms)}: status {visit.status}, {what}"))
        sentences.append(("visits", f"{visit.visits} in all, {visit.changes} times changed"))
    return sentences


def explain_unknown(url: str, reason: str | None) -> list[Sentence]:
    """For a URL that the crawl does not know: would it be admitted?"""
    if reason is None:
        return [("now", f"{url}: nobody has named it so far; it would be admitted")]
    return [("now", f"{url}: it would not be admitted: {reason}")]


def _robots(host: HostState, now_ms: int) -> str:
    robots = host.robots
    if robots is None:
        return "robots.txt has not been asked yet; it comes first"
    word = {
        "rules": "its rules are obeyed",
        "allow_all": "it forbids nothing",
        "disallow_all": "it cannot be reached, so nothing is asked",
        "ask": "its copy is too old; it is asked first",
    }[usable(robots, now_ms)]
    return f"{word}; last good copy {_ago(robots.fetched_ms, now_ms)}" if robots.copy is not None else word


def _until(until_ms: int | None, now_ms: int) -> str:
    if until_ms is None or until_ms <= now_ms:
        return ""
    return f", until {_span(until_ms - now_ms)} from now"


def _ago(then_ms: int, now_ms: int) -> str:
    return f"{_span(max(0, now_ms - then_ms))} ago"


def _span(span_ms: int) -> str:
    seconds = span_ms / 1_000
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
