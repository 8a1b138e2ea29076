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
    Status.OUT_OF_SCOPE: "the crawl's scope leaves it out",
}
_DUE_WORDS = {  # what is done with it when it is due
    QueueClass.NEW: "queued for its first visit",
    QueueClass.RETRY: "tried again",
    QueueClass.REVISIT: "looked at again",
}
_REFUSAL_WORDS = {  # as `rules.scope` and `rules.traps` name them
    "out_of_scope": "out_of_scope: it lies outside what the seeds and --scope take in",
    "excluded": "excluded: an --exclude pattern is found in it",
    "not_included": "not_included: no --include pattern is found in it",
    "too_deep": "too_deep: it is more links from a seed than --depth allows",
    "url_too_long": "url_too_long: longer than any URL that is fetched",
    "path_too_deep": "path_too_deep: its path has more parts than any that is fetched, as endless URLs have",
    "repeated_segments": "repeated_segments: parts of its path repeat, as in endless URLs",
    "too_many_parameters": "too_many_parameters: its query has more than any that is fetched, as endless URLs have",
}
_ERROR_WORDS = {  # errors that a setting could have kept away
    "private_address": "private_address: not public, and not asked unless allowed (crawl --allow-address CIDR)",
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
        return "ready to be asked", None
    return "nothing is due", host.ready_ms if host.ready_ms < host_rules.NEVER_MS else None


def explain_host(host: HostState, now_ms: int, policy: CrawlPolicy) -> list[Sentence]:
    """The decisive sentence, then the facts it rests on."""
    reason, until_ms = host_waits_for(host, now_ms, policy)
    new, retry, revisit = host.queued
    delay = host_rules.delay_ms(host, policy)
    why = (
        f"Crawl-delay {host_rules.crawl_delay_ms(host):,} ms asked by robots.txt"
        if host_rules.crawl_delay_ms(host)
        else "our own"
    )
    sentences = [
        ("now", f"{host.host_key}: {reason}{_until(until_ms, now_ms)}"),
        ("queue", f"{new:,} new, {retry:,} to be tried again, {revisit:,} known and waiting for their next visit"),
        (
            "delay",
            f"{delay:,} ms between an answer and the next request ({why}),"
            f" {host_rules.concurrency(host, policy)} at once",
        ),
        ("budget", f"{host_rules.budget_left(host, now_ms, policy):,} requests left today (UTC)"),
        ("robots", _robots(host, now_ms)),
        (
            "history",
            f"{_count(host.fetches, 'request')}, {_count(host.pages, 'page')}, {host.mean_ms:.0f} ms a request,"
            f" {_count(host.known, 'URL')} known",
        ),
    ]
    if host.trouble:
        sentences.append(("trouble", f"{_count(host.trouble, 'failure')} in a row, the last: {host.last_error}"))
    if host.allotment < host_rules.ALLOTMENT_FULL:
        share = host.allotment * 100 // host_rules.ALLOTMENT_FULL
        sentences.append(("pace", f"{share} % of its whole pace; it grows back with each good answer"))
    if host.paused_patterns:
        sentences.append(
            (
                "traps",
                f"paused: {_count(host.paused_patterns, 'URL pattern')};"
                f" not taken: {_count(host.trap_refused, 'URL')} of such patterns",
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
        if due_ms > now_ms:
            when = f"{_DUE_WORDS[queue]} in {_span(due_ms - now_ms)}"
        else:
            when = _DUE_WORDS[queue] if queue is QueueClass.NEW else f"due to be {_DUE_WORDS[queue]}"
            when += f"; {_stands_against(row.url, host, rules, now_ms, policy)}"
        sentences.append(("now", f"{row.url}: {state}; {when}"))
    sentences += _robots_rule(row.url, host, rules, now_ms)
    hops = f", {_count(row.redirect_hops, 'redirect')} on the way" if row.redirect_hops else ""
    away = f", {_count(row.depth, 'link')} from a seed" if row.depth else ""
    sentences.append(("found", f"as a {row.source.value}{away}{hops}"))
    failures = row.failures + row.troubles
    if failures:
        last = f", the last: {row.last_error}" if row.last_error else ""
        sentences.append(("failures", f"{failures} in a row{last}; the next try is number {row.attempt + 1}"))
    visit = row.visit
    if visit is not None:
        what = (
            _ERROR_WORDS.get(visit.error or "", visit.error)
            or visit.redirect_target
            or f"{visit.body_bytes:,} bytes of {visit.content_type or 'no type'}"
        )
        status = f"status {visit.status}" if visit.status else "no answer"
        sentences.append(("last visit", f"{_ago(visit.fetched_ms, now_ms)}: {status}, {what}"))
        sentences.append(("visits", f"{visit.visits:,} in all, {visit.changes:,} of them found it changed"))
    return sentences


def explain_scope(reason: str | None) -> list[Sentence]:
    """Of a URL that is known, from a time when the scope was wider; nothing when the scope has it."""
    if reason is None:
        return []
    return [
        ("scope", f"{reason}: the crawl's scope leaves it out; nothing is asked for it unless the scope takes it in")
    ]


def explain_unknown(
    url: str,
    reason: str | None,
    host: HostState | None,
    rules: RobotsRules | None,
    now_ms: int,
    *,
    depth_max: int | None = None,
) -> list[Sentence]:
    """For a URL that the crawl does not know: would it be admitted, and might it be asked for? The host's follow.

    `reason`: why it would be refused as a link of a seed. `depth_max`: of the crawl; further links are not taken.
    """
    if reason is not None:
        return [("now", f"{url}: it would not be admitted: {_REFUSAL_WORDS.get(reason, reason)}")]
    if depth_max is None:
        told = "nobody has named it so far; it would be admitted"
    else:
        told = (
            f"nobody has named it within {_count(depth_max, 'link')} of a seed, the crawl's depth; it would be admitted"
        )
    sentences = [("now", f"{url}: {told}")]
    return sentences if host is None else sentences + _robots_rule(url, host, rules, now_ms)


def _stands_against(url: str, host: HostState, rules: RobotsRules | None, now_ms: int, policy: CrawlPolicy) -> str:
    """What a due URL waits for: the site's own rule, or else its host."""
    if _known_rules(host, rules, now_ms) and rules is not None and not rules.allows(url):
        return "robots.txt forbids it, so it will not be asked for"
    reason, until_ms = host_waits_for(host, now_ms, policy)
    return f"its host: {reason}{_until(until_ms, now_ms)}"


def _known_rules(host: HostState, rules: RobotsRules | None, now_ms: int) -> bool:
    return rules is not None and host.robots is not None and usable(host.robots, now_ms) == "rules"


def _robots_rule(url: str, host: HostState, rules: RobotsRules | None, now_ms: int) -> list[Sentence]:
    """What the host's own rules say of this URL, when they are known and in force."""
    if rules is None or not _known_rules(host, rules, now_ms):
        return []
    allowed = "allowed" if rules.allows(url) else "forbidden"
    return [("robots", f"{allowed} by {rules.deciding_rule(url) or 'no rule at all'}")]


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


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


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
